"""MVAPICH2.

Idea: collectives in two levels: ranks of a node meet in shared memory, leaders of nodes talk over the network. Long vectors
    have several leaders a node (DPML), so that several cores add up and feed the network at once.
Cost: n beta_s + (c-1)/L n gamma + T_outer(N nodes, n/L with L at once) + n beta_s, for L leaders on nodes of c ranks; L = 1 is
    the classic single leader.
Knobs: leaders=None (1 up to 2 KiB, then 4, 8, 16; at most the ranks of the smallest node); outer=None (recursive doubling to
    16 KiB, then Rabenseifner; trees for rooted collectives); segments=1; hosts=None (as the topology says);
    buffers=host (gpu: in device memory, by GPUDirect RDMA up to 8 KiB, longer ones staged through the host, copy beside
    network); block_bytes=None, the staging block (256 KiB).
Holds: nodes of any sizes; one node or one rank a node are the two ends of the same program.
Figure: DPML up to 3.5x faster than the library without it on Skylake and Omni-Path (from memory, unconfirmed).
Source: Panda, Tomko, Schulz, Majumdar, WSSPE 2013; Bayatpour et al., SC 2017, doi 10.1145/3126908.3126954.
Declines: the library's own tables (not public; the thresholds here are assumed); the single-copy path inside a node, since a copy
    in memory costs nothing here; reductions by GPU kernels and NV-Group, of which no cost is known; collectives without
    reduction or one root.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from ringwright.algorithms import placement
from ringwright.algorithms.blocks.binomial import binomial
from ringwright.algorithms.blocks.rabenseifner import rabenseifner
from ringwright.algorithms.blocks.recursive_doubling import recursive_doubling
from ringwright.algorithms.blocks.scatter_allgather import scatter_allgather
from ringwright.algorithms.blocks.two_level import OPS, two_level
from ringwright.algorithms.libraries.mvapich import rules, staging
from ringwright.algorithms.offers import require_op
from ringwright.ground.knobs import Range, Segments

if TYPE_CHECKING:
    from ringwright.algorithms.compose import Algorithm
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

__all__ = ["OPS", "mvapich"]
OUTER: dict[str, Algorithm] = {
    "recursive_doubling": recursive_doubling,
    "rabenseifner": rabenseifner,
    "binomial": binomial,
    "scatter_allgather": scatter_allgather,
}


def mvapich(
    collective: Collective,
    topology: Topology | None = None,
    *,
    leaders: Annotated[int, Range(1, 64)] | None = None,
    outer: Algorithm | None = None,
    segments: Segments = 1,
    hosts: Sequence[Annotated[int, Range(0, 65535)]] | None = None,
    buffers: Literal["host", "gpu"] = "host",
    block_bytes: Annotated[int, Range(1024, 1 << 30, "B")] | None = None,
) -> Program:
    """Return the two-level program that MVAPICH2 would run, with as many leaders as the size asks for."""
    require_op("mvapich", collective, OPS)
    nodes = placement.members(collective, topology, hosts) or [list(range(collective.p))]
    op = "all-reduce" if collective.op == "barrier" else collective.op
    plan = rules.two_level(op, [len(node) for node in nodes], collective.size_bytes, leaders=leaders)
    program = two_level(
        collective, topology, leaders=plan.leaders, outer=outer or OUTER[plan.outer], segments=segments, hosts=hosts
    )
    made = dataclasses.replace(program, name="mvapich", knobs={**program.knobs, "ground": plan.ground})
    if buffers == "host":
        return made
    software, said = staging.software(collective, topology, nodes, block_bytes, plan.leaders)
    return dataclasses.replace(made, software=software, knobs={**made.knobs, "algorithm": said})
