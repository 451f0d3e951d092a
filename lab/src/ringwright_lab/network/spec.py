"""From a Topology to namespaces: which node becomes what, which interface carries which link, which address a rank has.

Trees whose ranks are leaves (one switch, leaves below one spine) become kernel bridges in one subnet: *bridged*. Ranks joined to
each other (a ring, a line, a torus) forward for their neighbours by static routes along the Topology's own: *routed*, so that a
ring uses both its directions and has no loop to break.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model.topology import RANK, SWITCH, Topology

MOST_RANKS = 64
MOST_RATE = 1.25e9  # bytes/s; a bridge between namespaces passes 3 to 4 Gbit/s here, and rates are to be the limit
LEAST_RATE = 1e3
KINDS = "switch:4,rate=100Mb/s; leaf-spine:8,spines=1,rate=100Mb/s; ring:4,rate=100Mb/s; torus:2x2x2,rate=20Mb/s"


@dataclass(frozen=True)
class Port:
    """An interface of a node: the end of a cable, and the start of one directed link."""

    node: int
    peer: int
    name: str
    link: int  # the link that leaves here
    rate: float  # bytes/s
    mac: str


@dataclass(frozen=True)
class LabSpec:
    """A Topology the lab can build. ``ports`` are those of link 0, 1, ...: link k leaves through ``ports[k]``."""

    topology: Topology
    ports: tuple[Port, ...]
    is_routed: bool

    @cached_property
    def reverse(self) -> tuple[int, ...]:
        """For each link the one in the other direction of its cable."""
        at = {(port.node, port.peer): port.link for port in self.ports}
        return tuple(at[port.peer, port.node] for port in self.ports)

    @property
    def n(self) -> int:
        """Ranks."""
        return self.topology.n_ranks

    def ports_of(self, node: int) -> list[Port]:
        """Return the interfaces of a node."""
        return [port for port in self.ports if port.node == node]

    def link_name(self, link: int) -> str:
        """Return ``rank0>switch``."""
        port = self.ports[link]
        return f"{self.topology.label(port.node)}>{self.topology.label(port.peer)}"

    def next_hops(self, rank: int) -> dict[int, Port]:
        """Return the port through which each other rank is reached from this one, along the Topology's routes."""
        import numpy as np

        others = np.array([other for other in range(self.n) if other != rank])
        starts, links = self.topology.routes(np.full(len(others), rank), others)
        return {int(other): self.ports[int(links[start])] for other, start in zip(others, starts, strict=False)}


def read(spec: str | Topology) -> LabSpec:
    """Return what to build for a fabric such as ``switch:4,rate=100Mb/s``; raise UsageError where the lab cannot."""
    topology = fabric(spec) if isinstance(spec, str) else spec
    _check_kinds(topology)
    ends = list(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
    _check_rates(topology, ends)
    is_routed = not (topology.kinds == SWITCH).any()
    _check_shape(topology, ends, is_routed=is_routed)
    return LabSpec(topology, _ports(topology, ends), is_routed)


def _refuse(topology: Topology, what: str, remedy: str = KINDS) -> UsageError:
    return UsageError(what, where=topology.name, remedy=remedy)


def _check_kinds(topology: Topology) -> None:
    if not 2 <= topology.n_ranks <= MOST_RANKS:
        raise _refuse(topology, f"the lab runs 2 to {MOST_RANKS} ranks on one machine, not {topology.n_ranks:,}")
    if not ((topology.kinds == RANK) | (topology.kinds == SWITCH)).all():
        raise _refuse(topology, "the lab builds ranks and switches, not nodes with NICs or aggregators")
    if topology.groups:
        raise _refuse(topology, f"the lab has no capacity that links share ({topology.groups[0].name})")
    if topology.aggregators:
        raise _refuse(topology, "the lab's switches are the kernel's bridges: they do not add", "leave out sharp=true")


def _check_rates(topology: Topology, ends: list[tuple[int, int]]) -> None:
    for (here, there), rate in zip(ends, topology.rate.tolist(), strict=True):
        if not LEAST_RATE <= rate <= MOST_RATE:
            what = f"{topology.label(here)}>{topology.label(there)} has {rate * 8 / 1e6:,.3g} Mbit/s"
            limits = f"{LEAST_RATE * 8 / 1e3:g} kbit/s to {MOST_RATE * 8 / 1e9:g} Gbit/s"
            raise _refuse(topology, f"{what}; the lab has {limits}", "rate=100Mb/s, so that the wire is the limit")


def _check_shape(topology: Topology, ends: list[tuple[int, int]], *, is_routed: bool) -> None:
    if len(set(ends)) < len(ends) or {(there, here) for here, there in ends} != set(ends):
        raise _refuse(topology, "the lab joins two nodes by one cable with both directions")
    neighbours: dict[int, list[int]] = {node: [] for node in range(topology.n_nodes)}
    for here, there in ends:
        neighbours[here].append(there)
    reached, front = {0}, [0]
    while front:
        front = [there for here in front for there in neighbours[here] if there not in reached]
        reached.update(front)
    if len(reached) < topology.n_nodes:
        raise _refuse(topology, f"{topology.label(min(set(neighbours) - reached))} is not joined to the rest")
    if is_routed:
        _check_routes(topology)
        return
    if len(ends) // 2 != topology.n_nodes - 1:
        remedy = "leaf-spine with spines=1 is a tree" if topology.name.startswith("leaf-spine") else KINDS
        raise _refuse(topology, "the lab's switches form trees, and this fabric has more ways than one", remedy)
    if any(len(neighbours[rank]) != 1 for rank in range(topology.n_ranks)):
        raise _refuse(topology, "where there are switches, every rank has to hang on one of them")


def _check_routes(topology: Topology) -> None:
    """Refuse routes that static ones cannot follow: a rank on the way knows where a packet goes, not where it comes from."""
    import numpy as np

    pairs = [(here, there) for here in range(topology.n_ranks) for there in range(topology.n_ranks) if here != there]
    starts, links = topology.routes(*np.array(pairs, np.int64).T)
    onward: dict[tuple[int, int], int] = {}  # (rank on the way, target) -> link
    for number, (_, there) in enumerate(pairs):
        for link in links[starts[number] : starts[number + 1]].tolist():
            onto = (int(topology.src[link]), there)
            if onward.setdefault(onto, link) != link:
                name, target = topology.label(onto[0]), topology.label(there)
                raise _refuse(topology, f"{name} sends on to {target} by two ways, a static route has one")


def _ports(topology: Topology, ends: list[tuple[int, int]]) -> tuple[Port, ...]:
    used = [0] * topology.n_nodes
    ports = []
    for link, (here, there) in enumerate(ends):
        number = used[here]
        used[here] += 1
        name = f"eth{number}" if here < topology.n_ranks else f"p{number}"
        mac = f"02:52:{here >> 8:02x}:{here & 255:02x}:00:{number:02x}"
        ports.append(Port(here, there, name, link, float(topology.rate[link]), mac))
    return tuple(ports)


def address(rank: int) -> str:
    """Return a rank's address on the network under test."""
    return f"10.77.{(rank + 1) >> 8}.{(rank + 1) & 255}"


def control_address(rank: int) -> str:
    """Return a rank's address on the control network."""
    return f"10.78.{(rank + 1) >> 8}.{(rank + 1) & 255}"


def switch_address(spec: LabSpec, node: int) -> str:
    """Return the address of a switch that adds, on the network under test."""
    return f"10.77.254.{node - spec.n + 1}"


def switch_mac(node: int) -> str:
    """Return the hardware address of a switch that adds."""
    return f"02:54:{node >> 8:02x}:{node & 255:02x}:00:00"


LAUNCHER_ADDRESS = "10.78.255.254"
