"""Trees of aggregating network switches: where members meet the network, and how its switches join them.

A member's *leaf* is the first aggregating switch on its route to the next member. Where members lie under several leaves,
these hang below a root: the switch that is nearest to the farthest leaf. Trees of several groups take such roots in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.bounds.cuts import distances
from ringwright.ground.errors import FanInError, UsageError
from ringwright.model.codecs.formats import codec_of

if TYPE_CHECKING:
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

INSIDE_NODES = ("nvlink", "xgmi", "pcie")  # a switch that such a link ends at is part of a node
REMEDY = "--fabric dgx-h100:2,sharp=true"


@dataclass(frozen=True)
class SwitchTree:
    """Switches (topology nodes) with their ``parents`` (numbers of ``switches``, -1 at the root) and each member's leaf."""

    switches: tuple[int, ...]
    parents: tuple[int, ...]
    leaf_of: tuple[int, ...]

    @cached_property
    def depth(self) -> tuple[int, ...]:
        """Edges from the root to each switch."""
        return tuple(sum(1 for _ in self._above(number)) for number in range(len(self.switches)))

    @cached_property
    def height(self) -> tuple[int, ...]:
        """Edges from each switch down to its farthest leaf."""
        heights = [0] * len(self.switches)
        for number, depth in enumerate(self.depth):
            for above in self._above(number):
                heights[above] = max(heights[above], depth - self.depth[above])
        return tuple(heights)

    @property
    def top(self) -> int:
        """Edges from the root to its farthest switch."""
        return max(self.depth)

    @property
    def fan_in(self) -> tuple[int, ...]:
        """Members and switches right below each switch."""
        below = [*self.leaf_of, *(parent for parent in self.parents if parent >= 0)]
        return tuple(below.count(number) for number in range(len(self.switches)))

    def _above(self, number: int) -> Iterator[int]:
        while self.parents[number] >= 0:
            number = self.parents[number]
            yield number


def network_switches(topology: Topology | None) -> frozenset[int]:
    """Return the aggregating switches that are not inside a node."""
    if topology is None or not topology.aggregators:
        return frozenset()
    inside = [number for number, name in enumerate(topology.classes) if name in INSIDE_NODES]
    in_nodes = topology.dst[np.isin(topology.link_class, inside)]
    return frozenset(topology.aggregators) - frozenset(in_nodes.tolist())


def switch_trees(
    system: str,
    collective: Collective,
    topology: Topology | None,
    groups: Sequence[Sequence[int]],
    codec: str = "native",
) -> list[SwitchTree]:
    """Return a tree for each group of places; ``system`` names itself in errors, and its numbers are in ``codec``.

    Raises UsageError where no network switch aggregates, a member's route meets none, or one of them cannot do what the
    collective asks for.
    """
    switches = network_switches(topology)
    if topology is None or not switches:
        raise UsageError(f"{system}: no switch of this network aggregates", remedy=REMEDY)
    trees = [
        _tree(system, topology, switches, [collective.group[index] for index in group], number)
        for number, group in enumerate(groups)
    ]
    for tree in trees:
        for node, count in zip(tree.switches, tree.fan_in, strict=True):
            _require_able(system, collective, topology, node, count, codec)
    return trees


def _tree(system: str, topology: Topology, able: frozenset[int], ranks: list[int], turn: int) -> SwitchTree:
    leaf_of = _leaves(system, topology, able, ranks)
    leaves = list(dict.fromkeys(leaf_of))
    above = {leaves[0]: -1} if len(leaves) == 1 else _joined(topology, able, leaves, turn)
    number = {node: position for position, node in enumerate(above)}
    parents = tuple(number.get(parent, -1) for parent in above.values())
    return SwitchTree(tuple(above), parents, tuple(number[leaf] for leaf in leaf_of))


def _leaves(system: str, topology: Topology, able: frozenset[int], ranks: list[int]) -> list[int]:
    """Return the first able switch on each rank's route to the next one."""
    if len(ranks) < 2:
        raise UsageError(f"{system} works between hosts, and all ranks are on one", remedy="--algorithm nvls")
    src = np.array(ranks)
    starts, links = topology.routes(src, np.roll(src, -1))
    leaves = []
    for rank, begin, end in zip(ranks, starts[:-1], starts[1:], strict=True):
        met = next((int(node) for node in topology.dst[links[begin:end]] if int(node) in able), None)
        if met is None:
            raise FanInError(f"{system}: no aggregating switch on the way from {topology.label(rank)}", remedy=REMEDY)
        leaves.append(met)
    return leaves


def _joined(topology: Topology, able: frozenset[int], leaves: list[int], turn: int) -> dict[int, int]:
    """Return the parent of each switch on the routes from a root to the leaves; switches that cannot add are left out."""
    far = distances(topology, np.array(leaves), np.ones(topology.n_links))
    ranked = {node: (far[:, node].max(), far[:, node].sum()) for node in sorted(able)}
    least = min(ranked.values())
    roots = [node for node, rank in ranked.items() if rank == least]
    root = roots[turn % len(roots)]
    starts, links = topology.routes(np.full(len(leaves), root), np.array(leaves))
    above = {root: -1}
    for begin, end in pairwise(starts.tolist()):
        last = root
        for node in topology.dst[links[begin:end]].tolist():
            if node in able:
                above.setdefault(node, last)
                last = node
    return above


def _require_able(system: str, collective: Collective, topology: Topology, node: int, fan_in: int, codec: str) -> None:
    can, op = topology.aggregators[node], "sum" if collective.reduce_op == "avg" else collective.reduce_op
    added = codec_of(codec).added_as or collective.dtype
    for lacks, is_there, kind in (
        (f"it does not add by {op}", op in can.ops, UsageError),
        (f"it adds no numbers in {codec}", codec in can.codecs, UsageError),
        (f"it does not add {added}", added in can.dtypes, UsageError),
        (f"it adds at most {can.fanin_max} contributions, not {fan_in}", fan_in <= can.fanin_max, FanInError),
        ("it has no multicast", can.multicast, UsageError),
    ):
        if not is_there:
            raise kind(f"{system}: {topology.label(node)} cannot do this: {lacks}", remedy="--algorithm ring")
