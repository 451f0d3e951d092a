"""Trees of servers that add beside switches: which box a member sends to, and where each box sends what it has added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.bounds.cuts import distances
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

DIRECT = -1  # of a member: no box is on its way; of a box: it sends to the target


@dataclass(frozen=True)
class MiddleboxTree:
    """Boxes (topology ``nodes``), the parent of each (a number of them, or DIRECT), and each member's first box or DIRECT."""

    nodes: tuple[int, ...]
    parents: tuple[int, ...]
    first_of: tuple[int, ...]

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """Boxes below each, one behind the other."""
        heights = [0] * len(self.nodes)
        for number in range(len(self.nodes)):
            below, above = number, self.parents[number]
            while above != DIRECT:
                heights[above] = max(heights[above], heights[below] + 1)
                below, above = above, self.parents[above]
        return tuple(heights)

    @property
    def height(self) -> int:
        """Boxes on the longest way, less one; 0 without any."""
        return max(self.heights, default=0)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Boxes between each and the target."""
        return tuple(sum(1 for _ in self._above(number)) for number in range(len(self.nodes)))

    def _above(self, number: int) -> list[int]:
        passed: list[int] = []
        while (number := self.parents[number]) != DIRECT:
            passed.append(number)
        return passed

    @property
    def fan_in(self) -> tuple[int, ...]:
        """Members and boxes that send to each box."""
        into = [*self.first_of, *self.parents]
        return tuple(into.count(number) for number in range(len(self.nodes)))


def switches_with_middleboxes(topology: Topology, without: Sequence[int] = ()) -> dict[int, list[int]]:
    """Return the boxes beside each switch: aggregating nodes with one link, but those ``without``."""
    beside: dict[int, list[int]] = {}
    for node in sorted(set(topology.aggregators) - set(without)):
        hung = topology.dst[topology.src == node]
        if len(hung) == 1 and int(hung[0]) >= topology.n_ranks:
            beside.setdefault(int(hung[0]), []).append(node)
    return beside


def middlebox_tree(
    topology: Topology, beside: dict[int, list[int]], members: Sequence[int], target: int, turn: int = 0
) -> MiddleboxTree:
    """Return the tree in which members (ranks) send towards a target node over the boxes at the switches on their ways.

    Where a switch has several boxes, trees take them in ``turn``.
    """
    number: dict[int, int] = {}
    parents: dict[int, int] = {}
    first = []
    starts, links = topology.routes(np.asarray(members, np.int64), np.full(len(members), target))
    for begin, end in pairwise(starts.tolist()):
        met = [node for node in topology.dst[links[begin:end]].tolist() if node in beside]
        passed = [number.setdefault(beside[node][turn % len(beside[node])], len(number)) for node in met]
        parents |= dict(zip(passed, [*passed[1:], DIRECT], strict=False))
        first.append(passed[0] if passed else DIRECT)
    return MiddleboxTree(tuple(number), tuple(parents[each] for each in range(len(number))), tuple(first))


def centre(topology: Topology, beside: dict[int, list[int]], members: Sequence[int], turn: int = 0) -> int:
    """Return the switch with boxes that is nearest to the farthest member; of equal ones trees take turns."""
    far = distances(topology, np.asarray(members), np.ones(topology.n_links))
    ranked = {switch: (far[:, switch].max(), far[:, switch].sum()) for switch in sorted(beside)}
    nearest = [switch for switch, rank in ranked.items() if rank == min(ranked.values())]
    return nearest[turn % len(nearest)]


def require_middleboxes(system: str, beside: dict[int, list[int]]) -> None:
    """Raise UsageError where no switch has a box."""
    if not beside:
        raise UsageError(f"{system}: no server beside a switch adds", remedy="--fabric middleboxes:8x4x2")
