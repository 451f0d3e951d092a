"""Ranks that begin each step late: a loader, a checkpoint or the host holds them, though all that they wait for is there.

Before each stream in which a step of a rank begins stands one task more, that begins when the stream has ended the step before
and that its first task waits for. It runs beside what the rank waits for anyway, so that a delay shows only as far as it
reaches beyond that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.engines.job.step import UPDATES
from ringwright.ground.errors import UsageError
from ringwright.ground.units import PS
from ringwright.model.workload import Edge, Task, Workload

if TYPE_CHECKING:
    from ringwright.engines.job.layout import Laid

HELD = "held"  # stream, and first word of the names, of the tasks that hold a rank


def awaiting(workload: Workload) -> Workload:
    """Return the workload in which each stream of each class waits for a task of no time at the begin of a step."""
    tasks, edges = [], []
    for each in workload.classes:
        for stream, (first, last) in _ends(workload, each.name).items():
            if _follows(workload, each.name, first):
                continue  # what it follows is held
            name = f"{HELD} {each.name} {stream}"
            tasks.append(Task(name, each.name, "C", per="step", stream=name))
            edges += [Edge(last, name, 1), Edge(name, first)]
    return replace(workload, tasks=(*workload.tasks, *tasks), edges=(*workload.edges, *edges))


def _follows(workload: Workload, of: str, name: str) -> bool:
    """Return whether a task waits for another of its own rank in the same step, directly or through what that one sends."""
    if any(edge.dst == name and not edge.distance for edge in workload.edges):
        return True
    return any((name, 0) in payload.consumers for payload in workload.payloads if payload.of == of)


def _ends(workload: Workload, of: str) -> dict[str, tuple[str, str]]:
    """Return the first and the last task of each stream of a class in one step; updates behind a barrier are the last."""
    ends: dict[str, tuple[str, str]] = {}
    for name, _ in workload.line(of):
        stream = workload.task[name].stream
        ends[stream] = (ends[stream][0] if stream in ends else name, name)
    behind = (workload.policy.boundary or "barrier") == "barrier"
    for task in workload.tasks:
        if (
            task.of == of
            and task.per == "step"
            and task.stream in ends
            and (task.kind != UPDATES or behind)
            and not task.lag
        ):
            ends[task.stream] = (ends[task.stream][0], task.name)
    return ends


def held(laid: Laid, late: Mapping[int, float]) -> Laid:
    """Return the laid-out job in which ranks are held for so many seconds in each step; each of them is a class of its own."""
    work = laid.flat.work_ps.copy()
    for band in laid.bands:
        if band.what == "task" and band.name.startswith(f"{HELD} "):
            seconds = late.get(laid.rank_classes.ranks[band.rank_classes[0]], 0.0)
            work[band.first :: laid.per_step] = round(seconds * PS)
    return replace(laid, flat=replace(laid.flat, work_ps=work))


def late_ranks(late: Mapping[int, float], ranks: int) -> tuple[int, ...]:
    """Return the ranks that are held at all; UsageError for a rank that is not in the job, or a time that is none."""
    for rank, seconds in late.items():
        if not 0 <= rank < ranks:
            raise UsageError(f"rank {rank} is not in the job", remedy=f"0 to {ranks - 1}")
        if not 0 <= seconds <= 1e6:
            raise UsageError(f"rank {rank} is not held for {seconds:g} s", remedy="0 to 1e6 s")
    return tuple(rank for rank, seconds in late.items() if seconds)
