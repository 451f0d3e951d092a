"""A program whose order follows from its data, scheduled into thread blocks.

All work is put into one order that every rank shares (see ``instructions``). A thread block runs its part of it; what
another thread block of the rank must have done before is a dependency. Waiting is always for something earlier in that
order, so that nothing can lock up, save where one message is cut into more pieces than a FIFO holds and they wait for each
other crosswise: then more thread blocks are tried, and at last the program is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.formats.exports.instructions import BlockKey, Item, find_items
from ringwright.formats.exports.places import buffer_sizes, check_carried, find_homes, loop_chunks
from ringwright.ground.errors import ProgramError
from ringwright.model.threadblocks import Arrangement, Blocks, Opcode, Schedule, arrange, declared
from ringwright.model.threadblocks.laying import Assigned
from ringwright.model.threadblocks.msccl import DEPTH, MOST_AWAITED, MOST_PER_CHANNEL
from ringwright.model.threadblocks.order import STUCK, waves
from ringwright.model.validity import require

if TYPE_CHECKING:
    from ringwright.model.program import Program

Limits = Callable[
    [str, Schedule], None
]  # name, thread blocks: raises ProgramError where a runtime has not room for them


def scheduled(
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
    items = find_items(program, homes)
    sizes = buffer_sizes(program, homes, in_place=in_place)
    for paired, fused in ((True, True), (True, False), (False, False)):
        schedule = _Scheduler(program, items, sizes, DEPTH[protocol], in_place).schedule(paired=paired, fused=fused)
        if not (waves(schedule, schedule.order, schedule.depth) == STUCK).any():
            break
    else:
        raise ProgramError(f"{program.name} needs more than {DEPTH[protocol]} messages under way on a connection")
    if limits is not None:
        limits(program.name, schedule)
    placed = _arranged(program, sizes, in_place=in_place)
    knobs = {**program.knobs, "in_place": in_place}
    return require(declared(program.name, placed, schedule, protocol=protocol, knobs=knobs))


def _arranged(program: Program, sizes: list[list[int]], *, in_place: bool) -> Arrangement:
    import numpy as np

    collective, chunks = program.collective, loop_chunks(program)
    size = chunks * max(-(-collective.size_bytes // (chunks * 4)) * 4, 4)
    return arrange(
        collective.op, np.array(sizes, np.int64), chunks, in_place=in_place, size_bytes=size, root=collective.root
    )


# ------------------------------------------------------------------------------------------------------ thread blocks
class _Scheduler:
    """Give every item a thread block, then number, fuse and connect the instructions."""

    def __init__(self, program: Program, items: list[Item], sizes: list[list[int]], depth: int, in_place: bool) -> None:
        self.program, self.items, self.sizes, self.depth = program, items, sizes, depth
        self.in_place = in_place

    def schedule(self, *, paired: bool, fused: bool) -> Schedule:
        """Return the declared order; ``paired``: a thread block may both send and receive; ``fused``: in one step."""
        import numpy as np

        by_block = self._by_block(paired=paired)
        merged = self._fuse(by_block) if fused else {}
        order = self._numbered(by_block)
        keys = sorted(order, key=lambda key: (key[0], order[key]))
        blocks = Blocks.of([(rank, order[rank, block], *block) for rank, block in keys])
        turn = {key: number for number, key in enumerate(sorted(keys, key=lambda key: key[1]))}
        code = self._assigned(by_block, keys, merged).code(np.array([turn[key] for key in keys], np.int64))
        placed = _arranged(self.program, self.sizes, in_place=self.in_place)
        return Schedule(blocks, code, placed.bases, np.array(self.sizes, np.int64), self.depth)

    def _by_block(self, *, paired: bool) -> dict[tuple[int, BlockKey], list[int]]:
        """Return the items of each (rank, thread block) in order."""
        groups = self._channel_groups()
        peers: dict[tuple[int, int], tuple[dict[int, None], dict[int, None]]] = {}
        p = self.program.p
        channel_of: list[int] = []
        for item in self.items:
            channel = item.channel
            if item.peer >= 0:
                src, dst = (item.rank, item.peer) if item.kind is Opcode.S else (item.peer, item.rank)
                channel = item.channel * groups + ((dst - src) % p) // MOST_PER_CHANNEL % groups
                sends, receives = peers.setdefault((item.rank, channel), ({}, {}))
                (sends if item.kind is Opcode.S else receives)[item.peer] = None
            channel_of.append(channel)
        chosen = {key: _pair_up(list(sends), list(receives), paired=paired) for key, (sends, receives) in peers.items()}
        by_block: dict[tuple[int, BlockKey], list[int]] = {}
        for number, (item, channel) in enumerate(zip(self.items, channel_of, strict=True)):
            send, recv = -1, -1
            if item.peer >= 0:
                to, come_from = chosen[item.rank, channel]
                send, recv = to[item.peer] if item.kind is Opcode.S else come_from[item.peer]
            item.block = (send, recv, channel)
            by_block.setdefault((item.rank, item.block), []).append(number)
        return by_block

    def _channel_groups(self) -> int:
        """Return into how many channels one is split so that no rank has too many peers on it."""
        peers: dict[tuple[int, int, bool], set[int]] = {}
        for item in self.items:
            if item.peer >= 0:
                peers.setdefault((item.rank, item.channel, item.kind is Opcode.S), set()).add(item.peer)
        most = max((len(each) for each in peers.values()), default=0)
        return 1 if most <= MOST_PER_CHANNEL else -(-self.program.p // MOST_PER_CHANNEL)

    def _fuse(self, by_block: dict[tuple[int, BlockKey], list[int]]) -> dict[int, int]:
        """Return the sends that become part of the receive just before them."""
        merged: dict[int, int] = {}
        for numbers in by_block.values():
            for first, second in itertools.pairwise(numbers):
                a, b = self.items[first], self.items[second]
                same = a.kind in (Opcode.R, Opcode.RRC) and b.kind is Opcode.S and (a.dst, a.count) == (b.src, b.count)
                if same and all(self.items[need].block == b.block for need in b.needs):
                    merged[second] = first
        return merged

    def _numbered(self, by_block: dict[tuple[int, BlockKey], list[int]]) -> dict[tuple[int, BlockKey], int]:
        """Return the number of each thread block at its rank: those that others wait for come first."""
        awaited = {
            (item.rank, self.items[need].block)
            for item in self.items
            for need in item.needs
            if self.items[need].block != item.block
        }
        counts: dict[int, int] = {}
        order: dict[tuple[int, BlockKey], int] = {}
        for key in sorted(by_block, key=lambda key: (key not in awaited, key)):
            order[key] = counts.get(key[0], 0)
            counts[key[0]] = order[key] + 1
            if key in awaited and order[key] >= MOST_AWAITED:
                raise ProgramError(
                    f"{self.program.name}: rank {key[0]} has more than {MOST_AWAITED} thread blocks that others wait for"
                )
        return order

    def _assigned(
        self, by_block: dict[tuple[int, BlockKey], list[int]], keys: list[tuple[int, BlockKey]], merged: dict[int, int]
    ) -> Assigned:
        """Return the instructions, fused ones as one, with what each needs."""
        import numpy as np

        row = np.empty(len(self.items), np.int64)
        for number, key in enumerate(keys):
            row[by_block[key]] = number
        kept = [number for number in range(len(self.items)) if number not in merged]
        index = {number: at for at, number in enumerate(kept)}
        index |= {second: index[first] for second, first in merged.items()}
        sending = set(merged.values())
        operands = [self._operands(number, number in sending) for number in kept]
        needs = [(index[need], index[number]) for number in kept for need in self.items[number].needs]
        before, after = np.array(needs, np.int64).reshape(-1, 2).T
        return Assigned(row[kept], np.array(operands, np.int64).reshape(-1, 6), before, after)

    def _operands(self, number: int, sends: bool) -> list[int]:
        item = self.items[number]
        kind = {Opcode.R: Opcode.RCS, Opcode.RRC: Opcode.RRCS}[item.kind] if sends else item.kind
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
