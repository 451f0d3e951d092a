"""Which cells do an operation together, and which ranks stand for their group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ringwright.engines.job.cells import Cells
from ringwright.errors import UsageError
from ringwright.rewrites import Operation
from ringwright.workload import Payload, Task, Workload


class OperationGroups:
    """The cells of a workload, asked by operation."""

    def __init__(self, workload: Workload, found: Cells) -> None:
        self.workload, self.cells = workload, found
        self.of_class: dict[str, list[int]] = defaultdict(list)
        for cell, of in enumerate(found.of):
            self.of_class[of].append(cell)

    def groups(self, operation: Operation) -> Iterator[tuple[int, ...]]:
        """Yield the groups of cells that do the operation together, the operation's own class first."""
        seen = set()
        for cell in self.of_class[operation.of]:
            members = self.members(operation, cell)
            if members not in seen:
                seen.add(members)
                yield members

    def members(self, operation: Operation, cell: int) -> tuple[int, ...]:
        """Return the cells that take part where ``cell`` does; of a send-recv the one that sends, then the one that receives."""
        mesh, payload = self.workload.mesh, operation.payloads[0]
        rank = self.cells.ranks[cell]
        if operation.op == "send-recv":
            return (cell, int(self.cells.cell_of[self._peer_rank(payload, rank)]))
        group = mesh.group(operation.axes, rank)
        found = dict.fromkeys(int(self.cells.cell_of[each]) for each in group)
        if payload.joint:
            allowed = {operation.of, *payload.joint}
            return tuple(each for each in found if self.cells.of[each] in allowed)
        return tuple(found)

    def _peer_rank(self, payload: Payload, rank: int) -> int:
        peer = next((each for each in self.workload.classes if each.name == payload.peer), None)
        if peer is None:
            raise UsageError(f"{payload.name} goes to '{payload.peer}', which is no class of ranks")
        return self.workload.mesh.rank({**self.workload.mesh.place(rank), **peer.at})

    def ranks(self, operation: Operation, members: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ranks of one group, the first member's representative's."""
        mesh, first = self.workload.mesh, self.cells.ranks[members[0]]
        if operation.op == "send-recv":
            return (first, self._peer_rank(operation.payloads[0], first))
        group = mesh.group(operation.axes, first)
        if operation.payloads[0].joint:
            return tuple(each for each in group if int(self.cells.cell_of[each]) in members)
        return group

    def task(self, name: str, where: str) -> Task:
        """Return a task by name; UsageError, with who named it, where there is none."""
        task = self.workload.task.get(name)
        if task is None:
            raise UsageError(f"{where} names a task '{name}' that does not exist", where=self.workload.name)
        return task
