"""Forests of trees that use every link as long as they must and no longer.

Idea: for every root, trees that carry its block to all ranks, weighted so that the most loaded link takes the least time: that
    attains the bound of the tightest cut. Data go down in rounds; what goes between two ranks in a round is one message. Two
    optima compete, by throughput with pieces that follow one another and by rounds without any: the size decides.
Cost: T = n max over cuts of (ranks inside / ranks) / (bytes/s that leave it), plus a latency for each arc of the longest
    branch and, in k pieces, (height - 1)/k of the first.
Knobs: pieces (none: the best), how many a block is cut into besides its trees; variant: which optimum (best: the shorter
    time); even: all chunks of one size, as runtimes that read files want them (shares of few parts, which may cost 1 % or
    more; blocks of one size for all-reduce); link_model, whether a link is free during its latency; seed of the lots between
    equal trees; budget of seconds, which only stops the search.
Holds: each root's shares add up to its block, to the element; no resource carries more than the optimum says.
Figure: the cut bound on tori, meshes, hypercubes and DGX boxes (Zhao et al., theorem 1), with trees as high as the diameter.
Source: the optimum is that of Zhao et al.: ForestColl, arXiv 2402.06787; trees by column generation, messages merged: ours.
Declines: all-to-all and what else has no trees; more than 4 million moves that no symmetry of the machine folds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ringwright.algorithms.networks import machine_of
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.searching import ALPHA_OF, Budget, Deadline, LinkModel, Pieces, told
from ringwright.algorithms.synthesis.forest._best import ForestChoice
from ringwright.algorithms.synthesis.forest._question import ForestQuestion
from ringwright.ground.knobs import Seed
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce")
FABRICS = ("ring", "full", "switch", "torus:2x3", "mesh:3x3", "dgx-1:1", "dgx-a100:2")


def forest(
    collective: Collective,
    topology: Topology | None = None,
    *,
    pieces: Pieces | None = None,
    variant: Literal["best", "throughput", "rounds"] = "best",
    even: bool = False,
    link_model: LinkModel = "pipelined",
    seed: Seed = 0,
    budget: Budget | None = None,
) -> Program:
    """Return the program of the best forest for a collective on a machine."""
    require_op("forest", collective, OPS)
    require_commutative("forest", collective)
    if collective.p == 1:
        return nothing("forest", collective)
    search = ForestQuestion(collective, machine_of(collective, topology), variant, seed, Deadline(budget), even=even)
    chosen = ForestChoice(search, pieces, blocking=link_model == "blocking").best()
    return told(
        search.program(chosen, alpha=ALPHA_OF[link_model]),
        algorithm="rounds" if chosen.forests[0].by_rounds else "throughput",
        trees=max(len(each.roots) for each in chosen.forests),
        height=max(each.height for each in chosen.forests),
        stopped=search.deadline.stopped,
    )
