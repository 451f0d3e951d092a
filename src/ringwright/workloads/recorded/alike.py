"""Ranks that do the same: one class for them, and an error where ranks of a group do not issue the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from ringwright.ground.errors import WorkloadError
from ringwright.model.validity.workloads import sequences
from ringwright.model.workload import RankClass
from ringwright.workloads.recorded.grid import RecordedMesh
from ringwright.workloads.recorded.plan import PAIRS, Line, RankStep, RecordedCall

UNEVEN = ("all-to-all", "all-gather", "reduce-scatter")  # ranks may hand in different amounts
MOST_SEPARATE = 64  # ranks that are kept apart because their times differ
SAME = 0.01  # share by which ranks may differ and still be the same


def same_order(lines: Mapping[int, Line], grid: RecordedMesh) -> None:
    """Raise WorkloadError where ranks of a communicator issue different operations: rank, position, both operations."""
    issued: dict[int, dict[int, list[str]]] = {}
    for rank, line in lines.items():
        for call in line.calls:
            if call.op not in PAIRS:
                issued.setdefault(call.communicator, {}).setdefault(rank, []).append(_told(call))
    for number, by_rank in issued.items():
        members = grid.members[number] or []
        for rank in members:
            if rank in lines:
                by_rank.setdefault(rank, [])
        found = sequences(f"communicator {number}", by_rank)
        if found:
            first = found[0]
            raise WorkloadError(f"ranks out of step: {first.message}", where=first.where, remedy=first.remedy)


def _told(call: RecordedCall) -> str:
    return call.op if call.op in UNEVEN or not call.is_sized else f"{call.op} of {call.size_bytes} B"


def classes(
    plans: Mapping[int, RankStep], grid: RecordedMesh, *, timed: bool
) -> tuple[dict[str, RankClass], dict[str, int], list[str]]:
    """Return the classes by name, the rank that stands for each, and what was assumed.

    Ranks whose times differ are kept apart where all are known and few; else ranks that issue the same are one class.
    """
    known, size, names = list(plans), grid.mesh.size, [name for name, _ in grid.mesh.axes]
    every = [axes for count in range(len(names) + 1) for axes in combinations(names, count)]
    notes = (
        [f"{size - len(known)} of {size} ranks were not recorded: they do as the others do"]
        if len(known) < size
        else []
    )
    few = len(known) == size <= MOST_SEPARATE
    for axes in every if timed and few else ():
        if _tells_apart(plans, grid, axes) and _even(plans, grid, axes):
            alone = len(axes) == len(names) and size > 1
            return *_placed(plans, grid, axes), [
                "every rank as it was recorded, in a class of its own"
            ] if alone else notes
    for axes in every:
        if _tells_apart(plans, grid, axes):
            made, stands = _placed(plans, grid, axes)
            if timed and len(known) > len(made):
                notes.append("ranks that issue the same calls are one class, with the times of the median rank")
            return made, stands, notes
    raise WorkloadError(
        f"{len(known)} of {size} ranks were recorded, and they do different things: what the others do is not known",
        where=f"ranks {', '.join(map(str, known[:8]))}",
        remedy="record every rank, or all ranks of one data-parallel group",
    )


def signature(plan: RankStep, grid: RecordedMesh) -> tuple[Any, ...]:
    """Return what a rank issues, told apart by axes and not by groups; in order along each axis, not between them."""
    parts = []
    for each in plan.sent:
        call = each.call
        size = call.size_bytes if call.op not in UNEVEN and call.is_sized else 0
        peer = call.peer if call.op in PAIRS else -1
        parts.append((grid.axes[call.communicator], call.op, size, each.is_gradient, peer))
    return tuple(sorted(parts, key=lambda each: each[0]))


def _even(plans: Mapping[int, RankStep], grid: RecordedMesh, axes: tuple[str, ...]) -> bool:
    """Say whether ranks with equal coordinates on some axes have as much work, and their calls take as long, to a hundredth."""
    coordinates = _key(grid, axes)
    totals: dict[tuple[Any, ...], list[float]] = {}
    for rank, plan in plans.items():
        for what, total in _lasting(plan, grid).items():
            totals.setdefault((coordinates(rank), what), []).append(total)
    return all(max(each) - min(each) <= SAME * max(each) for each in totals.values())


def _lasting(plan: RankStep, grid: RecordedMesh) -> dict[tuple[str, ...], float]:
    """Return the seconds of a rank's work, and by their axes those of its calls in which nobody waits."""
    lasting: dict[tuple[str, ...], float] = {(): sum(piece.seconds for piece in plan.pieces)}
    for each in plan.sent:
        if not each.call.waits_inside:
            axes = grid.axes[each.call.communicator]
            lasting[axes] = lasting.get(axes, 0.0) + (each.call.duration_s or 0.0)
    return lasting


def _key(grid: RecordedMesh, axes: tuple[str, ...]) -> Callable[[int], tuple[int, ...]]:
    return lambda rank: tuple(grid.mesh.place(rank)[axis] for axis in axes)


def _tells_apart(plans: Mapping[int, RankStep], grid: RecordedMesh, axes: tuple[str, ...]) -> bool:
    """Say whether ranks with equal coordinates on some axes issue the same, and all coordinates were recorded."""
    coordinates, seen = _key(grid, axes), {}  # type: ignore[var-annotated]
    for rank, plan in plans.items():
        if seen.setdefault(coordinates(rank), signature(plan, grid)) != signature(plan, grid):
            return False
    return len(seen) == grid.mesh.extent(axes)


def _placed(
    plans: Mapping[int, RankStep], grid: RecordedMesh, axes: tuple[str, ...]
) -> tuple[dict[str, RankClass], dict[str, int]]:
    coordinates = _key(grid, axes)
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in sorted(plans):
        groups.setdefault(coordinates(rank), []).append(rank)
    made, stands = {}, {}
    for at, ranks in groups.items():
        name = "-".join(f"{axis}{number}" for axis, number in zip(axes, at, strict=True)) or "all"
        made[name] = RankClass(name, dict(zip(axes, at, strict=True)))
        by_time = sorted(ranks, key=lambda rank: (sum(piece.seconds for piece in plans[rank].pieces), rank))
        stands[name] = by_time[len(by_time) // 2]
    return made, stands
