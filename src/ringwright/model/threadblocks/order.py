"""What must happen before what: thread block by thread block, message by message, mark by mark; and whether it can all happen.

A connection is (source rank, target rank, channel). One thread block sends on it and one receives; the k-th message sent is
the k-th received, and send k finds room when receive k - depth is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringwright.model.threadblocks.table import READS_PACKETS, RECEIVES, SENDS, WRITES_PACKETS, Opcode, one_of

if TYPE_CHECKING:
    from ringwright.model.threadblocks.table import ThreadBlockTables

STUCK = -1


class OrderViolation(NamedTuple):
    """A rule that the declared order breaks, and the instruction where it does."""

    rule: str
    message: str
    instruction: int
    severity: str = "error"


class Counted(NamedTuple):
    """An instruction that goes on when ``least`` of ``posts`` are done, whichever they are."""

    instruction: int
    least: int
    posts: np.ndarray
    mark: int


@dataclass(frozen=True)
class InstructionOrder:
    """Pairs of instructions in which the first must be done before the second begins.

    ``sends`` and ``receives`` are the matched ends of each message, ``number`` its place on its ``connection``. ``block`` and
    ``dep`` pairs order within a rank; ``marks`` pairs are of signals and waits, ``packets`` of data that carry their flag.
    """

    block: tuple[np.ndarray, np.ndarray]
    dep: tuple[np.ndarray, np.ndarray]
    sends: np.ndarray
    receives: np.ndarray
    connection: np.ndarray
    number: np.ndarray
    marks: tuple[np.ndarray, np.ndarray]
    packets: tuple[np.ndarray, np.ndarray]
    counted: tuple[Counted, ...]
    faults: tuple[OrderViolation, ...]

    def room(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (receive, send): which receive makes room for which send at a FIFO of ``depth`` messages.

        Both int64 of shape (pairs,).
        """
        late = np.flatnonzero(self.number >= depth)
        return self.receives[late - depth], self.sends[late]

    def certain(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all pairs that hold whatever the depth of the FIFOs. Both int64 of shape (pairs,)."""
        pairs = (self.block, self.dep, (self.sends, self.receives), self.marks, self.packets)
        return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])


def find_order(schedule: ThreadBlockTables) -> InstructionOrder:
    """Return the order of a program's instructions, with what is wrong about it."""
    code = schedule.code
    here = np.arange(len(code))
    follows = here[1:][code.block[1:] == code.block[:-1]] if len(code) else here
    waiting = np.flatnonzero(code.dep >= 0)
    further = np.array(schedule.further, np.int64).reshape(-1, 2)
    dep = (np.concatenate((code.dep[waiting], further[:, 0])), np.concatenate((waiting, further[:, 1])))
    sends, receives, connection, number, faults = _match(schedule)
    marks, counted, more = _marks(schedule)
    packets, odd = _packets(schedule)
    return InstructionOrder(
        (follows - 1, follows),
        dep,
        sends,
        receives,
        connection,
        number,
        marks,
        packets,
        tuple(counted),
        (*faults, *more, *odd),
    )


# ------------------------------------------------------------------------------------------------- two-sided messages
def _match(schedule: ThreadBlockTables) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[OrderViolation]]:
    """Pair the sends and receives of each connection in order."""
    code, blocks = schedule.code, schedule.blocks
    sends = np.flatnonzero(one_of(code.kind, SENDS))
    receives = np.flatnonzero(one_of(code.kind, RECEIVES))
    at, to = code.block[sends], code.block[receives]
    out = _connections(schedule, blocks.rank[at], blocks.send[at], blocks.channel[at])
    into = _connections(schedule, blocks.recv[to], blocks.rank[to], blocks.channel[to])
    faults = [*_owners(schedule, out, sends, "sends"), *_owners(schedule, into, receives, "receives")]
    sends, out, sent = _numbered(sends, out)
    receives, into, taken = _numbered(receives, into)
    span = int(max(sent.max(initial=0), taken.max(initial=0))) + 1
    left, right = out * span + sent, into * span + taken
    _, ours, theirs = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    faults += _unmatched(schedule, sends, np.setdiff1d(np.arange(len(sends)), ours), "never received")
    faults += _unmatched(schedule, receives, np.setdiff1d(np.arange(len(receives)), theirs), "never sent")
    sends, receives = sends[ours], receives[theirs]
    for bad in np.flatnonzero(code.count[sends] != code.count[receives])[:5]:
        a, b = sends[bad], receives[bad]
        text = f"sends {code.count[a]} chunks, {schedule.where(int(b))} receives {code.count[b]}"
        faults.append(OrderViolation("match", text, int(a)))
    return sends, receives, out[ours], sent[ours], faults


def _connections(schedule: ThreadBlockTables, src: np.ndarray, dst: np.ndarray, channel: np.ndarray) -> np.ndarray:
    keys: np.ndarray = (channel * schedule.p + src) * schedule.p + dst
    return keys


def _owners(schedule: ThreadBlockTables, connection: np.ndarray, rows: np.ndarray, verb: str) -> list[OrderViolation]:
    """Return a fault for each connection that two thread blocks use in the same direction."""
    block = schedule.code.block[rows]
    order = np.lexsort((block, connection))
    connection, block, rows = connection[order], block[order], rows[order]
    twice = np.flatnonzero((connection[1:] == connection[:-1]) & (block[1:] != block[:-1])) + 1
    blocks = schedule.blocks
    return [
        OrderViolation(
            "match",
            f"{verb} on channel {blocks.channel[block[at]]} where thread block {blocks.threadblock[block[at - 1]]} does",
            int(rows[at]),
        )
        for at in twice[:5]
    ]


def _numbered(rows: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows sorted by group, their groups, and the place of each in its group."""
    order = np.argsort(group, kind="stable")
    rows, group = rows[order], group[order]
    starts = np.searchsorted(group, group)
    return rows, group, np.arange(len(rows)) - starts


def _unmatched(schedule: ThreadBlockTables, rows: np.ndarray, places: np.ndarray, what: str) -> list[OrderViolation]:
    faults = []
    for row in rows[places][:5]:
        block = schedule.code.block[row]
        peer = schedule.blocks.send[block] if what == "never received" else schedule.blocks.recv[block]
        verb = "message to" if what == "never received" else "message from"
        faults.append(
            OrderViolation(
                "match", f"{verb} rank {peer} on channel {schedule.blocks.channel[block]} is {what}", int(row)
            )
        )
    return faults


# ------------------------------------------------------------------------------------------------- one-sided ordering
def _marks(schedule: ThreadBlockTables) -> tuple[tuple[np.ndarray, np.ndarray], list[Counted], list[OrderViolation]]:
    """Pair signals and waits: the n-th wait for a mark needs it raised n times (those at the start counted)."""
    code = schedule.code
    posts, _, _ = _numbered(*_marked(schedule, Opcode.SIGNAL))
    waits, _, _ = _numbered(*_marked(schedule, Opcode.WAIT))
    starts = np.searchsorted(code.mark[posts], np.arange(len(schedule.initial) + 1))
    needed = dict.fromkeys(range(len(schedule.initial)), 0)
    waiting_block: dict[int, int] = {}
    known: dict[int, _Posts] = {}
    before: list[int] = []
    after: list[int] = []
    counted: list[Counted] = []
    faults: list[OrderViolation] = []
    for wait, mark in zip(waits.tolist(), code.mark[waits].tolist(), strict=True):
        needed[mark] += int(code.count[wait])
        least = needed[mark] - schedule.initial[mark]
        if waiting_block.setdefault(mark, int(code.block[wait])) != code.block[wait]:
            faults.append(OrderViolation("match", "waits for what another thread block waits for too", wait, "warning"))
            waiting_block[mark] = int(code.block[wait])
        if least <= 0:
            continue
        if mark not in known:
            known[mark] = _Posts(schedule, posts[starts[mark] : starts[mark + 1]])
        sources = known[mark].certain(least)
        before += sources
        after += [wait] * len(sources)
        if not sources:
            counted.append(Counted(wait, least, known[mark].rows, mark))
    return (np.array(before, np.int64), np.array(after, np.int64)), counted, faults


def _marked(schedule: ThreadBlockTables, kind: Opcode) -> tuple[np.ndarray, np.ndarray]:
    rows = np.flatnonzero(schedule.code.kind == kind)
    return rows, schedule.code.mark[rows]


class _Posts:
    """All instructions that raise one mark."""

    def __init__(self, schedule: ThreadBlockTables, rows: np.ndarray) -> None:
        self.rows = rows
        block = schedule.code.block[rows]
        self.last = rows[np.append(block[1:] != block[:-1], True)] if len(rows) else rows

    def certain(self, least: int) -> list[int]:
        """Return those that surely come before a wait for ``least`` of them; none, where that depends on the run."""
        if least > len(self.rows):
            return []
        if len(self.last) == 1:
            return [int(self.rows[least - 1])]
        return self.last.tolist() if least == len(self.rows) else []


def _packets(schedule: ThreadBlockTables) -> tuple[tuple[np.ndarray, np.ndarray], list[OrderViolation]]:
    """Pair writers and readers of packets: a reader waits for the flags in the very slots it reads."""
    code = schedule.code
    src = schedule.slots[0]
    writer: dict[tuple[int, int], int] = {}
    faults: list[OrderViolation] = []
    for row in np.flatnonzero(code.packet & WRITES_PACKETS).tolist():
        here, again = int(schedule.rank[row]), puts_back(schedule, row)
        others = {
            first
            for rank, slot in _written(schedule, row)
            if (first := writer.setdefault((rank, slot), row)) != row
            and not (again and rank == here and first < row and code.block[first] == code.block[row])
        }
        if others:
            faults.append(OrderViolation("match", f"writes packets where {schedule.where(min(others))} does", row))
    before, after = [], []
    for row in np.flatnonzero(code.packet & READS_PACKETS).tolist():
        slots = range(int(src[row]), int(src[row] + code.count[row]))
        sources = {writer.get((int(schedule.rank[row]), slot), -1) for slot in slots}
        if -1 in sources:
            faults.append(OrderViolation("match", "reads packets that nobody writes", row))
        for source in sorted(sources - {-1}):
            before.append(source)
            after.append(row)
    return (np.array(before, np.int64), np.array(after, np.int64)), faults


def puts_back(schedule: ThreadBlockTables, row: int) -> bool:
    """Whether a store through a switch puts back on its own rank what it took from those very slots: nothing changes there.

    It goes to all members, its own rank too, so a rank that shares a chunk in place cannot but write it again.
    """
    code, here = schedule.code, int(schedule.rank[row])
    if code.kind[row] != Opcode.STORE:
        return False
    members, buffer = schedule.groups[int(code.peer[row])]
    own = int(schedule.bases[here, buffer] + code.dst[row])
    return here in members and int(schedule.slots[0][row]) == own


def _written(schedule: ThreadBlockTables, row: int) -> Iterator[tuple[int, int]]:
    """Yield the (rank, slot) that an instruction writes packets to."""
    code, here = schedule.code, int(schedule.rank[row])
    peer, dst, count = int(code.peer[row]), int(schedule.slots[1][row]), int(code.count[row])
    ranks = [(peer if code.kind[row] == Opcode.PUT else here, dst)]
    if code.kind[row] == Opcode.STORE:
        members, buffer = schedule.groups[peer]
        ranks = [(member, int(schedule.bases[member, buffer] + code.dst[row])) for member in members]
    for rank, first in ranks:
        for slot in range(first, first + count):
            yield rank, slot


# --------------------------------------------------------------------------------------------------------- the run
def waves(schedule: ThreadBlockTables, order: InstructionOrder, depth: int) -> np.ndarray:
    """Return in which wave each instruction can run at the earliest; STUCK, where it never can.

    This is a run of all thread blocks with FIFOs of ``depth`` messages. What can run stays able to run, so the order of
    the run does not matter, and what is stuck here is stuck in every run. int64 of shape (instructions,).
    """
    n = len(schedule.code)
    certain, room = order.certain(), order.room(depth)
    before, after = (np.concatenate(pair) for pair in zip(certain, room, strict=True))
    by = np.argsort(before, kind="stable")
    starts, nexts = np.searchsorted(before[by], np.arange(n + 1)), after[by]
    left = np.bincount(after, minlength=n)
    for counted in order.counted:
        left[counted.instruction] += 1
    pending: dict[int, list[Counted]] = {}
    for counted in sorted(order.counted, key=lambda each: -each.least):
        pending.setdefault(counted.mark, []).append(counted)
    raised = dict.fromkeys(pending, 0)
    wave = np.full(n, STUCK, np.int64)
    front, number = np.flatnonzero(left == 0), 0
    while len(front):
        wave[front] = number
        lengths = starts[front + 1] - starts[front]
        inner = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        reached = nexts[np.repeat(starts[front], lengths) + inner]
        np.subtract.at(left, reached, 1)
        released = _released(schedule, front, pending, raised) if pending else []
        np.subtract.at(left, np.array(released, np.int64), 1)
        front = np.unique(np.append(reached, released).astype(np.int64))
        front = front[left[front] == 0]
        number += 1
    return wave


def _released(
    schedule: ThreadBlockTables, front: np.ndarray, pending: dict[int, list[Counted]], raised: dict[int, int]
) -> list[int]:
    """Return the waits that the signals of a wave end; ``pending`` has the next one last."""
    ended: list[int] = []
    code = schedule.code
    for mark in code.mark[front[code.kind[front] == Opcode.SIGNAL]].tolist():
        if mark in raised:
            raised[mark] += 1
            while pending[mark] and pending[mark][-1].least <= raised[mark]:
                ended.append(pending[mark].pop().instruction)
    return ended
