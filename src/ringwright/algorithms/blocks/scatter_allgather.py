"""Scatter and all-gather.

Idea: a long broadcast sends every rank a different part first, down a binomial tree, and then the ranks tell each other: no
    rank sends the message more than about twice, whereas a tree's root sends it lg p times.
Cost: 2 lg p alpha + 2 (p-1)/p n beta with gather="doubling"; (ceil(lg p) + p-1) alpha + 2 (p-1)/p n beta with gather="ring".
Knobs: gather="doubling" or "ring".
Holds: the parts are equal to within one element; with "doubling" and p no power of two the ranks beyond the largest one take no
    part and are handed the message at the end (alpha + n beta more).
Figure: none; a building block.
Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005 (after van de Geijn).
Declines: everything but broadcast. The original fills the gaps of p no power of two by further rounds instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from ringwright.algorithms.compose import embed
from ringwright.algorithms.offers import require_op
from ringwright.algorithms.powers import RankDigits, doubling
from ringwright.ground.errors import UsageError
from ringwright.model.program import Block, Cost, Op, Program, Step, Term, cut, explicit, nothing, turn

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("broadcast",)
GATHERS = ("doubling", "ring")


def scatter_allgather(
    collective: Collective, topology: Topology | None = None, *, gather: Literal["doubling", "ring"] = "doubling"
) -> Program:
    """Return the broadcast that scatters the message and gathers it everywhere."""
    del topology
    require_op("scatter_allgather", collective, OPS)
    if gather not in GATHERS:
        raise UsageError(f"scatter_allgather has no gather '{gather}'", remedy=f"one of: {', '.join(GATHERS)}")
    p, n = collective.p, float(collective.size_bytes)
    if p == 1:
        return nothing("scatter_allgather", collective, gather=gather)
    core = p if gather == "ring" else RankDigits(p).size
    levels, late = (core - 1).bit_length(), p - core
    layout = cut(collective, core)
    scattered = sum(int(size) * part.bit_count() for part, size in enumerate(_sizes(layout.chunk_bytes, core)))
    rounds = core - 1 if gather == "ring" else levels
    share = n * (core - 1) / core
    terms = [Term(levels + rounds, 2 * share), *([Term(1, n)] if late else [])]
    return Program(
        "scatter_allgather",
        collective,
        layout,
        lambda: _steps(collective, core, gather),
        levels + rounds + (late > 0),
        Cost(
            tuple(terms),
            scattered + n * (core - 1) + n * late,
            is_even=collective.size_bytes % (core * collective.unit_bytes) == 0,
        ),
        knobs={"gather": gather},
    )


def _sizes(chunk_bytes: np.ndarray, parts: int) -> list[int]:
    sizes: list[int] = np.resize(chunk_bytes, parts).tolist()
    return sizes


def _steps(collective: Collective, core: int, gather: str) -> Iterator[Step]:
    p, root = collective.p, collective.root
    whom = [(part + root) % p for part in range(core)]
    yield from embed(_scatter(core), whom)
    shared = (
        _ring(core)
        if gather == "ring"
        else doubling(RankDigits(core), range(RankDigits(core).digits)[::-1], np.arange(core + 1))
    )
    yield from shared if root == 0 else embed(shared, whom)
    if core < p:
        late = np.arange(core, p)
        yield Step((explicit(Op.SEND, (late - core + root) % p, (late + root) % p, 0, span=core),), "catch up")


def _scatter(core: int) -> Iterator[Step]:
    """Yield the binomial scatter of one part per rank: all that have a range hand on its farther half."""
    for level in reversed(range((core - 1).bit_length())):
        reach = 1 << level
        child = np.arange(reach, core, 2 * reach)
        spans = np.minimum(reach, core - child)
        blocks = [
            explicit(Op.SEND, child[spans == span] - reach, child[spans == span], child[spans == span], span=int(span))
            for span in np.unique(spans)
        ]
        yield Step(tuple(blocks), "scatter")


def _ring(core: int) -> Iterator[Step]:
    for number in range(core - 1):
        yield Step((Block(Op.SEND, (core,), turn(core), turn(core, 1), turn(core, -number)),), "all-gather")
