"""In-network computing for distributed training: which architecture wins, of servers, rings, trees and switches that add.

Idea: an all-reduce of these bytes on this machine is done by each architecture that the machine can do, and the quickest is
    taken: a ring, two trees, a server that adds for all (linear), SHARP's low latency or streaming tree, a pool of slots. So the
    map of winners over sizes and group sizes follows from the machine alone.
Cost: the least of ring 2(p-1) (alpha + n/p beta), trees 4 log2(p) alpha + 2 n beta, server 2 alpha + 2(p-1) n beta, and
    (2 + 2 l) alpha + n beta in the network over l levels of switches; each as the engine has it.
Knobs: architecture, the one to take whatever the times are (none: the quickest, of those within 0.1 % the first in the order
    above); jobs that share the pools of the switches, each with an equal part of the memory.
Holds: in the network an all-reduce gains 2(p-1)/p over a ring, no more; with two ranks nothing; a reduce-scatter or all-gather
    alone gains no time.
Figure: none; an overview.
Source: Zhu, Jiang, Hong, Guo, IEEE Network 2024, doi 10.1109/MNET.2024.3368138. The model of times is this project's.
Declines: all but all-reduce; an architecture that is asked for where the machine cannot do it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from ringwright.algorithms.blocks.double_binary_tree import double_binary_tree
from ringwright.algorithms.blocks.linear import linear
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.innetwork.ethernet.switchml import switchml
from ringwright.algorithms.innetwork.infiniband.sharp import sharp
from ringwright.algorithms.offers import require_commutative, require_op
from ringwright.engines.choose import simulate
from ringwright.ground.errors import RingwrightError, UsageError
from ringwright.ground.knobs import Range
from ringwright.model.program import Program, nothing

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
NEEDS = ("topology.aggregators.network", "memory.switch-slots")
FABRICS = ("switch:4,sharp=true", "leaf-spine:12,per_leaf=4,switches=tofino")
NEAR = 1.001  # times as near as this are one
# In the order in which the first of equals is taken: what needs least of the network comes first.
ARCHITECTURES: Mapping[str, Callable[..., Program]] = {
    "ring": ring,
    "tree": double_binary_tree,
    "server": linear,
    "llt": partial(sharp, mode="llt"),
    "sat": partial(sharp, mode="sat"),
    "pool": switchml,
}


def inc_meets_distributed_ml(
    collective: Collective,
    topology: Topology | None = None,
    *,
    architecture: Literal["ring", "tree", "server", "llt", "sat", "pool"] | None = None,
    jobs: Annotated[int, Range(1, 1024)] = 1,
) -> Program:
    """Return the program of the architecture that does an all-reduce quickest on a machine."""
    name = "inc-meets-distributed-ml"
    require_op(name, collective, OPS)
    require_commutative(name, collective)
    if collective.p == 1:
        return nothing(name, collective)
    if architecture is None and topology is None:
        raise UsageError(
            f"{name} weighs architectures on a known machine alone", remedy="a fabric, or architecture=ring"
        )
    shared = None if topology is None else _shared(topology, jobs)
    if architecture is not None:
        return _named(name, architecture, ARCHITECTURES[architecture](collective, shared))
    made = programs(collective, shared)
    assert topology is not None  # noqa: S101 - asked above
    times = {each: simulate(program, topology).time_ps for each, program in made.items()}
    chosen = next(each for each in made if times[each] <= NEAR * min(times.values()))
    return _named(name, chosen, made[chosen])


def programs(collective: Collective, topology: Topology | None) -> dict[str, Program]:
    """Return the program of each architecture that a machine can do, by name."""
    able = {}
    for architecture, make in ARCHITECTURES.items():
        try:
            made = make(collective, topology)
        except RingwrightError:
            continue  # what a machine lacks is no competitor: a ring is always one
        if architecture not in ("llt", "sat") or made.aggregators:  # a refused lease is a ring
            able[architecture] = made
    return able


def _named(name: str, architecture: str, made: Program) -> Program:
    return dataclasses.replace(made, name=name, knobs={**made.knobs, "algorithm": architecture})


def _shared(topology: Topology, jobs: int) -> Topology:
    """Return the machine with a job's part of the memory of each switch."""
    part = {
        node: dataclasses.replace(able, memory_bytes=able.memory_bytes // jobs)
        for node, able in topology.aggregators.items()
    }
    return dataclasses.replace(topology, aggregators=part) if jobs > 1 else topology
