"""Which ranks of a mesh lie alike on a machine: whose groups pass links that are alike, and are shared with groups that are.

Ranks that do the same are simulated once; on a host whose GPUs are not wired alike, or across switches of several levels, ranks
that do the same take different times. Groups and links are told apart by each other until nothing changes (colour
refinement): a link by its rate, latency and the groups that pass it, a group by its axes and the links that it passes.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ringwright.model.topology import Topology
from ringwright.model.workload import Mesh

MOST_PAIRS = 8  # members of a group of which every pair is looked at; of larger ones each and the next
MOST_AXES = 2  # that one operation goes along


def places(topology: Topology, mesh: Mesh) -> np.ndarray | None:
    """Return a number for each rank of a mesh, equal where ranks lie alike, int64 of shape (ranks,); None where all do."""
    if topology.is_symmetric and topology.hosts is not None:  # a host is the same seen from each, and so is each host
        return None
    ranks = np.arange(mesh.size)
    grid = ranks.reshape(tuple(mesh.sizes.values()))
    wide = [axis for axis, size in enumerate(mesh.sizes.values()) if size > 1]
    along = [axes for count in range(1, MOST_AXES + 1) for axes in combinations(wide, count)]
    kinds, starts, links, groups_of = [], [np.zeros(1, np.int64)], [], []
    for number, axes in enumerate(along):
        members = np.moveaxis(grid, axes, range(-len(axes), 0)).reshape(-1, int(np.prod([grid.shape[a] for a in axes])))
        passed, mine = _passed(topology, members)
        starts.append(passed[1:] + starts[-1][-1])
        links.append(mine)
        kinds.append(_mixed(np.full(len(members), number)))
        of = np.empty(mesh.size, np.int64)
        of[members] = np.arange(len(members))[:, None] + sum(len(each) for each in kinds[:-1])
        groups_of.append(of)
    if not along:
        return None
    colour = _told_apart(topology, np.concatenate(kinds), np.concatenate(starts), np.concatenate(links))
    columns = np.stack([colour[of] for of in groups_of])
    alike: np.ndarray = np.unique(columns, axis=1, return_inverse=True)[1].ravel().astype(np.int64)
    return alike if alike.any() else None


def _passed(topology: Topology, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the links that each group (a row of ranks) passes from member to member: (starts, links)."""
    count = members.shape[1]
    hops = range(1, count if count <= MOST_PAIRS else 2)
    there = np.concatenate([np.roll(members, -hop, axis=1) for hop in hops], axis=1)
    starts, links = topology.routes(np.tile(members, len(hops)).ravel(), there.ravel())
    return starts[:: count * len(hops)], links


def _told_apart(topology: Topology, kinds: np.ndarray, starts: np.ndarray, links: np.ndarray) -> np.ndarray:
    """Return a colour for each group, equal where kind and links passed are alike; uint64 of the shape of ``kinds``."""
    colour = np.array(kinds, np.uint64)
    facts = np.stack([topology.link_class, topology.rate, topology.latency_s])
    wire = _mixed(np.unique(facts, axis=1, return_inverse=True)[1].ravel())
    of = np.repeat(np.arange(len(colour)), np.diff(starts))
    shared = np.concatenate([np.zeros(0, np.int64), *(np.asarray(each.links, np.int64) for each in topology.groups)])
    capacity = np.repeat(np.arange(len(topology.groups)), [len(each.links) for each in topology.groups])
    rates = _mixed(np.unique([each.rate for each in topology.groups], return_inverse=True)[1].ravel())
    known = len(np.unique(colour))
    while True:
        passing = np.zeros(topology.n_links, np.uint64)
        np.add.at(passing, links, _mixed(colour)[of])
        wire = _mixed(wire + _mixed(passing))
        together = rates.copy()
        np.add.at(together, capacity, wire[shared])
        np.add.at(wire, shared, _mixed(together)[capacity])
        seen = np.zeros(len(colour), np.uint64)
        np.add.at(seen, of, wire[links])
        colour = _mixed(colour + _mixed(seen))
        now = len(np.unique(colour))
        if now == known:
            return colour
        known = now


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return numbers spread over 64 bits, so that their sums tell multisets apart (the finalizer of splitmix64)."""
    mixed = np.asarray(values).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
