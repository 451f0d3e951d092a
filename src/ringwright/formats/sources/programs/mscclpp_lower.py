"""Operations of MSCCL++ as instructions of thread blocks, fused ones taken apart: one rank at a time.

An operand of a thread block names places in the thread block's own lists, which name places in the rank's lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ringwright.formats.sources.findings import FileFindings
from ringwright.formats.sources.programs.mscclpp_plan import Buffer, PlanGpu, PlanOperation, RemoteBuffer, ThreadBlock
from ringwright.model.threadblocks.mscclpp import (
    CHANNELS,
    COPIES,
    NAMES,
    PUTS,
    READS_PACKETS_FIRST,
    READS_PACKETS_LATER,
    REDUCES,
    SEMAPHORES,
    SIGNALS,
    SWITCHES,
    WAITS,
    WRITES_PACKETS_AWAY,
)
from ringwright.model.threadblocks.table import LETTERS, READS_PACKETS, WRITES_PACKETS, Opcode

HERE = -1
SwitchGroup = tuple[tuple[int, ...], int]  # ranks, buffer
T = TypeVar("T")
Operand = tuple[int, int, int, int]  # rank or HERE, buffer, first slice, slices


class LoweringError(Exception):  # a sentence about one operation, caught here
    """An operation that cannot be: rule and message."""

    def __init__(self, rule: str, message: str, chunk: int = -1) -> None:
        super().__init__(message)
        self.rule, self.chunk = rule, chunk


class Marks:
    """Numbers of what is raised and waited for: directions of channels, and semaphores."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[object, ...], int] = {}
        self.initial: list[int] = []

    def number(self, key: tuple[object, ...], initial: int = 0) -> int:
        """Return the number of a mark, a new one at its first use."""
        if key not in self.numbers:
            self.numbers[key] = len(self.initial)
            self.initial.append(initial)
        return self.numbers[key]


class RankLowering:
    """One rank's channels, remote buffers and switch groups, flattened as the executor does."""

    def __init__(self, gpu: PlanGpu, groups: dict[SwitchGroup, int]) -> None:
        self.gpu = gpu
        counts: dict[tuple[str, int], int] = {}
        self.peers: dict[str, list[tuple[int, int]]] = {kind: [] for kind in CHANNELS}  # peer, which one to that peer
        self.switches: list[int] = []  # numbers of switch groups
        for channel in gpu.channels:
            if channel.kind == "switch":
                buffer = LETTERS.index(channel.buffer_type or channel.buff or "i")
                for group in channel.rank_groups:
                    self.switches.append(groups.setdefault((tuple(group.ranks), buffer), len(groups)))
            else:
                known = self.peers.setdefault(channel.kind, [])
                for peer in channel.connected_to:
                    counts[channel.kind, peer] = counts.get((channel.kind, peer), -1) + 1
                    known.append((peer, counts[channel.kind, peer]))


class Lowering:
    """Take the operations of one thread block apart into rows (see thread blocks.Code, from ``step`` on)."""

    def __init__(
        self,
        rank: RankLowering,
        block: ThreadBlock,
        marks: Marks,
        groups: Sequence[SwitchGroup],
        sizes: list[list[int]],
        slices: int,
    ) -> None:
        self.rank, self.block, self.marks = rank, block, marks
        self.groups, self.sizes, self.slices = groups, sizes, slices
        self.rows: list[list[int]] = []
        self.channels: dict[str, list[tuple[int, int]]] = {}
        self.switches: list[int] | None = None
        self.remotes: dict[str, list[RemoteBuffer]] = {}
        self.barriers: list[tuple[int, int, int]] = []  # barrier, thread blocks it is for, row of its first half

    def run(self, findings: FileFindings) -> None:
        """Lower all operations; what cannot be is noted."""
        for step, operation in enumerate(flatten(self.block.ops)):
            try:
                self._operation(step, operation)
            except LoweringError as refused:
                text = f"thread block {self.block.id}, {operation.name[:40]}: {refused}"
                findings.add(refused.rule, text, rank=self.rank.gpu.id, step=step, chunk=refused.chunk)

    def _operation(self, step: int, operation: PlanOperation) -> None:
        name = operation.name
        if name not in NAMES:
            raise LoweringError("attribute", f"no operation of a plan; one of {', '.join(NAMES)}")
        if name in REDUCES:
            self._reduce(step, operation)
        elif name in COPIES or name == "get" or name in PUTS:
            self._transfer(step, operation)
        elif name in (*SIGNALS, *WAITS):
            self._channel(step, operation, name in SIGNALS, operation.channel_ids)
        elif name in SEMAPHORES:
            self._semaphore(step, operation)
        elif name in SWITCHES:
            self._switch(step, operation)
        else:
            if name == "barrier":
                self.barriers.append((operation.barrier_id, operation.num_threadblocks, len(self.rows)))
                self._row(step, Opcode.NOP)
            self._row(step, Opcode.NOP)

    # --------------------------------------------------------------------------------------------------- operations
    def _transfer(self, step: int, operation: PlanOperation) -> None:
        name = operation.name
        sources, targets = self._operands(operation, operation.src_buff), self._operands(operation, operation.dst_buff)
        if not targets or len(sources) not in (1, len(targets)):
            raise LoweringError("index", f"{len(sources)} sources and {len(targets)} targets")
        packet = (READS_PACKETS if name in READS_PACKETS_FIRST else 0) | (
            WRITES_PACKETS if name in WRITES_PACKETS_AWAY or name == "cpkt" else 0
        )
        for source, target in zip(sources * (len(targets) if len(sources) == 1 else 1), targets, strict=True):
            if (source[0] != HERE) != (name == "get") or (target[0] != HERE) != (name in PUTS):
                raise LoweringError("peer", "its operands are not where it reads and writes")
            kind = Opcode.GET if name == "get" else Opcode.PUT if name in PUTS else Opcode.CPY
            self._move(step, kind, source, target, packet)
        if name in PUTS and operation.channel_ids:
            self._check_peers(operation, {target[0] for target in targets})
        if name in ("pws", "pwsf"):
            self._channel(step, operation, True, operation.channel_ids)

    def _reduce(self, step: int, operation: PlanOperation) -> None:
        """First source into the result, add the others, hand the result on."""
        sources, targets = self._operands(operation, operation.src_buff), self._operands(operation, operation.dst_buff)
        if not sources or not targets or targets[0][0] != HERE:
            raise LoweringError("peer", "needs sources and a local result")
        result = targets[0]
        reads = READS_PACKETS if operation.name in READS_PACKETS_LATER else 0
        writes = WRITES_PACKETS if operation.name in WRITES_PACKETS_AWAY else 0
        start = sources.index(result) if result in sources else 0
        if sources[start] != result:
            self._move(step, Opcode.GET if sources[0][0] != HERE else Opcode.CPY, sources[0], result, 0)
        for position, source in enumerate(sources):
            if position != start:
                kind = Opcode.RE if source[0] == HERE else Opcode.READ_REDUCE
                self._move(step, kind, source, result, reads if position else 0)
        for target in targets[1:]:
            self._move(step, Opcode.CPY if target[0] == HERE else Opcode.PUT, result, target, writes)

    def _channel(self, step: int, operation: PlanOperation, raises: bool, ids: list[int]) -> None:
        for chosen in ids:
            peer, which = self._pick(self._channels(operation.channel_type), chosen, "channel")
            ends = (self.rank.gpu.id, peer) if raises else (peer, self.rank.gpu.id)
            mark = self.marks.number((*ends, operation.channel_type, which))
            self._row(step, Opcode.SIGNAL if raises else Opcode.WAIT, count=1, mark=mark)

    def _semaphore(self, step: int, operation: PlanOperation) -> None:
        for chosen in operation.semaphore_ids:
            semaphore = self._pick(self.rank.gpu.semaphores, chosen, "semaphore")
            mark = self.marks.number((self.rank.gpu.id, "semaphore", chosen), semaphore.init_value)
            kind = Opcode.SIGNAL if operation.name == "sem_release" else Opcode.WAIT
            self._row(step, kind, count=1, mark=mark)

    def _switch(self, step: int, operation: PlanOperation) -> None:
        if not operation.src_buff or not operation.dst_buff:
            raise LoweringError("index", "needs a source and a target")
        source, target = operation.src_buff[0], operation.dst_buff[0]
        kind = Opcode.STORE
        if operation.name == "glres":
            kind = Opcode.LOAD if target.switch_channel_id is None else Opcode.LOAD_STORE
        group = -1
        places: list[Operand] = []
        for buffer, switched in ((source, kind != Opcode.STORE), (target, kind != Opcode.LOAD)):
            if (buffer.switch_channel_id is not None) != switched:
                raise LoweringError("peer", "its operands are not where it reads and writes")
            if buffer.switch_channel_id is not None:
                group = self._pick(self._switches(), buffer.switch_channel_id, "switch channel")
            places.append(self._operand(operation, buffer))
        packet = WRITES_PACKETS if operation.name == "gstorepkt" else 0
        self._move(step, kind, places[0], places[1], packet, group=group)

    # ------------------------------------------------------------------------------------------------------ operands
    def _operands(self, operation: PlanOperation, buffers: list[Buffer]) -> list[Operand]:
        return [self._operand(operation, buffer) for buffer in buffers]

    def _operand(self, operation: PlanOperation, buffer: Buffer) -> Operand:
        rank, letter = HERE, buffer.type
        limit = None
        if buffer.buffer_id is not None:
            remote = self._pick(self._remotes(operation.channel_type), buffer.buffer_id, "remote buffer")
            rank, letter = remote.rank, remote.type
            if not 0 <= rank < len(self.sizes) or rank == self.rank.gpu.id:
                raise LoweringError("peer", f"remote buffer {buffer.buffer_id} is of rank {rank}")
        elif buffer.switch_channel_id is not None:
            group = self._pick(self._switches(), buffer.switch_channel_id, "switch channel")
            members, number = self.groups[group]
            letter = LETTERS[number]  # type: ignore[assignment]
            limit = min(self.sizes[member][number] for member in members)
        if letter is None:
            raise LoweringError("attribute", "an operand has neither a type nor a buffer_id nor a switch_channel_id")
        column = LETTERS.index(letter)
        if limit is None:
            limit = self.sizes[self.rank.gpu.id if rank == HERE else rank][column]
        if buffer.size < 1 or not 0 <= buffer.index <= limit - buffer.size:
            end = buffer.index + buffer.size - 1
            raise LoweringError("index", f"{letter}[{buffer.index}..{end}] of {limit} chunks", buffer.index)
        first, count = buffer.index * self.slices, buffer.size * self.slices
        if operation.tbg_info is not None:
            info = operation.tbg_info
            if not 0 <= info.tb_id < info.tbg_size:
                raise LoweringError("limits", f"thread block {info.tb_id} of a group of {info.tbg_size}")
            count //= info.tbg_size
            first += info.tb_id * count
        return rank, column, first, count

    def _channels(self, kind: str) -> list[tuple[int, int]]:
        if kind not in self.channels:
            places = _flat(each.channel_ids for each in self.block.channels if each.channel_type == kind)
            choices = self.rank.peers.get(kind, [])
            self.channels[kind] = [self._pick(choices, index, f"{kind} channel of the rank") for index in places]
        return self.channels[kind]

    def _switches(self) -> list[int]:
        if self.switches is None:
            places = _flat(each.channel_ids for each in self.block.channels if each.channel_type == "switch")
            self.switches = [self._pick(self.rank.switches, index, "switch channel of the rank") for index in places]
        return self.switches

    def _remotes(self, kind: str) -> list[RemoteBuffer]:
        if kind not in self.remotes:
            references = self.block.remote_buffer_refs
            places = _flat(each.remote_buffer_ids for each in references if each.access_channel_type == kind)
            choices = self.rank.gpu.remote_buffers
            self.remotes[kind] = [self._pick(choices, index, "remote buffer of the rank") for index in places]
        return self.remotes[kind]

    def _check_peers(self, operation: PlanOperation, ranks: set[int]) -> None:
        channels = self._channels(operation.channel_type)
        peers = {self._pick(channels, chosen, "channel")[0] for chosen in operation.channel_ids}
        if not ranks <= peers:
            raise LoweringError("peer", f"writes at rank {min(ranks - peers)} over a channel to rank {min(peers)}")

    @staticmethod
    def _pick(choices: Sequence[T], index: int, what: str) -> T:
        if not 0 <= index < len(choices):
            raise LoweringError("index", f"{what} {index} of {len(choices)}")
        return choices[index]

    # ---------------------------------------------------------------------------------------------------------- rows
    def _move(self, step: int, kind: Opcode, source: Operand, target: Operand, packet: int, *, group: int = -1) -> None:
        if source[3] != target[3]:
            raise LoweringError("index", f"{source[3]} slices into {target[3]}")
        peer = group if group >= 0 else max(source[0], target[0])
        self.rows.append([step, int(kind), *source[1:3], *target[1:3], source[3], -1, 0, peer, -1, packet])

    def _row(self, step: int, kind: Opcode, *, count: int = 0, mark: int = -1) -> None:
        self.rows.append([step, int(kind), 0, 0, 0, 0, count, -1, 0, -1, mark, 0])


def _flat(lists: Iterable[list[int]]) -> list[int]:
    return [index for each in lists for index in each]


def flatten(operations: list[PlanOperation]) -> Iterator[PlanOperation]:
    """Yield operations in order, those of a pipeline (one turn of it) after the pipeline itself."""
    for operation in operations:
        yield operation
        if operation.name == "pipeline":
            yield from operation.ops
