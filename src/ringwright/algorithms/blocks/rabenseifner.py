"""Rabenseifner.

Idea: an all-reduce is a reduce-scatter by recursive halving and an all-gather by recursive doubling of the halves: the rounds
    of a tree, the bytes of a ring. A reduce gathers to the root alone.
Cost: 2 lg p alpha + 2(p-1)/p n beta + (p-1)/p n gamma; p not a power of two: (2 floor(lg p) + 2) alpha + (2(p-1)/p + 2) n beta +
    (1 + (p-1)/p) n gamma.
Knobs: radix=2 (all-reduce only: partners in rounds of radix-1, so that more ports are fed at once).
Holds: partners are next to each other first, where most bytes pass; with radix 2 the order of the ranks is kept.
Figure: none; a building block.
Source: Rabenseifner, ICCS 2004; Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005.
Declines: everything but all-reduce and reduce.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.powers import RankDigits, doubling, halving, halvings
from ringwright.algorithms.trees import require_radix
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Radix
from ringwright.model.program import Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "reduce")


def rabenseifner(collective: Collective, topology: Topology | None = None, *, radix: Radix = 2) -> Program:
    """Return Rabenseifner's program of an all-reduce or reduce."""
    del topology
    require_op("rabenseifner", collective, OPS)
    require_radix("rabenseifner", radix, 2)
    if radix > 2:
        require_commutative("rabenseifner with a radix above 2", collective, "radix=2")
    if radix > 2 and collective.op == "reduce":
        raise UsageError(f"rabenseifner has no reduce with radix {radix}", remedy="radix=2, or all-reduce")
    if collective.p == 1:
        return nothing("rabenseifner", collective, radix=radix)
    fold = RankDigits(collective.p, radix)
    return Program(
        "rabenseifner",
        collective,
        cut(collective, fold.size),
        lambda: _steps(collective, fold),
        2 * fold.digits + _further(collective, fold),
        _cost(collective, fold),
        knobs={"radix": radix},
    )


def _further(collective: Collective, fold: RankDigits) -> int:
    """Return the steps besides halving and doubling: fold, unfold, and from the collecting rank to the root."""
    folds = 0 if fold.is_whole else 2 if collective.op == "all-reduce" else 1
    return folds + (collective.op == "reduce" and collective.root != _collector(collective, fold))


def _cost(collective: Collective, fold: RankDigits) -> Cost:
    n, size, folded = float(collective.size_bytes), fold.size, collective.p - fold.size
    everything = collective.op == "all-reduce"
    terms = [Term(2 * fold.digits * (fold.radix - 1), 2 * n * (size - 1) / size)]
    # A reduce gathers at one rank: what an all-gather gives one rank.
    sent = n * (size - 1) + (n * (size - 1) if everything else _gathered(collective, fold))
    sent += n * folded * (2 if everything else 1)
    if folded:
        passes = 2 if everything else 1
        terms.append(Term(passes, passes * fold.deepest * n))
    if not everything and collective.root != _collector(collective, fold):
        terms.append(Term(1, n))
        sent += n
    reduced = n * ((size - 1) / size + fold.deepest)
    return Cost(tuple(terms), sent, reduced, is_even=collective.size_bytes % (size * collective.unit_bytes) == 0)


def _collector(collective: Collective, fold: RankDigits) -> int:
    """Return the acting rank at which a reduce gathers: the root, or the rank that acts for it."""
    group = int(np.searchsorted(fold.starts, collective.root, side="right")) - 1
    return int(fold.starts[group + 1]) - 1


def _steps(collective: Collective, fold: RankDigits) -> Iterator[Step]:
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


def _gather(collective: Collective, fold: RankDigits) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """Yield (senders, receivers, first slots, span) per step: of two partners the one whose bit is the root's receives."""
    acting = fold.starts[1:] - 1
    root = int(np.searchsorted(acting, _collector(collective, fold)))
    taking = np.arange(fold.size)
    for digit, weights, span in reversed(list(halvings(fold, range(fold.digits)))):
        first = fold.number(None, weights).values(fold.shape)
        gives = taking[(taking >> digit & 1) != (root >> digit & 1)]
        taking = taking[(taking >> digit & 1) == (root >> digit & 1)]
        yield acting[gives], acting[gives ^ (1 << digit)], first[gives], span


def _gathered(collective: Collective, fold: RankDigits) -> float:
    layout = cut(collective, fold.size)
    return float(sum(layout.message_bytes(first, span).sum() for _, _, first, span in _gather(collective, fold)))
