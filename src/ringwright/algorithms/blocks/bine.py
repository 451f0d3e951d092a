"""Bine trees: binomial negabinary.

Idea: binomial trees and butterflies whose partners lie at negabinary distances, 1, 1, 3, 5, 11, ... to alternating sides, so that
    a step reaches about a third nearer than powers of two do, and fewer bytes leave a group of near ranks.
Cost: those of binomial trees and of recursive halving and doubling: lg p alpha, with n beta per step for trees, and
    2 lg p alpha + 2(p-1)/p n beta for all-reduce.
Knobs: none.
Holds: partners of a step are mutual; the distances are those of Swing, far ones first.
Figure: up to 5 times faster, up to 33 % less traffic on global links (abstract).
Source: De Sensi et al.: Bine trees, SC 2025, arXiv 2508.17311.
Declines: groups that are no power of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.blocks.swing import Butterfly
from ringwright.algorithms.offers import is_even, require_commutative, require_op
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "gather", "scatter")


def bine(collective: Collective, topology: Topology | None = None) -> Program:
    """Return the Bine program of a collective."""
    del topology
    p = collective.p
    require_op("bine", collective, OPS)
    require_commutative("bine", collective)
    if p & (p - 1):
        raise UsageError(f"bine needs a power of two, not {p} ranks", remedy="--algorithm binomial")
    if p == 1:
        return nothing("bine", collective)
    return (_butterfly if collective.op in OPS[:3] else _tree)(collective, Butterfly([p], far_first=True))


def _butterfly(collective: Collective, butterfly: Butterfly) -> Program:
    p, op, rounds = collective.p, collective.op, len(butterfly.partners)
    layout = cut(collective, p if op == "all-reduce" else 1)
    halves = 2 if op == "all-reduce" else 1

    def steps() -> Iterator[Step]:
        if op != "all-gather":
            yield from butterfly.scatter(0, 1)
        if op != "reduce-scatter":
            yield from butterfly.gather(0, 1)

    path = float(layout.chunk_bytes.max(initial=0)) * (p - 1)
    return Program(
        "bine",
        collective,
        layout,
        steps,
        rounds * halves,
        Cost(
            (Term(rounds * halves, path * halves),),
            float(collective.size_bytes) * (p - 1) * halves,
            path if collective.reduces else 0.0,
            is_even=is_even(collective, p if op == "all-reduce" else 1),
        ),
    )


def _tree(collective: Collective, butterfly: Butterfly) -> Program:
    """Trees grow from the root along the butterfly; a tree read backwards gathers or reduces."""
    op, rounds, sizes = collective.op, len(butterfly.partners), cut(collective).chunk_bytes
    edges = [(src, dst) for src, dst, _ in _growth(collective, butterfly)]
    backwards = op in ("reduce", "gather")

    def steps() -> Iterator[Step]:
        order = list(_growth(collective, butterfly))
        for src, dst, below in reversed(order) if backwards else order:
            ends = (dst, src) if backwards else (src, dst)
            if collective.n_blocks == 1:
                yield Step((explicit(Op.REDUCE if op == "reduce" else Op.SEND, *ends, 0),), op)
            else:
                many = [below.shape[1]] * len(src)
                yield Step(
                    (explicit(Op.SEND, np.repeat(ends[0], many), np.repeat(ends[1], many), below.reshape(-1)),), op
                )

    size = float(collective.size_bytes)
    if collective.n_blocks == 1:
        cost = Cost(
            (Term(rounds, size * rounds),), size * len(np.concatenate([dst for _, dst in edges])), size * rounds
        )
    else:
        all_sizes = np.resize(sizes, collective.p)
        growth = list(_growth(collective, butterfly))
        sent = sum(float(all_sizes[below].sum()) for _, _, below in growth)
        path = sum(float(all_sizes[below].sum(axis=1).max()) for _, _, below in growth)
        cost = Cost((Term(rounds, path),), sent, is_even=is_even(collective, 1))
    return Program("bine", collective, cut(collective), steps, rounds, cost)


def _growth(collective: Collective, butterfly: Butterfly) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield per step who sends to whom, and the ranks behind each receiver; ranks are turned so that 0 is the root."""
    p, root = collective.p, collective.root
    have = np.array([0])
    for step, partner in enumerate(butterfly.partners):
        reached = partner[have]
        yield (have + root) % p, (reached + root) % p, (butterfly.reach[step + 1][reached] + root) % p
        have = np.concatenate((have, reached))
