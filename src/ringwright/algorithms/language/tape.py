"""What a script says as instructions: two ends for each message, one for what stays within a rank, and who needs whom."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.language.script import WIDTH
from ringwright.model.threadblocks.accesses import hazards_between, slots_of
from ringwright.model.threadblocks.table import READS_SRC, WRITES_DST, Opcode, one_of

if TYPE_CHECKING:
    from ringwright.algorithms.language.script import ChunkScript

SCRATCH = 2


@dataclass(frozen=True)
class WrittenLines:
    """The lines of a script in numbers; buffers are 0 input, 1 output, 2 scratch, in which named ones follow each other.

    ``rows`` has the columns adds, source rank, buffer and chunk, target rank, buffer and chunk, count, channel, sending and
    receiving thread block (-1: not said), and the line of the script that wrote it. ``sizes`` (ranks x 3) are the chunks of each
    buffer.
    """

    rows: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, script: ChunkScript) -> WrittenLines:
        """Return the operations of a script."""
        log = np.frombuffer(script.log, np.int64).reshape(-1, WIDTH) if len(script) else np.zeros((0, WIDTH), np.int64)
        lengths = [[len(held) for held in buffers] for buffers in script.writers]
        first = np.zeros((script.ranks, max(map(len, lengths))), np.int64)
        sizes = np.zeros((script.ranks, 3), np.int64)
        for rank, each in enumerate(lengths):
            first[rank, SCRATCH : len(each)] = np.cumsum([0, *each[SCRATCH:]])[:-1][: len(each) - SCRATCH]
            sizes[rank] = (*each[:SCRATCH], sum(each[SCRATCH:]))
        rows = np.empty((len(log), 12), np.int64)
        rows[:, :11] = log[:, :11]
        rows[:, 11] = np.arange(len(log))
        for rank, buffer, chunk in ((1, 2, 3), (4, 5, 6)):
            rows[:, chunk] += first[log[:, rank], log[:, buffer]]
            rows[:, buffer] = np.minimum(log[:, buffer], SCRATCH)
        still = (rows[:, 1:4] == rows[:, 4:7]).all(axis=1) & (rows[:, 0] == 0)  # a copy onto itself
        return cls(rows[~still], sizes)


@dataclass(frozen=True)
class Tape:
    """All instructions in the order of the script. Every column is int64 of shape (instructions,).

    ``send`` and ``recv`` are peers, or -1; ``then`` is the instruction that receives what this one sends, or -1; ``line`` the
    operation of the script that it is of. ``sizes`` (ranks x 3) are the chunks of each buffer.
    """

    rank: np.ndarray
    kind: np.ndarray
    send: np.ndarray
    recv: np.ndarray
    src_buffer: np.ndarray
    src: np.ndarray
    dst_buffer: np.ndarray
    dst: np.ndarray
    count: np.ndarray
    channel: np.ndarray
    tb: np.ndarray
    then: np.ndarray
    line: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.rank)

    @cached_property
    def accesses(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return slot, instruction and whether it writes of every access, by slot and then by when it happens.

        int64, int64 and bool, each of shape (accesses,).
        """
        ends = np.cumsum(self.sizes.reshape(-1))
        base = ends - self.sizes.reshape(-1)
        both = self.kind == Opcode.RE
        parts = (
            (one_of(self.kind, READS_SRC), self.src_buffer, self.src, False),
            (both, self.dst_buffer, self.dst, False),
            (one_of(self.kind, WRITES_DST), self.dst_buffer, self.dst, True),
        )
        slots, owners, writes = [], [], []
        for chosen, buffer, first, is_write in parts:
            at = np.flatnonzero(chosen)
            slot, which = slots_of(base[self.rank[at] * 3 + buffer[at]] + first[at], self.count[at])
            slots.append(slot)
            owners.append(at[which])
            writes.append(np.full(len(slot), is_write))
        slot, owner, write = np.concatenate(slots), np.concatenate(owners), np.concatenate(writes)
        order = np.argsort((slot * (len(self) + 1) + owner) * 2 + write, kind="stable")
        return slot[order], owner[order], write[order]

    @cached_property
    def needs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs (before, after) of one rank that its data keep in order. Both int64 of shape (pairs,)."""
        return hazards_between(*self.accesses)

    def kept(self, stays: np.ndarray) -> Tape:
        """Return the tape without the instructions that do not stay; nobody may send to these."""
        number = np.cumsum(stays) - 1
        columns = {field.name: getattr(self, field.name)[stays] for field in dataclasses.fields(self)[:-1]}
        then = columns["then"]
        columns["then"] = np.where(then >= 0, number[then], -1)
        return Tape(**columns, sizes=self.sizes)


def lowered(operations: WrittenLines) -> Tape:
    """Return the instructions of all operations, none fused."""
    adds, at, buffer, chunk, to, there, index, count, channel, send_tb, recv_tb, line = operations.rows.T
    n, far = len(adds), at != to
    first = np.arange(n) + np.cumsum(far) - far
    second = first[far] + 1
    total = n + int(far.sum())
    columns = [field.name for field in dataclasses.fields(Tape)[:-1]]
    tape = Tape(**{name: np.full(total, -1, np.int64) for name in columns}, sizes=operations.sizes)
    local = np.where(adds == 1, int(Opcode.RE), int(Opcode.CPY))
    sides = (
        (first, slice(None), np.where(far, int(Opcode.S), local), at, send_tb, buffer, chunk),
        (second, far, np.where(adds == 1, int(Opcode.RRC), int(Opcode.R)), to, recv_tb, there, index),
    )
    for where, chosen, kind, rank, tb, from_buffer, from_chunk in sides:
        tape.kind[where], tape.rank[where], tape.tb[where] = kind[chosen], rank[chosen], tb[chosen]
        tape.src_buffer[where], tape.src[where] = from_buffer[chosen], from_chunk[chosen]
        tape.count[where], tape.channel[where], tape.line[where] = count[chosen], channel[chosen], line[chosen]
    tape.dst_buffer[:], tape.dst[:] = tape.src_buffer, tape.src
    tape.dst_buffer[first[~far]], tape.dst[first[~far]] = there[~far], index[~far]
    tape.send[first[far]], tape.recv[second], tape.then[first[far]] = to[far], at[far], second
    return tape
