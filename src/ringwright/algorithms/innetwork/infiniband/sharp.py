"""SHARP: trees of aggregation nodes in InfiniBand switches reduce on the way up and multicast the result.

Idea: a manager builds trees of the fabric's switches and leases them to jobs. Small vectors take a low latency tree: a message of
    at most one payload is one operation, of which so many may be outstanding. Large ones take a streaming tree, which adds as the
    data pass and is locked while it is used: one for each switch of Quantum, one for each port of Quantum-2. Inside a host an
    NVSwitch that adds does the same (NVLink SHARP); other hosts add among their ranks first. Each head of a host has a tree.
Cost: (2 + 2 l) alpha over l levels of switches, and 4 alpha or 2 alpha inside a host; n/h beta on the port of each of a host's h
    heads, each way, and n (h+1)/h beta on an NVLink or 2 (g-1)/g n beta inside a host of g. In low latency trees n/(h o b) RTT
    where that is more: o operations outstanding, of b bytes.
Knobs: mode (llt for messages whose pieces are all outstanding at once, so that no piece waits for another, else sat); osts,
    operations outstanding in a low latency tree (23, the share that logs of leases show); ost_bytes, the most data of one;
    held, streaming trees that other jobs hold at every switch; heads, ranks of a host that send (all, one where a low
    latency tree of each would be too many for a switch); segments, parts that a
    head's data is followed in (of 128 KiB at the least, 16 KiB where every rank is alone on its host; 256 at the most).
Holds: a switch serves no more streaming trees than it has locks; where one is refused, all ranks fall back to NCCL's rings
    (assumed: a job of which some ranks fall back hangs).
Figure: 2.1 times shorter all-reduce of 8 B on 128 hosts, 6.01 to 2.83 us, and 3.24 times of 4 KiB (abstract of 2016); streams at
    95 % of the network's rate (abstract of 2020).
Source: Graham et al., COMHPC 2016 and ISC 2020 (doi 10.1007/978-3-030-50743-5_3); NVIDIA SHARP 3.13; nccl-rdma-sharp-plugins.
Declines: all but all-reduce; ranks on one host; networks without switches that add, or whose switches do not add the type; more
    children of a switch than it has ports.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Literal

from ringwright.algorithms import placement
from ringwright.algorithms.blocks.collnet_direct import ALONE_BYTES, heads_of, through_heads
from ringwright.algorithms.blocks.nvls_collnet import through_both
from ringwright.algorithms.libraries.nccl_2_4 import nccl_2_4
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.algorithms.switch_trees import network_switches, switch_trees
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Channels, Range, Segments
from ringwright.model.program import nothing
from ringwright.model.streams import Stream

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
NEEDS = ("topology.aggregators.network", "transport.infiniband", "memory.switch-slots")
FABRICS = ("switch:4,sharp=true", "dgx-h100:2,sharp=true", "dgx-a100:4,per_leaf=2,switches=quantum")
MOST_SEGMENTS = 256
# What leases of NCCL jobs log: osts 23, user_data_per_ost 1024.
OSTS, OST_BYTES = 23, 1024


def sharp(
    collective: Collective,
    topology: Topology | None = None,
    *,
    mode: Literal["llt", "sat"] | None = None,
    osts: Annotated[int, Range(1, 1024)] = OSTS,
    ost_bytes: Annotated[int, Range(4, 4096, "B")] = OST_BYTES,
    held: Annotated[int, Range(0, 1024)] = 0,
    heads: Channels | None = None,
    segments: Segments | None = None,
) -> Program:
    """Return the program of an all-reduce through trees that the fabric's switches lease, or of a ring where they refuse."""
    require_op("sharp", collective, OPS)
    require_commutative("sharp", collective)
    if collective.p == 1:
        return nothing("sharp", collective)
    nodes = placement.members(collective, topology) or [[index] for index in range(collective.p)]
    leading = heads_of(nodes, heads)
    if mode is None:
        mode = "llt" if collective.size_bytes <= len(leading) * osts * ost_bytes else "sat"
    if mode == "sat" and _is_refused(collective, topology, leading, held):
        return _fallen_back(collective, topology)
    if mode == "llt" and _is_refused(collective, topology, leading, 0):
        heads = _one_head(heads)
    if mode == "llt" and segments is None:
        segments = _pieces(collective.size_bytes, len(heads_of(nodes, heads)), ost_bytes)
    lease = Stream(-1, osts, payload_bytes=ost_bytes) if mode == "llt" else Stream(-1)
    if _is_switched(topology) and max(map(len, nodes)) > 1:
        made = through_both("sharp", collective, topology, heads, segments, lease)
    else:
        made = through_heads("sharp", collective, topology, heads, segments, lease, MOST_SEGMENTS, ALONE_BYTES)
    return dataclasses.replace(made, knobs={**made.knobs, "algorithm": mode})


def _fallen_back(collective: Collective, topology: Topology | None) -> Program:
    """Return NCCL's rings, which all ranks take where one tree was refused: assumed, for a job of which some do not hangs."""
    rings = nccl_2_4(collective, topology, algorithm="ring", protocol="simple", tuning=False)
    return dataclasses.replace(rings, name="sharp", knobs={"algorithm": "ring, no lock"})


def _pieces(size_bytes: int, heads: int, ost_bytes: int) -> int:
    """Return the operations of a head's share: each piece goes on from a switch as soon as it is added there."""
    return max(1, min(MOST_SEGMENTS, math.ceil(size_bytes / heads / ost_bytes)))


def _one_head(wanted: int | None) -> int:
    """Return one head a host, for which each switch has one tree; UsageError where others were asked for."""
    if wanted is not None:
        raise UsageError(
            f"sharp: a switch serves fewer trees at a time than heads={wanted} send through it", remedy="heads=1"
        )
    return 1


def _is_refused(collective: Collective, topology: Topology | None, leading: list[list[int]], held: int) -> bool:
    """Say whether a switch has fewer locks left than there are trees through it."""
    trees = switch_trees("sharp", collective, topology, leading)
    asked = Counter(node for tree in trees for node in tree.switches)
    assert topology is not None  # noqa: S101 - trees are of one
    return any(count > topology.aggregators[node].concurrency - held for node, count in asked.items())


def _is_switched(topology: Topology | None) -> bool:
    """Say whether all ranks hang on switches inside hosts that add."""
    if topology is None:
        return False
    inside = topology.aggregators.keys() - network_switches(topology)
    served = {src for src, dst in zip(topology.src.tolist(), topology.dst.tolist(), strict=True) if dst in inside}
    return served.issuperset(range(topology.n_ranks))
