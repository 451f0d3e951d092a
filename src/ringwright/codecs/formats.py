"""Any number format by its name: what a node gives for the contributions of its workers, and what a number takes on the wire."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringwright.codecs import block_exponent, fixed_point, lookup_table, native, split_float
from ringwright.codecs.contributions import NodeSum, stacked
from ringwright.errors import UsageError

# The names of ``ringwright.streams.CODECS``.
FORMATS: dict[str, Callable[..., NodeSum]] = {
    "native": native.native,
    "block-exponent": block_exponent.block_exponent,
    "fixed-point": fixed_point.fixed_point,
    "split-float": split_float.split_float,
    "lookup-table": lookup_table.lookup_table,
}
WIRE: dict[str, Callable[..., tuple[float, float]]] = {
    "native": native.wire_bytes,
    "block-exponent": block_exponent.wire_bytes,
    "fixed-point": fixed_point.wire_bytes,
    "split-float": split_float.wire_bytes,
    "lookup-table": lookup_table.wire_bytes,
}
# Sums of whole numbers go from node to node as they are; those of other formats leave a node as floats.
OF_WHOLE_NUMBERS = ("block-exponent", "fixed-point", "lookup-table")


def added(
    codec: str, contributions: np.ndarray, order: Sequence[int] | None = None, *, op: str = "sum", **knobs: Any
) -> NodeSum:
    """Return what a node gives for contributions of shape (workers, elements): their dtype, shape (elements,).

    Parameters
    ----------
    codec
        A number format, by name.
    contributions
        float16 or float32; whole numbers need no format and are added as they are, whatever ``codec`` says.
    order
        The workers in the order in which their packets arrive; None: as given. Formats of whole numbers take no notice.
    op
        sum, min, max or prod, where the format has it.
    knobs
        Of the format: ``packet``, ``variant``, ``bits`` and so on.

    Raises
    ------
    UsageError
        An unknown format or knob, a dtype or an operation that it does not carry.
    """
    call = FORMATS.get(codec)
    if call is None:
        raise UsageError(f"'{codec}' is no number format that is known", remedy=f"one of: {', '.join(FORMATS)}")
    takes = inspect.signature(call).parameters
    if strange := [name for name in knobs if name not in takes]:
        raise UsageError(f"{codec} has no knob '{strange[0]}'", remedy=f"one of: {', '.join([*takes][1:])}")
    if np.issubdtype(stacked(contributions).dtype, np.integer):
        return native.native(contributions, op=op, order=order)
    if op != "sum" and "op" not in takes:
        raise UsageError(f"numbers in {codec} have no {op}", remedy="op=sum, or codec native")
    asked = {"op": op, "order": order} | knobs
    return call(contributions, **{name: value for name, value in asked.items() if name in takes})


def wire_bytes(codec: str, item_bytes: int = 4, **knobs: int | str) -> tuple[float, float]:
    """Return bytes of a number on the wire to the node and back, its share of what a packet says once included.

    ``item_bytes`` is that of the collective's type; ``knobs`` are those of the format that matter here: packet,
    element, bits, register_bits. Raises UsageError for an unknown format.
    """
    call = WIRE.get(codec)
    if call is None:
        raise UsageError(f"'{codec}' is no number format that is known", remedy=f"one of: {', '.join(WIRE)}")
    asked = {"item_bytes": item_bytes} | knobs
    takes = inspect.signature(call).parameters
    return call(**{name: value for name, value in asked.items() if name in takes})


def numbers_in(codec: str, payload_bytes: int, item_bytes: int = 4, **knobs: int | str) -> int:
    """Return how many numbers a packet of so many bytes holds, one at the least, where it says nothing else."""
    each, _ = wire_bytes(codec, item_bytes, **(knobs | {"packet": 1 << 62}))
    return max(1, int(payload_bytes // each))
