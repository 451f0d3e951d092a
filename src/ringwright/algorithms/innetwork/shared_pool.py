"""Jobs that share a switch's pool of slots: parted once and for all, or each packet by its hash with a server behind.

Time is in packets of a worker's line. Every job repeats a step: it computes, then sends its packets, no more under way than a
round trip takes. A packet holds a slot for a round trip. *Parted*, a job has an equal share of the slots and waits for its own
(SwitchML); what others do not use is of no use to it. *Hashed*, a packet takes the slot that job and number name; where another
one is there, all workers' packets go on to the job's server, whose line takes them one after the other (ATP). So sharing by
hash pays where jobs compute most of the time, and costs where all send at once.
Mechanism: Sapio et al., NSDI 2021; Lao et al., NSDI 2021; the model is this project's, without congestion control.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.ground.hashing import mixed_int

MOST_TICKS = 5_000_000


@dataclass(frozen=True)
class PoolJobs:
    """Equal jobs on one switch.

    Parameters
    ----------
    jobs, workers
        Jobs, and workers of each.
    packets, compute_ticks
        What a step sends of each worker, and for how many packet times it computes before.
    slots, trip_ticks
        Slots of the switch, and packet times from sending to the result.
    steps
        That each job does; their starts are drawn by ``seed`` over one step.
    """

    jobs: int
    workers: int = 8
    packets: int = 200
    compute_ticks: int = 200
    slots: int = 64
    trip_ticks: int = 64
    steps: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise UsageError for jobs that are none, or too many for a slot each."""
        least = (self.jobs, self.workers, self.packets, self.trip_ticks, self.steps)
        if min(least) < 1 or self.compute_ticks < 0 or self.jobs > self.slots:
            raise UsageError(
                f"{self.jobs} jobs of {self.workers} workers and {self.packets} packets on {self.slots} slots",
                remedy="all of them 1 or more, and no more jobs than slots",
            )


@dataclass(frozen=True)
class SharedPoolTimes:
    """What jobs had of a pool: packet times of a step, float64 of shape (jobs,), and the share of packets that servers added."""

    step_ticks: np.ndarray
    at_servers: float


class _Job:
    """One job under way: what it has sent of this step, what is under way, when it may go on."""

    def __init__(self, number: int, asked: PoolJobs, start: int) -> None:
        self.number, self.asked, self.start = number, asked, start
        self.resumes, self.sent, self.step = start + asked.compute_ticks, 0, 0
        self.under_way: list[int] = []
        self.ended = start
        self.server_free = self.at_server = 0

    @property
    def is_done(self) -> bool:
        return self.step == self.asked.steps

    def settle(self, tick: int) -> None:
        """Take what has come back; with the last result of a step the next one begins."""
        while self.under_way and self.under_way[0] <= tick:
            self.ended = heapq.heappop(self.under_way)
        if self.sent == self.asked.packets and not self.under_way:
            self.step, self.sent, self.resumes = self.step + 1, 0, self.ended + self.asked.compute_ticks

    def can_send(self, tick: int) -> bool:
        has_more = not self.is_done and self.sent < self.asked.packets
        return has_more and tick >= self.resumes and len(self.under_way) < self.asked.trip_ticks

    def send(self, tick: int, busy_until: np.ndarray, slot: int, *, falls_back: bool) -> None:
        """Send a packet to a slot: it waits where that is taken, or falls back to the server."""
        back = tick + self.asked.trip_ticks
        if busy_until[slot] <= tick:
            busy_until[slot] = back
        elif not falls_back:
            return
        else:
            self.server_free = max(self.server_free, tick + self.asked.trip_ticks // 2) + self.asked.workers
            back, self.at_server = self.server_free + self.asked.trip_ticks // 2, self.at_server + 1
        heapq.heappush(self.under_way, back)
        self.sent += 1


def shared(asked: PoolJobs, sharing: Literal["parted", "hashed"]) -> SharedPoolTimes:
    """Return what jobs have of a pool that is shared in one of two ways; UsageError where they do not end in any sane time."""
    starts = np.random.default_rng(asked.seed).integers(0, asked.packets + asked.compute_ticks, asked.jobs)
    jobs = [_Job(number, asked, int(start)) for number, start in enumerate(starts)]
    busy_until = np.zeros(asked.slots, np.int64)
    for tick in range(MOST_TICKS):
        for job in jobs:
            job.settle(tick)
        if all(job.is_done for job in jobs):
            return _times(asked, jobs)
        for turn in range(asked.jobs):  # who is first changes from tick to tick
            job = jobs[(tick + turn) % asked.jobs]
            if job.can_send(tick):
                job.send(tick, busy_until, _slot(asked, job, sharing), falls_back=sharing == "hashed")
    raise UsageError(
        f"{asked.jobs} jobs of {asked.steps} steps did not end in {MOST_TICKS:,} packet times",
        remedy="fewer packets, steps or compute_ticks",
    )


def _slot(asked: PoolJobs, job: _Job, sharing: str) -> int:
    """Return the slot of a job's next packet."""
    number, own = job.step * asked.packets + job.sent, asked.slots // asked.jobs
    return (
        job.number * own + number % own if sharing == "parted" else mixed_int(number << 16 | job.number) % asked.slots
    )


def _times(asked: PoolJobs, jobs: list[_Job]) -> SharedPoolTimes:
    times = np.array([(job.ended - job.start) / asked.steps for job in jobs])
    return SharedPoolTimes(times, sum(job.at_server for job in jobs) / (asked.jobs * asked.packets * asked.steps))
