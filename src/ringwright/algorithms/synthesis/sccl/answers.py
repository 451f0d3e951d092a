"""Answers to one question (chunks, steps, rounds): a schedule, or the proof that there is none, or neither.

Bounds come first. Then the search: restricted to schedules that look alike from every rank of an orbit, under smaller and
smaller groups, and only then over all schedules, whose end is a proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ringwright.algorithms.synthesis.sccl.model import ENDLESS, AskedSearch, Model, RoundsSchedule
from ringwright.algorithms.synthesis.sccl.pipelined import Batch, batches

if TYPE_CHECKING:
    from ringwright.algorithms.searching import Deadline
    from ringwright.algorithms.synthesis.sccl._automorphisms import Permutation
    from ringwright.algorithms.synthesis.sccl.question import RoundsQuestion

T = TypeVar("T")
WORK = 20.0  # deterministic time of the search over all schedules (about as many CPU seconds)
RESTRICTED = 0.25  # share of it for each restricted search
MOST_VARIABLES = 60_000
MOST_KNOWN = 4096


@dataclass(frozen=True)
class RoundsAnswer:
    """A schedule; or ``proof`` that there is none; or neither, and ``why`` not. ``work`` is the solver's deterministic time."""

    schedule: RoundsSchedule | None = None
    proof: str = ""
    why: str = ""
    work: float = 0.0


_KNOWN: dict[tuple[object, ...], Any] = {}  # in the order in which they were asked


def answer(
    question: RoundsQuestion, asked: AskedSearch, seed: int, deadline: Deadline, work: float = WORK
) -> RoundsAnswer:
    """Return the answer after at most about so much ``work`` (the solver's deterministic time)."""
    proof = excluded(question, asked)
    if proof:
        return RoundsAnswer(proof=proof)
    for each in known_batches(question, seed, deadline):
        schedule = each.repeated(asked)
        if schedule is not None:
            return RoundsAnswer(schedule)
    return _kept((question, asked, seed, work), lambda: _searched(question, asked, seed, deadline, work), deadline)


def incumbent(question: RoundsQuestion, asked: AskedSearch, seed: int, deadline: Deadline, work: float) -> RoundsAnswer:
    """Return a schedule with as few rounds as a short search reaches, at most those asked for."""
    return _kept(
        (question, asked, seed, work, "fewest"), lambda: _fewest(question, asked, seed, deadline, work), deadline
    )


def _fewest(question: RoundsQuestion, asked: AskedSearch, seed: int, deadline: Deadline, most: float) -> RoundsAnswer:
    least = max(asked.steps, math.ceil(question.rounds.per_chunk * asked.chunks))
    best: RoundsSchedule | None = None
    spent = 0.0
    for generators, detour, share in _attempts(question):
        if deadline.passed() or (best is not None and best.asked.rounds <= least):
            break
        if size(question, asked, generators) > MOST_VARIABLES:
            continue
        limit = asked if best is None else replace(asked, rounds=best.asked.rounds - 1)
        made, more = Model(question, limit, generators, detour, fewest=True).solve(most * share, seed, deadline)
        spent += more
        best = made if isinstance(made, RoundsSchedule) else best
    return RoundsAnswer(best, why="" if best else "a short search reached nothing", work=spent)


def known_batches(question: RoundsQuestion, seed: int, deadline: Deadline) -> tuple[Batch, ...]:
    """Return the batches of a broadcast."""
    return _kept((question, seed), lambda: batches(question, seed, deadline), deadline)


def _kept(key: tuple[object, ...], make: Callable[[], T], deadline: Deadline) -> T:
    """Return what is made; it is kept for the next who asks, unless the search was stopped."""
    if key not in _KNOWN:
        made = make()
        if deadline.stopped:
            return made
        while len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.pop(next(iter(_KNOWN)))
        _KNOWN[key] = made
    kept: T = _KNOWN[key]
    return kept


def excluded(question: RoundsQuestion, asked: AskedSearch) -> str:
    """Return the bound that excludes an answer, in words; empty where none does."""
    steps, src, dst = question.steps
    if asked.steps < steps:
        return f"bound on steps: {steps} edges lie between places {src} and {dst} of the group"
    if asked.rounds < asked.steps:
        return "every step lasts a round or more"
    least = question.rounds.per_chunk
    if asked.rounds < least * asked.chunks:
        return f"bound on rounds: {least} per chunk, by prices on {len(question.wires.limits)} limits"
    return ""


def _searched(question: RoundsQuestion, asked: AskedSearch, seed: int, deadline: Deadline, most: float) -> RoundsAnswer:
    spent = 0.0
    for generators, detour, share in _attempts(question):
        if deadline.passed():
            break
        is_full = not generators and detour == ENDLESS
        if size(question, asked, generators) > MOST_VARIABLES:
            if is_full:
                why = f"the search over all schedules weighs at most {MOST_VARIABLES:,} sends, and smaller ones were not enough"
                return RoundsAnswer(why=why, work=spent)
            continue
        made, more = Model(question, asked, generators, detour).solve(most * share, seed, deadline)
        spent += more
        if isinstance(made, RoundsSchedule):
            return RoundsAnswer(made, work=spent)
        if made is False and is_full:
            return RoundsAnswer(proof="the search over all schedules is exhausted", work=spent)
    return RoundsAnswer(why="stopped" if deadline.stopped else f"{most:g} units of work were not enough", work=spent)


def _attempts(question: RoundsQuestion) -> Iterator[tuple[tuple[Permutation, ...], int, float]]:
    """Yield the restrictions to try: permutations that schedules keep, hops that routes may be longer, share of the work."""
    is_single = all(len(ends) == 1 for _, ends in question.flows)
    detours = (0, 1, ENDLESS) if is_single else (ENDLESS,)
    groups = [question.generators[:count] for count in range(len(question.generators), -1, -1)]
    for generators in (groups[0], *groups[1:-1][:1]):
        for detour in detours:
            if generators:
                yield generators, detour, RESTRICTED
    for detour in detours:
        yield (), detour, 1.0 if detour == ENDLESS else RESTRICTED


def size(question: RoundsQuestion, asked: AskedSearch, generators: tuple[Permutation, ...] = ()) -> int:
    """Return about how many sends a model weighs."""
    from ringwright.algorithms.synthesis.sccl._automorphisms import closed

    alike = len(closed(question.wires.p, generators)) if generators else 1
    pairs = len(question.flows) * len(question.wires.edges) / alike
    return math.ceil(pairs * asked.chunks * (asked.steps - question.steps[0] / 2))
