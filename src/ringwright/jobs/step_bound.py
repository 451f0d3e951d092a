"""The least that a scheduled step can take, from its parts and without simulating it: work, wires, and what no order can hide.

Streams run their tasks in order and queues carry one operation at a time, so a step is no shorter than what either has to do.
What the next step needs lies between: operations that are made no earlier than by task B, and that task F of the next step or one
before it needs, have no work to hide behind but what is not between F and B. So the work from F to B, and all their wires, follow
each other. With a barrier F is the first task, and updates come between as well. Steady steps take no less, up to the thousandth
that they count as steady by; steps that wait for a fault, a late rank or another operation on their link take longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from ringwright.model.rewrites import Operation, operations
from ringwright.model.stages import Costs
from ringwright.model.workload import SHIFTS, Workload

MOST_CUTS = 64  # places of forward at which what lies before them is asked for
POINT_TO_POINT = ("send-recv", *SHIFTS)
UPDATE, BARRIER = "U", "barrier"


def least_step_s(workload: Workload, costs: Costs) -> float:
    """Return seconds that no step of a scheduled workload is shorter than, 0 where nothing is computed or sent.

    Raises UsageError for rewrites that cannot be applied, and what the costs raise.
    """
    return LeastStep(workload).seconds(costs)


@dataclass(frozen=True)
class LeastStep:
    """The least step of a scheduled workload, ready to be asked about one machine or library after another."""

    workload: Workload

    @cached_property
    def _lines(self) -> dict[str, _Line]:
        return {each.name: _Line(self.workload, each.name) for each in self.workload.classes}

    @cached_property
    def _sent(self) -> _Sent:
        return _Sent.of(self.workload, self._lines)

    @property
    def sent(self) -> int:
        """How many different operations are asked about."""
        return len(self._sent.questions)

    def seconds(self, costs: Costs) -> float:
        """Return seconds that no step is shorter than; what the costs raise."""
        sent = self._sent
        least = max((seconds for line in self._lines.values() for seconds in line.streams.values()), default=0.0)
        asked = [costs.stages(*each) for each in sent.questions]
        for phase in {stage.phase for stages in asked for stage in stages}:
            wire_s = np.array([sum(stage.wire_s for stage in stages if stage.phase == phase) for stages in asked])
            taken = sent.disturbed * (sent.before * wire_s[sent.whole] + sent.times * wire_s[sent.rest])
            for (of, *_), mine in sent.queues.items():
                once = mine[(sent.made[mine] >= 0) & (taken[mine] > 0)]
                between = self._lines[of].between(taken[once], sent.made[once], sent.needed[once])
                least = max(least, float(taken[mine].sum()), between)
        return least


@dataclass(frozen=True)
class _Sent:
    """The operations of a step that are not of two ranks, as columns of shape (operations,), int64, but ``disturbed`` float64.

    ``questions`` are what costs are asked: (op, bytes, ranks, role). An operation is ``before`` pieces like ``whole`` and one
    like ``rest``, ``times`` a step (``before`` counts these too), each ``disturbed`` times as long as asked. ``made`` is the
    place of the last task that makes it, ``needed`` that of the first that needs it, -1 where nobody tells. ``queues``: the
    operations of each.
    """

    questions: list[tuple[str, int, tuple[int, ...], str]]
    queues: dict[tuple[str, ...], np.ndarray]
    disturbed: np.ndarray
    whole: np.ndarray
    rest: np.ndarray
    before: np.ndarray
    times: np.ndarray
    made: np.ndarray
    needed: np.ndarray

    @classmethod
    def of(cls, workload: Workload, lines: Mapping[str, _Line]) -> _Sent:
        """Return the operations of a scheduled workload."""
        questions: dict[tuple[str, int, tuple[int, ...], str], int] = {}
        queues: dict[tuple[str, ...], list[int]] = defaultdict(list)
        rows: list[tuple[int, int, int, int, int, int]] = []
        disturbed: list[float] = []
        for each in operations(workload):
            if each.op in POINT_TO_POINT or each.of not in lines:
                continue
            ranks = workload.group(each.of, each.axes)
            whole, rest = (
                questions.setdefault((each.asked, size, ranks, each.role), len(questions)) for size in each.sizes()
            )
            times = workload.micro_batches if each.per == "micro-batch" else 1
            made, needed = lines[each.of].ends_of(each) or (-1, -1)
            queues[each.of, each.role, each.network, *each.axes].append(len(rows))
            disturbed.append(each.disturbed)
            rows.append((whole, rest, times * (each.pieces - 1), times, made, needed))
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        by_queue = {queue: np.array(mine) for queue, mine in queues.items()}
        return cls(list(questions), by_queue, np.array(disturbed), *columns)


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
        self.ends = np.array(list(accumulate((each.seconds for each in tasks), initial=0.0)))
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

    def between(self, wire_s: np.ndarray, made: np.ndarray, needed: np.ndarray) -> float:
        """Return the longest of what lies between a task of forward and what the operations of one queue wait for."""
        ends, best = self.ends, 0.0
        cuts = np.unique(needed)
        for cut in cuts[:: -(-len(cuts) // MOST_CUTS) or 1].tolist():
            mine = np.flatnonzero((needed <= cut) & (made >= cut))
            order = mine[np.argsort(-made[mine], kind="stable")]
            if len(order):
                longest = ends[made[order] + 1] - ends[cut] + np.cumsum(wire_s[order])
                best = max(best, float(longest.max()))
        return best + (sum(self.updates.values()) if self.has_barrier and best else 0.0)
