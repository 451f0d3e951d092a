"""What a declared program means: each instruction as moves, in the waves in which the instructions can run.

A wave has two halves. In the first, received values are added to (in the FIFO, which nobody else reads) and switches
gather; in the second everything is copied out, stored and sent on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model.program import Block, Op, Step
from ringwright.model.threadblocks.order import STUCK, waves
from ringwright.model.threadblocks.table import ADDS_TO_RECEIVED, KEEPS_RECEIVED, SENDS, SWITCHED, Opcode, one_of

if TYPE_CHECKING:
    from ringwright.model.threadblocks.order import InstructionOrder
    from ringwright.model.threadblocks.table import ThreadBlockTables


@dataclass(frozen=True)
class Moves:
    """Moves of all instructions, in the order of the steps; each field has one entry a move.

    ``half`` is 0 or 1 (see above), ``span`` consecutive slots go with a move. ``slots`` is how many slots each node needs.
    """

    step: np.ndarray
    op: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    chunk: np.ndarray
    to: np.ndarray
    span: np.ndarray
    channel: np.ndarray
    instruction: np.ndarray
    half: np.ndarray
    n_steps: int
    slots: int
    wave: np.ndarray  # of each instruction

    def steps(self) -> Iterator[Step]:
        """Yield the steps; moves of one kind, span and channel make a block."""
        bounds = np.searchsorted(self.step, np.arange(self.n_steps + 1))
        fresh = np.ones(len(self.step) + 1, bool)
        key = np.stack((self.step, self.op, self.span, self.channel))
        fresh[1:-1] = (key[:, 1:] != key[:, :-1]).any(axis=0)
        cuts = np.flatnonzero(fresh)
        for number in range(self.n_steps):
            inner = cuts[(cuts >= bounds[number]) & (cuts <= bounds[number + 1])].tolist()
            yield Step(tuple(self._block(a, b) for a, b in pairwise(inner)))

    def _block(self, begin: int, end: int) -> Block:
        part = slice(begin, end)
        return Block(
            Op(int(self.op[begin])),
            (end - begin,),
            self.src[part],
            self.dst[part],
            self.chunk[part],
            self.to[part],
            int(self.span[begin]),
            int(self.channel[begin]),
            multicast=self.op[begin] == Op.EMIT,
        )


def find_moves(schedule: ThreadBlockTables, order: InstructionOrder) -> Moves:
    """Return the moves of all instructions that can run."""
    wave = waves(schedule, order, schedule.depth)
    received, sent, behind = _fifo_slots(schedule, order)
    parts = [*_received(schedule, received), *_sent(schedule, received, sent), *_local(schedule), *_switched(schedule)]
    rows = np.concatenate([np.stack(np.broadcast_arrays(*part)) for part in parts], axis=1)
    rows = rows[:, (wave[rows[0]] != STUCK) & (rows[7] > 0)]
    used, step = np.unique(2 * wave[rows[0]] + rows[1], return_inverse=True)
    instruction, half, op, src, dst, chunk, to, span, channel = rows
    by = np.lexsort((instruction, channel, span, op, step))
    slots = max(behind, int(np.max(np.maximum(chunk, to) + span, initial=0)))
    return Moves(
        step[by],
        op[by],
        src[by],
        dst[by],
        chunk[by],
        to[by],
        span[by],
        channel[by],
        instruction[by],
        half[by],
        len(used),
        slots,
        wave,
    )


def _fifo_slots(schedule: ThreadBlockTables, order: InstructionOrder) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the FIFO slot that each instruction receives from and sends to (at the target), and where the last one ends.

    A connection has room for as many messages as it ever holds; message k takes place k modulo that.
    """
    code, blocks = schedule.code, schedule.blocks
    received, sent = np.full((2, len(code)), -1, np.int64)
    if not len(order.sends):
        return received, sent, schedule.own_slots
    first = np.append(True, order.connection[1:] != order.connection[:-1])
    which = np.cumsum(first) - 1
    wide = np.maximum(code.count[order.sends], code.count[order.receives])
    width = np.maximum.reduceat(wide, np.flatnonzero(first))
    rounds = np.minimum(np.bincount(which), schedule.depth)
    target = blocks.rank[code.block[order.receives[first]]]
    by = np.argsort(target, kind="stable")
    ends = np.cumsum((width * rounds)[by])
    starts = ends - (width * rounds)[by]
    base = np.empty_like(starts)
    base[by] = starts - starts[np.searchsorted(target[by], target[by])] + schedule.own_slots
    slot = base[which] + order.number % rounds[which] * width[which]
    received[order.receives], sent[order.sends] = slot, slot
    return received, sent, int((base + width * rounds).max())


Part = tuple[np.ndarray, ...]  # instruction, half, op, src, dst, chunk, to, span, channel


def _received(schedule: ThreadBlockTables, fifo: np.ndarray) -> Iterator[Part]:
    """Yield what happens to received values: added to, kept."""
    code = schedule.code
    src, dst = schedule.slots
    matched = fifo >= 0
    at = np.flatnonzero(one_of(code.kind, ADDS_TO_RECEIVED) & matched)
    yield _part(schedule, at, 0, Op.REDUCE, src[at], fifo[at])
    at = np.flatnonzero(one_of(code.kind, KEEPS_RECEIVED) & matched)
    yield _part(schedule, at, 1, Op.COPY, fifo[at], dst[at])


def _sent(schedule: ThreadBlockTables, received: np.ndarray, sent: np.ndarray) -> Iterator[Part]:
    """Yield what goes to the next rank's FIFO: a local operand, or what was received."""
    code = schedule.code
    at = np.flatnonzero(one_of(code.kind, SENDS) & (sent >= 0) & ((received >= 0) | (code.kind == Opcode.S)))
    chunk = np.where(code.kind[at] == Opcode.S, schedule.slots[0][at], received[at])
    block = code.block[at]
    rows = _part(schedule, at, 1, Op.SEND, chunk, sent[at])
    yield (*rows[:4], schedule.blocks.send[block], *rows[5:8], schedule.blocks.channel[block])


def _local(schedule: ThreadBlockTables) -> Iterator[Part]:
    """Yield copies, local sums, and one-sided moves."""
    code = schedule.code
    src, dst = schedule.slots
    for kind, op in ((Opcode.CPY, Op.COPY), (Opcode.RE, Op.REDUCE)):
        at = np.flatnonzero((code.kind == kind) & ((src != dst) | (code.kind == Opcode.RE)))
        yield _part(schedule, at, 1, op, src[at], dst[at])
    at = np.flatnonzero(code.kind == Opcode.PUT)
    rows = _part(schedule, at, 1, Op.SEND, src[at], dst[at])
    yield (*rows[:4], code.peer[at], *rows[5:8], code.block[at])
    for kind, op in ((Opcode.GET, Op.SEND), (Opcode.READ_REDUCE, Op.REDUCE)):
        at = np.flatnonzero(code.kind == kind)
        rows = _part(schedule, at, 1, op, src[at], dst[at])
        yield (*rows[:3], code.peer[at], *rows[4:8], code.block[at])


def _switched(schedule: ThreadBlockTables) -> Iterator[Part]:
    """Yield what a switch does: gather one value of each member, hand the sum to one or to all."""
    code, here = schedule.code, schedule.rank
    src, dst = schedule.slots
    at_switch = 0
    rows: list[tuple[int, ...]] = []
    for i in np.flatnonzero(one_of(code.kind, SWITCHED)).tolist():
        kind, count, block = code.kind[i], int(code.count[i]), int(code.block[i])
        members, buffer = schedule.groups[code.peer[i]]
        spot = [int(schedule.bases[member, buffer]) for member in members]
        givers = [(int(here[i]), int(src[i]))]
        takers = [(int(here[i]), int(dst[i]))]
        if kind != Opcode.STORE:
            givers = [(member, base + int(code.src[i])) for member, base in zip(members, spot, strict=True)]
        if kind != Opcode.LOAD:
            takers = [(member, base + int(code.dst[i])) for member, base in zip(members, spot, strict=True)]
        rows += [(i, 0, Op.CONTRIBUTE, rank, schedule.p, slot, at_switch, count, block) for rank, slot in givers]
        rows += [(i, 1, Op.EMIT, schedule.p, rank, at_switch, slot, count, block) for rank, slot in takers]
        at_switch += count
    yield tuple(np.array(rows, np.int64).reshape(-1, 9).T)


def _part(schedule: ThreadBlockTables, at: np.ndarray, half: int, op: Op, chunk: np.ndarray, to: np.ndarray) -> Part:
    """Return moves within a rank, each on the channel that has the number of its thread block."""
    rank, threadblock = schedule.rank[at], schedule.blocks.threadblock[schedule.code.block[at]]
    return at, np.int64(half), np.int64(op), rank, rank, chunk, to, schedule.code.count[at], threadblock  # type: ignore[return-value]
