"""What one collective puts on each link and NIC of a communicator, computed from the rings and trees that were read.

Channels carry equal shares. Which algorithm the library will choose is not decided here: each is given as if it ran alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from ringwright.analysis.machine.topology_document import CollectiveLoad, CommunicatorLoads, LinkPath, LoadedLink
from ringwright.costs import traffic

if TYPE_CHECKING:
    from ringwright.analysis.machine.topology import CommunicatorWiring

RING_OPS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce")
TREE_OPS = ("all-reduce", "broadcast", "reduce")
SIDES = ("send", "receive")
MOST_LINKS = 2_000

Link = tuple[int, int, int]  # channel, src, dst
Bytes = dict[Link, float]


def loads(group: CommunicatorWiring, hosts: list[str | None], size_bytes: int) -> CommunicatorLoads:
    """Return ``loads`` by operation and algorithm, and ``links`` with what each carries, all for ``size_bytes``."""
    carried = {
        (op, kind): _by_channel(group, op, kind, size_bytes)
        for kind, ops in (("ring", RING_OPS), ("tree", TREE_OPS))
        for op in ops
    }
    carried = {key: link_bytes for key, link_bytes in carried.items() if link_bytes}
    told = [_load(group, op, kind, link_bytes, hosts) for (op, kind), link_bytes in carried.items()]
    return {
        "size_bytes": size_bytes,
        "loads": [*told, *([_pairwise(group, hosts, size_bytes)] if told else [])],
        "links": _links(group, carried, hosts)[:MOST_LINKS],
    }


def _by_channel(group: CommunicatorWiring, op: str, kind: str, size_bytes: int) -> Bytes:
    """Return bytes per channel and edge; a channel whose path is not known keeps its share to itself."""
    paths: dict[int, Any] = group.rings if kind == "ring" else group.trees
    share = size_bytes / max(len(paths), group.channels.get("coll", 0), 1)
    link_bytes: Bytes = {}
    for channel, path in paths.items():
        edges = (
            traffic.ring_edges(op, share, [path]) if kind == "ring" else traffic.tree_edges(op, share, {channel: path})
        )
        link_bytes.update({(channel, *edge): amount for edge, amount in edges.items()})
    return link_bytes


def crosses(group: CommunicatorWiring, src: int, dst: int, hosts: list[str | None]) -> bool | None:
    """Whether an edge leaves its host: by the hosts of its ends, else by its transport, else None."""
    if hosts[src] is not None and hosts[dst] is not None:
        return hosts[src] != hosts[dst]
    told = [transport for side in SIDES for transport, _ in group.links.get((src, dst, side), {}).values() if transport]
    return any(transport.startswith("NET/") for transport in told) if told else None


def _load(group: CommunicatorWiring, op: str, kind: str, link_bytes: Bytes, hosts: list[str | None]) -> CollectiveLoad:
    edges: dict[tuple[int, int], float] = defaultdict(float)
    nics: dict[tuple[str | None, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    named = between = 0.0
    for (channel, src, dst), amount in link_bytes.items():
        edges[src, dst] += amount
        if crosses(group, src, dst, hosts):
            between += amount
            for number, (side, rank) in enumerate(zip(SIDES, (src, dst), strict=True)):
                nic = group.links.get((src, dst, side), {}).get(channel, ("", None))[1]
                if nic is not None:
                    nics[hosts[rank], nic][number] += amount
                    named += amount / 2
    inside = [amount for edge, amount in edges.items() if crosses(group, *edge, hosts) is False]
    outside = [amount for edge, amount in edges.items() if crosses(group, *edge, hosts)]
    known, expected = len({channel for channel, _, _ in link_bytes}), group.channels.get("coll", 0)
    return {
        "op": op,
        "algorithm": kind,
        "channels_known": known,
        "channels": max(known, expected),
        "link_inside_bytes": max(inside, default=None),
        "link_between_bytes": max(outside, default=None),
        "between_hosts_bytes": between,
        "total_bytes": sum(edges.values()),
        "nic_named_share": named / between if between else None,
        "nics": [
            {"host": host, "nic": nic, "sent_bytes": sent, "received_bytes": received}
            for (host, nic), (sent, received) in sorted(nics.items(), key=lambda item: (item[0][0] or "", item[0][1]))
        ],
    }


def _pairwise(group: CommunicatorWiring, hosts: list[str | None], size_bytes: int) -> CollectiveLoad:
    """Return the load of an all-to-all, from each rank to each directly: no ring or tree carries it, and no NIC is told."""
    per_rank = Counter(hosts)
    share = size_bytes / group.size
    is_known = None not in per_rank
    inside = sum(count * (count - 1) for count in per_rank.values()) if is_known else 0
    between = group.size * (group.size - 1) - inside
    return {
        "op": "all-to-all",
        "algorithm": "direct",
        "channels_known": 0,
        "channels": 0,
        "link_inside_bytes": share if is_known and inside else None,
        "link_between_bytes": share if is_known and between else None,
        "between_hosts_bytes": between * share if is_known else None,
        "total_bytes": group.size * (group.size - 1) * share,
        "nic_named_share": None,
        "nics": [],
    }


def _links(
    group: CommunicatorWiring, carried: dict[tuple[str, str], Bytes], hosts: list[str | None]
) -> list[LoadedLink]:
    """Return the links that rings or trees use: ends, channels, transport, NICs, and bytes by operation and algorithm."""
    by_link: dict[tuple[int, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    channels: dict[tuple[int, int], set[int]] = defaultdict(set)
    for (op, kind), link_bytes in carried.items():
        for (channel, src, dst), amount in link_bytes.items():
            by_link[src, dst][f"{op} {kind}"] += amount
            channels[src, dst].add(channel)
    return [
        {
            "src": src,
            "dst": dst,
            "src_host": hosts[src],
            "dst_host": hosts[dst],
            "between_hosts": crosses(group, src, dst, hosts),
            "channels": sorted(channels[src, dst]),
            "bytes": dict(amounts),
            **_path(group, src, dst, channels[src, dst]),
        }
        for (src, dst), amounts in sorted(by_link.items())
    ]


def _path(group: CommunicatorWiring, src: int, dst: int, channels: set[int]) -> LinkPath:
    """Return transports and NICs of a link, on the channels that use it."""
    ends = {
        side: [end for channel, end in group.links.get((src, dst, side), {}).items() if channel in channels]
        for side in SIDES
    }
    return {
        "transports": sorted({transport for side_ends in ends.values() for transport, _ in side_ends if transport}),
        "nic_sends": sorted({nic for _, nic in ends["send"] if nic is not None}),
        "nic_receives": sorted({nic for _, nic in ends["receive"] if nic is not None}),
    }
