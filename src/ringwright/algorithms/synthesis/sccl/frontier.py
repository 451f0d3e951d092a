"""The frontier between steps and rounds per chunk: which schedules are the best for some size.

For 1, 2, ... chunks and from the bound on rounds upwards, each number of steps is asked for that would be an improvement on
what is known with as few steps. It ends where the bound on rounds per chunk is reached, with the most chunks, or with the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from ringwright.algorithms.searching import nothing_yet
from ringwright.algorithms.synthesis.sccl.answers import answer, excluded, incumbent, known_batches
from ringwright.algorithms.synthesis.sccl.model import AskedSearch, RoundsSchedule
from ringwright.algorithms.synthesis.sccl.pipelined import series
from ringwright.ground.errors import InfeasibleError

if TYPE_CHECKING:
    from ringwright.algorithms.searching import Deadline
    from ringwright.algorithms.synthesis.sccl.question import RoundsQuestion

MOST_CHUNKS = 12
MOST_OPEN = 2  # questions in a row without an answer
WORK = 0.5  # deterministic time of one search
AMPLE = 4  # times the bound on rounds that a first schedule may take
MOST_WORK = 3.0  # of all searches, after which what is known is enough


@dataclass(frozen=True)
class WantedAnswer:
    """What a user asks for; None leaves it to the search."""

    chunks: int | None = None
    steps: int | None = None
    rounds: int | None = None
    most_chunks: int = MOST_CHUNKS  # where their number is left to the search

    def asked(self) -> AskedSearch | None:
        """Return the one question that this is; None where it is several."""
        if self.chunks is None or self.steps is None or self.rounds is None:
            return None
        return AskedSearch(self.chunks, self.steps, self.rounds)


@dataclass(frozen=True)
class Frontier:
    """Schedules that none of the others beats, the fewest steps first, and how many questions on the way stayed open."""

    schedules: tuple[RoundsSchedule, ...]
    unsettled: int = 0


def frontier(question: RoundsQuestion, wanted: WantedAnswer, seed: int, deadline: Deadline) -> Frontier:
    """Return the frontier as far as it is wanted; InfeasibleError where there is nothing."""
    asked = wanted.asked()
    if asked is None:
        return _Search(question, wanted, seed, deadline).frontier()
    made = answer(question, asked, seed, deadline)
    if made.schedule is not None:
        return Frontier((made.schedule,))
    if made.proof:
        raise InfeasibleError(f"no algorithm has {asked}: {made.proof}", remedy=f"rounds={asked.rounds + 1}, or none")
    raise InfeasibleError(
        f"{asked} were neither reached nor excluded: {made.why}", remedy="fewer chunks, or steps=none"
    )


class _Search:
    """The search in progress: the schedule with the fewest rounds per chunk at each number of steps."""

    def __init__(self, question: RoundsQuestion, wanted: WantedAnswer, seed: int, deadline: Deadline) -> None:
        self.question, self.wanted, self.seed, self.deadline = question, wanted, seed, deadline
        self.best: dict[int, RoundsSchedule] = {}
        self.excluded: list[AskedSearch] = []
        self.open = self.unsettled = 0  # questions without an answer: since the last schedule, and in all
        self.work = 0.0
        self.why = ""

    def frontier(self) -> Frontier:
        try:
            self._search()
        except KeyboardInterrupt:
            self.deadline.interrupted()
        if not self.best:
            self._raise()
        kept = (self.best[steps] for steps in sorted(self.best) if _ratio(self.best[steps]) < self._least(steps - 1))
        return Frontier(tuple(kept), self.unsettled)

    def _search(self) -> None:
        least = self.question.rounds.per_chunk
        self._batched()
        if not self.best and self.wanted.rounds is None:
            self._begin()
        most = max(1, int(1 / least)) if self.question.is_broadcast else MOST_CHUNKS
        for chunks in _range(self.wanted.chunks, 1, min(most, self.wanted.most_chunks)):
            self._with(chunks)
            if self._is_over() or any(_ratio(each) == least for each in self.best.values()):
                break

    def _begin(self) -> None:
        """Keep what a short search reaches with the fewest steps, so that there is something to improve."""
        chunks, steps = self.wanted.chunks or 1, self.wanted.steps or self.question.steps[0]
        most = AMPLE * math.ceil(self.question.rounds.per_chunk * chunks) + steps
        if excluded(self.question, asked := AskedSearch(chunks, steps, most)):
            return
        made = incumbent(self.question, asked, self.seed, self.deadline, WORK)
        self.work += made.work
        if made.schedule is not None:
            self.best[steps] = made.schedule

    def _batched(self) -> None:
        """Keep what repeating a batch gives, where that is an improvement."""
        wanted = (self.wanted.chunks, self.wanted.steps, self.wanted.rounds)
        if self.wanted.chunks is None and self.wanted.most_chunks == 1:
            return
        for each in known_batches(self.question, self.seed, self.deadline):
            for schedule in series(each, wanted, self.wanted.most_chunks):
                if _ratio(schedule) < self._least(schedule.asked.steps):
                    self.best[schedule.asked.steps] = schedule

    def _with(self, chunks: int) -> None:
        """Ask for more and more rounds, until the fewest steps would gain nothing by them."""
        fewest = self.wanted.steps or self.question.steps[0]
        first = max(math.ceil(self.question.rounds.per_chunk * chunks), fewest)
        self.open = 0
        for rounds in self._rounds(first):
            if Fraction(rounds, chunks) >= self._least(fewest) or self.open >= MOST_OPEN or self._is_over():
                return
            for steps in _range(self.wanted.steps, fewest, rounds):
                is_gain = Fraction(rounds, chunks) < self._least(steps) and self.open < MOST_OPEN
                if not is_gain or self._is_there(AskedSearch(chunks, steps, rounds)):
                    break

    def _is_over(self) -> bool:
        return self.deadline.passed() or (self.work > MOST_WORK and bool(self.best))

    def _is_there(self, asked: AskedSearch) -> bool:
        """Return whether there is a schedule, and keep it; what is excluded is so with more chunks, fewer steps or rounds too."""
        if any(
            each.chunks <= asked.chunks and each.steps >= asked.steps and each.rounds >= asked.rounds
            for each in self.excluded
        ):
            return False
        made = answer(self.question, asked, self.seed, self.deadline, WORK)
        self.work += made.work
        if made.schedule is not None:
            self.best[asked.steps], self.open = made.schedule, 0
        elif made.proof:
            self.excluded.append(asked)
        else:
            self.open += 1
            self.unsettled += 1
        self.why = made.proof or made.why
        return made.schedule is not None

    def _rounds(self, first: int) -> Iterable[int]:
        most = first * len(self.question.flows) + len(self.question.wires.edges)
        return _range(self.wanted.rounds, first, most)

    def _least(self, steps: int) -> Fraction | float:
        """Return the fewest rounds per chunk known with at most so many steps."""
        return min((_ratio(each) for at, each in self.best.items() if at <= steps), default=math.inf)

    def _raise(self) -> None:
        steps, rounds = self.wanted.steps, self.wanted.rounds
        limit = AskedSearch(self.wanted.chunks or 1, steps or self.question.steps[0], rounds or 1 << 30)
        proof = excluded(self.question, limit)
        if proof and not self.deadline.stopped:
            raise InfeasibleError(f"no algorithm is as wanted: {proof}", remedy="steps=none:rounds=none")
        if self.deadline.stopped:
            raise nothing_yet("sccl", "algorithm")
        raise InfeasibleError(f"no algorithm was reached: {self.why}", remedy="fewer chunks, steps=none:rounds=none")


def _ratio(schedule: RoundsSchedule) -> Fraction:
    return Fraction(schedule.asked.rounds, schedule.asked.chunks)


def _range(wanted: int | None, first: int, last: int) -> Iterable[int]:
    return range(first, last + 1) if wanted is None else (wanted,)
