"""A calibration put into a Topology: rates, latencies and message costs of its link classes.

The classes on the way between two ranks of a node are *inside*; those on the way between two nodes that are not inside
are *outside*. Latencies are scaled so that a whole way takes the calibrated hop, rates so that the narrowest link of a way
has the calibrated rate (outside: its share of the node's). Links inside a node keep the proportions they had, and so do
those outside: an oversubscribed spine stays oversubscribed.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ringwright.costs.calibration.record import Calibration, Link
from ringwright.topology import NIC, Topology

if TYPE_CHECKING:
    import numpy as np


def calibrated(topology: Topology, calibration: Calibration) -> Topology:
    """Return the topology with the calibrated numbers; what a calibration does not hold stays as it was."""
    rate, latency_s = topology.rate.copy(), topology.latency_s.copy()
    message_s = dict(topology.message_s)
    near, far = _neighbours(topology)
    inside = _way(topology, near) if near is not None else None
    kept: set[int] = set()
    if inside is not None and calibration.inside is not None:
        kept = set(topology.link_class[inside].tolist())
        _scale(topology, rate, latency_s, message_s, inside, kept, calibration.inside, 1)
    if far is not None and calibration.outside is not None:
        way = _way(topology, far)
        classes = set(topology.link_class[way].tolist())
        _scale(topology, rate, latency_s, message_s, way, classes - kept or classes, calibration.outside, _ways(topology))
    return dataclasses.replace(
        topology, rate=rate, latency_s=latency_s, message_s=message_s, provenance=calibration.provenance
    )


def _neighbours(topology: Topology) -> tuple[int | None, int | None]:
    """Return a rank of the first rank's node, and one of another node; None where there is none."""
    import numpy as np

    if topology.n_ranks < 2:
        return None, None
    if topology.hosts is None:
        return 1, None
    same = np.flatnonzero(topology.hosts[1:] == topology.hosts[0]) + 1
    other = np.flatnonzero(topology.hosts != topology.hosts[0])
    return (int(same[0]) if len(same) else None), (int(other[0]) if len(other) else None)


def _way(topology: Topology, rank: int) -> np.ndarray:
    import numpy as np

    _, links = topology.routes(np.array([0]), np.array([rank]))
    return links


def _ways(topology: Topology) -> int:
    """Return the network cards of a node, or its ranks where none are drawn."""
    hosts = 1 if topology.hosts is None else int(topology.hosts.max()) + 1
    cards = int((topology.kinds == NIC).sum())
    return max(1, round((cards or topology.n_ranks) / hosts))


def _scale(
    topology: Topology,
    rate: np.ndarray,
    latency_s: np.ndarray,
    message_s: dict[str, float],
    way: np.ndarray,
    classes: set[int],
    link: Link,
    share: int,
) -> None:
    """Scale the links of some classes in place."""
    import numpy as np

    chosen = np.isin(topology.link_class, sorted(classes))
    on_way = way[np.isin(topology.link_class[way], sorted(classes))]
    others_s = float(topology.latency_s[way].sum() - topology.latency_s[on_way].sum())
    before_s = float(topology.latency_s[on_way].sum())
    wanted_s = max(link.latency_s - others_s, 0.0)
    latency_s[chosen] = latency_s[chosen] * (wanted_s / before_s) if before_s else wanted_s / len(on_way)
    rate[chosen] *= link.rate_bytes_per_s / share / float(topology.rate[on_way].min())
    message_s |= {topology.classes[number]: link.message_s for number in sorted(classes)}
