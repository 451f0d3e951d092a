"""The topology that a log has told: rings and trees per channel, who is whose neighbour, NICs, rails and transports.

Nothing is guessed: what is cut or was printed by missing ranks is named in ``notes``. Ranks are ranks in the communicator, as
the library prints them; ``members`` says which global rank, host and device each is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.analysis.document import Row
from ringwright.analysis.machine.topology_document import (
    Neighbours,
    RailUse,
    ReadNic,
    ReadRing,
    ReadTopology,
    ReadTree,
    ShownCommunicator,
    TransportUse,
)
from ringwright.analysis.machine.topology_loads import loads

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

MOST_RANKS = 1 << 17  # of a communicator whose paths are drawn; beyond it only its rows are kept
MOST_ROWS = 2_000  # of rings, and of trees, in the summary
STEP_BYTES = 1 << 30
SIDES = ("send", "receive")


@dataclass
class CommunicatorWiring:
    """One communicator's wiring; ``links`` are (src, dst, side) -> channel -> (transport, NIC)."""

    number: int
    size: int
    members: list[int] = field(default_factory=list)
    rings: dict[int, list[int]] = field(default_factory=dict)
    ring_ground: dict[int, str] = field(default_factory=dict)
    trees: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    part_rings: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    part_trees: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    links: dict[tuple[int, int, str], dict[int, tuple[str, str | None]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    channels: dict[str, int] = field(default_factory=dict)
    beyond: int = 0  # rows that name ranks which a communicator of this size does not have

    @property
    def weight(self) -> tuple[int, int, int]:
        """What makes one communicator more worth showing than another: what is known of it, its size, its number."""
        return (bool(self.rings or self.trees), self.size, -self.number)

    def take(self, row: Row, channel: int, edge: tuple[int, int]) -> None:
        """Take what a row says of a tree, of a part of a path, of a connection or of the number of channels."""
        edges = {"tree": self.trees, "ring-part": self.part_rings, "tree-part": self.part_trees}
        if row["kind"] in edges:
            edges[row["kind"]][channel].append(edge)
        elif row["kind"] == "connection":
            for side in (row["value"],) if row["value"] in SIDES else SIDES:
                self.links[(*edge, side)][channel] = (row["transport"] or "", row["nic"])
        elif row["kind"] == "channels":
            name, _, count = (row["value"] or "").partition("=")
            self.channels[name] = int(count) if count.isdigit() else 0


def topology(trace: Trace) -> ReadTopology:
    """Return ``rings``, ``trees``, ``nics``, ``transports``, and of the largest communicator ``shown``; empty where none."""
    table = trace.table("topology").to_dicts()
    groups = _groups(trace, table)
    devices = {row["rank"]: row for row in table if row["kind"] == "device" and row["rank"] is not None}
    shown = max(groups, key=lambda group: group.weight, default=None)
    groups.sort(key=lambda group: group is not shown)  # its rings come first: the others may be cut
    rings = [_ring(group, channel, devices) for group in groups for channel in sorted(group.rings)]
    trees = [_tree(group, channel) for group in groups for channel in sorted(group.trees)]
    return {
        "rings": rings[:MOST_ROWS],
        "trees": trees[:MOST_ROWS],
        "nics": _nics(table, groups, devices),
        "transports": _transports(groups),
        "rings_total": len(rings),
        "trees_total": len(trees),
        "communicators": len(groups),
        "shown": None if shown is None else _shown(shown, devices, groups),
    }


def _groups(trace: Trace, table: list[Row]) -> list[CommunicatorWiring]:
    """Return the communicators of which any path is known."""
    known = {
        number: (size, members)
        for number, size, members in trace.table("communicators").select("communicator", "size", "members").rows()
    }
    groups: dict[int, CommunicatorWiring] = {}
    after: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for row in table:
        number, channel, edge = row["communicator"], row["channel"], (row["src"], row["dst"])
        if number not in known or not 0 < (known[number][0] or 0) <= MOST_RANKS:
            continue
        group = groups.setdefault(number, CommunicatorWiring(number, known[number][0], list(known[number][1] or [])))
        if any(rank is not None and not 0 <= rank < group.size for rank in edge):
            group.beyond += 1
        elif row["kind"] == "ring":
            after[number, channel][row["src"]] = row["dst"]
            group.ring_ground[channel] = row["ground"]
        else:
            group.take(row, channel, edge)
    for (number, channel), following in after.items():
        ring = _order(following)
        if len(ring) == groups[number].size:
            groups[number].rings[channel] = ring
    return sorted((each for each in groups.values() if each.size > 1), key=lambda group: group.number)


def _order(following: dict[int, int]) -> list[int]:
    ring = [min(set(following) - set(following.values()), default=min(following))]
    while len(ring) < len(following) and following.get(ring[-1]) not in (None, ring[0]):
        ring.append(following[ring[-1]])
    return ring


def place(group: CommunicatorWiring, rank: int, devices: dict[int, Row]) -> Row:
    """Return the device row of a rank in the communicator, empty where none is known."""
    member = group.members[rank] if 0 <= rank < len(group.members) else -1
    return devices.get(member, {})


def _ring(group: CommunicatorWiring, channel: int, devices: dict[int, Row]) -> ReadRing:
    ring = group.rings[channel]
    hosts = [place(group, rank, devices).get("host") for rank in ring]
    crossings = sum(a != b for a, b in zip(hosts, hosts[1:] + hosts[:1], strict=True))
    return {
        "communicator": group.number,
        "channel": channel,
        "ranks": ring,
        "ground": group.ring_ground.get(channel, "read"),
        "host_crossings": None if None in hosts else crossings,
    }


def _tree(group: CommunicatorWiring, channel: int) -> ReadTree:
    edges = sorted(group.trees[channel])
    parent = dict(edges)
    depth = max(_depths(parent).values(), default=0)
    roots = sorted(set(range(group.size)) - set(parent))
    return {
        "communicator": group.number,
        "channel": channel,
        "root": roots[0] if roots else None,
        "depth": depth,
        "edges": [list(edge) for edge in edges],
        "ground": "read",
    }


def _depths(parent: dict[int, int]) -> dict[int, int]:
    """Return how many steps it is to the root from each rank with a parent; a circle, which is no tree, ends after a turn."""
    depths: dict[int, int] = {}
    for first in [*parent]:
        rank, path = first, list[int]()
        while rank in parent and rank not in depths and len(path) < len(parent):
            path.append(rank)
            rank = parent[rank]
        below = depths.get(rank, 0)
        depths.update((each, below + steps) for steps, each in enumerate(reversed(path), 1))
    return depths


def _transports(groups: list[CommunicatorWiring]) -> list[TransportUse]:
    """Return how many directed links, and how many channels on them, go by each transport."""
    pairs: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
    channels: dict[str, set[tuple[int, int, int, int]]] = defaultdict(set)
    for group in groups:
        for (src, dst, _), by_channel in group.links.items():
            for channel, (transport, _) in by_channel.items():
                if not transport:
                    continue  # the line said none that exists; the law on transports has counted it
                pairs[transport].add((group.number, src, dst))
                channels[transport].add((group.number, src, dst, channel))
    rows: list[TransportUse] = [
        {
            "transport": name,
            "links": len(kinds),
            "connections": len(channels[name]),
            "between_hosts": name.startswith("NET/"),
        }
        for name, kinds in pairs.items()
    ]
    return sorted(rows, key=lambda row: (-row["connections"], row["transport"]))


def _nics(table: list[Row], groups: list[CommunicatorWiring], devices: dict[int, Row]) -> list[ReadNic]:
    """Return each NIC that a line names or a connection uses, with the global ranks that go through it."""
    names = {
        (row["host"], row["nic"]): row["value"] for row in table if row["kind"] == "nic" and row["nic"] is not None
    }
    users: dict[tuple[str | None, str], set[int]] = {key: set() for key in names}
    connections: Counter[tuple[str | None, str]] = Counter()
    for group in groups:
        for (src, dst, side), by_channel in group.links.items():
            rank = src if side == "send" else dst
            for _, nic in by_channel.values():
                if nic is None:
                    continue
                key = (place(group, rank, devices).get("host"), nic)
                member = group.members[rank] if rank < len(group.members) else -1
                users.setdefault(key, set()).update([member] if member >= 0 else [])
                connections[key] += 1
    return [
        {
            "host": host,
            "nic": nic,
            "name": names.get((host, nic)),
            "ranks": sorted(users[host, nic]),
            "connections": connections[host, nic],
        }
        for host, nic in sorted(users, key=lambda key: (key[0] or "", len(key[1]), key[1]))
    ]


def _shown(group: CommunicatorWiring, devices: dict[int, Row], groups: list[CommunicatorWiring]) -> ShownCommunicator:
    """Return all of one communicator: its ranks, neighbours, links and what 1 GiB of each collective puts on them."""
    where = [place(group, rank, devices) for rank in range(group.size)]
    return {
        "communicator": group.number,
        "size": group.size,
        "channels": dict(group.channels),
        "members": [
            {
                "rank": rank,
                "global_rank": _member(group, rank),
                "host": at.get("host"),
                "device": at.get("device"),
                "bus_id": at.get("bus_id"),
            }
            for rank, at in enumerate(where)
        ],
        "neighbours": _neighbours(group),
        "alike": sum(each.size == group.size and each.rings == group.rings for each in groups) - 1,
        "part_rings": [
            {"channel": channel, "ranks": _order(dict(edges))} for channel, edges in sorted(_parts(group).items())
        ],
        "rails": _rails(group),
        "notes": _notes(group, where, elsewhere=any(each.links for each in groups if each is not group)),
        **loads(group, [at.get("host") for at in where], STEP_BYTES),
    }


def _parts(group: CommunicatorWiring) -> dict[int, list[tuple[int, int]]]:
    """Return the beginnings of rings that nothing completes, by channel."""
    return {channel: edges for channel, edges in group.part_rings.items() if channel not in group.rings}


def _member(group: CommunicatorWiring, rank: int) -> int | None:
    member = group.members[rank] if rank < len(group.members) else -1
    return member if member >= 0 else None


def _neighbours(group: CommunicatorWiring) -> list[Neighbours]:
    """Return per rank whom it has before and after it in rings, above and below it in trees, and its NICs."""
    before, after, above, below = ([set[int]() for _ in range(group.size)] for _ in range(4))
    nics = [set[str]() for _ in range(group.size)]
    rings = [pair for ring in group.rings.values() for pair in zip(ring, ring[1:] + ring[:1], strict=True)]
    for src, dst in (*rings, *(pair for edges in _parts(group).values() for pair in edges)):
        after[src].add(dst)
        before[dst].add(src)
    for edges in (*group.trees.values(), *group.part_trees.values()):
        for child, parent in edges:
            above[child].add(parent)
            below[parent].add(child)
    for (src, dst, side), by_channel in group.links.items():
        mine = nics[src if side == "send" else dst]
        mine.update(nic for _, nic in by_channel.values() if nic is not None)
    return [
        {
            "rank": rank,
            "ring_from": sorted(before[rank]),
            "ring_to": sorted(after[rank]),
            "parents": sorted(above[rank]),
            "children": sorted(below[rank]),
            "nics": sorted(nics[rank]),
        }
        for rank in range(group.size)
    ]


def _rails(group: CommunicatorWiring) -> RailUse | None:
    """Return how many network connections stay on a rail: the same number of NIC at both ends; None without both ends."""
    same = total = 0
    for (src, dst, side), by_channel in group.links.items():
        other = group.links.get((src, dst, "receive"), {})
        for channel, (_, nic) in by_channel.items():
            if side == "send" and nic is not None and other.get(channel, ("", None))[1] is not None:
                total += 1
                same += other[channel][1] == nic
    return {"connections": total, "same_nic_at_both_ends": same} if total else None


def _notes(group: CommunicatorWiring, where: list[Row], *, elsewhere: bool) -> list[str]:
    """Say what is not known of this communicator, and why; ``elsewhere``: connections of others were read."""
    notes = []
    unseen = sum(not at for at in where)
    if unseen:
        notes.append(
            f"{unseen} of {group.size} ranks wrote no line here: their hosts, NICs and places in trees are not known"
        )
    if group.beyond:
        notes.append(
            f"{group.beyond} lines name ranks that a communicator of {group.size} does not have: they are left out"
        )
    cut = sorted(_parts(group))
    if cut:
        notes.append(
            f"all of the ring of channel {_list(cut)}: printed cut short, and its connections do not close it in one way"
        )
    if group.part_trees:
        notes.append(f"all of the tree of channel {_list(sorted(group.part_trees))}: lines of some ranks are not here")
    if group.rings and not group.links and elsewhere:
        notes.append("which NICs this communicator uses: every connection that was read belongs to another one")
    elif group.rings and not group.links:
        notes.append("transports and NICs: no connection line was read (NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET prints them)")
    if not group.trees and not group.part_trees:
        notes.append("no tree line was read (NCCL_DEBUG_SUBSYS=GRAPH prints them, releases from 2.4 on)")
    for name, what in (("nvls", "NVLS"), ("collnet", "CollNet")):
        if group.channels.get(name):
            notes.append(
                f"{group.channels[name]} {what} channels exist; what they reduce in the switch is not in these figures"
            )
    return notes


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
