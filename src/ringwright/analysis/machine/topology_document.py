"""The topology of a summary as a typed structure, keys in the order in which they are written.

Ranks are ranks in the communicator, as the library prints them, but where a key says global. ``ground`` is "read" or
"inferred". Bytes are those of one collective of ``size_bytes``; what was not read is None, never 0.
"""

from __future__ import annotations

from typing import TypedDict


class ReadRing(TypedDict):
    """The ring of one channel: ranks in their order, and how many of its steps leave a host."""

    communicator: int
    channel: int
    ranks: list[int]
    ground: str
    host_crossings: int | None


class ReadTree(TypedDict):
    """The tree of one channel: its root, its levels below the root, and [child, parent] of each edge."""

    communicator: int
    channel: int
    root: int | None
    depth: int
    edges: list[list[int]]
    ground: str


class ReadNic(TypedDict):
    """A NIC that a line names or a connection uses, and the global ranks that go through it."""

    host: str | None
    nic: str
    name: str | None
    ranks: list[int]
    connections: int


class TransportUse(TypedDict):
    """How many directed links, and how many channels on them, go by a transport."""

    transport: str
    links: int
    connections: int
    between_hosts: bool


class ReadMember(TypedDict):
    """Where a rank of the communicator is."""

    rank: int
    global_rank: int | None
    host: str | None
    device: int | None
    bus_id: str | None


class Neighbours(TypedDict):
    """Whom a rank has before and after it in rings, above and below it in trees, and its NICs."""

    rank: int
    ring_from: list[int]
    ring_to: list[int]
    parents: list[int]
    children: list[int]
    nics: list[str]


class CutRing(TypedDict):
    """The beginning of a ring that nothing completes."""

    channel: int
    ranks: list[int]


class RailUse(TypedDict):
    """How many network connections there are, and how many stay on a rail."""

    connections: int
    same_nic_at_both_ends: int


class NicLoad(TypedDict):
    """What a collective puts on a NIC."""

    host: str | None
    nic: str
    sent_bytes: float
    received_bytes: float


class CollectiveLoad(TypedDict):
    """What a collective puts on the busiest links, between hosts and on NICs, as if its algorithm ran alone."""

    op: str
    algorithm: str
    channels_known: int
    channels: int
    link_inside_bytes: float | None
    link_between_bytes: float | None
    between_hosts_bytes: float | None
    total_bytes: float
    nic_named_share: float | None
    nics: list[NicLoad]


class LinkPath(TypedDict):
    """Transports and NICs of a link."""

    transports: list[str]
    nic_sends: list[str]
    nic_receives: list[str]


class LinkEnds(TypedDict):
    """A link that rings or trees use; ``bytes`` by operation and algorithm, such as "all-reduce ring"."""

    src: int
    dst: int
    src_host: str | None
    dst_host: str | None
    between_hosts: bool | None
    channels: list[int]
    bytes: dict[str, float]


class LoadedLink(LinkEnds, LinkPath):
    """A link, what each collective puts on it, and how it goes."""


class CommunicatorLoads(TypedDict):
    """What one collective of ``size_bytes`` puts on the links and NICs of a communicator."""

    size_bytes: int
    loads: list[CollectiveLoad]
    links: list[LoadedLink]


class CommunicatorPaths(TypedDict):
    """One communicator: its ranks and who is whose neighbour; ``channels`` by kind (coll, nvls, ...)."""

    communicator: int
    size: int
    channels: dict[str, int]
    members: list[ReadMember]
    neighbours: list[Neighbours]
    alike: int
    part_rings: list[CutRing]
    rails: RailUse | None
    notes: list[str]


class ShownCommunicator(CommunicatorPaths, CommunicatorLoads):
    """All that is told of the one communicator that is worth showing most."""


class ReadTopology(TypedDict):
    """The key ``topology`` of a summary: all communicators whose paths were read, and the largest of them in full."""

    rings: list[ReadRing]
    trees: list[ReadTree]
    nics: list[ReadNic]
    transports: list[TransportUse]
    rings_total: int
    trees_total: int
    communicators: int
    shown: ShownCommunicator | None
