"""The network between endpoints: leaves and spines, by rail or by neighbourhood, with static or hashed routes.

Endpoint e is member ``e // rails`` of rail ``e % rails``: with one rail, neighbours share a leaf; with eight, the NICs of
the same number do (rail-optimised). Every leaf takes ``per_leaf`` members and has ``spines`` uplinks, one to each spine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ringwright.fabrics._capabilities import SWITCHES, adding
from ringwright.ground.errors import UsageError
from ringwright.ground.hashing import STEP, mixed
from ringwright.ground.knobs import Choices, Ports, Range, Ratio, Seconds, Seed
from ringwright.model.shortest_paths import UNREACHED

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.wiring import Wires

PacketBytes = Annotated[int, Range(64, 1 << 20, "B")]  # data in a packet: the MTU less its headers
PACKET_BYTES = 4096
HeaderBytes = Annotated[int, Range(0, 4096, "B")]
LAYOUTS = ("rails", "leaf-spine", "switch")
ROUTINGS = ("d-mod-k", "ecmp")
UNLUCKY = "unlucky"  # no knob of a fabric: what the fault of this name makes of a hash
LEAF_PORTS = 32  # towards the ranks: half of a switch with 64 ports (Quantum-2, Tomahawk 4 and 5)
HOP_S = 0.2e-6  # leaf to spine: about 130 ns through a switch (Quantum data sheets) and a few metres of cable


@dataclass(frozen=True)
class Network:
    """What joins boxes. ``layout`` None: what the product comes with; ``per_leaf`` and ``spines`` None: from the size.

    ``oversubscription`` divides the sum of a leaf's uplinks; ``pxn``: a message changes the rail inside its box (over
    NVLink, as NCCL does since 2.12) instead of in the spine; ``sharp``: leaves and spines can add and multicast, as
    those of ``switches`` quantum-2 can.
    Each packet has ``packet_bytes`` of data and ``header_bytes`` beside;
    ``store_and_forward``: a switch takes a packet in whole before it passes it on (a message shorter than one counts as one).
    """

    layout: Annotated[str, Choices(LAYOUTS)] | None = None
    per_leaf: Ports | None = None
    spines: Ports | None = None
    oversubscription: Ratio = 1.0
    routing: Annotated[str, Choices(ROUTINGS)] = "d-mod-k"
    seed: Seed = 0
    spine_latency_s: Seconds = HOP_S
    pxn: bool = True
    sharp: bool = False
    switches: Annotated[str, Choices(SWITCHES)] = "plain"
    packet_bytes: PacketBytes = PACKET_BYTES
    header_bytes: HeaderBytes = 0
    store_and_forward: bool = False

    @property
    def goodput(self) -> float:
        """Share of a link's bytes that are data: the rest are headers."""
        return self.packet_bytes / (self.packet_bytes + self.header_bytes)

    @property
    def framing(self) -> dict[str, int]:
        """Fields of a Topology that say which packets it carries, where that is not left to its transport."""
        given = self.header_bytes or self.packet_bytes != PACKET_BYTES
        return {"packet_bytes": self.packet_bytes, "header_bytes": self.header_bytes} if given else {}

    def taken_in_s(self, rate: float) -> float:
        """Return the seconds that a switch takes a packet in before it goes on, over a link of ``rate`` (bytes/s)."""
        return (self.packet_bytes + self.header_bytes) / rate if self.store_and_forward else 0.0


def network(**given: Any) -> Network:
    """Return the options, checked; raise UsageError where one makes no sense."""
    try:
        built = Network(**given)
    except TypeError as error:
        raise UsageError(str(error).replace("Network.__init__()", "the network")) from error
    if built.layout not in (None, *LAYOUTS):
        raise UsageError(f"'{built.layout}' is no layout of a network", remedy=f"one of: {', '.join(LAYOUTS)}")
    if built.routing not in ROUTINGS:
        raise UsageError(f"'{built.routing}' is no routing", remedy=f"one of: {', '.join(ROUTINGS)}")
    if not built.oversubscription > 0:
        raise UsageError(f"oversubscription {built.oversubscription:g} is not above 0")
    adding(built.switches, sharp=built.sharp)
    for name in ("per_leaf", "spines"):
        value = getattr(built, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UsageError(f"{name} {value} is not 1 or more")
    return built


def spread(src: np.ndarray, dst: np.ndarray, seed: int, routes: int, routing: str = "ecmp") -> np.ndarray:
    """Return which of equal routes each pair takes, by a seeded hash (splitmix64), as ECMP switches choose by flow.

    All take the first one where the hash is ``unlucky``. int64 of the shape of ``src``.
    """
    import numpy as np

    if routing == UNLUCKY:
        return np.zeros(np.shape(src), np.int64)

    state = src.astype(np.uint64) * np.uint64(STEP) + dst.astype(np.uint64) + np.uint64(seed % (1 << 63))
    return (mixed(state) % np.uint64(routes)).astype(np.int64)


@dataclass(frozen=True)
class Clos:
    """Leaves and spines over endpoints; nodes are numbered from ``first`` on, leaves before spines."""

    endpoints: int
    rails: int
    per_leaf: int
    spines: int  # 0 where one leaf is all
    routing: str
    seed: int
    first: int

    @property
    def units(self) -> int:
        """Groups of members that share leaves."""
        return -(-(self.endpoints // self.rails) // self.per_leaf)

    @property
    def leaves(self) -> int:
        """Leaf switches."""
        return self.units * self.rails

    @property
    def is_symmetric(self) -> bool:
        """Whether members, units and rails may be turned round without a difference."""
        full = self.endpoints == self.leaves * self.per_leaf
        routes = self.spines <= 1 or (self.routing == "d-mod-k" and self.per_leaf % self.spines == 0)
        return full and routes

    def leaf(self, endpoint: np.ndarray) -> np.ndarray:
        """Return the leaf of each endpoint."""
        nodes: np.ndarray = self.first + endpoint // self.rails // self.per_leaf * self.rails + endpoint % self.rails
        return nodes

    def between(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return (pairs, 3): leaf, spine, leaf; the latter two are -1 below one leaf."""
        import numpy as np

        up, down = self.leaf(src), self.leaf(dst)
        if not self.spines:
            return up[:, None]
        if self.routing != "d-mod-k":
            spine = spread(src, dst, self.seed, self.spines, self.routing)
        else:
            spine = dst // self.rails % self.per_leaf % self.spines
        far = up != down
        spine = np.where(far, self.first + self.leaves + spine, UNREACHED)
        return np.stack((up, spine, np.where(far, down, UNREACHED)), axis=1)

    def wire(self, wires: Wires, nodes: np.ndarray, rate: float, latency_s: float, options: Network) -> None:
        """Join the endpoints' nodes to leaves (class ``nic``) and leaves to spines (class ``spine``)."""
        import numpy as np

        leaves = self.leaf(np.arange(self.endpoints))
        wires.one_way(nodes, leaves, rate * options.goodput, latency_s, "nic")
        wires.one_way(leaves, nodes, rate * options.goodput, latency_s + options.taken_in_s(rate), "nic")
        if self.spines:
            leaf, spine = np.divmod(np.arange(self.leaves * self.spines), self.spines)
            up_rate = self.per_leaf * rate / (options.oversubscription * self.spines)
            ends = (self.first + leaf, self.first + self.leaves + spine)
            latency_s = options.spine_latency_s + options.taken_in_s(up_rate)
            wires.there_and_back(*ends, up_rate * options.goodput, latency_s, "spine")


def clos(endpoints: int, rails: int, layout: str, options: Network, first: int, per_box: int = 1) -> Clos:
    """Return the network of a layout; with ``leaf-spine``, the ``per_box`` endpoints of a chassis stay below one leaf."""
    members = endpoints // rails
    if layout == "switch":
        rails, members = 1, endpoints
        return Clos(endpoints, 1, members, 0, options.routing, options.seed, first)
    per_leaf = options.per_leaf or per_box * default_leaf(members // per_box, LEAF_PORTS // per_box, layout != "rails")
    per_leaf = min(per_leaf, members)
    spines = options.spines or max(1, round(per_leaf / options.oversubscription))
    lonely = -(-members // per_leaf) * rails == 1
    return Clos(endpoints, rails, per_leaf, 0 if lonely else spines, options.routing, options.seed, first)


def default_leaf(members: int, most: int, cuts: bool) -> int:
    """Return members to a leaf: at most ``most``, an even cut where one is near, two leaves or more where it ``cuts``."""
    most = max(1, min(most, members // 2 if cuts else members))
    even = (count for count in range(most, most // 2, -1) if members % count == 0)
    return next(even, most)
