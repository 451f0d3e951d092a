"""Linear.

Idea: the root talks to every other rank itself, all at once and without any structure. A scan goes down the line of the ranks.
Cost: broadcast, reduce alpha + (p-1) n beta; gather, scatter alpha + (p-1)/p n beta; all-reduce and barrier up and down, so
    twice; all-gather a gather and a broadcast; reduce-scatter a reduce and a scatter; scan, exscan (p-1) (alpha + n beta).
Knobs: none.
Holds: only the root's port is loaded; a reduction meets the ranks in order, outwards from the root.
Figure: none; a building block.
Source: open-mpi/ompi, coll/tuned algorithm 1 of every rooted collective, all-reduce, all-gather, barrier, scan and exscan.
Declines: all-to-all (see direct).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms import prefixes
from ringwright.algorithms.offers import is_even, require_op
from ringwright.model.collective import PREFIXES
from ringwright.model.program import Block, Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("broadcast", "reduce", "gather", "scatter", "all-reduce", "barrier", "all-gather", "reduce-scatter", *PREFIXES)
# What the root does, phase by phase: adds up everything, takes or gives one block of each, or gives everything to each.
PHASES = {
    "broadcast": ("spread",),
    "reduce": ("add",),
    "gather": ("collect",),
    "scatter": ("deal",),
    "all-reduce": ("add", "spread"),
    "barrier": ("add", "spread"),
    "all-gather": ("collect", "spread"),
    "reduce-scatter": ("add", "deal"),
}


def linear(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the program in which the root (else rank 0) talks to every rank itself."""
    del topology
    require_op("linear", collective, OPS)
    if collective.op in PREFIXES:
        return prefixes.in_line("linear", collective)
    p, n = collective.p, float(collective.size_bytes)
    if p == 1:
        return nothing("linear", collective)
    phases = PHASES[collective.op]
    own = float(collective.block_bytes[collective.root]) if collective.n_blocks == p else 0.0
    sent = sum(n * (p - 1) if phase in ("add", "spread") else n - own for phase in phases)
    return Program(
        "linear",
        collective,
        cut(collective),
        lambda: _steps(collective),
        len(phases),
        Cost((Term(len(phases), sent),), sent, n * (p - 1) if "add" in phases else 0.0, is_even=is_even(collective, 1)),
    )


def _steps(collective: Collective) -> Iterator[Step]:
    for phase in PHASES[collective.op]:
        yield Step((_phase(collective, phase),), phase)


def _phase(collective: Collective, phase: str) -> Block:
    root, every = collective.root, collective.n_blocks
    below, above = np.arange(root)[::-1], np.arange(root + 1, collective.p)
    others = np.concatenate((below, above))  # outwards from the root, so that neighbours in rank order are added up
    if phase == "add":
        return explicit(Op.REDUCE, others, root, 0, span=every)
    if phase == "spread":
        return explicit(Op.SEND, root, others, 0, span=every)
    if phase == "collect":
        return explicit(Op.SEND, others, root, others)
    return explicit(Op.SEND, root, others, others)
