"""Operations as instances: one per group of rank classes, micro-batch, piece and phase, between maker and user of the data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from ringwright.costs.stages import Costs, Stage
from ringwright.engines.job.flat import NO_QUEUE
from ringwright.engines.job.groups import OperationGroups
from ringwright.engines.job.step import PS, UPDATES, Instances, StepBuilder
from ringwright.engines.job.tasks import Tasks
from ringwright.engines.memory import BYTES_PER_PIECE, shortage
from ringwright.errors import InfeasibleError
from ringwright.rewrites import Operation
from ringwright.workload import Payload, Queue, Workload

MOST_PIECES = 1 << 24  # of a step, over groups and micro-batches: about a minute


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
        self.stage_cache: dict[tuple[Any, ...], tuple[Stage, ...]] = {}
        self.posted: dict[tuple[str, str, tuple[int, ...]], int] = {}
        self.users: Counter[tuple[str, int]] = Counter()

    def lay(self, step: StepBuilder) -> None:
        """Take in all operations, and what waits for them; InfeasibleError where they are too many to be held."""
        self._check_number()
        barrier = (self.workload.policy.boundary or "barrier") == "barrier"
        walls: dict[tuple[int, bool], list[tuple[np.ndarray, np.ndarray, int]]] = defaultdict(list)
        for operation in self.operations:
            self._count_users(operation)
            for members in self.groups.groups(operation):
                ends = self._operation(step, operation, members)
                for payload in operation.payloads:
                    mine = ends[payload.name]
                    for rank_class, dst, distance, kind in self._consumers(operation, payload, members):
                        crosses = distance > 0 or kind == UPDATES
                        if barrier and crosses and payload.per == "step":
                            walls[rank_class, distance > 0].append((mine, dst, distance))
                        else:
                            self._deliver(step, operation, mine, dst, distance)
        for (rank_class, later), joined in walls.items():
            self._wall(step, rank_class, later, joined)
        if self.workload.policy.boundary == "reads":
            self._reads(step)

    def _check_number(self) -> None:
        batches = self.workload.micro_batches
        total = sum(
            each.pieces * (batches if each.per == "micro-batch" else 1) * len(list(self.groups.groups(each)))
            for each in self.operations
        )
        too_many = f"it is more than {MOST_PIECES:,}" if total > MOST_PIECES else ""
        why = too_many or shortage(total, "pieces", BYTES_PER_PIECE)
        if why:
            largest = max(self.operations, key=lambda each: each.pieces)
            raise InfeasibleError(
                f"a step of {self.workload.name} is sent in {total:,} pieces: {why}",
                where=f"{largest.name}, {largest.size_bytes:,} B in pieces of {largest.piece_bytes:,} B",
                remedy="larger pieces: p3:slice_elements=50000, bytescheduler:partition_mb=4",
            )

    def _deliver(
        self, step: StepBuilder, operation: Operation, ends: np.ndarray, dst: np.ndarray, distance: int
    ) -> None:
        """Link the pieces that carry a payload (rows: micro-batches) to what waits for it."""
        if operation.per == "micro-batch" and len(dst) == len(ends):
            for piece in ends.T:
                step.link(piece, dst, distance)
        else:
            flat = ends.ravel()
            step.link(np.repeat(flat, len(dst)), np.tile(dst, len(flat)), distance)

    def _wall(
        self, step: StepBuilder, rank_class: int, later: bool, joined: list[tuple[np.ndarray, np.ndarray, int]]
    ) -> None:
        """Make everything that crosses the end of the step wait for everything that does."""
        wall = step.add(
            Instances(0, 1, "barrier", "barrier" + ("+" if later else ""), (rank_class,), "CTRL"), queue=NO_QUEUE
        )
        step.link(np.unique(np.concatenate([mine.ravel() for mine, _, _ in joined])), wall)
        for distance in {distance: None for _, _, distance in joined}:
            step.link(wall, np.unique(np.concatenate([dst for _, dst, each in joined if each == distance])), distance)

    def _reads(self, step: StepBuilder) -> None:
        """Make the last phase of every operation of a step wait for the first phases of all: written, then read."""
        first: dict[tuple[int, ...], list[Instances]] = defaultdict(list)
        last: dict[tuple[int, ...], list[Instances]] = defaultdict(list)
        for row in step.rows:
            if row.what == "operation" and row.phase in ("push", "pull"):
                (first if row.phase == "push" else last)[row.rank_classes].append(row)
        for cells_, pushes in first.items():
            wall = step.add(Instances(0, 1, "barrier", "written", cells_, "CTRL"), queue=NO_QUEUE)
            step.link(np.concatenate([np.arange(row.first, row.first + row.count) for row in pushes]), wall)
            step.link(wall, np.concatenate([np.arange(row.first, row.first + row.count) for row in last[cells_]]))

    def _consumers(
        self, operation: Operation, payload: Payload, members: tuple[int, ...]
    ) -> Iterator[tuple[int, np.ndarray, int, str]]:
        for name, distance in payload.consumers:
            task = self.groups.task(name, payload.name)
            for rank_class in members:
                if self.groups.rank_classes.of[rank_class] == task.of:
                    yield rank_class, self.tasks.at[name, rank_class], distance, task.kind

    def _operation(self, step: StepBuilder, operation: Operation, members: tuple[int, ...]) -> dict[str, np.ndarray]:
        """Take in all pieces, micro-batches and phases; return payload -> last phases as (micro-batch, piece)."""
        ranks = self.groups.ranks(operation, members)
        whole, rest = operation.sizes()
        pieces, batches = operation.pieces, self.workload.micro_batches if operation.per == "micro-batch" else 1
        phases = list(zip(self._stages(operation, whole, ranks), self._stages(operation, rest, ranks), strict=True))
        before: np.ndarray | None = None
        for large, small in phases:
            first = step.n
            for batch in range(batches):
                self._leg(step, operation, members, (large, small), batch)
            mine = np.arange(first, first + batches * pieces).reshape(batches, pieces)
            if before is None:
                self._produced(step, operation, members, mine)
                if self.workload.policy.agreement == "index" and operation.per == "step":
                    self._in_turn(step, operation, members, mine)
            else:
                step.link(before.ravel(), mine.ravel())
            before = mine
        assert before is not None  # noqa: S101 - a cost model returns at least one phase
        if len(operation.payloads) == 1:
            return {operation.payloads[0].name: before}
        carried = [{payload.name for payload in operation.carried(piece)} for piece in range(pieces)]
        return {
            payload.name: before[:, [piece for piece in range(pieces) if payload.name in carried[piece]]]
            for payload in operation.payloads
        }

    def _in_turn(self, step: StepBuilder, operation: Operation, members: tuple[int, ...], mine: np.ndarray) -> None:
        """Let an operation start only when the one of its kind before it, by index, could start too.

        Parameters that travel after their update are a kind of their own: no gradient can wait for them.
        """
        posted = step.add(Instances(0, 1, "barrier", f"posted {operation.name}", members[:1], "CTRL"), queue=NO_QUEUE)
        self._produced(step, operation, members, np.array([[posted]]))
        before = self.posted.get((operation.role, operation.op, members))
        if before is not None:
            step.link(before, posted)
            step.link(before, mine.ravel())
        self.posted[operation.role, operation.op, members] = posted

    def _leg(
        self, step: StepBuilder, operation: Operation, members: tuple[int, ...], stages: tuple[Stage, Stage], batch: int
    ) -> None:
        large, small = stages
        whole, rest = operation.sizes()
        pieces, queue = operation.pieces, self._queue(step, operation, members, large.phase)
        unit = self.policy_queue.windows.get(operation.role, (1, "operations"))[1]
        work, size = np.full(pieces, round(large.wire_s * PS)), np.full(pieces, whole, np.float64)
        latency = np.full(pieces, round(large.latency_s * PS))
        work[-1], size[-1], latency[-1] = round(small.wire_s * PS), rest, round(small.latency_s * PS)
        key = self._turns.get(operation.name, 0) if operation.key is None else operation.key
        first = step.add(
            Instances(
                0,
                pieces,
                "operation",
                operation.name,
                members,
                "C",
                operation.role,
                large.phase,
                batch,
                whole,
                rest,
                operation.payloads[0].layer,
            ),
            work=work,
            latency=latency,
            queue=queue,
            key=key,
            sms=large.sms,
            size=np.ones(pieces) if unit == "operations" else size,
        )
        step.loads.append((first, pieces, self._loads(step, operation, members, large)))

    def _count_users(self, operation: Operation) -> None:
        """Count the groups of an operation on each link: they share out what one of them says of all its siblings."""
        groups, (size, _) = list(self.groups.groups(operation)), operation.sizes()
        self.users = Counter()
        for members in groups if len(groups) > 1 else ():
            for stage in self._stages(operation, size, self.groups.ranks(operation, members)):
                self.users.update((stage.phase, link) for link, _ in stage.links)

    def _loads(
        self, step: StepBuilder, operation: Operation, members: tuple[int, ...], stage: Stage
    ) -> tuple[tuple[int, float], ...]:
        if stage.links:
            return tuple(
                (step.resource(-1, f"link {link}"), share / max(1, self.users[stage.phase, link]))
                for link, share in stage.links
            )
        loads = []
        for rank_class in dict.fromkeys(members):
            for name, share in stage.loads:
                if operation.op == "send-recv" and members[0] != members[1]:
                    sends = rank_class == members[0]
                    if (sends and name.endswith(".rx")) or (not sends and name.endswith(".tx")):
                        continue
                loads.append((step.resource(rank_class, name), share))
        return tuple(loads)

    def _queue(self, step: StepBuilder, operation: Operation, members: tuple[int, ...], phase: str) -> int:
        return step.queues.setdefault(("operations", operation.role, members, phase), len(step.queues))

    def _stages(self, operation: Operation, size_bytes: int, ranks: tuple[int, ...]) -> tuple[Stage, ...]:
        key = (operation.op, size_bytes, ranks, operation.role)
        if key not in self.stage_cache:
            self.stage_cache[key] = self.costs.stages(operation.op, size_bytes, ranks, operation.role)
        return self.stage_cache[key]

    def _produced(self, step: StepBuilder, operation: Operation, members: tuple[int, ...], mine: np.ndarray) -> None:
        """Make each piece wait for the tasks that produce what it carries, on every rank that takes part."""
        several = len(operation.payloads) > 1 and operation.pieces > 1 and mine.shape[1] == operation.pieces
        for piece in range(operation.pieces) if several else (slice(None),):
            columns = mine[:, piece]
            payloads = operation.carried(piece) if isinstance(piece, int) else operation.payloads
            for name in dict.fromkeys(name for payload in payloads for name in payload.producers):
                task = self.groups.task(name, operation.name)
                for rank_class in dict.fromkeys(members if operation.op != "send-recv" else members[:1]):
                    if self.groups.rank_classes.of[rank_class] == task.of:
                        self._from(step, self.tasks.at[name, rank_class], columns)

    def _from(self, step: StepBuilder, producer: np.ndarray, pieces: np.ndarray) -> None:
        if len(producer) == len(pieces):  # micro-batch by micro-batch, or once a step
            rows = pieces.reshape(len(producer), -1)
            step.link(np.repeat(producer, rows.shape[1]), rows.ravel())
        else:
            flat = pieces.ravel()
            step.link(np.repeat(producer, len(flat)), np.tile(flat, len(producer)))
