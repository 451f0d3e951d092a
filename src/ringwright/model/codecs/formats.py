"""Any number format by its name: what a node gives for the contributions of its workers, and what a number takes on the wire."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.model.codecs import native
from ringwright.model.codecs.contributions import NodeSum, stacked

_NO_FORMATS = ("__init__", "adding_nodes", "contributions", "deviation", "formats")


def _listed() -> dict[str, ModuleType]:
    """Return the files of this folder that hold a format: a function of the file's name, and ``wire_bytes``."""
    files = (path.stem for path in Path(__file__).parent.glob("*.py"))
    stems = sorted(stem for stem in files if stem not in _NO_FORMATS)
    return {stem.replace("_", "-"): import_module(f"ringwright.model.codecs.{stem}") for stem in stems}


# By the names of ``ringwright.model.streams.CODECS``.
MODULES = _listed()
FORMATS: dict[str, Callable[..., NodeSum]] = {
    name: getattr(module, name.replace("-", "_")) for name, module in MODULES.items()
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
    module = MODULES.get(codec)
    if module is None:
        raise UsageError(f"'{codec}' is no number format that is known", remedy=f"one of: {', '.join(MODULES)}")
    call: Callable[..., tuple[float, float]] = module.wire_bytes
    asked = {"item_bytes": item_bytes} | knobs
    takes = inspect.signature(call).parameters
    return call(**{name: value for name, value in asked.items() if name in takes})


def number_bytes(codec: str, item_bytes: int = 4, **knobs: int | str) -> tuple[float, float]:
    """Return bytes of a number alone on the wire to the node and back, without what a packet says once."""
    return wire_bytes(codec, item_bytes, **(knobs | {"packet": 1 << 62}))


def numbers_in(codec: str, payload_bytes: int, item_bytes: int = 4, **knobs: int | str) -> int:
    """Return how many numbers a packet of so many bytes holds, one at the least, where it says nothing else."""
    each, _ = number_bytes(codec, item_bytes, **knobs)
    return max(1, int(payload_bytes // each))
