"""One trace file as compact columns: kernels, calls, communication records, labels, steps."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.kineto.pieces import Reading
from ringwright.formats.sources.kineto.records import CommArgs

if TYPE_CHECKING:
    Doubles = array[float]
    Integers = array[int]
else:  # before Python 3.12 it takes no type of its items
    Doubles = Integers = array

LIMIT = 1 << 62  # whole numbers and times beyond are not believed


@dataclass
class EventColumns:
    """Columns of one kind of event: ``ts`` and ``dur`` in microseconds, ``name`` an index into the names of the file."""

    ts: Doubles = field(default_factory=lambda: array("d"))
    dur: Doubles = field(default_factory=lambda: array("d"))
    name: Integers = field(default_factory=lambda: array("i"))
    thread: Integers = field(default_factory=lambda: array("i"))
    line: Integers = field(default_factory=lambda: array("q"))
    correlation: Integers = field(default_factory=lambda: array("q"))
    stream: Integers = field(default_factory=lambda: array("q"))
    device: Integers = field(default_factory=lambda: array("i"))
    channels: Integers = field(default_factory=lambda: array("i"))
    external: Integers = field(default_factory=lambda: array("q"))
    is_copy: Integers = field(default_factory=lambda: array("b"))

    def __len__(self) -> int:
        return len(self.ts)


@dataclass
class RankFile:
    """One file, gathered. ``meta`` maps the number of a kernel to what was copied onto it."""

    reading: Reading
    names: list[str] = field(default_factory=list)
    threads: list[tuple[Any, Any]] = field(default_factory=list)
    kernels: EventColumns = field(default_factory=EventColumns)
    calls: EventColumns = field(default_factory=EventColumns)
    syncs: EventColumns = field(default_factory=EventColumns)
    labels: EventColumns = field(default_factory=EventColumns)
    notes: EventColumns = field(default_factory=EventColumns)
    records: EventColumns = field(default_factory=EventColumns)
    record_args: list[CommArgs] = field(default_factory=list)
    marks: EventColumns = field(default_factory=EventColumns)  # labels that name a layer, or sharding
    operators: EventColumns = field(default_factory=EventColumns)  # gradients that are there, fused operations
    backward: dict[int, tuple[float, float, int]] = field(default_factory=dict)  # thread: from, to, first event
    meta: dict[int, CommArgs] = field(default_factory=dict)
    label_args: dict[int, CommArgs] = field(default_factory=dict)  # of labels that say what they carry
    bad: int = 0
    dropped: int = 0

    @property
    def used(self) -> int:
        """Events that this reader keeps."""
        tables = (
            self.kernels,
            self.calls,
            self.syncs,
            self.labels,
            self.notes,
            self.records,
            self.marks,
            self.operators,
        )
        return sum(len(table) for table in tables)


def whole(value: Any) -> int | None:
    """Return a whole number of at most 62 bits, also one spelled as text or float; None for anything else."""
    if type(value) is int:
        return value if -LIMIT < value < LIMIT else None
    if value is None:
        return None
    if type(value) is float and math.isfinite(value) and value == int(value) and abs(value) < LIMIT:
        return int(value)
    if type(value) is str and len(value) < 20 and value.strip().removeprefix("-").isdecimal():
        return int(value)
    return None
