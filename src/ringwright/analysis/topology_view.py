"""The topology of a summary and what its network's switches add, as reports read them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RingView:
    """The ring of one channel."""

    communicator: int
    channel: int
    ranks: list[int]
    ground: str


@dataclass(frozen=True, slots=True)
class TreeView:
    """The tree of one channel, [child, parent] of each edge."""

    communicator: int
    channel: int
    root: int | None
    depth: int
    edges: list[list[int]]


@dataclass(frozen=True, slots=True)
class NicView:
    """A NIC that a line names or a connection uses."""

    host: str | None
    nic: str
    name: str | None
    ranks: list[int]
    connections: int


@dataclass(frozen=True, slots=True)
class TransportView:
    """How many directed links, and how many channels on them, go by a transport."""

    transport: str
    links: int
    connections: int


@dataclass(frozen=True, slots=True)
class MemberView:
    """Where a rank of the communicator is."""

    rank: int
    global_rank: int | None
    host: str | None
    device: int | None


@dataclass(frozen=True, slots=True)
class NeighbourView:
    """Whom a rank has before and after it in rings, above and below it in trees, and its NICs."""

    ring_from: list[int]
    ring_to: list[int]
    parents: list[int]
    children: list[int]
    nics: list[str]


@dataclass(frozen=True, slots=True)
class CutRingView:
    """The beginning of a ring that nothing completes."""

    channel: int
    ranks: list[int]


@dataclass(frozen=True, slots=True)
class RailView:
    """How many network connections there are, and how many stay on a rail."""

    connections: int
    same_nic_at_both_ends: int


@dataclass(frozen=True, slots=True)
class NicLoadView:
    """What a collective puts on a NIC."""

    sent_bytes: float
    received_bytes: float


@dataclass(frozen=True, slots=True)
class LoadView:
    """What a collective puts on the busiest links, between hosts and on NICs."""

    op: str
    algorithm: str
    channels_known: int
    channels: int
    link_inside_bytes: float | None
    link_between_bytes: float | None
    between_hosts_bytes: float | None
    nics: list[NicLoadView]


@dataclass(frozen=True, slots=True)
class LinkView:
    """A link that rings or trees use, what each collective puts on it, and how it goes."""

    src: int
    dst: int
    src_host: str | None
    dst_host: str | None
    between_hosts: bool | None
    channels: list[int]
    bytes: dict[str, float]
    transports: list[str]
    nic_sends: list[str]
    nic_receives: list[str]


@dataclass(frozen=True, slots=True)
class CommunicatorView:
    """All that is told of the one communicator that is worth showing most."""

    communicator: int = 0
    size: int = 0
    channels: dict[str, int] = field(default_factory=dict)
    members: list[MemberView] = field(default_factory=list)
    neighbours: list[NeighbourView] = field(default_factory=list)
    alike: int = 0
    part_rings: list[CutRingView] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    size_bytes: int = 0
    loads: list[LoadView] = field(default_factory=list)
    links: list[LinkView] = field(default_factory=list)
    rails: RailView | None = None


@dataclass(frozen=True, slots=True)
class TopologyView:
    """All communicators whose paths were read, and the largest of them in full; see ``topology_document``."""

    rings: list[RingView] = field(default_factory=list)
    trees: list[TreeView] = field(default_factory=list)
    nics: list[NicView] = field(default_factory=list)
    transports: list[TransportView] = field(default_factory=list)
    communicators: int = 0
    shown: CommunicatorView | None = None


@dataclass(frozen=True, slots=True)
class PluginView:
    """A CollNet plug-in that was loaded, by how many processes."""

    name: str
    processes: int


@dataclass(frozen=True, slots=True)
class LeaseView:
    """A tree that SHARP leased."""

    tree_type: str
    tree: str
    osts: int | None


@dataclass(frozen=True, slots=True)
class RefusedView:
    """What was refused, to whom, and where it stands."""

    what: str
    tree: str | None
    ranks: list[int]
    hosts: list[str]
    lines: int
    first_at: str


@dataclass(frozen=True, slots=True)
class AddedView:
    """What became of CollNet in a communicator: see ``adders.AddedCommunicator``."""

    communicator: int
    size: int
    state: str
    ranks_connected: list[int]
    ranks_refused: list[int]
    collnet_channels: int | None
    nvls_channels: int | None
    why: str


@dataclass(frozen=True, slots=True)
class LineView:
    """A line of no known form, and how often it stands there."""

    text: str
    lines: int


@dataclass(frozen=True, slots=True)
class InNetworkView:
    """What a log says of switches that add: see ``adders.InNetworkSaid``."""

    plugins: list[PluginView]
    plugin_missing: int
    leases: list[LeaseView]
    refused: list[RefusedView]
    nvls_available: int
    nvls_not_available: int
    nvls_refused: int
    communicators: list[AddedView]
    unknown: list[LineView]
    lines_dropped: int
