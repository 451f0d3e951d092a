"""BlueConnect.

Idea: write p as a product that follows the network's levels, fastest first; reduce-scatter along each level in turn, each
    on what the level before has left, and gather back in reverse. Slow levels carry little, and no rank ever idles.
Cost: sum over levels i of 2(p_i-1) alpha_i + 2(p_i-1)/p_i n_i beta_i + (p_i-1)/p_i n_i gamma, n_i = n / (p_0 ... p_(i-1)), with
    rings; the bytes telescope to those of one ring, 2(p-1)/p n.
Knobs: factors (the topology's axes, else p alone; best: the order of factors that the cost above makes least on this machine,
    all flows that share a link counted); inner=ring per level, outer=inner for the last level (one that adds in
    the network, as switchml, has a tree for each of its groups);
    pieces=1, strips of the vector whose phases overlap (with inner=direct, best; all-reduce only).
Holds: bytes sent equal a flat ring's; all p/p_i groups of a level work at once.
Figure: 87 % less communication time on 192 GPUs (4 x 6 x 8), ResNet-50 (abstract).
Source: Cho, Finkler, Kung, Hunter: BlueConnect, MLSys 2019.
Declines: broadcast, reduce, gather, scatter, all-to-all (the paper decomposes all-reduce; its halves come with it).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from ringwright.algorithms import orders
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.compose import Algorithm
from ringwright.algorithms.levels import OPS, Levels, factorise
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.strips import Strips
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Ranks, Segments
from ringwright.model.collective import Collective, split
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.topology import Topology


def blueconnect(
    collective: Collective,
    topology: Topology | None = None,
    *,
    factors: Sequence[Ranks] | Literal["best"] | None = None,
    inner: Algorithm | Sequence[Algorithm] = ring,
    outer: Algorithm | None = None,
    pieces: Segments = 1,
) -> Program:
    """Return the program that decomposes a collective over the levels of the network."""
    require_op("blueconnect", collective, OPS)
    require_commutative("blueconnect", collective)
    sizes = factorise(collective.p, topology, _chosen(collective, topology, factors))
    if not sizes:
        return nothing("blueconnect", collective)
    chosen = list(inner) if isinstance(inner, Sequence) else [inner] * len(sizes)
    if outer is not None:
        chosen[-1] = outer
    if pieces > 1 and collective.op == "all-reduce":
        strips = [split(collective.size_bytes, pieces, collective.unit_bytes)]
        made = Strips("blueconnect", collective, strips, sizes, chosen).program()
    else:
        made = Levels(collective, sizes, chosen, topology).program("blueconnect")
    if factors != "best":
        return made
    return dataclasses.replace(made, knobs={**made.knobs, "algorithm": "x".join(map(str, sizes))})


def _chosen(
    collective: Collective, topology: Topology | None, factors: Sequence[int] | str | None
) -> Sequence[int] | None:
    if factors != "best":
        return cast("Sequence[int] | None", factors)
    if topology is None:
        raise UsageError("blueconnect: factors=best needs a machine to price", remedy="name them: factors=8x16")
    return orders.best(collective, topology) or (1,)
