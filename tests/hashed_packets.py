"""Packets of several jobs through one pool of slots, by a hash, with a server for each job: the truth beside ``hashed_pool``.

All jobs are alike: n workers and a server on one switch, a link each. What of a packet came to a taken slot goes to the server,
and so does all of it that comes later: as if a switch knew that its first part has passed.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from ringwright.ground.hashing import mixed_int

_UP, _AT_SERVER, _ANSWER, _DOWN = range(4)


@dataclass(frozen=True)
class HashedRun:
    """``times_ps``: when the last worker of each job had its last result; ``missed``: packets of each that found no slot."""

    times_ps: tuple[int, ...]
    missed: tuple[int, ...]


def simulate_hashed(
    jobs: int,
    workers: int,
    slots: int,
    window: int,
    packets: int,
    packet_ps: int,
    latency_ps: int,
    slow: Sequence[float] = (),
) -> HashedRun:
    """Return the run of ``packets`` of each worker; ``slow``: times longer than others worker 1 of each job sends."""
    return _HashedLoop(jobs, workers, slots, window, packets, packet_ps, latency_ps, slow).run()


class _HashedLoop:
    def __init__(
        self,
        jobs: int,
        workers: int,
        slots: int,
        window: int,
        packets: int,
        packet_ps: int,
        latency_ps: int,
        slow: Sequence[float],
    ) -> None:
        self.jobs, self.workers, self.slots, self.window, self.packets = jobs, workers, slots, window, packets
        self.packet_ps, self.latency_ps = packet_ps, latency_ps
        self.slow = list(slow) or [1.0] * jobs
        self.events: list[tuple[int, int, int, int, int, int]] = []  # time, turn, kind, job, worker, chunk
        self.turn = 0
        self.up_ps = [[0] * (workers + 1) for _ in range(jobs)]  # when a link is free; the server's is the last
        self.down_ps = [[0] * (workers + 1) for _ in range(jobs)]
        self.owner: dict[int, tuple[int, int]] = {}  # of each slot in use
        self.heard: dict[tuple[int, int], int] = {}  # contributions in a slot, or at the server
        self.passed: list[set[int]] = [set() for _ in range(jobs)]  # packets that found no slot

    def run(self) -> HashedRun:
        for job in range(self.jobs):
            for worker in range(self.workers):
                for chunk in range(min(self.window, self.packets)):
                    self._up(job, worker, chunk, 0)
        ends = [0] * self.jobs
        while self.events:
            now, _, kind, job, worker, chunk = heapq.heappop(self.events)
            if kind == _UP:
                self._at_switch(job, chunk, now)
            elif kind == _AT_SERVER:
                self._at_server(job, chunk, now)
            elif kind == _ANSWER:
                self._answered(job, chunk, now)
            else:
                ends[job] = now
                self._result(job, worker, chunk, now)
        return HashedRun(tuple(ends), tuple(len(each) for each in self.passed))

    def _at_switch(self, job: int, chunk: int, now: int) -> None:
        slot = self._slot(job, chunk)
        if chunk in self.passed[job] or self.owner.setdefault(slot, (job, chunk)) != (job, chunk):
            self.passed[job].add(chunk)
            self._down(job, self.workers, chunk, now, _AT_SERVER)
        elif self._has_all(job, chunk):
            self._down(job, self.workers, chunk, now, _AT_SERVER)

    def _at_server(self, job: int, chunk: int, now: int) -> None:
        """Take a sum, which is answered at once, or one of the contributions that found no slot."""
        if chunk not in self.passed[job] or self._has_all(job, chunk):
            self._up(job, self.workers, chunk, now, _ANSWER)

    def _has_all(self, job: int, chunk: int) -> bool:
        """Count a contribution; say whether it was the last."""
        count = self.heard.pop((job, chunk), 0) + 1
        if count < self.workers:
            self.heard[job, chunk] = count
        return count == self.workers

    def _answered(self, job: int, chunk: int, now: int) -> None:
        slot = self._slot(job, chunk)
        if self.owner.get(slot) == (job, chunk):
            del self.owner[slot]
        for worker in range(self.workers):
            self._down(job, worker, chunk, now, _DOWN)

    def _slot(self, job: int, chunk: int) -> int:
        return mixed_int((job << 40) + chunk) % self.slots

    def _result(self, job: int, worker: int, chunk: int, now: int) -> None:
        if chunk + self.window < self.packets:
            self._up(job, worker, chunk + self.window, now)

    def _up(self, job: int, worker: int, chunk: int, now: int, kind: int = _UP) -> None:
        takes = round(self.packet_ps * (self.slow[job] if worker == 1 else 1.0))
        sent = self.up_ps[job][worker] = max(now, self.up_ps[job][worker]) + takes
        self._put(sent + self.latency_ps, kind, job, worker, chunk)

    def _down(self, job: int, worker: int, chunk: int, now: int, kind: int) -> None:
        sent = self.down_ps[job][worker] = max(now, self.down_ps[job][worker]) + self.packet_ps
        self._put(sent + self.latency_ps, kind, job, worker, chunk)

    def _put(self, at: int, kind: int, job: int, worker: int, chunk: int) -> None:
        self.turn += 1
        heapq.heappush(self.events, (at, self.turn, kind, job, worker, chunk))
