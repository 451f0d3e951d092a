"""Folding by classes: one message for all of a class, where switches of the network add up and copy.

128 nodes give their parts to the switches, which give the sum back to all. No turn of the ranks shows that they do the same,
for a switch is turned into itself. But each message of a node waits for what stands in the same relation to it, and meets the
same on its way: that is a division into classes in which all of a class do the same at the same time (``partition``,
``meetings``). The quotient has a message of each class; a fault makes classes of its own for what it touches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.engines.flat import assemble, in_order, places
from ringwright.engines.folding.meetings import settle
from ringwright.engines.folding.move_lists import MoveLists
from ringwright.engines.folding.partition import CoarsestPartition, joined
from ringwright.engines.folding.quotient import Folded, quotient_machine, require_room, with_spans
from ringwright.engines.messages import Pieces
from ringwright.engines.multicast import branched
from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.folding.move_lists import MoveList, SlotPattern
    from ringwright.engines.machine import Machine
    from ringwright.model.program import Layout, Program


def fold_by_class(program: Program, machine: Machine, *, fluid: bool = False) -> Folded:
    """Return the quotient of a program by classes, on a machine that carries it; raise DeclinedError where there is none."""
    import numpy as np

    lists, slot_of = MoveLists(program), places(program)
    if not any(each.rows for each in lists.lists):
        raise DeclinedError("it moves nothing")
    partition = CoarsestPartition(lists, machine, slot_of)
    queue = settle(partition, lists.lists, fluid=fluid)
    partition.check()
    rows = [
        _Rows(each, lists, pair, partition)
        for each, pair in zip(lists.lists, partition.pair_of, strict=True)
        if each.rows
    ]
    whole, left = sum(each.whole for each in rows), sum(each.classes * len(each.moves.rows) for each in rows)
    if 2 * left > whole:
        raise DeclinedError(
            f"messages that are alike queue at {queue}" if queue else "no two ranks move the same slots"
        )
    require_room(sum(each.chunk.size * each.moves.block.span for each in rows))
    pieces, pair = _merged(rows, partition, program.layout)
    weight = np.bincount(partition.pairs)[partition.pairs[pair]]
    return _quotient(pieces, pair, weight, partition, slot_of, whole // left)


def _quotient(
    pieces: Pieces, pair: np.ndarray, weight: np.ndarray, partition: CoarsestPartition, slot_of: np.ndarray, parts: int
) -> Folded:
    import numpy as np

    used = np.unique(partition.routes[partition.routes >= 0])
    _, first, number = np.unique(partition.resources[used], return_index=True, return_inverse=True)
    classes = np.full(partition.machine.n, -1, np.int32)
    classes[used] = number
    small = quotient_machine(partition.machine, used[first])
    alone = replace(pieces, stream=None)
    ends = slot_of[partition.src[pair]], slot_of[partition.dst[pair]]
    flat = assemble(partition.machine, alone, in_order(pieces), *ends)
    flat = replace(flat, hops=classes[flat.hops], weight=weight)
    if pieces.stream is not None:
        flat = branched(flat, pieces.stream, small.sends)
    return Folded(flat, small, parts, classes, used[first])


class _Rows:
    """The representatives of one list: for each of its blocks, the moves of one pair of each class."""

    def __init__(self, moves: MoveList, lists: MoveLists, pair: np.ndarray, partition: CoarsestPartition) -> None:
        import numpy as np

        self.moves = moves
        pairs, first = np.unique(pair, return_index=True)
        classes = partition.pairs[pairs]
        self.whole, self.classes = len(pairs) * len(moves.rows), len(np.unique(classes))
        # All pairs of a class are in all of its lists, so that the first of them stands for the others in each.
        chosen = np.flatnonzero(np.isin(pair, pairs[np.unique(classes, return_index=True)[1]]))
        self.pair = pair[chosen]
        self.position = partition.positions(classes, first)[partition.pairs[self.pair]]
        self.chunk = self._slots(lists, [row.chunk for row in moves.rows], chosen)
        self.to = self._slots(lists, [row.to for row in moves.rows], chosen)

    def _slots(self, lists: MoveLists, patterns: list[SlotPattern], chosen: np.ndarray) -> np.ndarray:
        """Return the slots of the chosen moves, a row per block."""
        import numpy as np

        return np.array([lists.at(pattern, chosen) for pattern in patterns], np.int64).reshape(-1, len(chosen))

    def each_move(self, value: object) -> np.ndarray:
        """Return a value for each row, or for all, spread over the moves. Of shape (rows * moves,)."""
        import numpy as np

        return np.repeat(np.broadcast_to(np.asarray(value), len(self.moves.rows)), len(self.pair))

    def columns(self, layout: Layout) -> tuple[np.ndarray, ...]:
        """Return step, block, index in it, loop, pair, chunk, slot, span, bytes, channel, multicast of all moves."""
        import numpy as np

        rows, span, chunk = self.moves.rows, self.moves.block.span, self.chunk.reshape(-1)
        return (
            self.each_move([row.step for row in rows]),
            self.each_move([row.index for row in rows]),
            np.tile(self.position, len(rows)),
            self.each_move([row.loop for row in rows]),
            np.tile(self.pair, len(rows)),
            chunk,
            self.to.reshape(-1),
            self.each_move(span),
            layout.message_bytes(chunk, span),
            self.each_move(self.moves.channel),
            self.each_move(self.moves.block.multicast),
        )


def _merged(rows: list[_Rows], partition: CoarsestPartition, layout: Layout) -> tuple[Pieces, np.ndarray]:
    """Return the pieces of the quotient, in which classes of nodes are nodes, and the pair of each message."""
    import numpy as np

    columns = [np.concatenate(column) for column in zip(*(each.columns(layout) for each in rows), strict=True)]
    order = np.lexsort(tuple(columns[2::-1]))
    step, block, index, loop, pair, chunk, to, span, size, channel, multicast = (column[order] for column in columns)
    fresh = np.ones(len(order), bool)
    fresh[1:] = (np.diff(step) != 0) | (np.diff(block) != 0) | (np.diff(index) != 0)
    owner, first = np.cumsum(fresh) - 1, np.flatnonzero(fresh)
    src, dst = partition.nodes[partition.src[pair]], partition.nodes[partition.dst[pair]]
    owners, reads, writes = with_spans(span, owner, src * layout.slots + chunk, dst * layout.slots + to)
    # One multicast: what a block sends from one node.
    source = joined(step, block, src)[first]
    stream = np.where(multicast[first], np.unique(source, return_index=True)[1][source], -1)
    pieces = Pieces(
        owners,
        step[first].astype(np.int32),
        src[first],
        dst[first],
        np.bincount(owner, weights=size, minlength=len(first)).astype(np.int64),
        partition.adds[pair[first]],
        reads,
        writes,
        channel[first],
        loop[first].astype(np.int32) if loop.any() else None,
        stream if multicast.any() else None,
    )
    return pieces, pair[first]
