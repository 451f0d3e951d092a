"""A fat tree of three tiers (edge, aggregation, core) built from switches of one radix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ringwright.fabrics._capabilities import SWITCHES, adding
from ringwright.fabrics._network import HOP_S, ROUTINGS, spread
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices, Range, Rate, Ratio, Seconds, Seed
from ringwright.model.shortest_paths import UNREACHED
from ringwright.model.topology import RANK, SWITCH, Topology
from ringwright.model.wiring import MOST_NODES, Names, Wires, packed

if TYPE_CHECKING:
    import numpy as np


# long: a knob in each line, then the tree tier by tier
def fat_tree(
    n: int,
    *,
    radix: Annotated[int, Range(2, 1024)] | None = None,
    rate: Rate = 50e9,
    latency_s: Seconds = 0.5e-6,
    oversubscription: Ratio = 1.0,
    routing: Annotated[str, Choices(ROUTINGS)] = "d-mod-k",
    seed: Seed = 0,
    spine_latency_s: Seconds = HOP_S,
    sharp: bool = False,
    switches: Annotated[str, Choices(SWITCHES)] = "plain",
) -> Topology:
    """Return n ranks; ``rate`` (bytes/s) and ``latency_s`` are those of a rank's port.

    ``radix`` k: ports of a switch, even; the smallest k with k^3/4 >= n unless given. A pod has k/2 edge switches with k/2
    ranks each and k/2 aggregation switches; k^2/4 core switches join the pods. ``oversubscription`` divides the rate of
    the uplinks of edge switches. d-mod-k: the target's port chooses the aggregation switch, its edge switch the core.
    Defaults: 400 Gb/s ports, 0.5 us for NIC, cable and switch, 0.2 us between switches. Raises UsageError where k is odd,
    or too small for n.
    """
    import numpy as np

    if not 1 <= n <= MOST_NODES:
        raise UsageError(f"a fat tree of {n} ranks does not exist", remedy="fat-tree:1024")
    if radix is None:
        radix = next(even for even in range(2, 1 << 12, 2) if even**3 >= 4 * n)
    half = radix // 2
    if half < 1 or radix % 2 or n > radix * half * half or not oversubscription > 0 or routing not in ROUTINGS:
        raise UsageError(
            f"no fat tree of {n} ranks with radix={radix}, oversubscription={oversubscription}, routing={routing}",
            remedy=f"an even radix with radix^3/4 >= {n}; routing one of: {', '.join(ROUTINGS)}",
        )
    pods = -(-n // (half * half))
    able = adding(switches, sharp=sharp)
    tree = FatTreePaths(n, half, pods, routing, seed)
    wires = Wires()
    ranks, edges, cores = np.arange(n), np.arange(pods * half), np.arange(half * half)
    wires.there_and_back(ranks, n + ranks // half, rate, latency_s, "nic")
    up, to = (each.reshape(-1) for each in np.broadcast_arrays(edges[:, None], np.arange(half)))
    aggregation = tree.aggregation(up // half, to)
    wires.there_and_back(n + up, aggregation, rate / oversubscription, spine_latency_s, "edge")
    pod, core = (each.reshape(-1) for each in np.broadcast_arrays(np.arange(pods)[:, None], cores))
    if pods > 1:
        ends = (tree.aggregation(pod, core // half), tree.core(core))
        wires.there_and_back(*ends, rate / oversubscription, spine_latency_s, "spine")
    kinds = np.full(n + 2 * pods * half + half * half, SWITCH, np.uint8)
    kinds[:n] = RANK
    is_whole = n == pods * half * half
    return wires.topology(
        f"fat-tree:{n}",
        n,
        kinds,
        paths=tree,
        hosts=ranks,
        is_symmetric=is_whole and routing == "d-mod-k",
        names=Names(
            ("rank{}", (n,)), ("edge{}", (pods * half,)), ("aggregation{}", (pods * half,)), ("core{}", (half * half,))
        ),
        axes=(("rank", half), ("edge", half), ("pod", pods)) if is_whole else (("rank", n),),
        aggregators={} if able is None else dict.fromkeys(range(n, len(kinds)), able),
        provenance="400 Gb/s ports (ConnectX-7 data sheet), 0.5 us a port and 0.2 us between switches, unless given",
    )


@dataclass(frozen=True)
class FatTreePaths:
    """Up to the first common switch and down again."""

    n: int
    half: int
    pods: int
    routing: str
    seed: int

    def aggregation(self, pod: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return an aggregation switch of each pod. int64 node numbers of the shape of ``pod``."""
        nodes: np.ndarray = self.n + (self.pods + pod) * self.half + number
        return nodes

    def core(self, number: np.ndarray) -> np.ndarray:
        """Return a core switch; those of one aggregation number are neighbours.

        int64 node numbers of the shape of ``number``.
        """
        return self.n + 2 * self.pods * self.half + number

    def __call__(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes on the route of each pair."""
        import numpy as np

        half = self.half
        up, down = src // half, dst // half
        choice = (
            dst % (half * half) if self.routing == "d-mod-k" else spread(src, dst, self.seed, half * half, self.routing)
        )
        number, further = choice % half, choice // half
        leaves, far = up != down, up // half != down // half
        columns = (
            src,
            np.where(src != dst, self.n + up, UNREACHED),
            np.where(leaves, self.aggregation(up // half, number), UNREACHED),
            np.where(far, self.core(number * half + further), UNREACHED),
            np.where(far, self.aggregation(down // half, number), UNREACHED),
            np.where(leaves, self.n + down, UNREACHED),
            np.where(src != dst, dst, UNREACHED),
        )
        return packed(np.stack(columns, axis=1))
