"""Arcs and the resources that messages on them occupy, as the event engine has it: for searches that follow messages in time."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ringwright.algorithms.networks import ArcNetwork

MOST_PS = 9e17  # of all messages, one after the other: ten days


@dataclass(frozen=True)
class TimedMessages:
    """Messages in the order in which they start: arc, step, start and end (ps) of each, and what it carries.

    int32, int32, int64 and int64 of shape (messages,); ``starts`` (int64) cuts ``pieces`` (int32), numbers of chunks or moves.
    A message has a later step than what it waited for, and no earlier one than those before it on its resources.
    """

    arc: np.ndarray
    step: np.ndarray
    start: np.ndarray
    end: np.ndarray
    starts: np.ndarray
    pieces: np.ndarray

    @property
    def makespan(self) -> int:
        """When the last message has arrived, in ps."""
        return int(self.end.max(initial=0))


class ArcsInUse:
    """From when on each arc is idle, and the last step on each resource.

    ``times`` (float64, one a hop) says how often the bytes of a message pass there, where an arc stands for many.
    """

    def __init__(self, net: ArcNetwork, times: np.ndarray | None = None) -> None:
        starts, hops = net.hop_starts.tolist(), net.hops.tolist()
        each = [1.0] * len(hops) if times is None else times.tolist()
        self.hops = [hops[begin:end] for begin, end in itertools.pairwise(starts)]
        self.times = [each[begin:end] for begin, end in itertools.pairwise(starts)]
        self.delay, self.latency = net.delay.tolist(), net.latency.tolist()
        self.ps_per_byte: list[float] = net.ps_per_byte.tolist()
        self.holds: list[int] = net.holds.tolist()
        self.free, self.stepped = [0] * len(self.latency), [-1] * len(self.latency)

    def busy(self, size: int, resource: int) -> int:
        """Return for how many ps so many bytes keep a resource busy."""
        return math.ceil(size * self.ps_per_byte[resource])

    def idle_from(self, arc: int) -> int:
        """Return from when on, in ps, a message meets no other on the arc."""
        offset, since = self.delay[arc], 0
        for resource in self.hops[arc]:
            since = max(since, self.free[resource] - offset)
            offset += self.latency[resource]
        return since

    def step(self, arc: int, arrived: int, *, alone: bool = False) -> int:
        """Return the step of the next message on an arc, if what it waited for is of steps up to ``arrived``.

        It is the only one of its step on its first resource, or (``alone``) on all that it passes.
        """
        step = arrived + 1
        for at, resource in enumerate(self.hops[arc]):
            step = max(step, self.stepped[resource] + (alone or at == 0))
        return step

    def passes(self, arc: int, size: int, now: int, step: int) -> int:
        """Put a message on the arc, as the event engine will; return when it has arrived, in ps."""
        head = tail = now + self.delay[arc]
        for resource, each in zip(self.hops[arc], self.times[arc], strict=True):
            begin = max(head, self.free[resource])
            stop = begin + math.ceil(size * each * self.ps_per_byte[resource])
            self.free[resource] = stop + self.latency[resource] if self.holds[resource] else stop
            head = begin + self.latency[resource]
            tail = max(stop, tail) + self.latency[resource]
            self.stepped[resource] = step
        return int(tail)


def most_ps(net: ArcNetwork, size_bytes: float, messages: int) -> float:
    """Return what so many bytes and messages take one after the other, each over the longest route: no time is longer."""
    hops = int((net.hop_starts[1:] - net.hop_starts[:-1]).max(initial=1))
    slowest, latency = float(net.ps_per_byte.max(initial=0.0)), float(net.latency.max(initial=0))
    return size_bytes * slowest * hops + ((latency + 1) * hops + float(net.delay.max(initial=0))) * messages
