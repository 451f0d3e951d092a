"""The least that a scheduled step can take, from its parts and without simulating it: work, wires, and what no order can hide.

Streams run their tasks in order and queues carry one operation at a time, so a step is no shorter than what either has to do.
What the next step needs lies between: operations that are made no earlier than by task B, and that task F of the next step or one
before it needs, have no work to hide behind but what is not between F and B. So the work from F to B, and all their wires, follow
each other. With a barrier F is the first task, and updates come between as well. Steady steps take no less, up to the thousandth
that they count as steady by; steps that wait for a fault, a late rank or another operation on their link take longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ringwright.costs.stages import Costs
from ringwright.rewrites import Operation, operations
from ringwright.workload import SHIFTS, Workload

MOST_CUTS = 64  # places of forward at which what lies before them is asked for
POINT_TO_POINT = ("send-recv", *SHIFTS)
UPDATE, BARRIER = "U", "barrier"


@dataclass(frozen=True)
class SentOnce:
    """An operation once a step: seconds on its queue, place of the last task that makes it, and of the first that needs it."""

    wire_s: float
    made: int
    needed: int


def least_step_s(workload: Workload, costs: Costs) -> float:
    """Return seconds that no step of a scheduled workload is shorter than, 0 where nothing is computed or sent.

    Raises UsageError for rewrites that cannot be applied, and what the costs raise.
    """
    return max((_of_class(workload, costs, each.name) for each in workload.classes), default=0.0)


def _of_class(workload: Workload, costs: Costs, of: str) -> float:
    line = _Line(workload, of)
    queues: dict[tuple[object, ...], list[SentOnce]] = defaultdict(list)
    busy: dict[tuple[object, ...], float] = defaultdict(float)
    for operation in operations(workload):
        if operation.of != of or operation.op in POINT_TO_POINT:
            continue
        once = line.ends_of(operation)
        for queue, wire_s in _wires(workload, costs, operation):
            busy[queue] += wire_s
            if once is not None:
                queues[queue].append(SentOnce(wire_s, *once))
    between = [line.between(each) for each in queues.values()]
    return max([*line.streams.values(), *busy.values(), *between], default=0.0)


def _wires(workload: Workload, costs: Costs, operation: Operation) -> Iterator[tuple[tuple[object, ...], float]]:
    """Yield the queue of each phase of an operation, and for how many seconds of a step it is on the wire there."""
    (whole, rest), ranks = operation.sizes(), workload.group(operation.of, operation.axes)
    times = workload.micro_batches if operation.per == "micro-batch" else 1
    large, small = (costs.stages(operation.asked, size, ranks, operation.role) for size in (whole, rest))
    for one, last in zip(large, small, strict=True):
        queue = (operation.role, operation.network, operation.axes, one.phase)
        yield queue, times * (one.wire_s * (operation.pieces - 1) + last.wire_s)


class _Line:
    """The work of a class in the order of its stream; ``streams`` are the seconds of a step on each."""

    def __init__(self, workload: Workload, of: str) -> None:
        self.workload = workload
        self.has_barrier = (workload.policy.boundary or BARRIER) == BARRIER
        line = workload.line(of)
        tasks = [workload.task[name] for name, _ in line]
        once = [each for each in workload.tasks if each.of == of and each.per == "step" and each.kind != "CTRL"]
        self.streams: dict[str, float] = defaultdict(float)
        for each in (*tasks, *once):
            self.streams[each.stream] += each.seconds
        self.is_plain = all(batch >= 0 for _, batch in line) and len({each.stream for each in tasks}) == 1
        self.ends = list(accumulate((each.seconds for each in tasks), initial=0.0))
        self.last = {name: at for at, (name, _) in enumerate(line)}
        self.first = {name: at for at, (name, _) in reversed(list(enumerate(line)))}
        shared = {each.stream for each in tasks}  # a kernel that sums and updates has a stream of its own
        behind = [e for e in once if e.kind == UPDATE and self.has_barrier and not e.lag and e.stream in shared]
        self.updates = {each.name: each.seconds for each in behind}
        self.behind = {edge.src: edge.dst for edge in reversed(workload.edges) if edge.distance == 1}

    def ends_of(self, operation: Operation) -> tuple[int, int] | None:
        """Return the last task that makes an operation, and the first of the next step that needs it; None where nobody tells."""
        plain = operation.per == "step" and self.workload.policy.boundary != "reads" and self.is_plain
        if not plain or any(each.lag or each.joint for each in operation.payloads):
            return None
        made = [max((self.last.get(name, -1) for name in each.producers), default=-1) for each in operation.payloads]
        needed = [self._needed(name, distance) for each in operation.payloads for name, distance in each.consumers]
        if min(made) < 0 or not needed or min(needed) < 0:
            return None
        return (max(made) if operation.pieces == 1 else min(made)), max(needed)

    def _needed(self, consumer: str, distance: int) -> int:
        """Return the place in the next step of what waits for a consumer: the first one's behind a barrier; -1: not known."""
        if distance == 0 and self.has_barrier:
            return 0 if consumer in self.updates else -1
        behind = self.behind.get(consumer, "") if distance == 0 else consumer
        return self.first.get(behind, -1)

    def between(self, sent: list[SentOnce]) -> float:
        """Return the longest of what lies between a task of forward and what the operations of one queue wait for."""
        made, needed = (np.array([getattr(each, name) for each in sent]) for name in ("made", "needed"))
        wire_s, ends, best = np.array([each.wire_s for each in sent]), np.array(self.ends), 0.0
        cuts = np.unique(needed)
        for cut in cuts[:: -(-len(cuts) // MOST_CUTS)].tolist():
            mine = np.flatnonzero((needed <= cut) & (made >= cut))
            order = mine[np.argsort(-made[mine], kind="stable")]
            if len(order):
                longest = ends[made[order] + 1] - ends[cut] + np.cumsum(wire_s[order])
                best = max(best, float(longest.max()))
        return best + (sum(self.updates.values()) if self.has_barrier and best else 0.0)
