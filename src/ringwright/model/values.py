"""What flows through a Workload's graph: values and how they lie on the mesh, the work of a task, and which rules were applied.

A value is data of one step: an activation, a parameter, a gradient. Tasks read and write values, payloads turn one value into
another that lies differently on the mesh (an all-reduce turns partial sums into copies), and who waits for whom follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SLICED, PARTIAL, LOCAL = "sliced", "partial", "local"
PLACED = (SLICED, PARTIAL, LOCAL)
VALUE_KINDS = ("activation", "parameter", "gradient", "optimizer", "buffer")
ELEMENTS = "elements"  # the dimension of values of which nobody knows more than how many numbers they have
KEPT = ("parameter", "optimizer")  # kinds of values that are there from step to step
# What tasks compute, where it is known (``ringwright.graph.algebra.computation``); without one, only reads and writes are.
RELAY = "relay"  # computes nothing: an operation begins where another one ends
FUSED = "fused"  # several of them in one kernel, see ``parts_of``
MEANINGS = (
    "einsum",
    "pointwise",
    "rowwise",
    "sum",
    "cut",
    "join",
    "pad",
    "stack",
    "slice",
    "permute",
    "copy",
    RELAY,
    FUSED,
)


@dataclass(frozen=True)
class Placement:
    """How a value lies along one axis of the mesh; along an axis without one, all ranks hold the same (it is replicated).

    ``sliced``: rank i holds block i of ``dim``; ``partial``: the value is the sum over ranks; ``local``: ranks hold unrelated
    values.
    """

    axis: str
    how: str
    dim: str = ""


@dataclass(frozen=True)
class Value:
    """Data that a rank of class ``of`` holds: ``size_bytes`` of it, of a whole with these ``dims`` (name, size).

    Sizes of ``dims`` are those of the whole, over all ranks; ``layout`` cuts it, the outermost cut first. ``kind`` is what memory
    counts it as; parameters and optimizer states are there from step to step. A value ``per`` step that tasks of micro-batches
    write is their sum.
    """

    name: str
    of: str
    size_bytes: int = 0
    dims: tuple[tuple[str, int], ...] = ()
    layout: tuple[Placement, ...] = ()
    kind: str = "activation"
    per: str = "micro-batch"
    dtype: str = "float32"

    def along(self, axis: str) -> Placement | None:
        """Return how it lies along an axis; None where all ranks hold the same."""
        return next((each for each in self.layout if each.axis == axis), None)

    def axes(self, how: str, dim: str | None = None) -> tuple[str, ...]:
        """Return the axes along which it lies so, of one dimension or any, the outermost cut first."""
        return tuple(each.axis for each in self.layout if each.how == how and dim in (None, each.dim))

    def held(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the size of each dimension that one rank holds, on a mesh with axes of these ``sizes``."""
        parts = dict.fromkeys([name for name, _ in self.dims], 1)
        for each in self.layout:
            if each.how == SLICED and each.dim in parts:
                parts[each.dim] *= sizes[each.axis]
        return {name: size // parts[name] for name, size in self.dims}


@dataclass(frozen=True)
class MatrixProduct:
    """A product of (m x k) and (k x n) that a rank computes, ``times`` over; cut along a dimension of ``Work.cuts``, side
    ``cut`` becomes shorter.
    """

    m: int
    n: int
    k: int
    times: int = 1
    cut: str = "m"


@dataclass(frozen=True)
class Work:
    """What a task computes: floating-point operations, bytes it reads and writes, what it means, and where it may be cut.

    ``meaning`` is one of ``MEANINGS``, with ``settings``; empty: only what it reads and writes is known. ``cuts`` are the
    dimensions along which its values may be cut, and the seconds that each part more costs (a launch, a last wave not full):
    each slice of what it writes depends on the same slice of what it reads, what it writes without the dimension is a sum over
    slices. ``products`` are its matrix products, where they are known. ``parts`` are what it does one after another, where it is
    several kernels.
    """

    flops: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    meaning: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    cuts: Mapping[str, float] = field(default_factory=dict)
    products: tuple[MatrixProduct, ...] = ()
    parts: tuple[WorkPart, ...] = ()


@dataclass(frozen=True)
class WorkPart:
    """One of the things that a task does one after another: a ``share`` of its seconds, and the ``work``.

    ``reads`` and ``writes`` are places among what the task reads and writes. ``dims`` and ``layout`` are of what it hands to the
    next part besides, with ``size_bytes`` on a rank; without ``dims`` that is nothing, as it is of the last part.
    """

    share: float
    work: Work
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    dims: tuple[tuple[str, int], ...] = ()
    layout: tuple[Placement, ...] = ()
    size_bytes: int = 0


@dataclass(frozen=True)
class Change:
    """What a rule changes in a step of one rank: bytes on the wire by role, operations, floating-point operations, memory.

    ``wire_bytes`` are what a rank sends at the least for its operations (an all-reduce of S on p ranks: 2 (p - 1) / p S).
    ``held_bytes`` are of values that are held at the same time and were not before, at most. ``launches`` are tasks that take
    time, ``traffic_bytes`` what tasks say that they read and write, ``copied_bytes`` what copies read and write that no view
    spares; these three are counted on the graph, for every rule.
    """

    wire_bytes: Mapping[str, float] = field(default_factory=dict)
    operations: int = 0
    flops: float = 0.0
    held_bytes: int = 0
    launches: int = 0
    traffic_bytes: int = 0
    copied_bytes: int = 0


@dataclass(frozen=True)
class Applied:
    """A rule that was applied to a Workload: which, where, with which settings, and what it changed."""

    rule: str
    at: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    change: Change = field(default_factory=Change)


@dataclass(frozen=True)
class FusedPart:
    """One of the works that a fused task does: which of the values there so far it takes, by place, and what it makes."""

    work: Work
    takes: tuple[int, ...]
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]


def parts_of(settings: Mapping[str, Any], reads: Sequence[Value], writes: Sequence[Value]) -> Iterator[FusedPart]:
    """Yield the parts of a fused task in order.

    ``between`` are values that never leave the kernel: name, dimensions, layout. Each of ``parts`` is a meaning, its settings,
    the places of what it takes (what the task reads, then all that was made), and what it makes: a place among what the
    task writes, or, below 0, -1 - place among ``between``.
    """
    between = [
        Value(name, "", 0, tuple((dim, size) for dim, size in dims), tuple(Placement(*each) for each in layout))
        for name, dims, layout in settings["between"]
    ]
    there = list(reads)
    for meaning, mine, takes, makes in settings["parts"]:
        made = [writes[at] if at >= 0 else between[-1 - at] for at in makes]
        yield FusedPart(
            Work(meaning=meaning, settings=mine), tuple(takes), tuple(there[at] for at in takes), tuple(made)
        )
        there += made
