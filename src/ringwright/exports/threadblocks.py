"""A program whose order follows from its data, scheduled into thread blocks.

All work is put into one order that every rank shares: by step, then by the place of a piece in its message, sends first.
A thread block runs its part of that order; what another thread block of the rank must have done before is a dependency.
Waiting is always for something earlier in that order, so that nothing can lock up, save where one message is cut into more
pieces than a FIFO holds and they wait for each other crosswise: then wider thread blocks are tried, and at last refused.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.errors import ProgramError
from ringwright.exports.places import (
    Homes,
    Place,
    buffer_sizes,
    check_carried,
    find_homes,
    is_adding,
    loop_chunks,
)
from ringwright.lanes import Arrangement, Blocks, Code, Kind, Lanes, arrange, declared
from ringwright.lanes.msccl import DEPTH, MOST_AWAITED, MOST_COUNT, MOST_PER_CHANNEL
from ringwright.lanes.order import STUCK, waves
from ringwright.program import Op
from ringwright.validity import require, unfold

if TYPE_CHECKING:
    from ringwright.program import Program, Step

Lane = tuple[int, int, int]  # send peer, receive peer, channel
Cell = tuple[int, int, int]  # rank, buffer, chunk


@dataclass(slots=True)
class Item:
    """One instruction before it has a thread block. ``needs`` are items of the same rank."""

    key: tuple[int, int, int]  # step, place in the message, sends before copies before receives
    kind: Kind
    rank: int
    peer: int
    channel: int
    src: Place
    dst: Place
    count: int
    needs: set[int] = field(default_factory=set)
    lane: Lane = (-1, -1, 0)


Limits = Callable[[str, Lanes], None]  # name, lanes: raises ProgramError where a runtime has not room for them


def schedule(
    program: Program, *, in_place: bool | None = None, protocol: str = "", limits: Limits | None = None
) -> Program:
    """Return the same program with a declared order; raise ProgramError where thread blocks cannot carry it.

    ``in_place`` is whether output and input share memory (without it: yes, save for all-to-all). The result is checked.
    """
    check_carried(program)
    if in_place is None:
        in_place = program.collective.op != "all-to-all"
    if in_place and program.collective.op == "all-to-all":
        raise ProgramError(f"{program.name}: an all-to-all in place would overwrite what is not sent yet")
    protocol = protocol or (program.protocol if program.protocol in DEPTH else "Simple")
    homes = find_homes(program, in_place=in_place)
    items = _items(program, homes)
    sizes = buffer_sizes(program, homes, in_place=in_place)
    for paired, fused in ((True, True), (True, False), (False, False)):
        lanes = _Scheduler(program, items, sizes, DEPTH[protocol], in_place).lanes(paired=paired, fused=fused)
        if not (waves(lanes, lanes.depth) == STUCK).any():
            break
    else:
        raise ProgramError(f"{program.name} needs more than {DEPTH[protocol]} messages under way on a connection")
    if limits is not None:
        limits(program.name, lanes)
    placed = _arranged(program, sizes, in_place=in_place)
    knobs = {**program.knobs, "in_place": in_place}
    return require(declared(program.name, placed, lanes, protocol=protocol, knobs=knobs))


def _arranged(program: Program, sizes: list[list[int]], *, in_place: bool) -> Arrangement:
    import numpy as np

    collective, chunks = program.collective, loop_chunks(program)
    size = chunks * max(-(-collective.size_bytes // (chunks * 4)) * 4, 4)
    return arrange(
        collective.op, np.array(sizes, np.int64), chunks, in_place=in_place, size_bytes=size, root=collective.root
    )


# ------------------------------------------------------------------------------------------------------- instructions
def _items(program: Program, homes: list[Homes]) -> list[Item]:
    """Return all work in the shared order, with what each piece of it needs."""
    items = [item for rank, each in enumerate(homes) for item in _copies(rank, each.first, -1)]
    number = -1
    for number, step in enumerate(program.steps()):
        places: dict[tuple[int, int, int], int] = {}
        for src, dst, channel, op, slot, to, count in _runs(homes, step):
            place = places.get((src, dst, channel), 0)
            places[src, dst, channel] = place + 1
            items += _pair(op, (number, place), src, dst, channel, slot, to, count)
    items += [item for rank, each in enumerate(homes) for item in _copies(rank, each.last, number + 1)]
    items.sort(key=lambda item: item.key)
    held = {(rank, *place) for rank, each in enumerate(homes) for place in each.held}
    _find_needs(items, held)
    return _ordered(items)


def _copies(rank: int, pairs: list[tuple[Place, Place]], number: int) -> Iterator[Item]:
    """Yield the copies before or after all steps, neighbours together."""
    for place, (src, dst, count) in enumerate(_joined(sorted(pairs))):
        yield Item((number, place, 1), Kind.CPY, rank, -1, 0, src, dst, count)


Run = tuple[int, int, int, Op, Place, Place, int]  # source, target, channel, what, from, to, chunks


def _runs(homes: list[Homes], step: Step) -> Iterator[Run]:
    """Yield the moves of a step, those of a message by the place they come from, neighbours joined."""
    groups: dict[tuple[int, int, int, Op], list[tuple[Place, Place]]] = {}
    for block in step.blocks:
        for src, dst, chunk, to in zip(*(column.tolist() for column in unfold(block)), strict=True):
            pair = homes[src].home(chunk), homes[dst].home(to)
            groups.setdefault((src, dst, block.channel, block.op), []).append(pair)
    for key, pairs in groups.items():
        for here, there, count in _joined(sorted(pairs)):
            yield (*key, here, there, count)


def _joined(pairs: list[tuple[Place, Place]]) -> Iterator[tuple[Place, Place, int]]:
    """Yield pairs of places, those that follow each other at both ends as one."""
    begin = 0
    for at in range(1, len(pairs) + 1):
        count = at - begin
        if at < len(pairs) and count < MOST_COUNT:
            expected = tuple((buffer, chunk + count) for buffer, chunk in pairs[begin])
            if pairs[at] == expected:
                continue
        yield (*pairs[begin], count)
        begin = at


def _pair(
    op: Op, at: tuple[int, int], src: int, dst: int, channel: int, here: Place, there: Place, count: int
) -> Iterator[Item]:
    """Yield the two ends of a move, or the one of a local move."""
    if src == dst:
        kind = Kind.RE if is_adding(op) else Kind.CPY
        if kind is Kind.RE or here != there:
            yield Item((*at, 1), kind, src, -1, channel, here, there, count)
        return
    yield Item((*at, 0), Kind.S, src, dst, channel, here, here, count)
    kind = Kind.RRC if is_adding(op) else Kind.R
    yield Item((*at, 2), kind, dst, src, channel, there, there, count)


def _find_needs(items: list[Item], held: set[Cell]) -> None:
    """Find what must be done before each item: all of a step read what was there before the step.

    What is added to a chunk that holds nothing yet becomes what it holds.
    """
    writer: dict[Cell, int] = {}
    readers: dict[Cell, list[int]] = {}
    for _, group in itertools.groupby(enumerate(items), key=lambda pair: pair[1].key[0]):
        step = list(group)
        for number, item in step:
            if item.kind in (Kind.S, Kind.CPY, Kind.RE):
                for cell in _cells(item.rank, item.src, item.count):
                    item.needs.add(writer.get(cell, -1))
                    readers.setdefault(cell, []).append(number)
        for number, item in step:
            if item.kind is Kind.S:
                continue
            cells = list(_cells(item.rank, item.dst, item.count))
            if held.isdisjoint(cells):
                item.kind = {Kind.RRC: Kind.R, Kind.RE: Kind.CPY}.get(item.kind, item.kind)
            for cell in cells:
                item.needs.add(writer.get(cell, -1))
                item.needs.update(readers.pop(cell, ()))
                writer[cell] = number
            held.update(cells)
            item.needs -= {-1, number}
        for _, item in step:
            item.needs.discard(-1)


def _ordered(items: list[Item]) -> list[Item]:
    """Return the items so that each comes behind what it needs, messages of a connection in their order, else unchanged."""
    followers: list[list[int]] = [[] for _ in items]
    left = [len(item.needs) for item in items]
    last: dict[tuple[int, int, int, bool], int] = {}
    for number, item in enumerate(items):
        for need in item.needs:
            followers[need].append(number)
        if item.peer >= 0:
            end = (item.rank, item.peer, item.channel, item.kind is Kind.S)
            if end in last:
                followers[last[end]].append(number)
                left[number] += 1
            last[end] = number
    ready = [number for number, count in enumerate(left) if not count]
    place: dict[int, int] = {}
    while ready:
        number = heapq.heappop(ready)
        place[number] = len(place)
        for follower in followers[number]:
            left[follower] -= 1
            if not left[follower]:
                heapq.heappush(ready, follower)
    for item in items:
        item.needs = {place[need] for need in item.needs}
    return [items[number] for number in place]


def _cells(rank: int, place: Place, count: int) -> Iterator[Cell]:
    for further in range(count):
        yield rank, place[0], place[1] + further


# ------------------------------------------------------------------------------------------------------ thread blocks
class _Scheduler:
    """Give every item a thread block, then number, fuse and connect the instructions."""

    def __init__(self, program: Program, items: list[Item], sizes: list[list[int]], depth: int, in_place: bool) -> None:
        self.program, self.items, self.sizes, self.depth = program, items, sizes, depth
        self.in_place = in_place

    def lanes(self, *, paired: bool, fused: bool) -> Lanes:
        """Return the declared order; ``paired``: a thread block may both send and receive; ``fused``: in one step."""
        import numpy as np

        by_lane = self._by_lane(paired=paired)
        merged = self._fuse(by_lane) if fused else {}
        order = self._numbered(by_lane)
        rows, first = self._rows(by_lane, order, merged)
        blocks = [
            (rank, order[rank, lane], *lane) for rank, lane in sorted(order, key=lambda key: (key[0], order[key]))
        ]
        code = [row for block in first for row in rows[block]]
        placed = _arranged(self.program, self.sizes, in_place=self.in_place)
        return Lanes(Blocks.of(blocks), Code.of(code), placed.bases, np.array(self.sizes, np.int64), self.depth)

    def _by_lane(self, *, paired: bool) -> dict[tuple[int, Lane], list[int]]:
        """Return the items of each (rank, thread block) in order."""
        groups = self._channel_groups()
        peers: dict[tuple[int, int], tuple[dict[int, None], dict[int, None]]] = {}
        p = self.program.p
        channel_of: list[int] = []
        for item in self.items:
            channel = item.channel
            if item.peer >= 0:
                src, dst = (item.rank, item.peer) if item.kind is Kind.S else (item.peer, item.rank)
                channel = item.channel * groups + ((dst - src) % p) // MOST_PER_CHANNEL % groups
                sends, receives = peers.setdefault((item.rank, channel), ({}, {}))
                (sends if item.kind is Kind.S else receives)[item.peer] = None
            channel_of.append(channel)
        chosen = {key: _pair_up(list(sends), list(receives), paired=paired) for key, (sends, receives) in peers.items()}
        found: dict[tuple[int, Lane], list[int]] = {}
        for number, (item, channel) in enumerate(zip(self.items, channel_of, strict=True)):
            send, recv = -1, -1
            if item.peer >= 0:
                to, come_from = chosen[item.rank, channel]
                send, recv = to[item.peer] if item.kind is Kind.S else come_from[item.peer]
            item.lane = (send, recv, channel)
            found.setdefault((item.rank, item.lane), []).append(number)
        return found

    def _channel_groups(self) -> int:
        """Return into how many channels one is split so that no rank has too many peers on it."""
        peers: dict[tuple[int, int, bool], set[int]] = {}
        for item in self.items:
            if item.peer >= 0:
                peers.setdefault((item.rank, item.channel, item.kind is Kind.S), set()).add(item.peer)
        most = max((len(each) for each in peers.values()), default=0)
        return 1 if most <= MOST_PER_CHANNEL else -(-self.program.p // MOST_PER_CHANNEL)

    def _fuse(self, by_lane: dict[tuple[int, Lane], list[int]]) -> dict[int, int]:
        """Return the sends that become part of the receive just before them."""
        merged: dict[int, int] = {}
        for numbers in by_lane.values():
            for first, second in itertools.pairwise(numbers):
                a, b = self.items[first], self.items[second]
                same = a.kind in (Kind.R, Kind.RRC) and b.kind is Kind.S and (a.dst, a.count) == (b.src, b.count)
                if same and all(self.items[need].lane == b.lane for need in b.needs):
                    merged[second] = first
        return merged

    def _numbered(self, by_lane: dict[tuple[int, Lane], list[int]]) -> dict[tuple[int, Lane], int]:
        """Return the number of each thread block at its rank: those that others wait for come first."""
        awaited = {(item.rank, self.items[need].lane) for item in self.items for need in item.needs
                   if self.items[need].lane != item.lane}  # fmt: skip
        counts: dict[int, int] = {}
        order: dict[tuple[int, Lane], int] = {}
        for key in sorted(by_lane, key=lambda key: (key not in awaited, key)):
            order[key] = counts.get(key[0], 0)
            counts[key[0]] = order[key] + 1
            if key in awaited and order[key] >= MOST_AWAITED:
                raise ProgramError(
                    f"{self.program.name}: rank {key[0]} has more than {MOST_AWAITED} thread blocks that others wait for"
                )
        return order

    def _rows(
        self, by_lane: dict[tuple[int, Lane], list[int]], order: dict[tuple[int, Lane], int], merged: dict[int, int]
    ) -> tuple[dict[tuple[int, Lane], list[list[int]]], list[tuple[int, Lane]]]:
        """Return the instructions of each thread block, nops for further dependencies among them."""
        first = sorted(order, key=lambda key: (key[0], order[key]))
        plan: dict[tuple[int, Lane], list[tuple[int, int]]] = {}  # item (-1: nop), item it waits for (-1: none)
        at: dict[int, tuple[tuple[int, Lane], int]] = {}
        for key in first:
            seen: dict[Lane, int] = {}
            plan[key] = []
            for number in by_lane[key]:
                if number in merged:
                    at[number] = at[merged[number]]
                    continue
                waits = self._waits(number, key[1], seen)
                plan[key] += [(-1, wait) for wait in waits[:-1]]
                at[number] = (key, len(plan[key]))
                plan[key].append((number, waits[-1] if waits else -1))
        starts = dict(zip(first, itertools.accumulate((len(plan[key]) for key in first), initial=0), strict=False))
        awaited = {at[wait] for rows in plan.values() for _, wait in rows if wait >= 0}
        sending = set(merged.values())
        rows: dict[tuple[int, Lane], list[list[int]]] = {}
        for lane, key in enumerate(first):
            rows[key] = []
            for step, (number, wait) in enumerate(plan[key]):
                dep = starts[at[wait][0]] + at[wait][1] if wait >= 0 else -1
                operands = self._operands(number, number in sending)
                rows[key].append([lane, step, *operands, dep, int((key, step) in awaited)])
        return rows, first

    def _waits(self, number: int, lane: Lane, seen: dict[Lane, int]) -> list[int]:
        """Return the last item of each other thread block that this one must wait for and has not yet."""
        latest: dict[Lane, int] = {}
        for need in self.items[number].needs:
            other = self.items[need].lane
            if other != lane and seen.get(other, -1) < need:
                latest[other] = max(latest.get(other, -1), need)
        seen |= latest
        return [latest[other] for other in sorted(latest)]

    def _operands(self, number: int, sends: bool) -> list[int]:
        if number < 0:
            return [int(Kind.NOP), 0, -1, 1, -1, 0]
        item = self.items[number]
        kind = {Kind.R: Kind.RCS, Kind.RRC: Kind.RRCS}[item.kind] if sends else item.kind
        return [int(kind), *item.src, *item.dst, item.count]


def _pair_up(
    sends: list[int], receives: list[int], *, paired: bool
) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
    """Return which thread block (send peer, receive peer) serves each peer: the same for both ways, where it can be."""
    if not paired:
        return {peer: (peer, -1) for peer in sends}, {peer: (-1, peer) for peer in receives}
    both = [peer for peer in sends if peer in set(receives)]
    blocks = [(peer, peer) for peer in both]
    left, right = ([peer for peer in peers if peer not in set(both)] for peers in (sends, receives))
    blocks += itertools.zip_longest(left, right, fillvalue=-1)
    return {block[0]: block for block in blocks}, {block[1]: block for block in blocks}
