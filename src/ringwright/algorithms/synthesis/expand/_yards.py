"""Yards: sets of ranks that are joined by quick arcs, into which no chunk need come twice.

Where the tightest cut runs round such a set - a host behind its NICs, a package of two dies - a chunk that enters it a second
time takes from the bottleneck what another one needs. Hosts are yards where the machine says them; others are found by rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.bounds.arcs import Arcs
    from ringwright.model.topology import Topology

MOST = 3  # partitions by rate that are tried


def partitions(topology: Topology, group: np.ndarray, arcs: Arcs) -> list[np.ndarray]:
    """Return the partitions into yards to try, each int32 of shape (ranks,); an empty array for none, which comes first."""
    made = [np.zeros(0, np.int32)]
    if topology.hosts is not None:
        made.append(_numbered(np.asarray(topology.hosts, np.int64)[group]))
    rates = np.minimum.reduceat(arcs.rate[arcs.resources], arcs.starts[:-1]) if arcs.count else np.zeros(0)
    by_rate = sorted(set(rates.tolist()), reverse=True)[:-1][:MOST]
    made += [_joined(arcs, rates >= rate * (1 - 1e-9)) for rate in by_rate]
    known: dict[bytes, np.ndarray] = {}
    for each in made:
        if not len(each) or 0 < int(each.max()) < arcs.p - 1:
            known.setdefault(each.tobytes(), each)
    return list(known.values())


def _joined(arcs: Arcs, quick: np.ndarray) -> np.ndarray:
    """Return the parts into which quick arcs join the ranks."""
    part = np.arange(arcs.p)
    src, dst = arcs.src[quick], arcs.dst[quick]
    while True:
        least = part.copy()
        np.minimum.at(least, dst, part[src])
        np.minimum.at(least, src, least[dst])
        if np.array_equal(least, part):
            return _numbered(part)
        part = least


def _numbered(parts: np.ndarray) -> np.ndarray:
    numbered: np.ndarray = np.unique(parts, return_inverse=True)[1].ravel().astype(np.int32)
    return numbered
