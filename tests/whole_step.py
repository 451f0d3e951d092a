"""A step of a job as one program: every message of every operation of every rank, and compute as delays, on the event engine at once.

The reference of what the engine of jobs answers: there operations have a time and share resources by rates; here their messages meet on
the links. What waits for what, and in which order a queue takes its operations, is the laid-out job's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ringwright.engines import events
from ringwright.engines.flat import flatten
from ringwright.engines.job.run import JobRun, simulate
from ringwright.engines.machine import machine
from ringwright.engines.messages import MessageGraph
from ringwright.engines.switch_slots import machines
from ringwright.ground.units import PS
from ringwright.jobs.pricing.cost_cache import TimedRanks
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.model.workload import Workload

Ids = np.ndarray | int
Asked = tuple[str, int, tuple[int, ...]]  # operation, size in bytes, ranks


@dataclass
class _Graph:
    """Messages and joins under construction; joins have negative numbers, and ``tasks`` are messages that only take time."""

    parts: list[MessageGraph] = field(default_factory=list)
    messages: int = 0
    joins: int = 0
    src: list[np.ndarray] = field(default_factory=list)
    dst: list[np.ndarray] = field(default_factory=list)

    def wait(self, before: Ids, after: Ids) -> None:
        before, after = np.broadcast_arrays(before, after)
        self.src.append(before.ravel())
        self.dst.append(after.ravel())

    def add(self, part: MessageGraph, base_ps: int) -> tuple[int, int]:
        """Take a program in; return the join that it begins behind and the one that ends it."""
        own, inner = part.n_messages, len(part.waits) - part.n_messages
        names = np.concatenate((self.messages + np.arange(own), -1 - self.joins - np.arange(inner)))
        begin, end = -1 - self.joins - inner, -2 - self.joins - inner
        follows = np.diff(part.next_starts)
        self.wait(np.repeat(names, follows), names[part.nexts])
        self.wait(begin, names[part.waits == 0])
        self.wait(names[follows == 0], end)
        self.wait(begin, end)
        part.delay[part.waits[:own] == 0] += base_ps
        self.parts.append(part)
        self.messages += own
        self.joins += inner + 2
        return begin, end

    def tasks(self, work_ps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take compute in: messages without a route, which their delays end."""
        n = len(work_ps)
        zero, none = np.zeros(n, np.int64), np.zeros(0, np.int32)
        waits = np.zeros(n, np.int32)
        part = MessageGraph(
            zero,
            zero,
            zero,
            zero > 0,
            waits,
            np.zeros(n + 1, np.int64),
            none,
            np.zeros(n + 1, np.int64),
            none,
            waits,
            work_ps,
        )
        first = self.messages
        self.parts.append(part)
        self.messages += n
        return first + np.arange(n), first + np.arange(n)

    def whole(self) -> MessageGraph:
        count = self.messages + self.joins
        src, dst = (np.concatenate(ends) for ends in (self.src, self.dst))
        src, dst = (np.where(ends < 0, self.messages - 1 - ends, ends) for ends in (src, dst))
        order = np.argsort(src, kind="stable")
        lengths = np.concatenate([np.diff(part.hop_starts) for part in self.parts])
        return MessageGraph(
            self._all("src"),
            self._all("dst"),
            self._all("size_bytes"),
            self._all("adds"),
            self._all("step"),
            np.concatenate(([0], np.cumsum(lengths))),
            self._all("hops").astype(np.int32),
            np.concatenate(([0], np.cumsum(np.bincount(src, minlength=count)))),
            dst[order].astype(np.int32),
            np.bincount(dst, minlength=count).astype(np.int32),
            self._all("delay"),
        )

    def _all(self, name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in self.parts])


def both(workload: Workload, costs: FabricCosts) -> tuple[float, float]:
    """Return the seconds of one step of a scheduled workload from begin to end: by the engine of jobs, and by all messages at once."""
    run = simulate(workload, costs, steps=1, folded=False)
    return float(run.times.end.max()) / PS, seconds(run, costs)


def seconds(run: JobRun, costs: FabricCosts) -> float:
    """Return the seconds that the messages of a job's one step take together."""
    flat, graph = run.laid.flat, _Graph()
    begin, end = graph.tasks(flat.work_ps.copy())
    ops = {each.name: each.op for each in run.laid.operations}
    asked: dict[int, Asked] = {}  # by instance
    for row in run.laid.rows:
        if row.what == "operation" and len(row.rank_classes) > 1:
            ranks = tuple(run.laid.rank_classes.ranks[each] for each in row.rank_classes)
            for at in range(row.first, row.first + row.count):
                size_bytes = row.last_bytes if at == row.first + row.count - 1 else row.size_bytes
                asked[at] = (ops[row.name], size_bytes, ranks)
    programs = {each: costs.program(each[0], each[1], TimedRanks(each[2])) for each in dict.fromkeys(asked.values())}
    # What a node of the network can hold limits its results here too: each program has resources of its own for that.
    used = machines(list(programs.values()), costs.topology)
    parts = {each: flatten(programs[each], made) for each, made in zip(programs, used, strict=True)}
    for at, each in asked.items():
        part = replace(parts[each], delay=parts[each].delay.copy())
        begin[at], end[at] = graph.add(part, round(programs[each].software.base_s * PS))
    carrying = used[-1].carrying(next(reversed(programs.values()))) if used else machine(costs.topology)
    before, after = flat.edges()
    graph.wait(end[before], begin[after])
    for queue in range(len(flat.queues.names)):
        mine = np.flatnonzero(flat.queue == queue)
        turn = mine[np.lexsort((mine, run.times.moved[mine]))]
        graph.wait(end[turn[:-1]], begin[turn[1:]])
    return float(events.run(graph.whole(), carrying).end_ps.max()) / PS
