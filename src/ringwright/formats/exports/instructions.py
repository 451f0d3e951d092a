"""What each rank must do for a program, one instruction at a time, in one order that all ranks share.

The order is by step, then by the place of a piece in its message, sends first; a receive stands behind whatever must be done
before it may write.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.formats.exports.places import Homes, Place, is_adding
from ringwright.model.program import Op
from ringwright.model.threadblocks import Opcode
from ringwright.model.threadblocks.msccl import MOST_COUNT
from ringwright.model.validity import unfold

if TYPE_CHECKING:
    from ringwright.model.program import Program, Step

BlockKey = tuple[int, int, int]  # send peer, receive peer, channel
Cell = tuple[int, int, int]  # rank, buffer, chunk


@dataclass(slots=True)
class Item:
    """One instruction before it has a thread block. ``needs`` are items of the same rank."""

    key: tuple[int, int, int]  # step, place in the message, sends before copies before receives
    kind: Opcode
    rank: int
    peer: int
    channel: int
    src: Place
    dst: Place
    count: int
    needs: set[int] = field(default_factory=set)
    block: BlockKey = (-1, -1, 0)


def find_items(program: Program, homes: list[Homes]) -> list[Item]:
    """Return all work in the shared order, with what each piece of it needs."""
    items = [item for rank, each in enumerate(homes) for item in _copies(rank, each.first, -1)]
    number = -1
    for number, step in enumerate(program.steps()):
        places: dict[tuple[int, int, int], int] = {}
        for src, dst, channel, op, slot, to, count in _runs(homes, step):
            index = places.get((src, dst, channel), 0)
            places[src, dst, channel] = index + 1
            items += _pair(op, (number, index), src, dst, channel, slot, to, count)
    items += [item for rank, each in enumerate(homes) for item in _copies(rank, each.last, number + 1)]
    items.sort(key=lambda item: item.key)
    held = {(rank, *index) for rank, each in enumerate(homes) for index in each.held}
    _find_needs(items, held)
    return _ordered(items)


def _copies(rank: int, pairs: list[tuple[Place, Place]], number: int) -> Iterator[Item]:
    """Yield the copies before or after all steps, neighbours together."""
    for index, (src, dst, count) in enumerate(_joined(sorted(pairs))):
        yield Item((number, index, 1), Opcode.CPY, rank, -1, 0, src, dst, count)


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
        kind = Opcode.RE if is_adding(op) else Opcode.CPY
        if kind is Opcode.RE or here != there:
            yield Item((*at, 1), kind, src, -1, channel, here, there, count)
        return
    yield Item((*at, 0), Opcode.S, src, dst, channel, here, here, count)
    kind = Opcode.RRC if is_adding(op) else Opcode.R
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
            if item.kind in (Opcode.S, Opcode.CPY, Opcode.RE):
                for cell in _cells(item.rank, item.src, item.count):
                    item.needs.add(writer.get(cell, -1))
                    readers.setdefault(cell, []).append(number)
        for number, item in step:
            if item.kind is Opcode.S:
                continue
            cells = list(_cells(item.rank, item.dst, item.count))
            if held.isdisjoint(cells):
                item.kind = {Opcode.RRC: Opcode.R, Opcode.RE: Opcode.CPY}.get(item.kind, item.kind)
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
            end = (item.rank, item.peer, item.channel, item.kind is Opcode.S)
            if end in last:
                followers[last[end]].append(number)
                left[number] += 1
            last[end] = number
    ready = [number for number, count in enumerate(left) if not count]
    position: dict[int, int] = {}
    while ready:
        number = heapq.heappop(ready)
        position[number] = len(position)
        for follower in followers[number]:
            left[follower] -= 1
            if not left[follower]:
                heapq.heappush(ready, follower)
    for item in items:
        item.needs = {position[need] for need in item.needs}
    return [items[number] for number in position]


def _cells(rank: int, place: Place, count: int) -> Iterator[Cell]:
    for further in range(count):
        yield rank, place[0], place[1] + further
