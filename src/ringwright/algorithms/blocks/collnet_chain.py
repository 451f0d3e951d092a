"""CollNet-Chain: a chain of GPUs adds up to its head, the heads' switches add up the rest, and results go down the chains.

Idea: each channel lays a chain through the GPUs of every node, which starts at another GPU each time. Sums travel up the chain
    to its head, which contributes to the first aggregating switch; switches add up their tree and multicast the result down
    to the heads, from where it travels down the chains. Segments follow each other.
Cost: (2 (g-1) + 2 + 2 l) alpha in nodes of g GPUs under l levels of switches; n/c beta on a head's NIC each way, and
    2 (g-1)/g n beta inside the node with c = g channels.
Knobs: channels (a node's GPUs); segments (of 128 KiB at the least, 64 at the most);
    slots of a head's stream in each switch (a share of its memory).
Holds: a GPU speaks to two neighbours only; a NIC carries its head's share once up and once down; nodes of any sizes.
Figure: none; what NCCL takes for small messages and nodes without an NVSwitch.
Source: NCCL 2.14 and later, src/device/all_reduce.h.
Declines: what collnet-direct declines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms import placement
from ringwright.algorithms.blocks.collnet_direct import heads_of, segments_for
from ringwright.algorithms.offers import require_op
from ringwright.algorithms.switch_trees import switch_trees
from ringwright.algorithms.waves import Wave, Waves, numbered, through
from ringwright.ground.knobs import Channels, Segments, Slots
from ringwright.model.program import Op, Term, nothing
from ringwright.model.streams import Stream

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
FABRICS = ("dgx-h100:2,sharp=true", "dgx-a100:4,per_leaf=2,sharp=true", "leaf-spine:12,per_leaf=4,sharp=true")


def collnet_chain(
    collective: Collective,
    topology: Topology | None = None,
    *,
    channels: Channels | None = None,
    segments: Segments | None = None,
    slots: Slots | None = None,
) -> Program:
    """Return the program of an all-reduce over chains whose heads talk to the network's switches."""
    require_op("collnet-chain", collective, OPS)
    if collective.p == 1:
        return nothing("collnet-chain", collective)
    nodes = placement.members(collective, topology) or [[index] for index in range(collective.p)]
    leading = heads_of(nodes, channels)
    trees = switch_trees("collnet-chain", collective, topology, leading)
    number, longest = numbered(collective, trees), max(map(len, nodes)) - 1
    pipelines = []
    for head, tree in zip(leading, trees, strict=True):
        chains = [_from(node, leader) for node, leader in zip(nodes, head, strict=True)]
        down = longest + 2 + 2 * tree.top
        pipeline = [*_up(chains, longest), *through(tree, head, longest, number)]
        pipelines.append([*pipeline, *_down(chains, down)])
    size, share = float(collective.size_bytes), 1 / len(leading)
    levels = max(tree.top for tree in trees)
    inside = size * 2 * longest / (longest + 1) if len(leading) > 1 else size
    terms = [Term(2 * longest, inside, "nvlink"), Term(2 + 2 * levels, size * share, "nic")]
    cut_in = segments_for(size * share, segments)
    return Waves(collective, pipelines, tuple(number), cut_in, topology, Stream(-1, slots or 0)).program(
        "collnet-chain", terms, size * share * longest, channels=len(leading)
    )


def _from(node: list[int], head: int) -> list[int]:
    """Return the chain of a node from its head on."""
    start = node.index(head)
    return node[start:] + node[:start]


def _links(chains: list[list[int]], index: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``place``-th GPU of every chain that has one, and the one before it."""
    long = [chain for chain in chains if len(chain) > index]
    return np.array([chain[index] for chain in long]), np.array([chain[index - 1] for chain in long])


def _up(chains: list[list[int]], longest: int) -> list[Wave]:
    """Return the waves up the chains: all arrive at their heads in turn ``longest - 1``."""
    return [Wave(longest - index, Op.REDUCE, *_links(chains, index)) for index in range(longest, 0, -1)]


def _down(chains: list[list[int]], first: int) -> list[Wave]:
    """Return the waves down the chains from turn ``first`` on."""
    waves = []
    for index in range(1, max(map(len, chains))):
        later, before = _links(chains, index)
        waves.append(Wave(first + index - 1, Op.SEND, before, later, back=True))
    return waves
