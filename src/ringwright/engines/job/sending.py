"""Operations as instances: one per group of rank classes, micro-batch, piece and phase, between maker and user of the data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ringwright.costs.networks import require_network
from ringwright.engines.job.flat import NO_QUEUE
from ringwright.engines.job.groups import Group, OperationGroups
from ringwright.engines.job.step import UPDATES, Band, Loads, StepBuilder, StepMark, Timing, earliest
from ringwright.engines.job.tasks import Run, Tasks
from ringwright.engines.memory import BYTES_PER_PIECE, shortage
from ringwright.ground.errors import InfeasibleError
from ringwright.ground.units import PS
from ringwright.model.rewrites import Operation
from ringwright.model.stages import Costs, Stage
from ringwright.model.workload import Payload, Queue, Workload

MOST_PIECES = 1 << 24  # of a step, over groups and micro-batches: about a minute
Phases = tuple[tuple[Stage, Stage], ...]  # of a full piece and of the last one


class Sent(NamedTuple):
    """The instances of one phase of an operation: ``pieces`` in each of ``batches`` micro-batches."""

    first: int
    batches: int
    pieces: int

    def of(self, pieces: Run) -> np.ndarray:
        """Return some pieces of all micro-batches, one micro-batch after another. int64 of shape (instances,)."""
        rows = self.first + np.arange(self.batches)[:, None] * self.pieces
        return (rows + np.arange(*pieces)).ravel()


class PhaseCosts(NamedTuple):
    """What a cost model was asked, and what it said. ``number`` counts what was asked for a step."""

    number: int
    question: tuple[str, tuple[int, int], tuple[int, ...], str, float]
    phases: Phases


class PhaseTiming(NamedTuple):
    """What costs say of a phase, as the engine is told: work and latency of a full and of the last piece (ps), its loads."""

    work: int
    last_work: int
    latency: int
    last_latency: int
    sms: float
    loads: int


class SendingMark(NamedTuple):
    """How far a step was written behind an operation, and how many pieces there were."""

    step: StepMark
    phases: int
    loads: int
    posted: int
    walls: int
    pieces: int


def asked(
    costs: Costs, op: str, sizes: tuple[int, int], ranks: tuple[int, ...], role: str, disturbed: float = 1.0
) -> Phases:
    """Return what an operation takes, phase by phase, for a full and for the last piece, so many times as long as its like."""
    large, small = (costs.stages(op, size, ranks, role) for size in sizes)
    if disturbed != 1.0:
        large, small = (tuple(_longer(stage, disturbed) for stage in stages) for stages in (large, small))
    return tuple(zip(large, small, strict=True))


def _longer(stage: Stage, times: float) -> Stage:
    return replace(stage, wire_s=stage.wire_s * times, latency_s=stage.latency_s * times)


class Sending:
    """Lays operations into a step in which the tasks already are."""

    def __init__(
        self, workload: Workload, costs: Costs, groups: OperationGroups, tasks: Tasks, operations: list[Operation]
    ) -> None:
        self.workload, self.costs, self.groups, self.tasks = workload, costs, groups, tasks
        self.operations = operations
        self.policy_queue = workload.policy.queue or Queue()
        # Two that become ready at one moment go by their index as well.
        indexed = workload.policy.agreement == "index"
        self._turns = {each.name: at for at, each in enumerate(operations) if indexed and each.per == "step"}
        self.phases: dict[tuple[Any, ...], PhaseCosts] = {}
        self.loads: dict[tuple[Any, ...], list[list[int]]] = {}
        self.posted: list[tuple[Any, int]] = []  # (kind of operation, when it could start), the latest of a kind counts
        self.walls: list[tuple[tuple[int, bool], Sent, Run, Run, int]] = []
        self.marks: list[SendingMark] = []  # behind each operation that is laid

    def lay(self, step: StepBuilder) -> None:
        """Take in all operations, and what waits for them; InfeasibleError where they are too many to be held.

        Those that have a mark are in the step already.
        """
        counts = self._counts()
        self.latest = dict(self.posted)
        for operation, count in zip(self.operations[len(self.marks) :], counts, strict=True):
            for group, asked, mine in self._of_groups(step, operation):
                sent = self._operation(step, operation, group.members, zip(asked.phases, mine, strict=True))
                self._delivered(step, operation, group.members, sent)
            self.marks.append(
                SendingMark(step.mark(), len(self.phases), len(self.loads), len(self.posted), len(self.walls), count)
            )
        walls: dict[tuple[int, bool], list[tuple[Sent, Run, Run, int]]] = defaultdict(list)
        for wall, *joined in self.walls:
            walls[wall].append(tuple(joined))  # type: ignore[arg-type]
        for (rank_class, later), each in walls.items():
            self._wall(step, rank_class, later, each)
        if self.workload.policy.boundary == "reads":
            self._reads(step)

    def timed(self, step: StepBuilder) -> Iterator[tuple[str, PhaseTiming]]:
        """Yield the name of each phase of all operations and what the engine is told of it, in the order in which ``lay`` does.

        Nothing but loads and resources is written into the step.
        """
        for operation in self.operations:
            for _, asked, mine in self._of_groups(step, operation):
                for (large, small), loads in zip(asked.phases, mine, strict=True):
                    yield large.phase, _timing(large, small, loads)

    def _of_groups(self, step: StepBuilder, operation: Operation) -> list[tuple[Group, PhaseCosts, list[int]]]:
        """Return what each group of an operation takes, and the numbers of what each phase of it loads."""
        whole, rest = operation.sizes()
        groups = self.groups.groups(operation)
        phases = [self._phases(operation, whole, rest, group) for group in groups]
        return list(zip(groups, phases, self._loads(step, operation.op, groups, phases), strict=True))

    def resumed(self, workload: Workload, operations: list[Operation], first: int) -> Sending:
        """Return it for another workload, whose first operations are those that it has laid."""
        made = Sending(workload, self.costs, self.groups, self.tasks, operations)
        if not first:
            return made
        mark = self.marks[first - 1]
        made.marks = self.marks[:first]
        made.phases, made.loads = earliest(self.phases, mark.phases), earliest(self.loads, mark.loads)
        made.posted, made.walls = self.posted[: mark.posted], self.walls[: mark.walls]
        return made

    def _counts(self) -> list[int]:
        """Return how many pieces of a step there are up to each operation that is not laid; InfeasibleError for too many."""
        batches, total = self.workload.micro_batches, self.marks[-1].pieces if self.marks else 0
        counts = []
        for each in self.operations[len(self.marks) :]:
            total += each.pieces * (batches if each.per == "micro-batch" else 1) * len(self.groups.groups(each))
            counts.append(total)
        too_many = f"it is more than {MOST_PIECES:,}" if total > MOST_PIECES else ""
        why = too_many or shortage(total, "pieces", BYTES_PER_PIECE)
        if why:
            largest = max(self.operations, key=lambda each: each.pieces)
            raise InfeasibleError(
                f"a step of {self.workload.name} is sent in {total:,} pieces: {why}",
                where=f"{largest.name}, {largest.size_bytes:,} B in pieces of {largest.piece_bytes:,} B",
                remedy="larger pieces: p3:slice_elements=50000, bytescheduler:partition_mb=4",
            )
        return counts

    # ------------------------------------------------------------------------------------------------------- what waits
    def _delivered(self, step: StepBuilder, operation: Operation, members: tuple[int, ...], sent: Sent) -> None:
        """Link the pieces that carry a payload to what waits for it, or keep them for the end of the step."""
        barrier = (self.workload.policy.boundary or "barrier") == "barrier"
        whole = [(0, sent.pieces)]
        for payload, pieces in zip(
            operation.payloads, operation.spans() if len(operation.payloads) > 1 else whole, strict=True
        ):
            for rank_class, dst, distance, kind in self._consumers(operation, payload, members):
                crosses = distance > 0 or (kind == UPDATES and not payload.lag)
                if barrier and crosses and payload.per == "step":
                    self.walls.append(((rank_class, distance > 0), sent, pieces, dst, distance))
                else:
                    self._deliver(step, operation, sent, pieces, dst, distance)

    def _deliver(
        self, step: StepBuilder, operation: Operation, sent: Sent, pieces: Run, dst: Run, distance: int
    ) -> None:
        first, count = sent.first + pieces[0], pieces[1] - pieces[0]
        if operation.per == "micro-batch" and dst[1] == sent.batches:
            step.link(first, dst[0], (count, 1, 0), (sent.batches, sent.pieces, 1), distance=distance)
        else:
            step.link(first, dst[0], (sent.batches, sent.pieces, 0), (count, 1, 0), (dst[1], 0, 1), distance)

    def _wall(self, step: StepBuilder, rank_class: int, later: bool, joined: list[tuple[Sent, Run, Run, int]]) -> None:
        """Make everything that crosses the end of the step wait for everything that does."""
        wall = step.n
        name = "barrier" + ("+" if later else "")
        step.add(Band(wall, 1, 1, "barrier", name, (rank_class,), "CTRL"), Timing(NO_QUEUE))
        every = np.unique(
            np.concatenate([sent.of(pieces) for sent, pieces in dict.fromkeys(each[:2] for each in joined)])
        )
        step.joined.append((every, np.full(len(every), wall), 0))
        for distance in dict.fromkeys(distance for _, _, _, distance in joined):
            runs = dict.fromkeys(dst for _, _, dst, each in joined if each == distance)
            waiting = np.unique(np.concatenate([np.arange(first, first + count) for first, count in runs]))
            step.joined.append((np.full(len(waiting), wall), waiting, distance))

    def _reads(self, step: StepBuilder) -> None:
        """Make the last phase of every operation of a step wait for the first phases of all: written, then read."""
        first: dict[tuple[int, ...], list[np.ndarray]] = defaultdict(list)
        last: dict[tuple[int, ...], list[np.ndarray]] = defaultdict(list)
        for band in step.bands:
            if band.what == "operation" and band.phase in ("push", "pull"):
                mine = np.arange(band.first, band.first + band.instances)
                (first if band.phase == "push" else last)[band.rank_classes].append(mine)
        for members, pushes in first.items():
            wall = step.n
            step.add(Band(wall, 1, 1, "barrier", "written", members, "CTRL"), Timing(NO_QUEUE))
            every, behind = np.concatenate(pushes), np.concatenate(last[members])
            step.joined.append((every, np.full(len(every), wall), 0))
            step.joined.append((np.full(len(behind), wall), behind, 0))

    def _consumers(
        self, operation: Operation, payload: Payload, members: tuple[int, ...]
    ) -> Iterator[tuple[int, Run, int, str]]:
        for name, distance in payload.consumers:
            task = self.groups.task(name, payload.name)
            for rank_class in members:
                if self.groups.rank_classes.of[rank_class] == task.of:
                    yield rank_class, self.tasks.at[name, rank_class], distance, task.kind

    # --------------------------------------------------------------------------------------------------- what is sent
    def _operation(
        self,
        step: StepBuilder,
        operation: Operation,
        members: tuple[int, ...],
        phases: Iterable[tuple[tuple[Stage, Stage], int]],
    ) -> Sent:
        """Take in all pieces, micro-batches and phases; return the last phase."""
        pieces, batches = operation.pieces, self.workload.micro_batches if operation.per == "micro-batch" else 1
        before: Sent | None = None
        for stages, loads in phases:
            mine = Sent(step.n, batches, pieces)
            self._leg(step, operation, members, mine, stages, loads)
            if before is None:
                self._produced(step, operation, members, mine)
                if self.workload.policy.agreement == "index" and operation.per == "step":
                    self._in_turn(step, operation, members, mine)
            else:
                step.link(before.first, mine.first, (batches * pieces, 1, 1))
            before = mine
        assert before is not None  # noqa: S101 - a cost model returns at least one phase
        return before

    def _in_turn(self, step: StepBuilder, operation: Operation, members: tuple[int, ...], mine: Sent) -> None:
        """Let an operation start only when the one of its kind before it, by index, could start too.

        Parameters that travel after their update are a kind of their own: no gradient can wait for them.
        """
        posted = step.n
        step.add(Band(posted, 1, 1, "barrier", f"posted {operation.name}", members[:1], "CTRL"), Timing(NO_QUEUE))
        self._produced(step, operation, members, Sent(posted, 1, 1))
        kind = (operation.role, operation.op, members, self._along(operation))
        before = self.latest.get(kind)
        if before is not None:
            step.link(before, posted)
            step.link(before, mine.first, (mine.pieces, 0, 1))
        self.latest[kind] = posted
        self.posted.append((kind, posted))

    def _along(self, operation: Operation) -> tuple[str, ...]:
        """Return the axes that tell communicators of the same rank classes apart."""
        return tuple(axis for axis in operation.axes if self.workload.mesh.sizes[axis] > 1)

    def _leg(
        self,
        step: StepBuilder,
        operation: Operation,
        members: tuple[int, ...],
        mine: Sent,
        stages: tuple[Stage, Stage],
        loads: int,
    ) -> None:
        large, small = stages
        whole, rest = operation.sizes()
        name, role, counted = (
            operation.name,
            operation.role,
            self.policy_queue.windows.get(operation.role, (1, "operations"))[1],
        )
        key = self._turns.get(name, 0) if operation.key is None else operation.key
        communicator = ("operations", role, operation.network, members, large.phase, *self._along(operation))
        queue = step.queues.setdefault(communicator, len(step.queues))
        layer, where = operation.payloads[0].layer, (mine.first, mine.pieces, mine.batches)
        sizes = (1.0, 1.0) if counted == "operations" else (float(whole), float(rest))
        work, last_work, latency, last_latency, sms, loads = _timing(large, small, loads)
        step.add(
            Band(*where, "operation", name, members, "C", role, large.phase, whole, rest, layer),
            Timing(
                *(queue, key, work, last_work, latency, last_latency),
                size=sizes[0],
                last_size=sizes[1],
                sms=sms,
                loads=loads,
            ),
        )

    def _phases(self, operation: Operation, whole: int, rest: int, group: Group) -> PhaseCosts:
        """Return what the cost model says of a full piece and of the last one, phase by phase."""
        disturbed = operation.disturbed
        key = (operation.asked, whole, rest, operation.role, group.number, disturbed)
        if key not in self.phases:
            if operation.network:
                require_network(self.costs, operation.network, operation.name)
            question = (operation.asked, (whole, rest), group.ranks, operation.role, disturbed)
            self.phases[key] = PhaseCosts(len(self.phases), question, asked(self.costs, *question))
        return self.phases[key]

    def _loads(self, step: StepBuilder, op: str, groups: list[Group], phases: list[PhaseCosts]) -> list[list[int]]:
        """Return what each phase of each group loads, by number: groups share out what one of them says of all its siblings."""
        key = (op == "send-recv", *((group.number, each.number) for group, each in zip(groups, phases, strict=True)))
        if key not in self.loads:
            users: Counter[tuple[str, int]] = Counter()
            for group, each in zip(groups, phases, strict=True):
                for large, _ in each.phases:
                    users.update({(large.phase, link): self.groups.alike(group) for link, _ in large.links})
            self.loads[key] = [
                [
                    step.loads.setdefault(
                        _loads(step, op, group.members, large, (self.groups.alike(group), users)), len(step.loads)
                    )
                    for large, _ in each.phases
                ]
                for group, each in zip(groups, phases, strict=True)
            ]
        return self.loads[key]

    def _produced(self, step: StepBuilder, operation: Operation, members: tuple[int, ...], mine: Sent) -> None:
        """Make each piece wait for the tasks that produce what it carries, on every rank that takes part."""
        taking = dict.fromkeys(members if operation.op != "send-recv" else members[:1])
        fused = len(operation.payloads) > 1 and mine.pieces > 1
        for name, runs in _made(operation, mine).items():
            task = self.groups.task(name, operation.name)
            for rank_class in taking:
                if self.groups.rank_classes.of[rank_class] == task.of:
                    for first, stop in runs:
                        made, count = self.tasks.at[name, rank_class], (stop - first, 0, 1)
                        if made[1] == mine.batches:  # micro-batch by micro-batch, or once a step
                            step.link(made[0], mine.first + first, (mine.batches, 1, mine.pieces), count)
                        else:
                            loops = ((mine.batches, 0, mine.pieces), count)
                            step.link(made[0], mine.first + first, (made[1], 1, 0), *(loops[::-1] if fused else loops))


def _timing(large: Stage, small: Stage, loads: int) -> PhaseTiming:
    taken = (large.wire_s, small.wire_s, large.latency_s, small.latency_s)
    work, last_work, latency, last_latency = (round(seconds * PS) for seconds in taken)
    return PhaseTiming(work, last_work, latency, last_latency, large.sms, loads)


def _made(operation: Operation, mine: Sent) -> dict[str, list[Run]]:
    """Return which pieces carry what a task produces: task -> runs of pieces (first, behind the last)."""
    if len(operation.payloads) == 1 or mine.pieces == 1:
        names = (name for payload in operation.payloads for name in payload.producers)
        return {name: [(0, mine.pieces)] for name in names}
    made: dict[str, list[Run]] = {}
    for payload, (first, stop) in zip(operation.payloads, operation.spans(), strict=True):
        for name in payload.producers:
            runs = made.setdefault(name, [])
            if runs and first <= runs[-1][1]:
                runs[-1] = (runs[-1][0], max(stop, runs[-1][1]))
            else:
                runs.append((first, stop))
    return made


def _loads(
    step: StepBuilder, op: str, members: tuple[int, ...], stage: Stage, used: tuple[int, Counter[tuple[str, int]]]
) -> Loads:
    """Return what one phase of a group loads, (resource, share, claim), as the stage says it of links or of each of its ranks.

    ``used``: how many groups this one stands for, and how many use each link.
    """
    alike, users = used
    loads = [
        (step.resource(-1, f"link {link}"), share * claim, claim)
        for link, share in stage.links
        for claim in (alike / users[stage.phase, link],)
    ]
    for rank_class in dict.fromkeys(members):
        for name, share in stage.loads:
            if op == "send-recv" and members[0] != members[1]:
                sends = rank_class == members[0]
                if (sends and name.endswith(".rx")) or (not sends and name.endswith(".tx")):
                    continue
            loads.append((step.resource(rank_class, name), share, 1.0))
    return tuple(loads)
