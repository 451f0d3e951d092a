"""Which rank classes do an operation together, and which ranks stand for their group."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import Any, NamedTuple

from ringwright.engines.job.rank_classes import RankClasses
from ringwright.ground.errors import UsageError
from ringwright.model.rewrites import Operation
from ringwright.model.workload import Payload, Task, Workload


class Group(NamedTuple):
    """Rank classes that do an operation together, the ranks of one such group, and a number that no other group has."""

    members: tuple[int, ...]
    ranks: tuple[int, ...]
    number: int


class OperationGroups:
    """The rank classes of a workload, asked by operation."""

    def __init__(self, workload: Workload, rank_classes: RankClasses) -> None:
        self.workload, self.rank_classes = workload, rank_classes
        self.of_class: dict[str, list[int]] = defaultdict(list)
        for rank_class, of in enumerate(rank_classes.of):
            self.of_class[of].append(rank_class)
        self._known: dict[tuple[Any, ...], list[Group]] = {}
        self._numbers = count()

    def groups(self, operation: Operation) -> list[Group]:
        """Return the groups of rank classes that do the operation together, the operation's own class first.

        Operations of one class along the same axes have the same groups, which are gathered once.
        """
        payload = operation.payloads[0]
        key = (operation.of, operation.axes, payload.joint, payload.peer if operation.op == "send-recv" else None)
        if key not in self._known:
            distinct = dict.fromkeys(self.members(operation, each) for each in self.of_class[operation.of])
            self._known[key] = [
                Group(members, self.ranks(operation, members), next(self._numbers)) for members in distinct
            ]
        return self._known[key]

    def every(self, operation: Operation) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
        """Return the ranks of all groups that do the operation, by the rank classes of ``groups`` that stand for them."""
        known = [group.members for group in self.groups(operation)]
        by_set = {frozenset(members): members for members in reversed(known)}
        gathered: dict[tuple[int, ...], None] = {}
        for rank, rank_class in enumerate(self.rank_classes.class_of.tolist()):
            if self.rank_classes.of[rank_class] == operation.of:
                gathered[self._ranks_with(operation, rank)] = None
        apart: dict[tuple[int, ...], list[tuple[int, ...]]] = {members: [] for members in known}
        for ranks in gathered:
            classes = self.rank_classes.class_of[list(ranks)].tolist()
            members = tuple(classes if operation.op == "send-recv" else dict.fromkeys(classes))
            apart[members if members in apart else by_set[frozenset(members)]].append(ranks)
        return apart

    def _ranks_with(self, operation: Operation, rank: int) -> tuple[int, ...]:
        """Return the group of one rank, in order; of a send-recv who sends, then who receives."""
        mesh, payload = self.workload.mesh, operation.payloads[0]
        if operation.op == "send-recv":
            return (rank, self._peer_rank(payload, rank))
        group = mesh.group(operation.axes, rank)
        if not payload.joint:
            return group
        allowed = {operation.of, *payload.joint}
        return tuple(each for each in group if self.rank_classes.of[int(self.rank_classes.class_of[each])] in allowed)

    def alike(self, group: Group) -> int:
        """Return how many groups one stands for: as many as hold the ranks of its first class."""
        first = group.members[0]
        here = 1 if len(group.ranks) < 2 else int((self.rank_classes.class_of[list(group.ranks)] == first).sum())
        return max(1, self.rank_classes.counts[first] // max(1, here))

    def members(self, operation: Operation, rank_class: int) -> tuple[int, ...]:
        """Return the rank classes that take part where this one does; of a send-recv the sender, then the receiver."""
        mesh, payload = self.workload.mesh, operation.payloads[0]
        rank = self.rank_classes.ranks[rank_class]
        if operation.op == "send-recv":
            return (rank_class, int(self.rank_classes.class_of[self._peer_rank(payload, rank)]))
        group = mesh.group(operation.axes, rank)
        classes = dict.fromkeys(self.rank_classes.class_of[list(group)].tolist())
        if payload.joint:
            allowed = {operation.of, *payload.joint}
            return tuple(each for each in classes if self.rank_classes.of[each] in allowed)
        return tuple(classes)

    def _peer_rank(self, payload: Payload, rank: int) -> int:
        peer = next((each for each in self.workload.classes if each.name == payload.peer), None)
        if peer is None:
            raise UsageError(f"{payload.name} goes to '{payload.peer}', which is no class of ranks")
        return self.workload.mesh.rank({**self.workload.mesh.place(rank), **peer.at})

    def ranks(self, operation: Operation, members: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ranks of one group, the first member's representative's."""
        mesh, first = self.workload.mesh, self.rank_classes.ranks[members[0]]
        if operation.op == "send-recv":
            return (first, self._peer_rank(operation.payloads[0], first))
        group = mesh.group(operation.axes, first)
        if operation.payloads[0].joint:
            return tuple(each for each in group if int(self.rank_classes.class_of[each]) in members)
        return group

    def task(self, name: str, where: str) -> Task:
        """Return a task by name; UsageError, with who named it, where there is none."""
        task = self.workload.task.get(name)
        if task is None:
            raise UsageError(f"{where} names a task '{name}' that does not exist", where=self.workload.name)
        return task
