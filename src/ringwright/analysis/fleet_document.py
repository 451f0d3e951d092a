"""A job among many, as typed structures."""

from __future__ import annotations

import msgspec


class FleetChange(msgspec.Struct):
    """What changed, as ``diff`` judges: its kind and sentence; how much longer a step takes where that is more than noise."""

    kind: str
    sentence: str
    step_ratio: float | None = None


class FleetRow(msgspec.Struct, kw_only=True):
    """A job of the table, None for what its recording does not say; ``error`` says why it could not be read.

    ``at_ms`` since 1970 is when it ended, where its launcher says so (``is_end_told``), else when its files last changed.
    ``share`` is the bus bandwidth of ``op``, the operation that takes most of the time, over what the links of the GPU that is
    named can carry. ``lost_by`` says how ``lost_ranks`` was measured: exposed or waiting. ``late_ranks`` is empty where nobody
    is late; ``late_us`` is the waiting that they cause, of all ranks over the recording. ``is_last``: none of the name comes
    after it; ``change`` is None for the first of a name; ``key`` and ``since`` name what was compared.
    """

    name: str = ""
    path: str = ""
    time: str = ""
    at_ms: int = 0
    is_end_told: bool = False
    is_last: bool = True
    ranks: int | None = None
    ranks_expected: int | None = None
    step_us: float | None = None
    steps: int = 0
    op: str | None = None
    busbw_gbs: float | None = None
    share: float | None = None
    lost_ranks: float | None = None
    lost_by: str = ""
    late_ranks: list[int] | None = None
    late_us: float | None = None
    kind: str = ""
    sentence: str = ""
    error: str = ""
    change: FleetChange | None = None
    key: str = ""
    since: str = ""


class FleetRecord(msgspec.Struct):
    """What a recording says of its row, and beside it: what comparisons ask, packed; its job's own name and end, if told."""

    row: FleetRow
    compared: bytes = b""
    job: str = ""
    ended_unix_s: float | None = None
