"""Answers to one question (chunks, steps, rounds): a schedule, or the proof that there is none, or neither.

Bounds come first. Then the search: restricted to schedules that look alike from every rank of an orbit, under smaller and
smaller groups, and only then over all schedules, whose end is a proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.algorithms.synthesis.sccl.model import ENDLESS, Asked, Model, Schedule

if TYPE_CHECKING:
    from ringwright.algorithms.searching import Deadline
    from ringwright.algorithms.synthesis.sccl._automorphisms import Permutation
    from ringwright.algorithms.synthesis.sccl.question import Question

WORK = 20.0  # deterministic time of the search over all schedules (about as many CPU seconds)
WORK_RESTRICTED = 5.0
MOST_VARIABLES = 60_000
MOST_KNOWN = 4096


@dataclass(frozen=True)
class Answer:
    """A schedule; or ``proof`` that there is none; or neither, and ``why`` not. ``work`` is the solver's deterministic time."""

    schedule: Schedule | None = None
    proof: str = ""
    why: str = ""
    work: float = 0.0


_KNOWN: dict[tuple[Question, Asked, int], Answer] = {}  # in the order in which they were asked


def answer(question: Question, asked: Asked, seed: int, deadline: Deadline) -> Answer:
    """Return the answer; it is kept for the next who asks, unless the search was stopped."""
    proof = excluded(question, asked)
    if proof:
        return Answer(proof=proof)
    key = (question, asked, seed)
    if key not in _KNOWN:
        made = _searched(question, asked, seed, deadline)
        if deadline.stopped and made.schedule is None and not made.proof:
            return made
        while len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.pop(next(iter(_KNOWN)))
        _KNOWN[key] = made
    return _KNOWN[key]


def excluded(question: Question, asked: Asked) -> str:
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


def _searched(question: Question, asked: Asked, seed: int, deadline: Deadline) -> Answer:
    spent = 0.0
    for generators, detour, work in _attempts(question):
        if deadline.passed():
            break
        is_full = not generators and detour == ENDLESS
        if size(question, asked, generators) > MOST_VARIABLES:
            if is_full:
                return Answer(why=f"more than the {MOST_VARIABLES:,} sends that are weighed", work=spent)
            continue
        made, more = Model(question, asked, generators, detour).solve(work, seed, deadline)
        spent += more
        if isinstance(made, Schedule):
            return Answer(made, work=spent)
        if made is False and is_full:
            return Answer(proof="the search over all schedules is exhausted", work=spent)
    return Answer(why="stopped" if deadline.stopped else f"{WORK:g} units of work were not enough", work=spent)


def _attempts(question: Question) -> Iterator[tuple[tuple[Permutation, ...], int, float]]:
    """Yield the restrictions to try: permutations that schedules keep, hops that routes may be longer, and the work."""
    is_single = all(len(ends) == 1 for _, ends in question.flows)
    detours = (0, 1, ENDLESS) if is_single else (ENDLESS,)
    groups = [question.generators[:count] for count in range(len(question.generators), -1, -1)]
    for generators in (groups[0], *groups[1:-1][:1]):
        for detour in detours:
            if generators:
                yield generators, detour, WORK_RESTRICTED
    for detour in detours:
        yield (), detour, WORK if detour == ENDLESS else WORK_RESTRICTED


def size(question: Question, asked: Asked, generators: tuple[Permutation, ...] = ()) -> int:
    """Return about how many sends a model weighs."""
    from ringwright.algorithms.synthesis.sccl._automorphisms import closed

    alike = len(closed(question.wires.p, generators)) if generators else 1
    pairs = len(question.flows) * len(question.wires.edges) / alike
    return math.ceil(pairs * asked.chunks * (asked.steps - question.steps[0] / 2))
