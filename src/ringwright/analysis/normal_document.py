"""What a size of a table is beside other systems, as a typed structure; its keys in the order in which they are written."""

from __future__ import annotations

from typing import TypedDict


class NormalRow(TypedDict):
    """A size of a table: its bus bandwidth in GB/s (10^9), which share of such systems is slower in %, and 5, 50, 95 % of them.

    ``n_systems`` were measured over such networks; ``outside`` names what of the question none of them was like, ``assumed``
    what the table does not say.
    """

    table: str
    op: str
    size_bytes: int
    busbw_gbs: float
    percentile: float
    p05: float
    p50: float
    p95: float
    n_systems: int
    outside: list[str]
    assumed: list[str]
