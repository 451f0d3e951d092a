"""NVLS over CollNet: reduction inside each NVSwitch, then in the network's switches, and multicast back through both.

Idea: each of h heads of a switch domain answers for 1/h of the data. It reads its domain's sum through the NVSwitch, contributes
    it to the first aggregating switch of the network, takes the result, and stores it through the NVSwitch, which copies it to
    all GPUs of the domain. Segments follow each other, so that the phases overlap.
Cost: 4 alpha inside and (2 + 2 l) alpha over l levels of switches; n (h+1)/h beta on a rank's NVLink each way, n/h beta on a
    head's NIC.
Knobs: heads (a domain's GPUs); segments (of 128 KiB at the least, 256 at the most, for a segment takes 8 turns and more);
    slots of a head's stream in each switch of the network (a share of its memory).
Holds: a NIC carries its head's share once up and once down, and an NVLink the data once and a share each way.
Figure: none; what NCCL takes as NVLS on several nodes with SHARP.
Source: NCCL 2.18 and later, src/device/all_reduce.h and src/transport/nvls.cc.
Declines: all but all-reduce; ranks under no NVSwitch that adds, and what collnet-direct declines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.blocks.collnet_direct import heads_of, segments_for
from ringwright.algorithms.blocks.nvls import switch_domains
from ringwright.algorithms.offers import require_op
from ringwright.algorithms.switch_trees import REMEDY, network_switches, switch_trees
from ringwright.algorithms.waves import Wave, Waves, numbered, through
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Channels, Segments, Slots
from ringwright.model.program import Op, Term, nothing
from ringwright.model.streams import Stream

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

OPS = ("all-reduce",)
FABRICS = ("dgx-h100:2,sharp=true", "dgx-h100:4,per_leaf=2,sharp=true")
MOST_SEGMENTS = 256


def nvls_collnet(
    collective: Collective,
    topology: Topology | None = None,
    *,
    heads: Channels | None = None,
    segments: Segments | None = None,
    slots: Slots | None = None,
) -> Program:
    """Return the program of an all-reduce through the NVSwitches and the network's switches."""
    require_op("nvls-collnet", collective, OPS)
    return through_both("nvls-collnet", collective, topology, heads, segments, Stream(-1, slots or 0))


def through_both(
    name: str, collective: Collective, topology: Topology | None, heads: int | None, segments: int | None, lease: Stream
) -> Program:
    """Return an all-reduce of that name through NVSwitches and the network's switches, by streams like ``lease`` there."""
    if collective.p == 1:
        return nothing(name, collective)
    domains = switch_domains(collective, topology)
    if network_switches(topology).intersection(switch for switch, _ in domains):
        raise UsageError(f"{name}: ranks are attached to the network itself, not to an NVLink switch", remedy=REMEDY)
    nodes = [places for _, places in domains]
    leading = heads_of(nodes, heads)
    trees = switch_trees(name, collective, topology, leading, lease.codec)
    number = numbered(collective, trees)
    switches = collective.p + len(number) + np.arange(len(domains))
    pipelines = []
    for head, tree in zip(leading, trees, strict=True):
        pipeline = [*_sum(nodes, head, switches), *through(tree, head, 2, number)]
        pipelines.append([*pipeline, *_copies(nodes, head, switches, 4 + 2 * tree.top)])
    size, share = float(collective.size_bytes), 1 / len(leading)
    levels = max(tree.top for tree in trees)
    terms = [Term(4, size * (1 + share), "nvlink"), Term(2 + 2 * levels, size * share, "nic")]
    inside = tuple(switch for switch, _ in domains)
    cut_in = segments_for(size * share, segments, MOST_SEGMENTS)
    return Waves(collective, pipelines, (*number, *inside), cut_in, topology, lease, inside).program(
        name, terms, 0.0, heads=len(leading)
    )


def _all(nodes: list[list[int]], switches: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return every rank and the switch of its domain."""
    return np.concatenate(nodes).astype(np.int64), np.repeat(switches, [len(node) for node in nodes])


def _sum(nodes: list[list[int]], head: list[int], switches: np.ndarray) -> list[Wave]:
    """Return the waves in which all give a part to their switch and the head takes the sum."""
    return [Wave(0, Op.CONTRIBUTE, *_all(nodes, switches)), Wave(1, Op.EMIT, switches, np.array(head))]


def _copies(nodes: list[list[int]], head: list[int], switches: np.ndarray, first: int) -> list[Wave]:
    """Return the waves in which the head stores the result in the switch's second places, and the switch copies it to all."""
    ranks, own_switch = _all(nodes, switches)
    return [
        Wave(first, Op.CONTRIBUTE, np.array(head), switches, back=True, second=True),
        Wave(first + 1, Op.EMIT, own_switch, ranks, back=True, second=True),
    ]
