"""The network of a symmetric machine, folded: one arc for all that turns take to each other, one resource for each orbit."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.algorithms.networks import ArcNetwork
    from ringwright.bounds.arcs import Arcs
    from ringwright.model.topology import Topology


@dataclass(frozen=True)
class Classes:
    """Arcs by class: ``of_arc`` (int64) is the class of each arc; ``times`` how often a message of all passes each hop."""

    net: ArcNetwork
    of_arc: np.ndarray
    times: np.ndarray


def classes(net: ArcNetwork, arcs: Arcs, topology: Topology) -> Classes:
    """Return the arcs as they are, or by class where the arcs have a symmetry."""
    if arcs.symmetry is None:
        return Classes(net, np.arange(arcs.count), np.ones(len(net.hops)))
    _, mine, of_arc = np.unique(arcs.symmetry.kinds(arcs.src, arcs.dst), return_index=True, return_inverse=True)
    starts, hops, times = [0], list[int](), list[float]()
    orbits: dict[int, int] = {}
    plain = topology.n_links + len(topology.groups)
    for arc in mine.tolist():
        passed = net.hops[net.hop_starts[arc] : net.hop_starts[arc + 1]].tolist()
        sorted_ones = sorted((each for each in passed if each < plain), key=lambda each: each >= topology.n_links)
        orbit = arcs.resources[arcs.starts[arc] : arcs.starts[arc + 1]].tolist()
        orbit_of = dict(zip(sorted_ones, orbit, strict=True))
        for each in passed:
            kind = orbit_of.get(each, -1 - each)
            hops.append(orbits.setdefault(kind, len(orbits)))
            times.append(arcs.symmetry.order / float(arcs.members[kind]) if kind >= 0 else 1.0)
        starts.append(len(hops))
    real = np.zeros(len(orbits), np.int64)
    every = np.concatenate([net.hops[net.hop_starts[arc] : net.hop_starts[arc + 1]] for arc in mine.tolist()])
    real[np.array(hops)] = every
    folded = dataclasses.replace(
        net,
        src=net.src[mine],
        dst=net.dst[mine],
        hop_starts=np.array(starts, np.int64),
        hops=np.array(hops, np.int32),
        delay=net.delay[mine],
        ps_per_byte=net.ps_per_byte[real],
        latency=net.latency[real],
        holds=net.holds[real],
    )
    return Classes(folded, of_arc.ravel(), np.array(times))
