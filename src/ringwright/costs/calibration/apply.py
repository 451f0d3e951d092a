"""A calibration put into a Topology: rates, latencies and message costs of its link classes.

The classes on the route between two ranks of a node are *inside*; those on the route between two nodes that are not inside
are *outside*: no link has the numbers of both. A node is what NVLink joins (``Topology.domains``): a host, or a rack of hosts
in one NVLink domain, whose hosts reach each other by links that are inside. Latencies are scaled so that a whole route
takes the calibrated hop, rates so that the narrowest link of a route has the calibrated rate (outside: its share of the
node's). Links inside a node keep the proportions they had, and so do those outside: an oversubscribed spine stays
oversubscribed. Messages outside occupy their sender, whose proxy sends one after the other; inside, each channel has threads
of its own, and what a message costs there is delay. The transport is the calibration's, where it says one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.costs.calibration.record import Calibration, LinkClassCosts
from ringwright.costs.nccl.node_types import NODE_TYPES, placed
from ringwright.model.topology import Topology

if TYPE_CHECKING:
    import numpy as np


def calibrated(topology: Topology, calibration: Calibration) -> Topology:
    """Return the topology with the calibrated numbers; what a calibration does not hold stays as it was."""
    changed = _Changed(
        topology, topology.rate.copy(), topology.latency_s.copy(), dict(topology.message_s), {*topology.occupying}
    )
    near, far = _neighbours(topology)
    inside: set[int] = set()
    if near is not None:
        route = _route(topology, near)
        inside = set(topology.link_class[route].tolist())
        if calibration.inside is not None:
            changed.scale(route, inside, calibration.inside, 1)
    if far is not None and calibration.outside is not None:
        route = _route(topology, far)
        outside = set(topology.link_class[route].tolist()) - inside
        if outside:
            changed.scale(route, outside, calibration.outside, _nics_together(topology, calibration))
        changed.occupying |= {topology.classes[number] for number in outside}
    return dataclasses.replace(
        topology,
        rate=changed.rate,
        latency_s=changed.latency_s,
        message_s=changed.message_s,
        occupying=tuple(name for name in topology.classes if name in changed.occupying),
        transport=(calibration.carrier if calibration.outside else "") or topology.transport,
        provenance=calibration.provenance,
        calibration=calibration,
    )


def link_numbers(topology: Topology) -> tuple[LinkClassCosts | None, LinkClassCosts | None]:
    """Return what a calibration of this fabric would hold, inside and outside a node: the inverse of :func:`calibrated`.

    A class of links is as slow as its slowest link; None for a class without a route, as in a fabric of one node.
    """
    near, far = _neighbours(topology)
    inside: set[int] = set()
    numbers: list[LinkClassCosts | None] = [None, None]
    for at, (rank, share) in enumerate(((near, 1), (far, topology.nics_per_domain))):
        if rank is None:
            continue
        route = _route(topology, rank)
        classes = set(topology.link_class[route].tolist())
        if at == 0:
            inside = classes
        numbers[at] = _numbers(topology, route, (classes - inside if at else classes) or classes, share)
    return numbers[0], numbers[1]


def _numbers(topology: Topology, route: np.ndarray, classes: set[int], share: int) -> LinkClassCosts:
    """Return the numbers of a route: its latency, each link as long as the longest of its class, and the rate of some classes."""
    import numpy as np

    latency_s = sum(float(topology.latency_s[topology.link_class == each].max()) for each in topology.link_class[route])
    rate = float(topology.rate[np.isin(topology.link_class, sorted(classes))].min())
    message_s = max((topology.message_s.get(topology.classes[each], 0.0) for each in classes), default=0.0)
    return LinkClassCosts(latency_s, message_s, rate * share)


@dataclass
class _Changed:
    """The arrays of a topology while they are scaled."""

    topology: Topology
    rate: np.ndarray
    latency_s: np.ndarray
    message_s: dict[str, float]
    occupying: set[str]

    def scale(self, route: np.ndarray, classes: set[int], link: LinkClassCosts, share: int) -> None:
        """Give some classes the numbers of a link; ``share`` of them together have its rate."""
        import numpy as np

        top, numbers = self.topology, sorted(classes)
        chosen = np.isin(top.link_class, numbers)
        on_route = route[np.isin(top.link_class[route], numbers)]
        before_s = float(top.latency_s[on_route].sum())
        wanted_s = max(link.latency_s - float(top.latency_s[route].sum()) + before_s, 0.0)
        factor = wanted_s / before_s if before_s else 0.0
        self.latency_s[chosen] = top.latency_s[chosen] * factor if before_s else wanted_s / len(on_route)
        self.rate[chosen] = top.rate[chosen] * (link.rate_bytes_per_s / share / float(top.rate[on_route].min()))
        self.message_s |= {top.classes[number]: link.message_s for number in numbers}


def _neighbours(topology: Topology) -> tuple[int | None, int | None]:
    """Return a rank of the first rank's node, and one of another node; None where there is none."""
    import numpy as np

    if topology.n_ranks < 2:
        return None, None
    node = topology.domains
    if node is None:
        return 1, None
    same = np.flatnonzero(node[1:] == node[0]) + 1
    other = np.flatnonzero(node != node[0])
    return (int(same[0]) if len(same) else None), (int(other[0]) if len(other) else None)


def _route(topology: Topology, rank: int) -> np.ndarray:
    import numpy as np

    _, links = topology.routes(np.array([0]), np.array([rank]))
    return links


def _nics_together(topology: Topology, calibration: Calibration) -> int:
    """Return how many NICs together have the calibrated rate: those of a node, or of the part that was measured.

    A rack of several hosts has many times the NICs of the node that was measured, and each is as fast as those were.
    """
    family = calibration.fabric.partition(":")[0]
    is_rack = topology.nics_per_domain > topology.nics_per_node
    if family in NODE_TYPES and (is_rack or topology.name.partition(":")[0] == family):
        return placed(calibration.fabric)[0].nics
    return topology.nics_per_domain
