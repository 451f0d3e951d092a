"""Workers of a pool of slots: which packet each sends when, and what it makes of results. They know no links.

``send(worker, chunk, now_ps)`` puts a packet on the wire, ``wake(worker, at_ps)`` asks to be called again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.engines.pools.pool_machine import MOST_TIMER_PS

if TYPE_CHECKING:
    from ringwright.engines.pools.pool_machine import Mending, SlotPool

Send = Callable[[int, int, int], int]  # returns when the link is free again
Wake = Callable[[int, int], None]


class RoundTripTimer:
    """The timer of one worker, in ps; fixed, or by the round trip as TCP has it (RFC 6298)."""

    def __init__(self, mending: Mending) -> None:
        self.mending = mending
        self.mean_ps = self.deviation_ps = self.floor_ps = 0.0

    @property
    def rto_ps(self) -> float:
        """How long a packet waits for its result."""
        if not self.mending.adapts:
            return self.mending.timeout_ps
        known = max(self.mending.timeout_ps, self.mean_ps + 4 * self.deviation_ps) if self.mean_ps else 0.0
        return max(known or self.mending.first_ps, self.floor_ps)

    def due_ps(self, tries: int) -> float:
        """Return how long after its last copy a packet is sent again."""
        rto = self.rto_ps
        return min(rto * (1 << tries), max(MOST_TIMER_PS, rto)) if self.mending.adapts else rto

    def measured(self, trip_ps: int) -> None:
        """Take a round trip of a packet that was sent once."""
        self.floor_ps = 0.0
        if not self.mean_ps:
            self.mean_ps, self.deviation_ps = trip_ps, trip_ps / 2
            return
        self.deviation_ps += (abs(self.mean_ps - trip_ps) - self.deviation_ps) / 4
        self.mean_ps += (trip_ps - self.mean_ps) / 8

    def unclear(self, since_ps: int) -> None:
        """Take an answer to any of several copies: wait longer until one tells (after Karn and Partridge)."""
        self.floor_ps = min(since_ps, 2 * self.rto_ps, MOST_TIMER_PS)


class TimedWorkers:
    """Workers with a timer for each slot (algorithm 4 of Sapio et al.): a result lets the next packet into its slot."""

    def __init__(self, pool: SlotPool, send: Send, wake: Wake) -> None:
        self.pool, self.send, self.wake = pool, send, wake
        used, workers = min(pool.slots, pool.packets), pool.workers
        self.used = used
        self.chunk = [list(range(used)) for _ in range(workers)]  # that each slot carries; -1: none
        self.sent_ps = [[0] * used for _ in range(workers)]
        self.first_ps = [[0] * used for _ in range(workers)]
        self.tries = [[0] * used for _ in range(workers)]
        self.timers = [RoundTripTimer(pool.mending) for _ in range(workers)]
        self.planned_ps = [0.0] * workers  # the timer with which the next waking was asked for
        self.left = [pool.packets] * workers
        self.expired = self.again = 0

    def begin(self, worker: int, now_ps: int) -> None:
        """Send the first packets."""
        for slot in range(self.used):
            self.sent_ps[worker][slot] = self.first_ps[worker][slot] = now_ps
            self.send(worker, slot, now_ps)
        self._plan(worker, now_ps)

    def result(self, worker: int, chunk: int, now_ps: int) -> None:
        """Take a result."""
        slot, timer = chunk % self.pool.slots, self.timers[worker]
        if self.chunk[worker][slot] != chunk:
            return
        if not self.tries[worker][slot]:
            timer.measured(now_ps - self.sent_ps[worker][slot])
        else:
            timer.unclear(now_ps - self.first_ps[worker][slot])
        self.left[worker] -= 1
        following = chunk + self.pool.slots
        self.chunk[worker][slot] = following if following < self.pool.packets else -1
        if following < self.pool.packets:
            self.sent_ps[worker][slot] = self.first_ps[worker][slot] = now_ps
            self.tries[worker][slot] = 0
            self.send(worker, following, now_ps)
        if timer.rto_ps < 0.9 * self.planned_ps[worker] and self.left[worker]:
            self._plan(worker, now_ps)
        elif self.left[worker]:
            self.wake(worker, int(now_ps + self.pool.mending.timeout_ps) + 1)

    def woken(self, worker: int, now_ps: int) -> None:
        """Send again what has waited too long."""
        timer, chunks, sent, tries = self.timers[worker], self.chunk[worker], self.sent_ps[worker], self.tries[worker]
        for slot in range(self.used):
            if chunks[slot] >= 0 and sent[slot] + timer.due_ps(tries[slot]) <= now_ps:
                tries[slot] += 1
                sent[slot] = now_ps
                self.expired += 1
                self.again += 1
                self.send(worker, chunks[slot], now_ps)
        if self.left[worker]:
            self._plan(worker, now_ps)

    def _plan(self, worker: int, now_ps: int) -> None:
        """Ask to be woken when the next packet has waited too long."""
        timer, chunks, sent, tries = self.timers[worker], self.chunk[worker], self.sent_ps[worker], self.tries[worker]
        waiting = [slot for slot in range(self.used) if chunks[slot] >= 0]
        due = min(sent[slot] + timer.due_ps(tries[slot]) for slot in waiting)
        self.planned_ps[worker] = timer.rto_ps
        # What is sent from now on is due no sooner than the least timer from now; with no first copy under way, a result says so.
        if any(not tries[slot] for slot in waiting):
            due = min(due, now_ps + self.pool.mending.timeout_ps)
        self.wake(worker, max(now_ps + 1, int(due) + 1))
