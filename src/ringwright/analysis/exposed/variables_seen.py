"""Variables of the environment that keep communication and computation apart, where a recording tells them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

CLAIM = "env "


@dataclass(frozen=True)
class Variable:
    """A variable as it was set: ``cause`` is the reason of exposure that it can be, "" for none; ``note`` says what it does."""

    name: str
    value: str
    cause: str = ""
    note: str = ""


def _is_on(value: str) -> bool:
    return value.strip().lower() in ("1", "true", "yes", "y", "on")


def _is_one(value: str) -> bool:
    return value.strip() == "1"


_Rule = tuple[Callable[[str], bool], str, str]
_QUEUES = "one hardware queue: work is begun in the order of launches, whatever stream it is on"
_RULES: dict[str, _Rule] = {
    "CUDA_DEVICE_MAX_CONNECTIONS": (_is_one, "connections", _QUEUES),
    "GPU_MAX_HW_QUEUES": (_is_one, "connections", _QUEUES),
    "CUDA_LAUNCH_BLOCKING": (_is_on, "strict-order", "each launch waits until its kernel has ended"),
    "AMD_SERIALIZE_KERNEL": (lambda value: value.strip() in ("1", "2", "3"), "strict-order", "kernels run one by one"),
    "TORCH_NCCL_BLOCKING_WAIT": (_is_on, "strict-order", "the host waits until a collective has ended"),
    "NCCL_BLOCKING_WAIT": (_is_on, "strict-order", "the host waits until a collective has ended"),
}


def variables(trace: Trace) -> list[Variable]:
    """Return the variables that a recording tells, in order of name."""
    import polars as pl

    mine = trace.scan("claims").filter(pl.col("field").str.starts_with(CLAIM)).select("field", "value").unique()
    told = []
    for field, value in sorted(mine.collect().rows()):
        name = field.removeprefix(CLAIM)
        applies, cause, note = _RULES.get(name, (_is_on, "", ""))
        told.append(Variable(name, value, cause if cause and applies(value) else "", note if applies(value) else ""))
    return told


def blamed(known: list[Variable], cause: str) -> Variable | None:
    """Return the variable that explains a reason of exposure, None where none is set that would."""
    return next((one for one in known if one.cause == cause), None)
