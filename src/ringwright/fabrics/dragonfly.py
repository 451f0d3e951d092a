"""A dragonfly: groups of routers, all pairs joined within a group, one global link between every two groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.fabrics._network import HOP_S
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Rate, Seconds
from ringwright.model.shortest_paths import UNREACHED
from ringwright.model.topology import RANK, SWITCH, Topology
from ringwright.model.wiring import MOST_LINKS, Names, Wires, packed

if TYPE_CHECKING:
    import numpy as np


def dragonfly(
    groups: int,
    routers: int,
    ranks: int,
    *,
    rate: Rate = 25e9,
    latency_s: Seconds = 0.5e-6,
    local_rate: Rate | None = None,
    global_rate: Rate | None = None,
    local_latency_s: Seconds = HOP_S,
    global_latency_s: Seconds = 0.5e-6,
) -> Topology:
    """Return groups x routers (a group) x ranks (a router); bytes/s and seconds of ports, local and global links.

    The link between groups g and h hangs on router (h - g - 1) mod groups // ceil((groups - 1) / routers) of group g.
    Routes are minimal: at most one local hop, the global link, one local hop. Local and global links have the rate of a
    port unless given. Defaults: 200 Gb/s (Slingshot data sheet), 0.5 us a port, 0.2 us local and 0.5 us global
    (50 m of fibre and two switches; assumed). Raises UsageError for sizes below 1.
    """
    import numpy as np

    if min(groups, routers, ranks) < 1 or groups * routers * (ranks + routers + groups) > MOST_LINKS:
        raise UsageError(f"a dragonfly of {groups}x{routers}x{ranks} does not exist", remedy="dragonfly:9x4x2")
    n, total = groups * routers * ranks, groups * routers
    paths = DragonflyPaths(n, groups, routers, ranks)
    wires, rank = Wires(), np.arange(n)
    wires.there_and_back(rank, n + rank // ranks, rate, latency_s, "nic")
    for by in range(1, routers):
        router = np.arange(total)
        there = router // routers * routers + (router + by) % routers
        wires.one_way(n + router, n + there, local_rate or rate, local_latency_s, "local")
    here, there = (each[np.triu_indices(groups, 1)] for each in np.indices((groups, groups)))
    if groups > 1:
        ends = (paths.gateway(here, there), paths.gateway(there, here))
        wires.there_and_back(*ends, global_rate or rate, global_latency_s, "global")
    kinds = np.full(n + total, SWITCH, np.uint8)
    kinds[:n] = RANK
    return wires.topology(
        f"dragonfly:{groups}x{routers}x{ranks}",
        n,
        kinds,
        paths=paths,
        hosts=rank,
        names=Names(("rank{}", (n,)), ("group{}/router{}", (groups, routers))),
        axes=(("rank", ranks), ("router", routers), ("group", groups)),
        is_symmetric=routers == 1,
        provenance="200 Gb/s ports (Slingshot data sheet); latencies assumed, unless given",
    )


@dataclass(frozen=True)
class DragonflyPaths:
    """Minimal routes."""

    n: int
    groups: int
    routers: int
    ranks: int

    def gateway(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """Return the router of group ``here`` that holds the link to group ``there``.

        int64 node numbers of shape (pairs,).
        """
        each = max(1, -(-(self.groups - 1) // self.routers))
        nodes: np.ndarray = self.n + here * self.routers + (there - here - 1) % self.groups // each
        return nodes

    def __call__(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes on the route of each pair."""
        import numpy as np

        first, last = self.n + src // self.ranks, self.n + dst // self.ranks
        here, there = src // (self.ranks * self.routers), dst // (self.ranks * self.routers)
        away = here != there
        # The gateway of a group towards itself is none of its routers.
        out = np.where(away, self.gateway(here, there), UNREACHED)
        into = np.where(away, self.gateway(there, here), UNREACHED)
        columns = (
            src,
            np.where(src != dst, first, UNREACHED),
            np.where(out != first, out, UNREACHED),
            np.where(into != last, into, UNREACHED),
            np.where((src != dst) & (first != last), last, UNREACHED),
            np.where(src != dst, dst, UNREACHED),
        )
        return packed(np.stack(columns, axis=1))
