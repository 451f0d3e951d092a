"""Rabenseifner.

Idea: an all-reduce is a reduce-scatter by recursive halving and an all-gather by recursive doubling of the halves: the rounds
    of a tree, the bytes of a ring. A reduce gathers to the root alone.
Cost: 2 lg p alpha + 2(p-1)/p n beta + (p-1)/p n gamma; p not a power of two: (2 floor(lg p) + 2) alpha + (2(p-1)/p + 2) n beta +
    (1 + (p-1)/p) n gamma.
Knobs: none.
Holds: partners are next to each other first, where most bytes pass; the order of the ranks is kept.
Figure: none; a building block.
Source: Rabenseifner, ICCS 2004; Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005.
Declines: everything but all-reduce and reduce.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.offers import require_op
from ringwright.algorithms.powers import Fold, doubling, halving, halvings
from ringwright.program import Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.collective import Collective
    from ringwright.topology import Topology

OPS = ("all-reduce", "reduce")


def rabenseifner(collective: Collective, topology: Topology | None = None) -> Program:
    """Return Rabenseifner's program of an all-reduce or reduce."""
    del topology
    require_op("rabenseifner", collective, OPS)
    if collective.p == 1:
        return nothing("rabenseifner", collective)
    fold = Fold(collective.p)
    everything = collective.op == "all-reduce"
    n, folded, size = float(collective.size_bytes), collective.p - fold.size, fold.size
    carried = not everything and collective.root != _collector(collective, fold)
    terms = [Term(2 * fold.digits, 2 * n * (size - 1) / size)]
    # One by one the halves come together at the root: as many bytes as an all-gather gives one rank.
    sent = n * (size - 1) * 2 if everything else n * (size - 1) + _gathered(collective, fold)
    messages = (folded > 0) * (2 if everything else 1) + carried
    if messages:
        terms.append(Term(messages, messages * n))
        sent += n * folded * (2 if everything else 1) + n * carried
    return Program(
        "rabenseifner", collective, cut(collective, size), lambda: _steps(collective, fold),
        2 * fold.digits + messages,
        Cost(
            tuple(terms), sent, n * ((size - 1) / size + (folded > 0)),
            is_even=collective.size_bytes % (size * collective.unit_bytes) == 0,
        ),
    )  # fmt: skip


def _collector(collective: Collective, fold: Fold) -> int:
    """Return the acting rank to which a reduce gathers: the root, or who acts for it."""
    group = int(np.searchsorted(fold.starts, collective.root, side="right")) - 1
    return int(fold.starts[group + 1]) - 1


def _steps(collective: Collective, fold: Fold) -> Iterator[Step]:
    edges = np.arange(fold.size + 1)
    digits = range(fold.digits)
    yield from fold.enter(fold.size)
    yield from halving(fold, digits, edges)
    if collective.op == "all-reduce":
        yield from doubling(fold, digits, edges)
        yield from fold.leave(fold.size)
        return
    for src, dst, first, span in _gather(collective, fold):
        yield Step((explicit(Op.SEND, src, dst, first, span=span),), "gather")
    top = _collector(collective, fold)
    if top != collective.root:
        yield Step((explicit(Op.SEND, top, collective.root, 0, span=fold.size),), "carry")


def _gather(collective: Collective, fold: Fold) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """Yield who sends which range to whom: of two partners the one on the root's side of the bit receives."""
    acting = fold.starts[1:] - 1
    root = int(np.searchsorted(acting, _collector(collective, fold)))
    taking = np.arange(fold.size)
    for digit, weights, span in reversed(list(halvings(fold, range(fold.digits)))):
        first = fold.number(None, weights).values(fold.shape)
        gives = taking[(taking >> digit & 1) != (root >> digit & 1)]
        taking = taking[(taking >> digit & 1) == (root >> digit & 1)]
        yield acting[gives], acting[gives ^ (1 << digit)], first[gives], span


def _gathered(collective: Collective, fold: Fold) -> float:
    layout = cut(collective, fold.size)
    return float(sum(layout.message_bytes(first, span).sum() for _, _, first, span in _gather(collective, fold)))
