"""A step laid out one instance and one edge at a time, as plainly as it can be said: the oracle of the engine's layout."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ringwright.engines.job.contended import contended
from ringwright.engines.job.rank_classes import RankClasses
from ringwright.model.rewrites import Operation, operations
from ringwright.model.rewrites.random_order import drawn
from ringwright.model.stages import Costs, Stage
from ringwright.model.workload import Payload, Queue, Workload


@dataclass
class Instance:
    """One task of a micro-batch, one piece of an operation, or one barrier."""

    what: str
    name: str
    members: tuple[int, ...]
    queue: int = -1
    work: int = 0
    latency: int = 0
    key: int = 0
    size: float = 0.0
    sms: float = 0.0
    tag: int = -1
    tiles: int = 0
    loads: tuple[tuple[int, float, float], ...] = ()
    tokens: tuple[tuple[int, float], ...] = ()
    later: int = 0
    phase: str = ""
    piece: int = 0
    batch: int = 0


def number(known: dict[Any, int], name: Any) -> int:
    return known.setdefault(name, len(known))


class Plain:
    """One step of a workload."""

    def __init__(self, workload: Workload, costs: Costs, classes: RankClasses) -> None:
        self.workload, self.costs, self.classes = workload, costs, classes
        self.step: list[Instance] = []
        self.edges: list[tuple[int, int, int]] = []  # who is waited for, who waits, iterations between them
        self.queues: dict[Any, int] = {}
        self.resources: dict[Any, int] = {}
        self.pools: dict[Any, int] = {}
        self.at: dict[tuple[str, int], list[int]] = {}  # (task, rank class): by micro-batch
        self.posted: dict[Any, int] = {}
        self.walls: dict[tuple[int, bool], list[tuple[list[int], list[int], int]]] = defaultdict(list)
        self.queue, self.boundary = workload.policy.queue or Queue(), workload.policy.boundary or "barrier"
        self.span = 1
        self.operations = operations(workload)
        for rank_class in range(len(classes)):
            self.tasks(rank_class)
        for edge in workload.edges:
            for rank_class in range(len(classes)):
                if (edge.src, rank_class) in self.at:
                    src, dst = self.at[edge.src, rank_class], self.at[edge.dst, rank_class]
                    pairs = zip(src, dst, strict=True) if len(src) == len(dst) else product(src, dst)
                    self.edges += [(one, other, edge.distance) for one, other in pairs]
        for operation in self.operations:
            self.operation(operation)
        for (rank_class, later), joined in self.walls.items():
            self.wall(rank_class, later, joined)
        if self.boundary == "reads":
            self.reads()

    def add(self, instance: Instance) -> int:
        self.step.append(instance)
        return len(self.step) - 1

    # ----------------------------------------------------------------------------------------------------------- tasks
    def tasks(self, rank_class: int) -> None:
        of, batches = self.classes.of[rank_class], self.workload.micro_batches
        mine = [task for task in self.workload.tasks if task.of == of]
        updates = [task for task in mine if task.per == "step" and task.kind == "U"]
        others = [task for task in mine if task.per == "step" and task.kind != "U"]
        order = [(each.name, 0) for each in updates] + self.workload.line(of) + [(each.name, 0) for each in others]
        self.span = max(self.span, len(order) + 1)
        tags = sorted({task.tag for task in self.workload.tasks if task.tag})
        beside = [each for each in updates if each.lag or self.boundary != "barrier"]
        for task in mine:
            update = task.kind == "U" and task.per == "step"
            stream = ("update", task.name) if task in beside else (task.stream,)
            queue = number(self.queues, ("stream", rank_class, *stream))
            amounts = [(name, amount) for name, amount in task.demands if name != "tiles"]
            if task.kind != "CTRL" and task.seconds and any(e.stream == task.stream and e.seconds for e in beside):
                amounts += [(f"the turn of {task.stream}", 1.0), (f"the turn of {task.stream}", -1.0)]
            tokens = tuple((number(self.pools, (rank_class, name)), amount) for name, amount in amounts)
            self.at[task.name, rank_class] = []
            for batch in range(batches if task.per == "micro-batch" else 1):
                made = Instance("task", task.name, (rank_class,), tokens=tokens, later=int(update and not task.lag))
                if task.kind != "CTRL":
                    made.queue, made.key = queue, order.index((task.name, batch))
                    made.work = round(task.seconds * self.classes.slowdowns[rank_class] * 1e12)
                    made.tag = tags.index(task.tag) if task.tag else -1
                    made.tiles = int(dict(task.demands).get("tiles", 0))
                self.at[task.name, rank_class].append(self.add(made))

    # ------------------------------------------------------------------------------------------------------ operations
    def operation(self, operation: Operation) -> None:
        groups: dict[tuple[int, ...], tuple[int, ...]] = {}
        for rank_class, of in enumerate(self.classes.of):
            if of == operation.of:
                members, ranks = self.group(operation, self.classes.ranks[rank_class])
                groups.setdefault(members, ranks)
        whole, rest = operation.sizes()
        stages = {
            members: [self.stages(operation, size, ranks) for size in (whole, rest)]
            for members, ranks in groups.items()
        }
        alike = {
            members: max(1, self.classes.counts[members[0]] // [*self.classes.class_of[list(ranks)]].count(members[0]))
            for members, ranks in groups.items()
        }
        users: Counter[Any] = Counter()
        for members, (large, _) in stages.items():
            for s in large:
                users.update({(s.phase, link): alike[members] for link, _ in s.links})
        for members in groups:
            self.sent(operation, members, *stages[members], (alike[members], users))

    def stages(self, operation: Operation, size: int, ranks: tuple[int, ...]) -> tuple[Stage, ...]:
        return self.costs.stages(operation.op, size, ranks, operation.role)

    def group(self, operation: Operation, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the rank classes that take part, and the ranks."""
        mesh, payload = self.workload.mesh, operation.payloads[0]
        if operation.op == "send-recv":
            at = next(each.at for each in self.workload.classes if each.name == payload.peer)
            ranks = (rank, mesh.rank({**mesh.place(rank), **at}))
            return tuple(int(self.classes.class_of[each]) for each in ranks), ranks
        ranks = mesh.group(operation.axes, rank)
        if payload.joint:
            allowed = {operation.of, *payload.joint}
            ranks = tuple(each for each in ranks if self.classes.of[self.classes.class_of[each]] in allowed)
        return tuple(dict.fromkeys(int(self.classes.class_of[each]) for each in ranks)), ranks

    def sent(
        self,
        operation: Operation,
        members: tuple[int, ...],
        large: tuple[Stage, ...],
        small: tuple[Stage, ...],
        users: tuple[int, Counter[Any]],
    ) -> None:
        batches = range(self.workload.micro_batches if operation.per == "micro-batch" else 1)
        before: list[list[int]] = []  # by micro-batch and piece
        for stage, last in zip(large, small, strict=True):
            loads = self.loads(operation, members, stage, users)
            mine = [
                [self.piece(operation, members, stage, last, loads, at, each) for at in range(operation.pieces)]
                for each in batches
            ]
            if before:
                self.edges += [
                    (a, b, 0) for one, other in zip(before, mine, strict=True) for a, b in zip(one, other, strict=True)
                ]
            else:
                self.produced(operation, members, mine)
                if self.workload.policy.agreement == "index" and operation.per == "step":
                    self.in_turn(operation, members, mine)
            before = mine
        for payload in operation.payloads:
            carrying = [at for at in range(operation.pieces) if payload in operation.carried(at)]
            self.consumed(operation, payload, members, [[row[at] for at in carrying] for row in before])

    def piece(
        self, operation: Operation, members: tuple[int, ...], stage: Stage, last: Stage, loads: Any, at: int, batch: int
    ) -> int:
        is_last = at == operation.pieces - 1
        chosen, size = (last if is_last else stage), operation.sizes()[is_last]
        if self.queue.windows.get(operation.role, (1, "operations"))[1] == "operations":
            size = 1
        indexed = self.workload.policy.agreement == "index" and operation.per == "step"
        turn = [each.name for each in self.operations].index(operation.name) if indexed else 0
        communicator = ("operations", operation.role, operation.network, members, stage.phase, *self.along(operation))
        return self.add(
            Instance(
                "operation",
                operation.name,
                members,
                number(self.queues, communicator),
                round(chosen.wire_s * 1e12),
                round(chosen.latency_s * 1e12),
                turn if operation.key is None else operation.key,
                float(size),
                stage.sms,
                loads=loads,
                phase=stage.phase,
                piece=at,
                batch=batch,
            )
        )

    def loads(
        self, operation: Operation, members: tuple[int, ...], stage: Stage, users: tuple[int, Counter[Any]]
    ) -> tuple[tuple[int, float, float], ...]:
        made = [
            (number(self.resources, link), share * part, part)
            for link, share in stage.links
            for part in [users[0] / users[1][stage.phase, link]]
        ]
        for member, (name, share) in product(dict.fromkeys(members), stage.loads):
            one_way = operation.op == "send-recv" and members[0] != members[1]
            if not (one_way and name.endswith(".rx" if member == members[0] else ".tx")):
                made.append((number(self.resources, (member, name)), share, 1.0))
        return tuple(made)

    def produced(self, operation: Operation, members: tuple[int, ...], mine: list[list[int]]) -> None:
        """Each piece waits for what makes a byte of it: of its own micro-batch, where maker and operation have as many."""
        taking = dict.fromkeys(members[:1] if operation.op == "send-recv" else members)
        several = len(operation.payloads) > 1 and operation.pieces > 1 and len(mine[0]) == operation.pieces
        for at in range(operation.pieces) if several else (-1,):
            columns = [row if at < 0 else [row[at]] for row in mine]
            payloads = operation.payloads if at < 0 else operation.carried(at)
            for name, member in product(dict.fromkeys(n for each in payloads for n in each.producers), taking):
                makers = self.at.get((name, member), [])
                if len(makers) == len(columns):
                    self.edges += [(a, b, 0) for a, row in zip(makers, columns, strict=True) for b in row]
                else:
                    self.edges += [(a, b, 0) for a in makers for row in columns for b in row]

    def in_turn(self, operation: Operation, members: tuple[int, ...], mine: list[list[int]]) -> None:
        posted = self.add(Instance("barrier", f"posted {operation.name}", members[:1]))
        self.produced(operation, members, [[posted]])
        kind = (operation.role, operation.op, members, self.along(operation))
        before = self.posted.get(kind)
        if before is not None:
            self.edges += [(before, each, 0) for each in (posted, *mine[0])]
        self.posted[kind] = posted

    def along(self, operation: Operation) -> tuple[str, ...]:
        return tuple(axis for axis in operation.axes if self.workload.mesh.sizes[axis] > 1)

    def consumed(self, operation: Operation, payload: Payload, members: tuple[int, ...], mine: list[list[int]]) -> None:
        for (name, distance), member in product(payload.consumers, members):
            if (name, member) not in self.at:
                continue
            dst, updated = self.at[name, member], self.workload.task[name].kind == "U" and not payload.lag
            crosses = distance > 0 or updated
            if self.boundary == "barrier" and crosses and payload.per == "step":
                self.walls[member, distance > 0].append(([at for row in mine for at in row], dst, distance))
            elif operation.per == "micro-batch" and len(dst) == len(mine):
                self.edges += [
                    (row[at], to, distance) for at in range(len(mine[0])) for row, to in zip(mine, dst, strict=True)
                ]
            else:
                self.edges += [(at, to, distance) for row in mine for at in row for to in dst]

    # ---------------------------------------------------------------------------------------------- the end of the step
    def wall(self, rank_class: int, later: bool, joined: list[tuple[list[int], list[int], int]]) -> None:
        wall = self.add(Instance("barrier", "barrier" + ("+" if later else ""), (rank_class,)))
        self.edges += [(at, wall, 0) for at in sorted({at for mine, _, _ in joined for at in mine})]
        for distance in dict.fromkeys(each for _, _, each in joined):
            waiting = sorted({to for _, dst, each in joined if each == distance for to in dst})
            self.edges += [(wall, to, distance) for to in waiting]

    def reads(self) -> None:
        sides: dict[str, dict[Any, list[int]]] = {"push": defaultdict(list), "pull": defaultdict(list)}
        for at, each in enumerate(self.step):
            if each.what == "operation" and each.phase in sides:
                sides[each.phase][each.members].append(at)
        for members, pushes in sides["push"].items():
            wall = self.add(Instance("barrier", "written", members))
            self.edges += [(at, wall, 0) for at in pushes] + [(wall, at, 0) for at in sides["pull"][members]]

    # ------------------------------------------------------------------------------------------------------- all steps
    def flat(self, steps: int) -> dict[str, list[Any]]:
        """Return the columns and lists of a ``FlatJob`` of that many steps."""
        n, strict = len(self.step), [name[0] == "stream" for name in self.queues]
        rows = [(at, 1, each.loads) for at, each in enumerate(self.step) if each.what == "operation"]
        left = {first: loads for first, _, loads in contended(rows, [each.queue for each in self.step])}
        after: list[list[int]] = [[] for _ in range(n * steps)]
        for turn, (src, dst, distance) in product(range(steps), self.edges):
            if turn + distance < steps:
                after[turn * n + src].append((turn + distance) * n + dst)
        keys = []
        named = list(dict.fromkeys(each.name for each in self.step if each.what == "operation"))
        for turn, each in product(range(steps), self.step):
            if each.queue >= 0 and strict[each.queue]:
                keys.append(each.key + (turn + each.later) * self.span)
            elif self.queue.random is None or each.what != "operation":
                keys.append(0 if self.queue.random is not None else each.key)
            else:
                pieces = range(each.piece, each.piece + 1)
                place = named.index(each.name)
                keys.append(int(drawn(self.queue.random, turn, place, pieces, micro_batch=each.batch)[0]))
        every = self.step * steps
        return {
            "work_ps": [each.work for each in every],
            "latency_ps": [each.latency for each in every],
            "queue": [each.queue for each in every],
            "key": keys,
            "size": [each.size for each in every],
            "sms": [each.sms for each in every],
            "tag": [each.tag for each in every],
            "tiles": [each.tiles for each in every],
            "waits": np.bincount([to for each in after for to in each], minlength=len(every)).tolist(),
            "after": after,
            "domain": [list(dict.fromkeys(each.members)) for each in every],
            "load": [list(left.get(at, ())) for at in range(n)] * steps,
            "token": [list(each.tokens) for each in every],
        }
