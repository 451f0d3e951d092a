"""Which tensors to merge: runs in ready order, judged by when forward ends if the most urgent available group goes first.

The search is compiled where a build is at hand (``native/merging.hpp``), with the same cuts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from ringwright.native import engine

MOST_STATES = 24
MOST_ROUNDS = 40
LARGEST_SEARCH = 400  # tensors; above, the dynamic program alone decides


@dataclass(frozen=True)
class Tensor:
    """A gradient: when it is ready, the forward work from its first consumer to the end (s), and its bytes."""

    name: str
    ready_s: float
    tail_s: float
    size_bytes: float


@dataclass(frozen=True)
class SlicedSeconds:
    """What a group of so many bytes takes (s): ``alpha_s`` for each slice, ``beta_s`` for each byte."""

    alpha_s: float
    beta_s: float
    slice_bytes: int

    def __call__(self, size_bytes: float) -> float:
        return max(1, math.ceil(size_bytes / self.slice_bytes)) * self.alpha_s + self.beta_s * size_bytes


def preemptive(jobs: Sequence[tuple[float, float, float]]) -> float:
    """Return the least possible max(C + q) of jobs (ready, time, q) on one link: the largest q of what is there goes first.

    Horn 1974 and Jackson; exact with pre-emption at any moment, O(n log n).
    """
    return max((end + job[2] for end, job in zip(completions(jobs), jobs, strict=True)), default=0.0)


def completions(jobs: Sequence[tuple[float, float, float]]) -> list[float]:
    """Return when each of the jobs is done in that schedule."""
    arrivals = sorted(range(len(jobs)), key=jobs.__getitem__)
    ends = [0.0] * len(jobs)
    waiting: list[tuple[float, float, int]] = []
    now, at = 0.0, 0
    while at < len(arrivals) or waiting:
        if not waiting:
            now = max(now, jobs[arrivals[at]][0])
        while at < len(arrivals) and jobs[arrivals[at]][0] <= now:
            _, time, tail = jobs[arrivals[at]]
            heapq.heappush(waiting, (-tail, time, arrivals[at]))
            at += 1
        tail, left, job = heapq.heappop(waiting)
        until = jobs[arrivals[at]][0] if at < len(arrivals) else float("inf")
        if now + left <= until:
            now += left
            ends[job] = now
        else:
            heapq.heappush(waiting, (tail, left - (until - now), job))
            now = until
    return ends


def first_come(jobs: Sequence[tuple[float, float, float]]) -> float:
    """Return max(C + q) when jobs go in the order in which they become ready."""
    now = worst = 0.0
    for ready, time, tail in sorted(jobs, key=lambda job: job[0]):
        now = max(now, ready) + time
        worst = max(worst, now + tail)
    return worst


def merge(tensors: Sequence[Tensor], seconds: SlicedSeconds, *, native: bool = True) -> list[tuple[str, ...]]:
    """Return the groups, each a run of ``tensors`` (in ready order)."""
    cuts = _compiled(tensors, seconds) if native and hasattr(engine, "merged") else _cuts(tensors, seconds)
    bounds = [0, *cuts, len(tensors)]
    return [tuple(t.name for t in tensors[a:b]) for a, b in pairwise(bounds)]


def _compiled(tensors: Sequence[Tensor], seconds: SlicedSeconds) -> list[int]:
    import numpy as np

    columns = np.array([(t.ready_s, t.tail_s, t.size_bytes) for t in tensors]).T.copy()
    limits = (MOST_STATES, MOST_ROUNDS, LARGEST_SEARCH)
    cuts: list[int] = engine.merged(
        *columns, float(seconds.slice_bytes), seconds.alpha_s, seconds.beta_s, *limits
    ).tolist()
    return cuts


def _cuts(tensors: Sequence[Tensor], seconds: SlicedSeconds) -> list[int]:
    cuts = _prefixes(tensors, seconds)
    return _improved(tensors, cuts, seconds) if len(tensors) <= LARGEST_SEARCH else cuts


def _group(tensors: Sequence[Tensor], seconds: SlicedSeconds) -> tuple[float, float, float]:
    return (
        max(t.ready_s for t in tensors),
        seconds(sum(t.size_bytes for t in tensors)),
        max(t.tail_s for t in tensors),
    )


def _prefixes(tensors: Sequence[Tensor], seconds: SlicedSeconds) -> list[int]:
    """Dynamic program over prefixes: per prefix the states that no other one beats in both times."""
    states = [[_State(0.0, 0.0, 0, None)]]
    for end in range(1, len(tensors) + 1):
        reached: list[_State] = []
        size, tail, ready_s = 0.0, 0.0, tensors[end - 1].ready_s
        for begin in range(end - 1, max(-1, end - 1 - LARGEST_SEARCH), -1):
            size, tail = size + tensors[begin].size_bytes, max(tail, tensors[begin].tail_s)
            takes = seconds(size)
            for free, worst, cuts, last in states[begin]:
                done = max(free, ready_s) + takes
                later = done + tail
                behind = (cuts + 1, (begin, last)) if begin else (cuts, last)
                reached.append(_State(done, max(worst, later), *behind))
        states.append(_undominated(reached))
    listed, last = [], min(states[-1], key=lambda state: state.worst).last
    while last is not None:
        begin, last = last
        listed.append(begin)
    return listed[::-1]


class _State(NamedTuple):
    """When the link is free and forward ends at the latest (s), how many cuts there are, and the last one before those."""

    free: float
    worst: float
    cuts: int
    last: tuple[int, Any] | None


def _undominated(reached: list[_State]) -> list[_State]:
    kept: list[_State] = []
    for state in sorted(reached, key=lambda each: each[:3]):
        if not kept or state.worst < kept[-1].worst:
            kept.append(state)
    return kept[:: max(1, -(-len(kept) // MOST_STATES))]


def _improved(tensors: Sequence[Tensor], cuts: list[int], seconds: SlicedSeconds) -> list[int]:
    """Merge, split or shift one boundary at a time while the optimal schedule of the groups gets shorter."""
    known: dict[tuple[int, int], tuple[float, float, float]] = {}

    def value(cuts: Sequence[int]) -> float:
        runs = list(pairwise((0, *cuts, len(tensors))))
        for run in runs:
            if run not in known:
                known[run] = _group(tensors[slice(*run)], seconds)
        return preemptive([known[run] for run in runs])

    best = value(cuts)
    for _ in range(MOST_ROUNDS):
        better = None
        for candidate in _moves(cuts, len(tensors)):
            took = value(candidate)
            if took < best * (1 - 1e-9):
                best, better = took, candidate
        if better is None:
            return cuts
        cuts = better
    return cuts


def _moves(cuts: list[int], n: int) -> list[list[int]]:
    have = set(cuts)
    moves = [sorted(have - {cut}) for cut in cuts]
    moves += [
        sorted(have - {cut} | {cut + shift})
        for cut in cuts
        for shift in (-1, 1)
        if 0 < cut + shift < n and cut + shift not in have
    ]
    step = max(1, n // 64)
    moves += [sorted(have | {cut}) for cut in range(1, n, step) if cut not in have]
    return moves
