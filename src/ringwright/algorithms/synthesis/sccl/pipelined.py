"""Schedules of a broadcast for as many chunks as one likes: a batch of chunks, sent again and again.

A batch's schedule is searched whose steps, taken ``period`` apart, fit beside each other into one round of every limit. Then
batch after batch may start, each ``period`` steps after the one before, and rounds per chunk come as near to the bound as
one likes: with m batches of k chunks that take h steps, k m chunks in h + (m-1) period rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.algorithms.synthesis.sccl.model import AskedSearch, Model, RoundsSchedule

if TYPE_CHECKING:
    from ringwright.algorithms.searching import Deadline
    from ringwright.algorithms.synthesis.sccl.question import RoundsQuestion

PERIODS = (1, 2)
WORK, WORK_LAST = 0.2, 2.0  # deterministic time of one search, and of the one with the most steps
MOST_CHUNKS = 1024


@dataclass(frozen=True)
class Batch:
    """The schedule of one batch; the next one starts ``period`` steps later."""

    schedule: RoundsSchedule
    period: int

    def batches(self, chunks: int) -> int:
        """Return how many batches so many chunks are."""
        return -(-chunks // self.schedule.asked.chunks)

    def steps(self, chunks: int) -> int:
        """Return the steps, and rounds, that so many chunks take."""
        return self.schedule.asked.steps + (self.batches(chunks) - 1) * self.period

    def repeated(self, asked: AskedSearch) -> RoundsSchedule | None:
        """Return the schedule of several batches, the last perhaps of fewer chunks; None where it takes longer than asked."""
        if self.steps(asked.chunks) > asked.steps:
            return None
        each = self.schedule.asked.chunks
        sends = sorted(
            (step + batch * self.period, edge, flow, batch * each + chunk)
            for step, edge, flow, chunk in self.schedule.sends
            for batch in range(self.batches(asked.chunks))
            if batch * each + chunk < asked.chunks
        )
        return RoundsSchedule(asked, tuple(sends), (1 + asked.rounds - asked.steps, *[1] * (asked.steps - 1)))


def batches(question: RoundsQuestion, seed: int, deadline: Deadline) -> tuple[Batch, ...]:
    """Return batches with the fewest steps for each period, the shorter ones last; none where the question is no broadcast."""
    made: list[Batch] = []
    if not question.is_broadcast:
        return ()
    for period in PERIODS:
        chunks = max(1, int(period / question.rounds.per_chunk))
        most = made[-1].schedule.asked.steps - 1 if made else question.wires.p - 1
        best = _shortest(question, chunks, period, most, seed, deadline)
        made += [Batch(best, period)] if best else []
    return tuple(made)


def _shortest(
    question: RoundsQuestion, chunks: int, period: int, most: int, seed: int, deadline: Deadline
) -> RoundsSchedule | None:
    """Return the batch with the fewest steps, at most ``most``: 1, 2, 4, ... more steps than needed, then halving between.

    What is not settled in time counts as none.
    """
    low = question.steps[0]
    best, steps, stride = None, low, 1
    while low <= most and not deadline.passed():
        work = WORK if steps < most or best else WORK_LAST
        schedule, _ = Model(question, AskedSearch(chunks, steps, steps), period=period).solve(work, seed, deadline)
        if isinstance(schedule, RoundsSchedule):
            best, most = schedule, steps - 1
        else:
            low = steps + 1
        steps = (low + most) // 2 if best else min(steps + stride, most)
        stride *= 2
    return best


def series(each: Batch, asked: tuple[int | None, int | None, int | None], most: int) -> list[RoundsSchedule]:
    """Return the schedules of 1, 2, 4, ... batches with at most ``most`` chunks, and those with what is asked for of them."""
    chunks, steps, rounds = asked
    size = each.schedule.asked.chunks
    counts = {size << power for power in range(MOST_CHUNKS.bit_length()) if size << power <= most}
    counts |= {chunks} if chunks else set()
    counts |= {
        size * ((total - each.schedule.asked.steps) // each.period + 1)
        for total in (steps, rounds)
        if total and total >= each.schedule.asked.steps
    }
    made = []
    for count in sorted(counts):
        total = each.steps(count)
        wanted = zip(asked, (count, total, total), strict=True)
        if count <= MOST_CHUNKS and all(want in (None, have) for want, have in wanted):
            schedule = each.repeated(AskedSearch(count, total, total))
            made += [schedule] if schedule else []
    return made
