"""One step of a Workload as Chakra execution traces, a file a rank: work, collectives, sends, receives, dependencies.

What the schedulers decided is in the files: operations are those that the rewrites of the policy made, in their pieces.
Lost: the policy itself, edges to the next step, and micro-batches as such (every one has nodes of its own). Besides
``duration_micros`` a node has ``duration_ps``, since whole microseconds are too coarse, ``stream`` and ``phase``;
``sources.chakra_et`` reads them, other readers ignore them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringwright.engines.job.layout import Laid, lay_out
from ringwright.engines.job.rank_classes import RankClasses, rank_classes
from ringwright.engines.job.step import Instances
from ringwright.formats.exports import chakra
from ringwright.formats.exports.chakra import COMM_COLL, COMM_RECV, COMM_SEND, COMM_TYPES, COMP, ONE_BLOCK, ChakraGroup
from ringwright.ground.errors import UsageError
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import PHASES

if TYPE_CHECKING:
    from ringwright.model.rewrites import Operation
    from ringwright.model.workload import Workload

EXPORTS = {"chakra": "of_each_rank"}
ANY_RATE = 1e12  # B/s: what the engine takes for times that are not written
MOST_RANKS = 1024
MOST_NODES = 4_000_000


def chakra_workload(workload: Workload, *, representatives: bool = False) -> dict[int, bytes]:
    """Return rank -> file of all ranks, or of one rank of each kind of ranks that do the same.

    Groups have numbers from 1 on, the same in all files.

    Raises UsageError for operations that Chakra has no type for, and for more ranks or nodes than files should have.
    """
    return _written(workload, representatives=representatives)[0]


def of_each_rank(workload: Workload) -> dict[int | str, bytes]:
    """Return rank -> file, and by its name the file of the groups; of more than 1,024 ranks one rank of each kind."""
    files, groups = _written(workload, representatives=workload.mesh.size > MOST_RANKS)
    named: dict[int | str, bytes] = {chakra.GROUPS_FILE: chakra.groups_file(groups)}
    named.update(files.items())
    return named


def _written(workload: Workload, *, representatives: bool) -> tuple[dict[int, bytes], list[ChakraGroup]]:
    ranks = workload.mesh.size
    if not representatives and ranks > MOST_RANKS:
        raise UsageError(
            f"{ranks:,} ranks are {ranks:,} files; at most {MOST_RANKS:,}",
            where=workload.name,
            remedy="representatives=True: a file for each kind of ranks",
        )
    classes = rank_classes(workload, folded=representatives)
    laid = lay_out(workload, LinkCosts(ANY_RATE), classes, steps=1)
    if laid.flat.n > MOST_NODES:
        raise UsageError(f"{laid.flat.n:,} nodes; at most {MOST_NODES:,}", where=workload.name, remedy="larger pieces")
    writer = _Writer(workload, laid)
    files = {classes.ranks[rank_class]: writer.file(rank_class) for rank_class in range(len(classes))}
    return files, [*writer.groups.values()]


class _Writer:
    """The laid-out step, and who waits for whom in it."""

    def __init__(self, workload: Workload, laid: Laid) -> None:
        self.workload, self.laid = workload, laid
        self.operations: dict[str, Operation] = {each.name: each for each in laid.operations}
        self.rows: dict[int, list[Instances]] = defaultdict(list)
        for row in laid.rows:
            for rank_class in dict.fromkeys(row.rank_classes):
                self.rows[rank_class].append(row)
        flat = laid.flat
        self.groups: dict[tuple[str, tuple[int, ...]], ChakraGroup] = {}  # by role and members
        self.before: dict[int, list[int]] = defaultdict(list)
        for source, target in zip(*(ends.tolist() for ends in flat.edges()), strict=True):
            self.before[target].append(source)

    def file(self, rank_class: int) -> bytes:
        """Return the file of the rank that stands for a rank class; nodes are numbered by the instances of the step."""
        mine = {at for row in self.rows[rank_class] for at in range(row.first, row.first + row.count)}
        ahead = self._ahead(rank_class)
        groups: dict[ChakraGroup, None] = {}
        nodes = []
        for row in self.rows[rank_class]:
            for turn in range(row.count):
                at = row.first + turn
                waits = [each for each in self.before[at] if each in mine]
                waits += [ahead[at]] if at in ahead and ahead[at] not in waits else []
                nodes.append(self._node(rank_class, row, turn, waits, groups))
        listed = [chakra.members_node(self.laid.flat.n, [*groups])] if groups else []
        return b"".join(map(chakra.framed, [chakra.metadata(), *listed, *nodes]))

    def _ahead(self, rank_class: int) -> dict[int, int]:
        """Return what runs right before each task on its stream: the updates of the step last."""
        flat = self.laid.flat
        lines: dict[int, list[int]] = defaultdict(list)
        for row in self.rows[rank_class]:
            if row.what == "task":
                for at in range(row.first, row.first + row.count):
                    if flat.queue[at] >= 0:
                        lines[int(flat.queue[at])].append(at)
        ahead: dict[int, int] = {}
        for line in lines.values():
            line.sort(key=lambda at: (int(flat.key[at]), at))
            ahead |= dict(zip(line[1:], line, strict=False))
        return ahead

    def _node(
        self, rank_class: int, row: Instances, turn: int, waits: list[int], groups: dict[ChakraGroup, None]
    ) -> bytes:
        at, flat = row.first + turn, self.laid.flat
        if row.what == "operation":
            return self._call(rank_class, row, turn, waits, groups)
        time_ps = int(flat.work_ps[at])
        stream = "control" if row.what == "barrier" or row.kind == "CTRL" else self.workload.task[row.name].stream
        attributes = [
            chakra.flag("is_cpu_op", value=False),
            chakra.number("duration_ps", time_ps),
            chakra.words("stream", stream),
        ]
        if row.kind in PHASES:
            attributes.append(chakra.words("phase", PHASES[row.kind]))
        label = row.name + (f" micro-batch {turn}" if row.count > 1 else "")
        return chakra.node(at, label, COMP, attributes, waits, round(time_ps / 1e6))

    def _call(
        self, rank_class: int, row: Instances, turn: int, waits: list[int], groups: dict[ChakraGroup, None]
    ) -> bytes:
        operation, at = self.operations[row.name], row.first + turn
        size = row.last_bytes if turn == row.count - 1 and operation.pieces > 1 else row.size_bytes
        rank = self.laid.rank_classes.ranks[rank_class]
        label = (
            row.name
            + (f" piece {turn}" if row.count > 1 else "")
            + (
                f" micro-batch {row.micro_batch}"
                if operation.per == "micro-batch" and self.workload.micro_batches > 1
                else ""
            )
        )
        group = self._members(operation, rank)
        key = (f"{operation.role}/{'-'.join(operation.axes)}", group)
        mine = self.groups.setdefault(key, ChakraGroup(len(self.groups) + 1, group, key[0]))
        groups[mine] = None
        attributes = [chakra.flag("is_cpu_op", value=False), chakra.words("pg_name", str(mine.number))]
        if operation.op == "send-recv":
            ends = self._ends(rank_class, row, operation)
            attributes += [
                chakra.number("comm_size", size),
                chakra.small("comm_src", ends[0]),
                chakra.small("comm_dst", ends[1]),
                chakra.small("comm_tag", at & 0x7FFFFFFF),
            ]
            kind = COMM_SEND if rank_class == row.rank_classes[0] else COMM_RECV
            return chakra.node(at, label, kind, attributes, waits)
        if operation.op not in COMM_TYPES:
            raise UsageError(
                f"Chakra has no collective type for {operation.op}",
                where=f"payload {row.name}",
                remedy="the same workload with all-reduce",
            )
        size //= len(group) if operation.op in ONE_BLOCK else 1
        attributes += [chakra.number("comm_type", COMM_TYPES[operation.op]), chakra.number("comm_size", size)]
        return chakra.node(at, label, COMM_COLL, attributes, waits)

    def _members(self, operation: Operation, rank: int) -> tuple[int, ...]:
        """Return the ranks of the group: of several classes only those that take part."""
        group, payload = self.workload.mesh.group(operation.axes, rank), operation.payloads[0]
        if not payload.joint or operation.op == "send-recv":
            return group
        classes: RankClasses = self.laid.rank_classes
        allowed = {operation.of, *payload.joint}
        return tuple(each for each in group if classes.of[int(classes.class_of[each])] in allowed)

    def _ends(self, rank_class: int, row: Instances, operation: Operation) -> tuple[int, int]:
        """Return the sending and the receiving rank, one of them the rank of this rank class."""
        at: dict[str, Mapping[str, int]] = {each.name: each.at for each in self.workload.classes}
        mesh, rank = self.workload.mesh, self.laid.rank_classes.ranks[rank_class]
        if rank_class == row.rank_classes[0]:
            return rank, mesh.rank({**mesh.place(rank), **at[operation.payloads[0].peer]})
        return mesh.rank({**mesh.place(rank), **at[operation.of]}), rank
