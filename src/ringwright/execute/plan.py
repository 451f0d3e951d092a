"""A Program cut up for those who run it: for every node, what it sends, receives and adds, in which order.

A node posts what a step receives and sends, then takes what arrives, in the order in which the program names it. It goes on
to the next step when all has come; whether its own messages have left is waited for only where it is about to overwrite
them. So no order of arrival can stop it: what the earliest unfinished step waits for is always posted already.

Within a step all reads come before any write. Where something arrives for a slot that the same step sends on, everything of
that step goes to scratch first (GRAB) and to its place later (APPLY).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ringwright.ground.errors import ProgramError
from ringwright.model.interpreter import placed
from ringwright.model.program import ADDING, Op

if TYPE_CHECKING:
    from ringwright.model.program import Layout, Program, Step


class Do(IntEnum):
    """What an instruction does; all but KEEP and LOCAL are about a message."""

    RECV = 0  # post
    SEND = 1  # post
    TAKE = 2  # wait until it has come, and put or add it where it belongs
    GRAB = 3  # wait until it has come into scratch
    APPLY = 4  # put or add scratch where it belongs
    SENT = 5  # wait until its source may be overwritten
    KEEP = 6  # put the source of a local move into scratch
    LOCAL = 7  # do a local move, from scratch where it was kept


class Extent(msgspec.Struct, array_like=True, frozen=True):
    """Bytes that lie together at both ends; ``at`` here, ``there`` at the peer (the source of a local move)."""

    at: int
    there: int
    size: int
    adds: bool
    alone: bool  # nobody else reads or writes them in this step: they may arrive at any moment


class Message(msgspec.Struct, array_like=True, frozen=True):
    """One message, seen from one end; ``turn`` counts the messages between the two, each direction apart."""

    number: int
    step: int
    peer: int
    turn: int
    chunk: int  # the first slot, for what people read
    runs: list[Extent]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(run.size for run in self.runs)


class BlockPart(msgspec.Struct, array_like=True, frozen=True):
    """Elements of a block that a node holds before, or must hold afterwards: where, how many bytes, from which on."""

    block: int
    begin: int
    at: int
    size: int


class NodePlan(msgspec.Struct, frozen=True):
    """What one node does. ``order`` are (what, index) pairs: into ``sends``, ``receives`` or ``local``."""

    program: str
    node: int
    nodes: int
    arena_bytes: int
    arenas: list[int]  # of all nodes
    order: list[tuple[int, int]]
    sends: list[Message]
    receives: list[Message]
    local: list[Message]
    given: list[BlockPart]
    wanted: list[BlockPart]


def plans(program: Program) -> list[NodePlan]:
    """Return what each rank, and each aggregating node behind them, does; ProgramError where a move has nothing to send."""
    moves = [list(_messages(program, step, number)) for number, step in enumerate(program.steps())]
    arenas = [_Arena(program.layout, slots) for slots in _touched(program, moves)]
    present = [_given(program, node) for node in range(program.p)]
    present += [{} for _ in program.aggregators]
    nodes = [_Node(node, arenas[node]) for node in range(program.n_nodes)]
    turns: dict[tuple[int, int], int] = {}
    for number, messages in enumerate(moves):
        _presence(program, messages, present, number)
        for message in messages:
            message.turn = turns.get((message.src, message.dst), 0)
            turns[message.src, message.dst] = message.turn + 1
        for node in dict.fromkeys(each for message in messages for each in (message.src, message.dst)):
            nodes[node].step(messages, arenas)
    sizes = [arena.size for arena in arenas]
    for rank in range(program.p):
        _require_result(program, rank, present[rank])
    return [node.plan(program, sizes) for node in nodes]


class _Moves:
    """A message being put together: pieces (source slot, target slot, adds, frees, bytes) of one step, pair and channel."""

    __slots__ = ("dst", "number", "pieces", "src", "step", "turn")

    def __init__(self, src: int, dst: int, step: int, number: int) -> None:
        self.src, self.dst, self.step, self.number = src, dst, step, number
        self.turn = 0
        self.pieces: list[tuple[int, int, bool, bool, int]] = []

    @property
    def reads(self) -> set[int]:
        return {piece[0] for piece in self.pieces}

    @property
    def writes(self) -> set[int]:
        return {piece[1] for piece in self.pieces}


def _messages(program: Program, step: Step, number: int) -> Iterator[_Moves]:
    """Group the moves of a step as ``engines.flat`` does: one message per source, target and channel."""
    moves: dict[tuple[int, int, int], _Moves] = {}
    for block in step.blocks:
        adds, frees = block.op in ADDING, block.op is Op.EMIT
        for src, dst, chunk, to in zip(*(column.tolist() for column in block.arrays()), strict=True):
            key = (src, dst, -1 - block.channel if block.op is Op.COPY else block.channel)
            message = moves.get(key)
            if message is None:
                message = moves[key] = _Moves(src, dst, number, len(moves))
            message.pieces += [(chunk + further, to + further, adds, frees, 0) for further in range(block.span)]
    yield from moves.values()


def _touched(program: Program, moves: list[list[_Moves]]) -> list[set[int]]:
    """Return the slots that each node ever uses."""
    touched: list[set[int]] = [set() for _ in range(program.n_nodes)]
    for rank in range(program.p):
        for after in (False, True):
            touched[rank] |= {slot for slot, _ in placed(program, rank, after=after)}
    for messages in moves:
        for message in messages:
            touched[message.src] |= message.reads
            touched[message.dst] |= message.writes
    return touched


def _given(program: Program, rank: int) -> dict[int, int]:
    """Return slot -> bytes of what a rank holds before."""
    sizes = program.layout.chunk_bytes
    return {slot: int(sizes[chunk % len(sizes)]) for slot, chunk in placed(program, rank, after=False)}


def _presence(program: Program, messages: Sequence[_Moves], present: list[dict[int, int]], number: int) -> None:
    """Settle how many bytes each piece has, and which additions find nothing to add to and so just set the slot.

    A slot of scratch may hold less than it has room for: what counts is what lies in it.
    """
    for message in messages:
        there = present[message.src]
        missing = message.reads - there.keys()
        if missing:
            raise ProgramError(
                f"{program.name} sends what is not there",
                where=f"rank {message.src}, step {number}, chunk {min(missing)}",
            )
        message.pieces = [(chunk, to, adds, frees, there[chunk]) for chunk, to, adds, frees, _ in message.pieces]
        _require_room(program, message)
    for message in messages:
        for chunk, _, _, frees, _ in message.pieces:
            if frees:
                present[message.src].pop(chunk, None)
    for message in messages:
        here = present[message.dst]
        for index, (chunk, to, adds, frees, size) in enumerate(message.pieces):
            message.pieces[index] = (chunk, to, adds and to in here, frees, size)
            here[to] = size


def _require_room(program: Program, message: _Moves) -> None:
    """Raise ProgramError where a slot is too small for what comes: in memory the next one would be overwritten."""
    targets = np.array([to for _, to, _, _, _ in message.pieces])
    rooms = program.layout.bytes_of(targets)
    sizes = np.array([size for _, _, _, _, size in message.pieces])
    full = np.flatnonzero(sizes > rooms)
    if len(full):
        slot, size, room = (int(each[full[0]]) for each in (targets, sizes, rooms))
        where = f"rank {message.dst}, step {message.step}, slot {slot}"
        raise ProgramError(f"{program.name} puts {size} B where there is room for {room}", where=where)


def _require_result(program: Program, rank: int, present: dict[int, int]) -> None:
    for slot, chunk in placed(program, rank, after=True):
        if slot not in present:
            raise ProgramError(f"rank {rank} ends without chunk {chunk}", where=f"{program.name}, slot {slot}")


class _Arena:
    """The memory of one node: its slots in rising order, those next to each other without a gap."""

    def __init__(self, layout: Layout, slots: set[int]) -> None:
        ordered = np.array(sorted(slots), np.int64)
        ends = np.cumsum(layout.bytes_of(ordered)) if len(ordered) else np.zeros(0, np.int64)
        starts = np.concatenate(([0], ends[:-1])) if len(ordered) else ends
        self.at = dict(zip(ordered.tolist(), starts.tolist(), strict=True))
        self.size = int(ends[-1]) if len(ordered) else 0


class _Node:
    """The plan of one node being written."""

    def __init__(self, number: int, arena: _Arena) -> None:
        self.number, self.arena = number, arena
        self.order: list[tuple[int, int]] = []
        self.sends: list[Message] = []
        self.receives: list[Message] = []
        self.local: list[Message] = []
        self.reading: dict[int, list[int]] = {}  # slot -> sends under way that read it
        self.under_way: dict[int, set[int]] = {}  # send -> its slots

    def step(self, messages: Sequence[_Moves], arenas: Sequence[_Arena]) -> None:
        """Add one step."""
        me = self.number
        sends = [each for each in messages if each.src == me and each.dst != me]
        arrivals = [each for each in messages if each.dst == me]
        reads: set[int] = set().union(*(each.reads for each in messages if each.src == me))
        writes = [each.writes for each in arrivals]
        counted: dict[int, int] = {}
        for slot in (slot for each in writes for slot in each):
            counted[slot] = counted.get(slot, 0) + 1
        shared = {slot for slot, count in counted.items() if count > 1} | reads
        leaving: set[int] = set().union(*(each.reads for each in sends))
        staged = any(not written.isdisjoint(leaving) for written in writes)
        places = [self._arrival(each, arenas, shared) for each in arrivals]
        self._keep(arrivals, places, counted)
        self._post(arrivals, places, shared)
        self._send(sends, arenas)
        if staged:
            self.order += [(Do.GRAB, buffer) for each, buffer in zip(arrivals, places, strict=True) if each.src != me]
        for each, buffer, written in zip(arrivals, places, writes, strict=True):
            self._leave(written)
            what = Do.LOCAL if each.src == me else Do.APPLY if staged else Do.TAKE
            self.order.append((what, buffer))

    def _arrival(self, moves: _Moves, arenas: Sequence[_Arena], shared: set[int]) -> int:
        runs = _runs(moves, self.arena, arenas[moves.src], at_source=False, shared=shared)
        kind = self.local if moves.src == self.number else self.receives
        kind.append(Message(moves.number, moves.step, moves.src, moves.turn, moves.pieces[0][1], runs))
        return len(kind) - 1

    def _keep(self, arrivals: Sequence[_Moves], places: Sequence[int], counted: dict[int, int]) -> None:
        """Put aside the source of local moves that something else of this step may overwrite."""
        for each, buffer in zip(arrivals, places, strict=True):
            if each.src != self.number:
                continue
            if any(counted.get(slot, 0) > 0 for slot in each.reads):
                self.order.append((Do.KEEP, buffer))

    def _post(self, arrivals: Sequence[_Moves], places: Sequence[int], shared: set[int]) -> None:
        """Post what is received; where it may arrive in place at once, the place must be free.

        All waiting comes before all posting, so that what a step posts can go out as one group.
        """
        coming = [(each, buffer) for each, buffer in zip(arrivals, places, strict=True) if each.src != self.number]
        self._leave({piece[1] for each, _ in coming for piece in each.pieces if not piece[2]} - shared)
        self.order += [(Do.RECV, buffer) for _, buffer in coming]

    def _send(self, sends: Sequence[_Moves], arenas: Sequence[_Arena]) -> None:
        for moves in sends:
            runs = _runs(moves, self.arena, arenas[moves.dst], at_source=True, shared=set())
            here = len(self.sends)
            self.sends.append(Message(moves.number, moves.step, moves.dst, moves.turn, moves.pieces[0][0], runs))
            self.order.append((Do.SEND, here))
            self.under_way[here] = moves.reads
            for slot in moves.reads:
                self.reading.setdefault(slot, []).append(here)

    def _leave(self, written: set[int]) -> None:
        """Wait for the messages that still read what is to be written."""
        for send in sorted({send for slot in written for send in self.reading.get(slot, ())}):
            self._sent(send)

    def _sent(self, send: int) -> None:
        self.order.append((Do.SENT, send))
        for slot in self.under_way.pop(send):
            self.reading[slot].remove(send)

    def plan(self, program: Program, sizes: list[int]) -> NodePlan:
        """Return the finished plan."""
        for send in list(self.under_way):
            self._sent(send)
        given, wanted = (_parts(program, self.number, self.arena, after=after) for after in (False, True))
        order = [(int(what), which) for what, which in self.order]
        return NodePlan(
            program.name,
            self.number,
            program.n_nodes,
            self.arena.size,
            sizes,
            order,
            self.sends,
            self.receives,
            self.local,
            given,
            wanted,
        )


def _runs(moves: _Moves, mine: _Arena, other: _Arena, *, at_source: bool, shared: set[int]) -> list[Extent]:
    """Join pieces that follow each other at both ends; both ends find the same runs."""
    extents: list[Extent] = []
    for chunk, to, adds, _, size in moves.pieces:
        here, there = (chunk, to) if at_source else (to, chunk)
        at, far, alone = mine.at[here], other.at[there], here not in shared
        if not size:
            continue
        last = extents[-1] if extents else None
        if last and (last.at + last.size, last.there + last.size, last.adds) == (at, far, adds):
            extents[-1] = Extent(last.at, last.there, last.size + size, adds, last.alone and alone)
        else:
            extents.append(Extent(at, far, size, adds, alone))
    return extents


def _parts(program: Program, node: int, arena: _Arena, *, after: bool) -> list[BlockPart]:
    """Return which elements of which block lie where."""
    if node >= program.p:
        return []
    layout, parts = program.layout, program.layout.parts
    chunk_bytes = layout.chunk_bytes[np.arange(layout.n_chunks) % len(layout.chunk_bytes)]
    ends = np.cumsum(chunk_bytes)
    block_parts: list[BlockPart] = []
    for slot, chunk in placed(program, node, after=after):
        block = chunk // parts
        begin = int(ends[chunk] - chunk_bytes[chunk] - (ends[block * parts] - chunk_bytes[block * parts]))
        block_parts.append(BlockPart(block, begin, arena.at[slot], int(chunk_bytes[chunk])))
    return block_parts
