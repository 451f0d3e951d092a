"""Is a program right? Its rules, and its result on real data, with one element a chunk so that any size can be run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.declared_order import covers
from ringwright.ground.errors import RingwrightError
from ringwright.model import interpreter, validity
from ringwright.model.collective import DTYPE_BYTES

if TYPE_CHECKING:
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

MOST_MOVES = 4_000_000  # that the interpreter follows: a minute or so


def is_right(program: Program, topology: Topology) -> bool | None:
    """Return whether a program breaks no rule and leaves every rank with what it must hold; None where that is too much to run.

    The interpreter runs the same moves on chunks of one element: which data go where does not depend on how many there are.
    """
    try:
        if validity.check(program, topology=topology) or not covers(program):
            return False
    except RingwrightError:
        return None
    small = shrunk(program)
    if small is None or sum(block.count for step in program.steps() for block in step.blocks) > MOST_MOVES:
        return None
    given = interpreter.inputs(small.collective, seed=small.p)
    try:
        results = interpreter.run(small, given)
    except RingwrightError:
        return False
    for have, want in zip(results, interpreter.expected(small.collective, given), strict=True):
        if have.keys() != want.keys() or any(not np.array_equal(have[block], want[block]) for block in want):
            return False
    return True


def shrunk(program: Program) -> Program | None:
    """Return the program with chunks of one element each; None where its chunks are not alike from block to block."""
    collective, layout = program.collective, program.layout
    unit = DTYPE_BYTES[collective.dtype]
    blocks = len(collective.block_bytes) if collective.op != "send-recv" else 1  # whose size is that of one of them
    if collective.counts is not None or layout.n_chunks != collective.n_blocks * layout.parts:
        return None
    size = blocks * layout.parts * unit
    small = dataclasses.replace(collective, size_bytes=size)
    chunk_bytes = np.full(1, unit, np.int64)
    return dataclasses.replace(program, collective=small, layout=dataclasses.replace(layout, chunk_bytes=chunk_bytes))
