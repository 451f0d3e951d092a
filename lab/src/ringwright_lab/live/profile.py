"""What a live run measured: a Workload to simulate, the costs of the link, and a Trace for every report."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from ringwright.model.run_tables import LIVE, TraceWriter, communicator, communicators
from ringwright.model.stages import Stage
from ringwright.model.workload import Edge, Mesh, Payload, RankClass, Resource, Task, Workload

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace
    from ringwright_lab.live.traffic import SentPiece

WRITER = TraceWriter(source=LIVE, clock="monotonic")
AT_ONCE = ("optimizer", "flush")  # updates that are no layer's
RATE = 1e9  # B/s of a link nobody has measured
HALVES, HALF = ("reduce-scatter", "all-gather"), 0.5  # of an all-reduce's bytes


@dataclass(frozen=True)
class Parameter:
    """A parameter as the network sees it."""

    name: str
    elements: int
    element_bytes: int
    dtype: str
    factors: tuple[int, int] | None = None


@dataclass
class StepSpans:
    """One step of one rank, on its steady clock: spans (begin, end) by layer, in the order in which they were."""

    step: int
    begun_s: float = 0.0
    forward: list[tuple[str, float, float]] = field(default_factory=list)
    backward: list[tuple[str, float, float]] = field(default_factory=list)
    update: list[tuple[str, float, float]] = field(default_factory=list)
    waited: list[tuple[str, float, float]] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)  # parameters in the order in which their gradients were there
    gap_s: float = 0.0  # between the end of one step and the forward of the next: data, bookkeeping


@dataclass(frozen=True)
class ProfiledLayer:
    """What runs as one: parameters that it is the first to need, seconds forward, backward and for the update."""

    name: str
    parameters: tuple[str, ...]
    forward_s: float = 0.0
    backward_s: float = 0.0
    update_s: float = 0.0


def layers(
    named: Mapping[str, Sequence[str]], measured: Sequence[StepSpans], parameters: Mapping[str, Parameter]
) -> tuple[list[ProfiledLayer], list[str]]:
    """Return the layers in forward order with median times over the steps, and their order in backward.

    A layer's parameters are in the order in which their gradients came. An update of all at once is shared out by numbers.
    """
    times = {kind: _medians(measured, kind) for kind in ("forward", "backward", "update")}
    whole_s = sum(times["update"].get(name, 0.0) for name in AT_ONCE)
    elements = {name: sum(parameters[each].elements for each in members) for name, members in named.items()}
    part = {name: count / max(sum(elements.values()), 1) for name, count in elements.items()}
    order = {name: at for at, name in enumerate(measured[-1].ready)} if measured else {}
    profiled = []
    for name, members in named.items():
        forward_s, backward_s, update_s = (times[kind].get(name, 0.0) for kind in ("forward", "backward", "update"))
        ready = tuple(sorted(members, key=lambda each: order.get(each, len(order))))
        profiled.append(ProfiledLayer(name, ready, forward_s, backward_s, update_s + whole_s * part[name]))
    seen = [name for name, _, _ in measured[-1].backward] if measured else []
    backward = [name for name in dict.fromkeys(seen) if name in named]
    backward += [each.name for each in reversed(profiled) if each.name not in backward]
    return profiled, backward


def gap_s(measured: Sequence[StepSpans]) -> float:
    """Return the median seconds between two steps."""
    return median(each.gap_s for each in measured) if measured else 0.0


def _medians(measured: Sequence[StepSpans], kind: str) -> dict[str, float]:
    sums: dict[str, list[float]] = {}
    for at, each in enumerate(measured):
        for name, begin_s, end_s in getattr(each, kind):
            row = sums.setdefault(name, [0.0] * len(measured))
            row[at] += end_s - begin_s
    return {name: median(row) for name, row in sums.items()}


def workload(
    name: str,
    layers: Sequence[ProfiledLayer],
    backward: Sequence[str],
    parameters: Mapping[str, Parameter],
    ranks: int,
    *,
    gap_s: float = 0.0,
    assumptions: tuple[str, ...] = (),
) -> Workload:
    """Return one data-parallel step: a task per layer forward, backward and update, a payload per parameter."""
    at = {each.name: index for index, each in enumerate(layers)}
    tasks = [Task("F.input", "all", "F", gap_s, 0, ("F", 0))] if gap_s else []
    tasks += [Task(f"F.{each.name}", "all", "F", each.forward_s, at[each.name], ("F", 0)) for each in layers]
    tasks += [Task(f"B.{each}", "all", "B", layers[at[each]].backward_s, at[each], ("B", 0)) for each in backward]
    tasks += [Task(f"U.{each.name}", "all", "U", each.update_s, at[each.name], ("U", 0), per="step") for each in layers]
    chained = [task.name for task in tasks if task.kind != "U"]
    edges = [Edge(before, after) for before, after in pairwise(chained)]
    edges += [Edge(f"U.{each.name}", f"F.{each.name}", 1) for each in layers]
    payloads = [
        _payload(parameters[each], layers[at[layer]]) for layer in backward for each in layers[at[layer]].parameters
    ]
    return Workload(
        name,
        Mesh((("dp", ranks),)),
        (RankClass("all"),),
        tuple(tasks),
        tuple(edges),
        tuple(payloads),
        (Resource("compute"), Resource("link.tx", "shared"), Resource("link.rx", "shared")),
        assumptions=assumptions,
    )


def _payload(parameter: Parameter, layer: ProfiledLayer) -> Payload:
    return Payload(
        parameter.name,
        "all",
        "all-reduce",
        parameter.elements * parameter.element_bytes,
        ("dp",),
        "dp",
        (f"B.{layer.name}",),
        ((f"U.{layer.name}", 0),),
        dtype=parameter.dtype,
        elements=parameter.elements,
        merges=f"gradients/{parameter.dtype}",
        factors=parameter.factors,
    )


@dataclass(frozen=True)
class LinkTable:
    """A link as all-reduces found it: seconds by size of piece, straight lines between, the first one drawn on
    downwards, the last size's rate upwards. Half a sum, a scatter or a gather, takes half the time.

    On an emulated link a small piece takes what the real collective takes, a large one its time on the link: no sum of an
    overhead and a share of the rate says both.
    """

    sizes_bytes: tuple[float, ...]
    times_s: tuple[float, ...]

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return one phase."""
        return (Stage(self._all_reduce_s(size_bytes) * (HALF if op in HALVES else 1.0)),)

    def _all_reduce_s(self, size_bytes: int) -> float:
        sizes, times = self.sizes_bytes, self.times_s
        if size_bytes >= sizes[-1]:
            return times[-1] * size_bytes / sizes[-1]
        at = max(bisect_right(sizes, size_bytes), 1)
        if len(sizes) == 1:
            return times[0]
        share = (size_bytes - sizes[at - 1]) / (sizes[at] - sizes[at - 1])
        return max(times[at - 1] + share * (times[at] - times[at - 1]), 0.0)


def costs(sent: Sequence[SentPiece]) -> LinkTable:
    """Return the link as the pieces found it: the median time of each size."""
    by_size: dict[int, list[float]] = {}
    for each in sent:
        share = HALF if each.op in HALVES else 1.0
        by_size.setdefault(each.size_bytes, []).append((each.end_s - each.start_s) / share)
    if not by_size:
        return LinkTable((RATE,), (1.0,))
    sizes = sorted(by_size)
    return LinkTable(tuple(map(float, sizes)), tuple(median(by_size[size]) for size in sizes))


def trace(
    rank: int,
    world: int,
    measured: Sequence[StepSpans],
    sent: Sequence[SentPiece],
    announced_s: Mapping[tuple[int, str], float],
    summary: str,
) -> Trace:
    """Return a rank's steps as a Trace: compute by layer, waits of the model as sync, one collective per piece.

    ``announced_s``: (step, operation) -> when its data were ready, which a collective was enqueued at. Times count from
    the first step.
    """
    zero_s = min((each.begun_s for each in measured), default=0.0)
    rows: list[dict[str, Any]] = []
    for each in measured:
        for phase in ("forward", "backward", "update", "waited"):
            rows += [
                {
                    "kind": "sync" if phase == "waited" else "compute",
                    "phase": phase,
                    "layer": layer,
                    "op": phase,
                    "iteration": each.step,
                    "start_s": begin_s - zero_s,
                    "duration_s": end_s - begin_s,
                }
                for layer, begin_s, end_s in getattr(each, phase)
            ]
    rows += [
        {
            "kind": "collective",
            "op": piece.op,
            "task": f"{piece.operation}#{piece.piece}",
            "role": "dp",
            "iteration": piece.step,
            "size_bytes": piece.size_bytes,
            "start_s": piece.start_s - zero_s,
            "enqueue_s": announced_s.get((piece.step, piece.operation), piece.released_s) - zero_s,
            "duration_s": piece.end_s - piece.start_s,
            "sequence": at,
            "communicator": 0,
        }
        for at, piece in enumerate(sent)
    ]
    group = communicator(range(world), comm_id="live", name="gloo", role="dp")
    return WRITER.trace(world, summary, events=_events(rows, rank, world), communicators=communicators([group]))


def _events(rows: list[dict[str, Any]], rank: int, world: int) -> pl.DataFrame:
    import polars as pl

    kinds = {
        "kind": pl.String,
        "phase": pl.String,
        "layer": pl.String,
        "op": pl.String,
        "task": pl.String,
        "role": pl.String,
        "iteration": pl.Int64,
        "size_bytes": pl.Int64,
        "start_s": pl.Float64,
        "enqueue_s": pl.Float64,
        "duration_s": pl.Float64,
        "sequence": pl.Int64,
        "communicator": pl.Int32,
    }
    columns = {name: [row.get(name) for row in rows] for name in kinds}
    return WRITER.events(pl.DataFrame(columns, schema=kinds), rank=rank, comm_rank=rank, nranks=world)
