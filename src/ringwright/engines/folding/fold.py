"""Folding: one message of each orbit for all, where program and machine look the same from every rank.

The symmetry comes from the program's patterns; that blocks, bytes, routes, rates, latencies, shared capacities and faults
respect it is checked, never assumed. All images of a message do the same at the same time, so the quotient, one rank per
orbit of ranks, takes exactly as long as the whole. Under first come, first served that holds as long as no resource
serves two images of one message, and ties are broken alike everywhere; both are checked too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.engines import loops
from ringwright.engines.flat import assemble, places
from ringwright.engines.folding.by_class import fold_by_class
from ringwright.engines.folding.families import BlockFamily, collect
from ringwright.engines.folding.mesh import SymmetryGroup, View, candidates, mesh, rank_digits
from ringwright.engines.folding.orbits import Orbits
from ringwright.engines.folding.quotient import Folded, quotient_machine, require_room, with_spans
from ringwright.engines.folding.refine import refine
from ringwright.engines.folding.slots import Starts, require_equal_bytes
from ringwright.engines.messages import Pieces
from ringwright.ground.errors import DeclinedError
from ringwright.model.program import ADDING

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.machine import Machine
    from ringwright.model.program import Program


def evened(program: Program) -> Program:
    """Return the program with all chunks as large as its largest, provided that chunk sizes differ by one element at most."""
    import numpy as np

    sizes = program.layout.chunk_bytes
    if len(sizes) and int(sizes.max() - sizes.min()) > program.collective.unit_bytes:
        raise DeclinedError("chunks differ in size by more than one element")
    layout = replace(program.layout, chunk_bytes=np.array([sizes.max(initial=0)], np.int64))
    return replace(program, layout=layout)


def fold(program: Program, machine: Machine, *, fluid: bool = False) -> Folded:
    """Return the quotient of a program on a machine; raise DeclinedError with the reason where there is none.

    ``fluid``: messages that meet share, instead of queueing, so that no order of theirs has to be the same everywhere.
    """
    machine = machine.carrying(program)
    if program.schedule is not None:
        raise DeclinedError("its order is declared thread block by thread block")
    if program.aggregators:
        return fold_by_class(program, machine, fluid=fluid)
    families = refine(collect(program))
    if any(family.block.multicast for family in families):
        return fold_by_class(program, machine, fluid=fluid)
    if not families:
        raise DeclinedError("it has no steps")
    slot_of = places(program)
    reason = DeclinedError("no group fits")
    for axes in candidates(rank_digits(families), machine.topology):
        try:
            group = mesh(axes, families)
            require_equal_bytes(group, program.layout)
            orbits = Orbits(machine, group, fluid=fluid)
            orbits.cover(families, slot_of)
            return _quotient(program, group, families, orbits, slot_of)
        except DeclinedError as error:
            reason = error
    raise reason


def _quotient(
    program: Program, group: SymmetryGroup, families: list[BlockFamily], orbits: Orbits, slot_of: np.ndarray
) -> Folded:
    import numpy as np

    left = sum(len(each.table) * each.block.count * each.block.span for each in families) // group.order
    require_room(left)
    rows = [_Rows(program, group, family) for family in families]
    pieces, src, dst = _merge(program, rows)
    first = np.array(orbits.first, np.int64)
    flat = assemble(orbits.machine, pieces, loops.order(pieces), slot_of[src], slot_of[dst])
    hops = orbits.of[flat.hops]
    weight = np.full(len(src), group.order, np.int64)
    small = quotient_machine(orbits.machine, first)
    return Folded(replace(flat, hops=hops, weight=weight), small, group.order, orbits.of, first)


class _Rows:
    """The representatives of one family, a row per block and a column per orbit."""

    def __init__(self, program: Program, group: SymmetryGroup, family: BlockFamily) -> None:
        view = View(group.axes, family)
        at = view.representatives()
        span, slots = family.block.span, program.layout.slots
        self.family, self.span = family, span
        self.src, self.dst = family.src.at(at), family.dst.at(at)
        chunk, to = family.starts
        read = Starts(view, family.chunk, family.homes[0], chunk, at)
        write = Starts(view, family.to, family.homes[1], to, at)
        for each in (read, write):
            each.require_turning(group, span, program.layout.n_chunks)
        here, turns = view.relative(family.src, at)
        there, others = view.relative(family.dst, at)
        self.reads, self.writes = here * slots + read.relative(turns), there * slots + write.relative(others)
        self.chunk = read.absolute()
        # Messages are told apart by source and target up to symmetry.
        self.here, self.there = here, _against(group, self.dst, turns)

    @property
    def table(self) -> np.ndarray:
        """Return the family's rows."""
        return self.family.table


def _against(group: SymmetryGroup, ranks: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Return ranks with the turns of others taken back."""
    out = ranks.copy()
    for number, axis in enumerate(group.axes):
        digit = ranks // axis.weight % axis.size
        out += axis.weight * ((digit - axis.step * turns[:, number]) % axis.size - digit)
    return out


def _merge(program: Program, rows: list[_Rows]) -> tuple[Pieces, np.ndarray, np.ndarray]:
    """Put the families' moves into program order and join those that travel as one message."""
    import numpy as np

    def spread(value: np.ndarray, each: _Rows) -> np.ndarray:
        return np.broadcast_to(value, each.reads.shape).reshape(-1)

    def gather(column: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(column)

    step = gather([spread(each.table[:, :1], each) for each in rows])
    where = gather([spread(each.table[:, 1:2], each) for each in rows])
    order = np.lexsort((where, step))
    nodes = program.n_nodes
    pair = gather(
        [spread((each.family.channel + 1) * nodes * nodes + each.here * nodes + each.there, each) for each in rows]
    )
    pairs, pair = np.unique(pair, return_inverse=True)
    _, first, owner = np.unique((step * len(pairs) + pair)[order], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    by_place = np.argsort(first, kind="stable")
    rank[by_place] = np.arange(len(first))
    owner, first = rank[owner], order[first[by_place]]

    size = gather([program.layout.message_bytes(each.chunk.reshape(-1), each.span) for each in rows])[order]
    adds = gather([spread(np.array(each.family.block.op in ADDING), each) for each in rows])[order]
    ends = [gather([spread(getattr(each, name), each) for each in rows])[first] for name in ("src", "dst")]
    message = len(first)
    reads, writes = (gather([getattr(each, name).reshape(-1) for each in rows])[order] for name in ("reads", "writes"))
    owners, reads, writes = with_spans(
        gather([spread(np.array(each.span), each) for each in rows])[order], owner, reads, writes
    )
    pieces = Pieces(
        owners,
        step[first].astype(np.int32),
        ends[0],
        ends[1],
        np.bincount(owner, weights=size, minlength=message).astype(np.int64),
        np.bincount(owner, weights=adds, minlength=message) > 0,
        reads,
        writes,
    )
    return pieces, ends[0], ends[1]
