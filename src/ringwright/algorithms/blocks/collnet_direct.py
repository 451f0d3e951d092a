"""CollNet-Direct: reduction among the GPUs of a node, then in the network's switches, and back.

Idea: each of h heads of a node answers for 1/h of the data. All GPUs of the node give every head its part, the heads
    contribute to the first aggregating switch, switches add up the tree and multicast the result down to the heads, and each
    head gives it to the GPUs of its node. Segments follow each other, so that the phases overlap.
Cost: (2 + 2 l) alpha over l levels of switches, n/h beta on a head's NIC each way, and 2 (g-1)/g n beta inside a node of g.
Knobs: heads (a node's GPUs); segments (of 128 KiB at the least, 64 at the most);
    slots of a head's stream in each switch (a share of its memory).
Holds: a NIC carries its head's share once up and once down, whatever the number of nodes; a switch holds a small window of
    segments; nodes of any sizes.
Figure: 2 (N-1)/N times the speed of a ring over N nodes where the NIC is what is short.
Source: NCCL 2.14 and later, src/device/all_reduce.h; NVIDIA's SHARP plug-in (Mellanox/nccl-rdma-sharp-plugins).
Declines: all but all-reduce; groups on one host; networks without aggregating switches, or whose switches cannot do the
    reduction, the type or the fan-in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms import placement
from ringwright.algorithms.offers import require_op
from ringwright.algorithms.switch_trees import switch_trees
from ringwright.algorithms.waves import SPARE, Wave, Waves, numbered, through
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Channels, Segments, Slots
from ringwright.model.program import Op, Term, nothing
from ringwright.model.streams import Stream

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
FABRICS = ("dgx-h100:2,sharp=true", "dgx-a100:4,per_leaf=2,sharp=true", "leaf-spine:12,per_leaf=4,sharp=true")
MOST_SEGMENTS = 64
SEGMENT_BYTES = 128 << 10
ALONE_SPARE = 64  # places of so small segments that hide the latency of a route
ALONE_BYTES = 16 << 10  # the least of a rank alone on its host, which sends as it reads


def collnet_direct(
    collective: Collective,
    topology: Topology | None = None,
    *,
    heads: Channels | None = None,
    segments: Segments | None = None,
    slots: Slots | None = None,
) -> Program:
    """Return the program of an all-reduce whose heads talk to the network's switches."""
    require_op("collnet-direct", collective, OPS)
    return through_heads("collnet-direct", collective, topology, heads, segments, Stream(-1, slots or 0))


def through_heads(
    name: str,
    collective: Collective,
    topology: Topology | None,
    heads: int | None,
    segments: int | None,
    lease: Stream,
    most_segments: int = MOST_SEGMENTS,
    alone_bytes: int = SEGMENT_BYTES,
) -> Program:
    """Return an all-reduce of that name whose heads talk to the network's switches, each by a stream like ``lease`` there.

    Segments are of 128 KiB at the least; of ``alone_bytes`` where every rank is alone on its host.
    """
    if collective.p == 1:
        return nothing(name, collective)
    nodes = placement.members(collective, topology) or [[index] for index in range(collective.p)]
    leading = heads_of(nodes, heads)
    trees = switch_trees(name, collective, topology, leading, lease.codec)
    number, largest = numbered(collective, trees), max(map(len, nodes))
    pipelines = []
    for head, tree in zip(leading, trees, strict=True):
        back = 2 + 2 * tree.top
        pipeline = [*_inside(nodes, head, 0, Op.REDUCE), *through(tree, head, 1, number)]
        pipelines.append([*pipeline, *_inside(nodes, head, back + 1, Op.SEND)])
    size, share = float(collective.size_bytes), 1 / len(leading)
    levels = max(tree.top for tree in trees)
    terms = [
        Term(2 * (largest > 1), 2 * size * (largest - 1) / largest, "nvlink"),
        Term(2 + 2 * levels, size * share, "nic"),
    ]
    least = SEGMENT_BYTES if largest > 1 else alone_bytes
    spare = ALONE_SPARE if least < SEGMENT_BYTES else SPARE
    cut_in = segments_for(size * share, segments, most_segments, least)
    return Waves(collective, pipelines, tuple(number), cut_in, topology, lease, spare=spare).program(
        name, terms, size * share * (largest - 1), heads=len(leading)
    )


def _inside(nodes: list[list[int]], head: list[int], at: int, op: Op) -> list[Wave]:
    """Return the wave in which all give the head of their node its part (REDUCE), or it gives them the result (SEND)."""
    pairs = [(index, leader) for node, leader in zip(nodes, head, strict=True) for index in node if index != leader]
    if not pairs:
        return []
    index, leader = np.array(pairs, np.int64).T
    return [Wave(at, op, index, leader)] if op is Op.REDUCE else [Wave(at, op, leader, index, back=True)]


def heads_of(nodes: list[list[int]], wanted: int | None) -> list[list[int]]:
    """Return, for each part of the data, the head of each node; in a small node a rank is the head of several parts."""
    count = wanted or max(map(len, nodes))
    if not 1 <= count <= max(map(len, nodes)):
        raise UsageError(
            f"heads={count} is not between 1 and the ranks of a node", remedy=f"heads=1 to {max(map(len, nodes))}"
        )
    return [[node[part * len(node) // count] for node in nodes] for part in range(count)]


def segments_for(
    share_bytes: float, wanted: int | None, most: int = MOST_SEGMENTS, least_bytes: int = SEGMENT_BYTES
) -> int:
    """Return into how many segments a head's share is cut."""
    if wanted is not None and wanted < 1:
        raise UsageError(f"segments={wanted} is below 1", remedy="segments=1 or more")
    return wanted or max(1, min(most, int(share_bytes // least_bytes)))
