"""P2.

Idea: a machine is a hierarchy of levels; all sequences of collectives over groups of its levels that come to the wanted one
    are found by what they mean (a Boolean matrix of chunks and contributions for each device), priced, and the best kept.
Cost: that of its instructions, one after the other; RS, AR, AG over two levels has BlueConnect's.
Knobs: factors (sizes of the levels, fastest first; the machine's own); inner=ring, what does each instruction that it can do;
    rooted=pipeline, what does the reduces and broadcasts that inner cannot; length=5 instructions at most; keep=10 sequences
    that are simulated; budget s, which only stops; link_model=pipelined or blocking.
Holds: nothing is added twice; the single collective is always among the candidates, so none found is slower than it by the
    engine that chose.
Figure: placement changes the time of an all-reduce by up to 448x; in 69 % of (placement, reduction) cases a sequence beats one
    all-reduce, by 1.27x on average and 2.04x at most (abstract).
Source: Xie, Norman, Grewe, Vytiniotis: Synthesizing optimal parallelism placement and reduction strategies on hierarchical
    systems for deep learning, MLSys 2022, arXiv 2110.10548.
Declines: gather, scatter, all-to-all (the paper's instructions reduce and hand on); reductions that keep the order of the ranks;
    more than 4,096 ranks or 6 levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ringwright.algorithms.blocks.pipeline import pipeline
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.compose import Algorithm
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.ring_steps import rings
from ringwright.algorithms.searching import ALPHA_OF, Budget, Deadline, LinkModel, nothing_yet, told
from ringwright.algorithms.synthesis.p2.chosen import SequencePrices, ranked, told_sequence
from ringwright.algorithms.synthesis.p2.composed import Composed
from ringwright.algorithms.synthesis.p2.language import Hierarchy
from ringwright.algorithms.synthesis.p2.machine import MachineLevels, given_levels, levels_of
from ringwright.algorithms.synthesis.p2.parts import SmallPrograms
from ringwright.engines.choose import simulate
from ringwright.ground.errors import DeclinedError, UsageError
from ringwright.ground.knobs import Range, Ranks
from ringwright.model.collective import ROOTED, Collective
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "reduce-scatter", "all-gather", "reduce", "broadcast")
NEEDS = ("topology.hosts",)
FABRICS = ("switch", "ring", "dgx-a100:2", "torus:2x3")
MOST_RANKS, MOST_LEVELS = 4096, 6
LEAST_GAIN = 1e-9  # of a later sequence over one that was priced as cheaper


def p2(
    collective: Collective,
    topology: Topology | None = None,
    *,
    factors: Sequence[Ranks] | None = None,
    inner: Algorithm = ring,
    rooted: Algorithm = pipeline,
    length: Annotated[int, Range(1, 5)] = 5,
    keep: Annotated[int, Range(1, 100)] = 10,
    budget: Budget | None = None,
    link_model: LinkModel = "pipelined",
) -> Program:
    """Return the sequence of collectives over the machine's levels that takes the least time, as a program."""
    require_op("p2", collective, OPS)
    require_commutative("p2", collective)
    if collective.p == 1:
        return nothing("p2", collective)
    levels = levels_of(topology, collective.group) if factors is None else given_levels(factors, collective.p)
    if collective.p > MOST_RANKS or len(levels.sizes) > MOST_LEVELS:
        raise DeclinedError(
            f"p2 looks at {MOST_RANKS:,} ranks and {MOST_LEVELS} levels at most, not {collective.p:,} and {len(levels.sizes)}",
            remedy="blueconnect, or fewer factors",
        )
    hierarchy, order = Hierarchy(levels.sizes), rooted_order(levels, collective)
    devices = np.asarray(collective.group, np.int64)[order][None]
    prices = SequencePrices(hierarchy, topology, devices, collective.size_bytes)
    parts = SmallPrograms((inner, ring), (inner, rooted), rings(topology, devices), collective.dtype)
    composed = [
        Composed(collective, hierarchy, levels.names, order, sequence, parts)
        for _, sequence in ranked(prices, collective.op, length, keep)
    ]
    best = fastest(composed, topology, ALPHA_OF[link_model], Deadline(budget))
    return told(
        best, levels=" x ".join(f"{name} {size}" for name, size in zip(levels.names, levels.sizes, strict=True))
    )


def fastest(candidates: Sequence[Composed], topology: Topology | None, alpha: str, deadline: Deadline) -> Program:
    """Return the program of the sequence that the engine takes for the fastest; the first one, without a machine.

    Sequences with an instruction that none of the algorithms does are left out; UsageError where all have one.
    """
    best: tuple[float, Program] | None = None
    refused, count = None, 0
    try:
        for each in candidates:
            try:
                made = told(each.program("p2"), sequence=told_sequence(each.sequence, each.names))
            except UsageError as error:
                refused = error
                continue
            seconds = float(count) if topology is None else simulate(made, topology, alpha=alpha).time_s
            count += 1
            if best is None or seconds < best[0] * (1 - LEAST_GAIN):
                best = seconds, made
            if deadline.passed() or topology is None:
                break
    except KeyboardInterrupt:
        deadline.interrupted()
    if best is None:
        raise refused or nothing_yet("p2", "sequence")
    return told(best[1], simulated=0 if topology is None else count, stopped=deadline.stopped)


def rooted_order(levels: MachineLevels, collective: Collective) -> np.ndarray:
    """Return the ranks by their digits, counted from the root's where there is one: int64 of shape (ranks,)."""
    if collective.op not in ROOTED:
        return levels.order
    (at,) = np.flatnonzero(levels.order == collective.root).tolist()
    digits = np.unravel_index(at, levels.sizes)
    turned: np.ndarray = np.roll(
        levels.order.reshape(levels.sizes), [-int(digit) for digit in digits], axis=tuple(range(len(levels.sizes)))
    )
    return turned.reshape(-1)
