"""The Topology: nodes, directed links with rate and latency, capacities that links share, routes, faults over time.

Nodes 0..n_ranks-1 are the ranks; switches, NICs and aggregators follow. Everything is arrays, so that a fabric of 100,000
ranks is a few megabytes. Rates are bytes per second, times seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.ground.notebook import card, line
from ringwright.model.shortest_paths import UNREACHED, ShortestPaths

if TYPE_CHECKING:
    import numpy as np

RANK, NIC, SWITCH, AGGREGATOR = range(4)
KINDS = ("rank", "nic", "switch", "aggregator")
ORDERS = ("arrival", "fixed")  # in which an aggregating node adds
FAULT_FIELDS = ("rate_factor", "latency_s", "loss", "compute_factor", "ber", "buffer_bytes")
NVLINK = "nvlink"  # class of the links that make several hosts one domain

# Nodes on the route from each src to each dst: int64 of shape (pairs, longest + 1), padded with -1 behind the target.
Paths = Callable[["np.ndarray", "np.ndarray"], "np.ndarray"]


class Named(Protocol):
    """What was measured elsewhere, and has a name."""

    @property
    def name(self) -> str:
        """What it is called."""


@dataclass(frozen=True)
class Capability:
    """What an aggregating node can do.

    Parameters
    ----------
    ops, dtypes
        Reductions and element types that it adds.
    fanin_max
        Contributions to one result.
    memory_bytes, payload_bytes
        Room for the slots of all streams, and the most data of one packet.
    reduce_rate
        Bytes/s that it adds, over all ports.
    multicast
        Whether it copies a result to many.
    latency_s
        Seconds that adding takes.
    concurrency
        Streams (trees of a program) that it serves at a time.
    passes
        How often a packet goes through its pipeline: a port takes in that part of its rate.
    codecs
        Number formats that it adds (``ringwright.model.codecs.formats.codecs``).
    order
        In which order it adds: as contributions arrive, or in a fixed one (``ORDERS``).
    provenance
        Where these figures come from.
    """

    ops: tuple[str, ...] = ("sum",)
    dtypes: tuple[str, ...] = ("float32", "int32")
    fanin_max: int = 64
    memory_bytes: int = 1 << 20
    reduce_rate: float = float("inf")
    multicast: bool = True
    latency_s: float = 0.0
    payload_bytes: int = 1024
    concurrency: int = 64
    passes: int = 1
    codecs: tuple[str, ...] = ("native",)
    order: str = "arrival"
    provenance: str = ""


@dataclass(frozen=True)
class SharedCapacity:
    """A capacity that several links share: an NVSwitch plane, a PCIe switch, a NIC's two directions."""

    name: str
    rate: float
    links: np.ndarray

    def __repr__(self) -> str:
        return line(f"SharedCapacity({self.name}: {len(self.links):,} links share {self.rate / 1e9:,.6g} GB/s)")


@dataclass(frozen=True)
class Fault:
    """From ``time_s`` on, ``target`` (kind and number) has another value of ``field``; factors are of the healthy value."""

    time_s: float
    kind: str  # link, rank
    target: int
    field: str
    value: float


@dataclass(frozen=True)
class Topology:
    """A machine. Links are directed and given by arrays of one length; ``link_class`` indexes ``classes``.

    ``axes`` name the mesh of the ranks (the first runs fastest), along which the fabric looks the same from every rank
    where ``is_symmetric``; engines check that before they use it.

    Parameters
    ----------
    name, n_ranks
        What to call it, and how many of its nodes are ranks (the first ones).
    kinds
        Kind of each node, uint8 of shape (nodes,): rank, nic, switch or aggregator.
    src, dst
        Ends of each directed link, integers of shape (links,).
    rate, latency_s
        Bytes/s and seconds of each link, float64 of shape (links,).
    link_class, classes
        Class of each link, integers of shape (links,) into the names ``classes``.
    groups
        Capacities that several links share.
    axes, is_symmetric
        The mesh of the ranks, and whether the fabric looks the same from each.
    hosts
        Host of each rank, integers of shape (n_ranks,), or None.
    names
        Name of each node, or None.
    paths
        The fabric's own routes; None: shortest paths.
    loss
        Share of packets that each link loses, float64 of shape (links,), or None.
    message_s, occupying, reduce_rate
        Software seconds of a message by link class, which of them occupy the sender, and bytes/s that a rank adds up.
    aggregators, faults
        Nodes that add in the network; what breaks, when.
    fault_lines, fault_seed
        The lines that its faults were asked by, and the seed of what these left to chance: for whoever says what was asked.
    transport
        What carries messages between hosts (``ringwright.costs.transports``); empty where it is not known.
    protocol
        How its packets are sent (``ringwright.costs.protocols``); empty for what is usual of the transport.
    packet_bytes, header_bytes
        Data and headers of a packet between hosts, where the fabric says them (rates leave such headers out); 0: the protocol's.
    provenance, calibration
        Where rates and latencies come from; what was measured and put on them (``ringwright.costs.calibration``), or None.

    Examples
    --------
    >>> import ringwright
    >>> box = ringwright.fabric("dgx-h100:2")
    >>> box
    Topology(dgx-h100:2: 16 ranks, 44 nodes, 128 links)
    >>> box.label(0), box.rate.dtype, box.rate.shape
    ('node0/gpu0', dtype('float64'), (128,))
    """

    name: str
    n_ranks: int
    kinds: np.ndarray  # uint8 per node
    src: np.ndarray
    dst: np.ndarray
    rate: np.ndarray
    latency_s: np.ndarray
    link_class: np.ndarray
    classes: tuple[str, ...]
    groups: tuple[SharedCapacity, ...] = ()
    axes: tuple[tuple[str, int], ...] = ()
    hosts: np.ndarray | None = None  # host number of each rank
    names: Sequence[str] | None = None
    paths: Paths | None = field(default=None, repr=False)
    loss: np.ndarray | None = None
    message_s: Mapping[str, float] = field(
        default_factory=dict
    )  # software cost of a message, per class of its slowest link
    occupying: tuple[str, ...] = ()  # classes whose message_s is work of the sender, one message at a time; else delay
    reduce_rate: float = float("inf")  # bytes/s that a rank can add up
    aggregators: Mapping[int, Capability] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    is_symmetric: bool = False
    transport: str = ""
    protocol: str = ""
    packet_bytes: int = 0
    header_bytes: int = 0
    provenance: str = ""  # where rates and latencies come from
    fault_lines: tuple[str, ...] = ()
    fault_seed: int = 0
    calibration: Named | None = None

    def __repr__(self) -> str:
        faults = f", {len(self.faults):,} faults" if self.faults else ""
        size = f"{self.n_ranks:,} ranks, {self.n_nodes:,} nodes, {len(self.src):,} links{faults}"
        return line(f"Topology({self.name}: {size})")

    def _repr_html_(self) -> str:
        links = {name: self._links(number) for number, name in enumerate(self.classes)}
        facts: dict[str, object] = {
            "ranks": self.n_ranks,
            "hosts": None if self.hosts is None else int(self.hosts.max()) + 1,
            "nodes": self.n_nodes,
            **{f"{name} links": text for name, text in links.items()},
            "shared capacities": len(self.groups) or None,
            "adds in the network at": len(self.aggregators) or None,
            "faults": len(self.faults) or None,
            "transport between hosts": self.transport or None,
            "rates from": self.provenance,
        }
        return card(f"Topology: {self.name}", facts)

    def _links(self, number: int) -> str:
        """Say how many links a class has and how fast they are."""
        here = self.link_class == number
        if not here.any():
            return "none"
        slow, fast = (float(bound) / 1e9 for bound in (self.rate[here].min(), self.rate[here].max()))
        rates = f"{fast:,.6g}" if slow == fast else f"{slow:,.6g} to {fast:,.6g}"
        return f"{int(here.sum()):,} at {rates} GB/s, {float(self.latency_s[here].max()) * 1e6:,.4g} us"

    @property
    def n_nodes(self) -> int:
        """Ranks and everything else."""
        return len(self.kinds)

    @property
    def n_links(self) -> int:
        """Directed links."""
        return len(self.src)

    @property
    def nics_per_node(self) -> int:
        """NICs of a node, or its ranks where none are drawn."""
        return self._nics_of(self.hosts)

    @property
    def nics_per_domain(self) -> int:
        """NICs of the hosts that one NVLink fabric joins, or their ranks where none are drawn."""
        return self._nics_of(self.domains)

    def _nics_of(self, parts: np.ndarray | None) -> int:
        count = 1 if parts is None else int(parts.max()) + 1
        return max(1, round((int((self.kinds == NIC).sum()) or self.n_ranks) / count))

    @cached_property
    def domains(self) -> np.ndarray | None:
        """NVLink domain of each rank, int64 of shape (n_ranks,): a host, or all hosts that NVLinks join; None without hosts.

        In a rack such as GB200 NVL72 the domain is the rack and a host is one of its trays.
        """
        import numpy as np

        if self.hosts is None:
            return None
        domain = np.asarray(self.hosts, np.int64)
        of_class = (
            self.link_class == self.classes.index(NVLINK) if NVLINK in self.classes else np.zeros(self.n_links, bool)
        )
        nvlinks = np.flatnonzero(of_class)
        at = np.full(self.n_nodes, self.n_nodes)  # of each node the lowest host that was found to reach it
        at[: self.n_ranks] = domain
        while len(nvlinks):
            before = at.copy()
            np.minimum.at(at, self.dst[nvlinks], before[self.src[nvlinks]])
            lowest = np.arange(int(domain.max()) + 1)
            np.minimum.at(lowest, domain, at[: self.n_ranks])
            at[: self.n_ranks] = lowest[domain]
            if (at == before).all():
                break
        numbered: np.ndarray = np.unique(at[: self.n_ranks], return_inverse=True)[1].ravel().astype(np.int64)
        return numbered

    @cached_property
    def _link_keys(self) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np

        keys = self.src.astype(np.int64) * self.n_nodes + self.dst
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def link_ids(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the link from each src to each dst, or -1 (the first, where several are parallel).

        int64 of the shape of ``src``.
        """
        import numpy as np

        keys, order = self._link_keys
        wanted = np.asarray(src, np.int64) * self.n_nodes + dst
        index = np.searchsorted(keys, wanted)
        known = index < len(keys)
        known[known] = keys[index[known]] == wanted[known]
        return np.where(known, order[np.minimum(index, max(len(keys) - 1, 0))] if len(keys) else -1, UNREACHED)

    def routes(self, src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the links from each src to each dst as (starts of length n+1, links); equal ends give no link.

        int64 starts of shape (pairs + 1,) and int64 links of shape (links on all routes,).
        """
        import numpy as np

        src, dst = np.asarray(src, np.int64), np.asarray(dst, np.int64)
        nodes = self._nodes_on(src, dst)
        here, there = nodes[:, :-1].reshape(-1), nodes[:, 1:].reshape(-1)
        steps = (there >= 0) & (here >= 0)
        links = self.link_ids(here[steps], there[steps])
        lengths = steps.reshape(len(src), nodes.shape[1] - 1).sum(axis=1)
        if (links < 0).any() or ((lengths == 0) & (src != dst)).any():
            self._no_route(src, dst, lengths)
        return np.concatenate(([0], np.cumsum(lengths))), links

    def _nodes_on(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes between each pair: by the fabric's own routes between ranks, by a search where a switch is an end."""
        import numpy as np

        if self.paths is None:
            return self._search.paths(src, dst)
        between = (src < self.n_ranks) & (dst < self.n_ranks)
        if between.all():
            return self.paths(src, dst)
        paths = self._search.paths(src[~between], dst[~between])
        ranks = self.paths(src[between], dst[between]) if between.any() else paths[:0]
        nodes = np.full((len(src), max(paths.shape[1], ranks.shape[1])), UNREACHED, np.int64)
        nodes[~between, : paths.shape[1]] = paths
        nodes[between, : ranks.shape[1]] = ranks
        return nodes

    def _no_route(self, src: np.ndarray, dst: np.ndarray, lengths: np.ndarray) -> None:
        import numpy as np

        lost = np.flatnonzero((lengths == 0) & (src != dst))
        pair = int(lost[0]) if len(lost) else 0
        raise InfeasibleError(
            f"{self.name} is disconnected: no way from {self.label(int(src[pair]))} to {self.label(int(dst[pair]))}",
            where=f"{len(lost) or 1} of {len(src)} pairs",
            remedy="ringwright bound all-reduce --topology FILE",
        )

    @cached_property
    def _search(self) -> ShortestPaths:
        return ShortestPaths(self.n_nodes, self.src, self.dst, self.rate)

    def label(self, node: int) -> str:
        """Return the name of a node, such as ``node3/nic2``."""
        if self.names is not None:
            return self.names[node]
        return f"{KINDS[int(self.kinds[node])]}{node}"

    def find(self, name: str) -> int:
        """Return the node of that name; raise UsageError where none has it."""
        try:
            return (self.names or [self.label(node) for node in range(self.n_nodes)]).index(name)
        except ValueError:
            some = ", ".join(self.label(node) for node in range(min(self.n_nodes, 6)))
            raise UsageError(f"{self.name} has no '{name}'", remedy=f"names look like: {some}") from None

    @cached_property
    def memberships(self) -> tuple[np.ndarray, np.ndarray]:
        """Return for each link the shared capacities it draws on, as (starts of length links+1, group numbers).

        Both int64; the numbers are of shape (memberships,).
        """
        import numpy as np

        links = np.concatenate([group.links for group in self.groups]) if self.groups else np.zeros(0, np.int64)
        owner = np.repeat(np.arange(len(self.groups)), [len(group.links) for group in self.groups])
        order = np.argsort(links, kind="stable")
        starts = np.searchsorted(links[order], np.arange(self.n_links + 1))
        return starts, owner[order]

    def starting_at(self, time_s: float) -> Topology:
        """Return the machine with its clock set to that time: what has happened holds from the start, the rest comes later."""
        past: dict[tuple[str, int, str], Fault] = {}
        coming: list[Fault] = []
        for fault in self.faults:
            if fault.time_s <= time_s:
                past[fault.kind, fault.target, fault.field] = dataclasses.replace(fault, time_s=0.0)
            else:
                coming.append(dataclasses.replace(fault, time_s=fault.time_s - time_s))
        return dataclasses.replace(self, faults=(*past.values(), *coming))

    def at(self, time_s: float) -> Topology:
        """Return the machine as the faults have made it at that time."""
        rate, latency = self.rate.copy(), self.latency_s.copy()
        loss = self.rate * 0.0 if self.loss is None else self.loss.copy()
        for fault in self.faults:
            if fault.time_s > time_s or fault.kind != "link":
                continue
            if fault.field == "rate_factor":
                rate[fault.target] = self.rate[fault.target] * fault.value
            elif fault.field == "latency_s":
                latency[fault.target] = fault.value
            elif fault.field == "loss":
                loss[fault.target] = fault.value
        return dataclasses.replace(self, rate=rate, latency_s=latency, loss=loss, faults=())
