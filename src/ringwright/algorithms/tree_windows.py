"""Windows: so many pieces of a tree are under way at a time, as in a transport's flow control.

A link serves first come, first served. Where every rank may send all of its pieces at once, the first piece waits behind the last
ones of others at every link, and what is collected is whole so late that nothing is spread meanwhile. Here the ends of a tree
send a piece only when one of the pieces before it has come all the way.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ringwright.algorithms.declared_order import Order
from ringwright.engines import loops
from ringwright.engines.flat import gather
from ringwright.model.program import Program


def windowed(program: Program, pieces: int, window: int) -> Program:
    """Return a program of trees with at most ``window`` pieces of a part of a block under way.

    Chunks are numbered ``(root, part, piece)`` with ``pieces`` of a part, as in ``TreeRounds``; a message carries chunks of one
    piece. The order that follows from the data stays; the first messages of a piece wait besides for the last one of the piece
    ``window`` before it.
    """
    moved = gather(program)
    natural = loops.order(moved)
    before, after = (each.astype(np.int64) for each in natural.edges())
    n, known = len(moved.src), len(natural.waits)
    waiting = np.zeros(known, bool)
    waiting[after] = True
    first_of = np.unique(moved.message, return_index=True)[1]
    chunk = moved.reads[first_of] % program.layout.n_slots
    last = np.full(program.layout.n_slots, -1, np.int64)
    last[moved.reads % program.layout.n_slots] = moved.message  # of several the last one in the program
    begins = np.flatnonzero(~waiting[:n] & (chunk % pieces >= window))
    ends = last[chunk[begins] - window]
    begins, ends = begins[ends >= 0], ends[ends >= 0]
    return dataclasses.replace(
        program, schedule=Order(np.concatenate((before, ends)), np.concatenate((after, begins)), known - n)
    )
