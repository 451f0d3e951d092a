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

from ringwright.errors import ProgramError
from ringwright.program import ADDING, Op

if TYPE_CHECKING:
    from ringwright.program import Layout, Program, Step


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


class Run(msgspec.Struct, array_like=True, frozen=True):
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
    runs: list[Run]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(run.size for run in self.runs)


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Elements of a block that a node holds before, or must hold afterwards: where, how many bytes, from which on."""

    block: int
    begin: int
    at: int
    size: int


class Plan(msgspec.Struct, frozen=True):
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
    given: list[Part]
    wanted: list[Part]


def plans(program: Program) -> list[Plan]:
    """Return what each rank, and each aggregating node behind them, does; ProgramError where a move has nothing to send."""
    moves = [list(_messages(program, step, number)) for number, step in enumerate(program.steps())]
    arenas = [_Arena(program.layout, slots) for slots in _touched(program, moves)]
    present = [{slot for slot, _ in placed(program, node, after=False)} for node in range(program.p)]
    present += [set() for _ in program.aggregators]
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
    for node in nodes[: program.p]:
        _require_result(program, node.number, present[node.number])
    return [node.plan(program, sizes) for node in nodes]


def placed(program: Program, rank: int, *, after: bool) -> list[tuple[int, int]]:
    """Return (slot, chunk) of all that a rank holds before, or must hold after."""
    from ringwright.interpreter import placed as meant

    return meant(program, rank, after=after)


class _Moves:
    """A message being put together: pieces (source slot, target slot, adds), all of one step, pair and channel."""

    __slots__ = ("dst", "number", "pieces", "src", "step", "turn")

    def __init__(self, src: int, dst: int, step: int, number: int) -> None:
        self.src, self.dst, self.step, self.number = src, dst, step, number
        self.turn = 0
        self.pieces: list[tuple[int, int, bool, bool]] = []

    @property
    def reads(self) -> set[int]:
        return {piece[0] for piece in self.pieces}

    @property
    def writes(self) -> set[int]:
        return {piece[1] for piece in self.pieces}


def _messages(program: Program, step: Step, number: int) -> Iterator[_Moves]:
    """Group the moves of a step as ``engines.flat`` does: one message per source, target and channel."""
    found: dict[tuple[int, int, int], _Moves] = {}
    for block in step.blocks:
        adds, frees = block.op in ADDING, block.op is Op.EMIT
        for src, dst, chunk, to in zip(*(column.tolist() for column in block.arrays()), strict=True):
            key = (src, dst, -1 - block.channel if block.op is Op.COPY else block.channel)
            message = found.get(key)
            if message is None:
                message = found[key] = _Moves(src, dst, number, len(found))
            message.pieces += [(chunk + further, to + further, adds, frees) for further in range(block.span)]
    yield from found.values()


def _touched(program: Program, moves: list[list[_Moves]]) -> list[set[int]]:
    """Return the slots that each node ever uses."""
    found: list[set[int]] = [set() for _ in range(program.n_nodes)]
    for rank in range(program.p):
        for after in (False, True):
            found[rank] |= {slot for slot, _ in placed(program, rank, after=after)}
    for messages in moves:
        for message in messages:
            found[message.src] |= message.reads
            found[message.dst] |= message.writes
    return found


def _presence(program: Program, messages: Sequence[_Moves], present: list[set[int]], number: int) -> None:
    """Settle which additions find nothing to add to and so just set the slot; follow what each node holds."""
    freed: list[tuple[int, int]] = []
    for message in messages:
        missing = message.reads - present[message.src]
        if missing:
            raise ProgramError(
                f"{program.name} sends what is not there",
                where=f"rank {message.src}, step {number}, chunk {min(missing)}",
            )
        freed += [(message.src, piece[0]) for piece in message.pieces if piece[3]]
    for node, slot in freed:
        present[node].discard(slot)
    for message in messages:
        here = present[message.dst]
        for place, (chunk, to, adds, frees) in enumerate(message.pieces):
            message.pieces[place] = (chunk, to, adds and to in here, frees)
            here.add(to)


def _require_result(program: Program, rank: int, present: set[int]) -> None:
    for slot, chunk in placed(program, rank, after=True):
        if slot not in present:
            raise ProgramError(f"rank {rank} ends without chunk {chunk}", where=f"{program.name}, slot {slot}")


class _Arena:
    """The memory of one node: its slots in rising order, those next to each other without a gap."""

    def __init__(self, layout: Layout, slots: set[int]) -> None:
        import numpy as np

        ordered = np.array(sorted(slots), np.int64)
        ends = np.cumsum(layout.bytes_of(ordered)) if len(ordered) else np.zeros(0, np.int64)
        starts = np.concatenate(([0], ends[:-1])) if len(ordered) else ends
        self.at = dict(zip(ordered.tolist(), starts.tolist(), strict=True))
        self.bytes = dict(zip(ordered.tolist(), (ends - starts).tolist(), strict=True))
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
            self.order += [(Do.GRAB, place) for each, place in zip(arrivals, places, strict=True) if each.src != me]
        for each, place, written in zip(arrivals, places, writes, strict=True):
            self._leave(written)
            what = Do.LOCAL if each.src == me else Do.APPLY if staged else Do.TAKE
            self.order.append((what, place))

    def _arrival(self, moves: _Moves, arenas: Sequence[_Arena], shared: set[int]) -> int:
        runs = _runs(moves, self.arena, arenas[moves.src], at_source=False, shared=shared)
        kind = self.local if moves.src == self.number else self.receives
        kind.append(Message(moves.number, moves.step, moves.src, moves.turn, moves.pieces[0][1], runs))
        return len(kind) - 1

    def _keep(self, arrivals: Sequence[_Moves], places: Sequence[int], counted: dict[int, int]) -> None:
        """Put aside the source of local moves that something else of this step may overwrite."""
        for each, place in zip(arrivals, places, strict=True):
            if each.src != self.number:
                continue
            if any(counted.get(slot, 0) > 0 for slot in each.reads):
                self.order.append((Do.KEEP, place))

    def _post(self, arrivals: Sequence[_Moves], places: Sequence[int], shared: set[int]) -> None:
        """Post what is received; where it may arrive in place at once, the place must be free."""
        for each, place in zip(arrivals, places, strict=True):
            if each.src == self.number:
                continue
            direct = {piece[1] for piece in each.pieces if not piece[2]}
            self._leave(direct - shared)
            self.order.append((Do.RECV, place))

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

    def plan(self, program: Program, sizes: list[int]) -> Plan:
        """Return the finished plan."""
        for send in list(self.under_way):
            self._sent(send)
        given, wanted = (_parts(program, self.number, self.arena, after=after) for after in (False, True))
        order = [(int(what), which) for what, which in self.order]
        return Plan(
            program.name, self.number, program.n_nodes, self.arena.size, sizes, order, self.sends, self.receives,
            self.local, given, wanted,
        )  # fmt: skip


def _runs(moves: _Moves, mine: _Arena, other: _Arena, *, at_source: bool, shared: set[int]) -> list[Run]:
    """Join pieces that follow each other at both ends."""
    found: list[Run] = []
    for chunk, to, adds, _ in moves.pieces:
        here, there = (chunk, to) if at_source else (to, chunk)
        at, far, size, alone = mine.at[here], other.at[there], mine.bytes[here], here not in shared
        if not size:
            continue
        last = found[-1] if found else None
        joins = last and (last.at + last.size, last.there + last.size, last.adds, last.alone) == (at, far, adds, alone)
        if last and joins:
            found[-1] = Run(last.at, last.there, last.size + size, adds, alone)
        else:
            found.append(Run(at, far, size, adds, alone))
    return found


def _parts(program: Program, node: int, arena: _Arena, *, after: bool) -> list[Part]:
    """Return which elements of which block lie where."""
    import numpy as np

    if node >= program.p:
        return []
    layout, parts = program.layout, program.layout.parts
    chunk_bytes = layout.chunk_bytes[np.arange(layout.n_chunks) % len(layout.chunk_bytes)]
    ends = np.cumsum(chunk_bytes)
    found: list[Part] = []
    for slot, chunk in placed(program, node, after=after):
        block = chunk // parts
        begin = int(ends[chunk] - chunk_bytes[chunk] - (ends[block * parts] - chunk_bytes[block * parts]))
        found.append(Part(block, begin, arena.at[slot], int(chunk_bytes[chunk])))
    return found
