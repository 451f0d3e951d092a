"""Who waits for whom through others: a bit for each task that a task waits for, within a step and into the step before."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.model.workload import Workload


class Reach:
    """What each task waits for, directly or through other tasks and payloads, of its own step and of those before."""

    def __init__(self, workload: Workload) -> None:
        self.names = [task.name for task in workload.tasks]
        self.bit = {name: 1 << at for at, name in enumerate(self.names)}
        self.before: dict[str, list[str]] = defaultdict(list)  # of the same step
        self.carried: dict[str, list[str]] = defaultdict(list)  # of the step before
        self.older: dict[str, list[str]] = defaultdict(list)  # of any step before that
        for edge in workload.edges:
            self._join(edge.src, edge.dst, edge.distance)
        for payload in workload.payloads:
            for consumer, distance in payload.consumers:
                for producer in payload.producers:
                    self._join(producer, consumer, distance)

    def waits(self, reader: str, writer: str, distance: int) -> bool:
        """Return whether a task waits for another one of so many steps before: its own step, or, from 1 on, any before it."""
        return any(
            reached.get(reader, 0) & self.bit.get(writer, 0) for reached in self.steps[min(distance, 1) : distance + 1]
        )

    @cached_property
    def steps(self) -> tuple[Mapping[str, int], ...]:
        """Bits of what a task waits for in its own step, of what in the step before, and of what in any step before that."""
        own: dict[str, int] = {}
        last: dict[str, int] = {}
        order = self._ordered()
        for name in order:
            own[name] = self._joined(self.before[name], own)
        for name in order:
            bits = self._joined(self.carried[name], own)
            for each in self.before[name]:
                bits |= last.get(each, 0)
            last[name] = bits
        if not self.older:
            return own, last
        far: dict[str, int] = {}
        for name in order:
            bits = self._joined(self.older[name], own)
            for each in self.carried[name]:
                bits |= last.get(each, 0)
            for each in self.before[name]:
                bits |= far.get(each, 0)
            far[name] = bits
        return own, last, far

    def _joined(self, sources: list[str], own: Mapping[str, int]) -> int:
        bits = 0
        for each in sources:
            bits |= own.get(each, 0) | self.bit.get(each, 0)
        return bits

    def _join(self, src: str, dst: str, distance: int) -> None:
        (self.older if distance > 1 else self.carried if distance else self.before)[dst].append(src)

    def _ordered(self) -> list[str]:
        """Return the tasks, each behind what it waits for within a step; those of a cycle are left out."""
        after: dict[str, list[str]] = defaultdict(list)
        waiting = dict.fromkeys(self.names, 0)
        for dst, sources in self.before.items():
            for src in sources:
                after[src].append(dst)
                waiting[dst] = waiting.get(dst, 0) + 1
        free, order = deque(name for name in self.names if not waiting[name]), list[str]()
        while free:
            order.append(name := free.popleft())
            for each in after[name]:
                waiting[each] -= 1
                if not waiting[each]:
                    free.append(each)
        return order
