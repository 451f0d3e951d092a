"""Dragonfly+: groups that are leaf-spine networks, one global link between spines of every two groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.fabrics._network import HOP_S
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Ports, Rate, Seconds
from ringwright.model.shortest_paths import UNREACHED
from ringwright.model.topology import RANK, SWITCH, Topology
from ringwright.model.wiring import MOST_LINKS, Names, Wires, packed

if TYPE_CHECKING:
    import numpy as np


def dragonfly_plus(
    groups: int,
    leaves: int,
    ranks: int,
    *,
    spines: Ports | None = None,
    rate: Rate = 50e9,
    latency_s: Seconds = 0.5e-6,
    global_rate: Rate | None = None,
    spine_latency_s: Seconds = HOP_S,
    global_latency_s: Seconds = 0.5e-6,
) -> Topology:
    """Return groups x leaves (a group) x ranks (a leaf); bytes/s and seconds of ports, uplinks and global links.

    A group has as many spines as a leaf has ranks unless given, one uplink of the port's rate from each leaf to each. The
    link between groups g and h hangs on spine (h - g - 1) mod groups // ceil((groups - 1) / spines) of group g. Routes are
    minimal; within a group the target's place below its leaf chooses the spine. Defaults: 400 Gb/s, 0.5 us a port,
    0.2 us an uplink, 0.5 us a global link (assumed). Raises UsageError for sizes below 1.
    """
    import numpy as np

    width = ranks if spines is None else spines
    if min(groups, leaves, ranks, width) < 1 or groups * leaves * (ranks + width) + groups**2 > MOST_LINKS:
        raise UsageError(f"a dragonfly+ of {groups}x{leaves}x{ranks} does not exist", remedy="dragonfly-plus:9x4x4")
    n, total = groups * leaves * ranks, groups * leaves
    paths = DragonflyPlusPaths(n, groups, leaves, ranks, width)
    wires, rank = Wires(), np.arange(n)
    wires.there_and_back(rank, n + rank // ranks, rate, latency_s, "nic")
    leaf, spine = (each.reshape(-1) for each in np.broadcast_arrays(np.arange(total)[:, None], np.arange(width)))
    wires.there_and_back(n + leaf, paths.spine(leaf // leaves, spine), rate, spine_latency_s, "spine")
    here, there = (each[np.triu_indices(groups, 1)] for each in np.indices((groups, groups)))
    if groups > 1:
        ends = (paths.gateway(here, there), paths.gateway(there, here))
        wires.there_and_back(*ends, global_rate or rate, global_latency_s, "global")
    kinds = np.full(n + total + groups * width, SWITCH, np.uint8)
    kinds[:n] = RANK
    return wires.topology(
        f"dragonfly-plus:{groups}x{leaves}x{ranks}",
        n,
        kinds,
        paths=paths,
        hosts=rank,
        names=Names(("rank{}", (n,)), ("group{}/leaf{}", (groups, leaves)), ("group{}/spine{}", (groups, width))),
        axes=(("rank", ranks), ("leaf", leaves), ("group", groups)),
        is_symmetric=ranks % width == 0 and groups == 1,
        provenance="400 Gb/s ports (ConnectX-7 data sheet); latencies assumed, unless given",
    )


@dataclass(frozen=True)
class DragonflyPlusPaths:
    """Minimal routes."""

    n: int
    groups: int
    leaves: int
    ranks: int
    spines: int

    def spine(self, group: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return a spine of each group. int64 node numbers of the shape of ``group``."""
        nodes: np.ndarray = self.n + self.groups * self.leaves + group * self.spines + number
        return nodes

    def gateway(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """Return the spine of group ``here`` that holds the link to group ``there``.

        int64 node numbers of shape (pairs,).
        """
        each = max(1, -(-(self.groups - 1) // self.spines))
        return self.spine(here, (there - here - 1) % self.groups // each)

    def __call__(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes on the route of each pair."""
        import numpy as np

        first, last = src // self.ranks, dst // self.ranks
        here, there = first // self.leaves, last // self.leaves
        away, apart = here != there, first != last
        # ceil((groups - 1) / spines) links to a spine: the group's own number would fall one beyond the last.
        up = np.where(away, self.gateway(here, there), self.spine(here, dst % self.ranks % self.spines))
        columns = (
            src,
            np.where(src != dst, self.n + first, UNREACHED),
            np.where(apart, up, UNREACHED),
            np.where(away, self.gateway(there, here), UNREACHED),
            np.where(apart, self.n + last, UNREACHED),
            np.where(src != dst, dst, UNREACHED),
        )
        return packed(np.stack(columns, axis=1))
