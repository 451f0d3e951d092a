"""Which groups do the same as one does, at the same time, and may share links with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.model.topology import Topology
    from ringwright.model.workload import Mesh


@dataclass(frozen=True, eq=False)
class Siblings:
    """The groups of a mesh on a machine; along ``stages_along`` they do not do the same at the same time."""

    topology: Topology
    mesh: Mesh
    stages_along: frozenset[str]

    def of(self, ranks: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the groups that lie as this one does along its own axes and may share links with it: they do the same.

        Those with a rank on one of its hosts; all, where links of several hosts can share a capacity. A group that goes along
        a part of an axis, as neighbours or as every so many-th, has those beside it along the same axis among them.
        """
        hosts, mesh = self.topology.hosts, self.mesh
        if hosts is None and not self.topology.groups and self._ranks_have_own_links:
            return []
        own = [mesh.place(rank) for rank in ranks]
        axes = [axis for axis in mesh.sizes if len({each[axis] for each in own}) > 1 or axis in self.stages_along]
        member_at = {tuple(each[axis] for axis in axes): rank for each, rank in zip(own, ranks, strict=True)}
        parts = {axis: _part([each[axis] for each in own], mesh.sizes[axis]) for axis in axes}
        siblings: dict[tuple[int, ...], None] = {}
        near = np.arange(mesh.size)
        if hosts is not None and not self.topology.groups:
            near = np.flatnonzero(np.isin(hosts[: mesh.size], hosts[list(ranks)]))
        for rank in near.tolist():
            coordinates = mesh.place(rank)
            member = member_at.get(tuple(parts[axis][coordinates[axis]] for axis in axes))
            if member is not None and member != rank:
                siblings[tuple(each + rank - member for each in ranks)] = None
        return list(siblings)

    @cached_property
    def _ranks_have_own_links(self) -> bool:
        """Whether each link is one rank's alone, as at one switch: groups of different ranks share none."""
        topology = self.topology
        at_rank = (topology.src < topology.n_ranks).astype(int) + (topology.dst < topology.n_ranks)
        return bool((at_rank == 1).all())


def _part(coordinates: list[int], size: int) -> list[int]:
    """Return, for each coordinate of an axis, that of the group's member which lies there in its own group.

    A group that goes along ``many`` of an axis, ``stride`` apart, is one of many that tile it; any other is the only one.
    """
    own = sorted(set(coordinates))
    many, stride = len(own), own[1] - own[0] if len(own) > 1 else 1
    tiles = own == list(range(own[0], own[0] + many * stride, stride)) and size % (many * stride) == 0
    if many < 2 or not tiles or own[0] % (many * stride) >= stride:
        return list(range(size))
    return [own[at // stride % many] for at in range(size)]
