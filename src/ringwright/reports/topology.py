"""The topology that was read, for the terminal and the page: rings, trees, neighbours, NICs, and bytes per link and NIC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from ringwright.analysis.summary_view import SeenSummary
from ringwright.analysis.topology_view import CommunicatorView, NicView, RingView, TopologyView
from ringwright.ground.units import format_size
from ringwright.reports import layout, tables
from ringwright.reports.draw.log_player import log_play
from ringwright.reports.draw.player import Play
from ringwright.reports.draw.ring_pictures import RingPictures, rings
from ringwright.reports.draw.tree_pictures import TreePictures, trees
from ringwright.reports.topology_names import name_of

if TYPE_CHECKING:
    from rich.console import Console

TOP_RINGS, TOP_ROWS = 4, 8
MOST_VISITS, MOST_NAMED = 16, 32  # hosts, and ranks of one, that a ring in words names
GROUND = "computed from the rings and trees that were read, channels sharing equally; which algorithm ran is not in these lines"


def is_there(topology: TopologyView | None) -> TypeGuard[TopologyView]:
    """Whether anything of a topology was read."""
    return topology is not None and bool(topology.shown or topology.nics)


def title(topology: TopologyView) -> str:
    """Return what is shown: communicator, ranks, hosts, channels."""
    shown = topology.shown
    if not shown:
        return f"{len(topology.nics)} NICs are named; no ring, tree or connection was read"
    hosts = {member.host for member in shown.members if member.host}
    channels = shown.channels.get(_COLLECTIVE) or len({ring.channel for ring in _rings(topology, shown)})
    parts = [
        f"communicator {shown.communicator}: {shown.size:,} ranks",
        f"{_hosts(len(hosts))}",
        f"{channels} channels",
    ]
    others = topology.communicators - 1
    alike = f", {shown.alike} of them with the same rings" if shown.alike else ""
    return ", ".join(parts) + (f"; {others:,} more communicators have paths{alike}" if others else "")


def _hosts(count: int) -> str:
    return "hosts not read" if not count else f"{count:,} host{'s' if count > 1 else ''} read"


def _rings(topology: TopologyView, shown: CommunicatorView) -> list[RingView]:
    return [ring for ring in topology.rings if ring.communicator == shown.communicator]


def ring_texts(topology: TopologyView, shown: CommunicatorView) -> list[tuple[str, str]]:
    """Return channels and path of each different ring: ``host a: 0 1 2 3 > host b: 4 5 6 7 > back to 0``."""
    channels_of: dict[tuple[tuple[int, ...], str], list[int]] = {}
    for ring in _rings(topology, shown):
        channels_of.setdefault((tuple(ring.ranks), ring.ground), []).append(ring.channel)
    for part in shown.part_rings:
        channels_of.setdefault((tuple(part.ranks), "part"), []).append(part.channel)
    told = []
    for (order, ground), channels in channels_of.items():
        home = f" > back to {name_of(shown, order[0])}"
        end = {"read": home, "part": " > ... (the rest was not read)"}.get(
            ground, f"{home}; inferred from connection lines"
        )
        told.append((numbers(channels), path(shown, order) + end))
    return told


def path(shown: CommunicatorView, order: tuple[int, ...]) -> str:
    """Return ranks in their order, host by host: ``a: 0 1 > b: 2 3``."""
    pieces: list[tuple[str, list[str]]] = []
    for rank in order:
        host = shown.members[rank].host or ""
        if not pieces or pieces[-1][0] != host:
            pieces.append((host, []))
        pieces[-1][1].append(name_of(shown, rank))
    told = [f"{host}: {' '.join(_ends(ranks))}" if host else " ".join(_ends(ranks)) for host, ranks in pieces]
    left = len(told) - MOST_VISITS
    return " > ".join(told if left <= 0 else [*told[: MOST_VISITS - 1], f"... {left:,} more hosts ...", told[-1]])


def _ends(ranks: list[str]) -> list[str]:
    """Return ranks, or the first and last where there are many; how many are left out stands between."""
    left = len(ranks) - MOST_NAMED
    return ranks if left <= 0 else [*ranks[: MOST_NAMED - 2], f"... {left:,} more ...", *ranks[-2:]]


def tree_texts(topology: TopologyView, shown: CommunicatorView) -> list[tuple[str, str]]:
    """Return channels and shape of each different tree."""
    channels_of: dict[tuple[str, int | None, int], list[int]] = {}
    for tree in topology.trees:
        if tree.communicator != shown.communicator:
            continue
        channels_of.setdefault((str(tree.edges), tree.root, tree.depth), []).append(tree.channel)
    return [
        (numbers(channels), f"root {name_of(shown, root) if root is not None else '?'}, {depth} levels below it")
        for (_, root, depth), channels in channels_of.items()
    ]


def numbers(values: list[int]) -> str:
    """Return ``0, 2`` or ``0-11``: a few numbers, runs shortened."""
    if len(values) > 2 and values == list(range(values[0], values[-1] + 1)):
        return f"{values[0]}-{values[-1]}"
    return ", ".join(map(str, values))


def write(out: Console, view: SeenSummary) -> None:
    """Print the section; nothing where no topology was read."""
    topology = view.topology
    if not is_there(topology):
        return
    layout.heading(out, "topology", title(topology))
    shown = topology.shown
    if shown:
        _paths(out, topology, shown)
        _neighbours(out, shown)
        _loads(out, shown)
    _nics(out, topology)
    if topology.transports:
        told = ", ".join(f"{row.transport} {row.connections:,}" for row in topology.transports[:TOP_ROWS])
        layout.line(out, f"connections by transport, all communicators: {told}")
    for note in shown.notes if shown else []:
        layout.line(out, f"not known: {note}", style="yellow")


def _paths(out: Console, topology: TopologyView, shown: CommunicatorView) -> None:
    for kind, texts in (("ring", ring_texts(topology, shown)), ("tree", tree_texts(topology, shown))):
        for channels, text in texts[:TOP_RINGS]:
            layout.line(out, f"{kind} of channel {channels}: {text}")
        layout.cut(out, TOP_RINGS, len(texts), f"{kind}s of another shape")


def _neighbours(out: Console, shown: CommunicatorView) -> None:
    rows = [row for row in neighbour_rows(shown) if set(row[3:]) != {"-"}]
    if not rows:
        return
    out.print()
    heads = ("rank", "host", "GPU", "from", "to", "parents", "children", "NICs")
    layout.table(out, heads, rows[:TOP_ROWS], left=("host", "from", "to", "parents", "children", "NICs"))
    layout.cut(out, TOP_ROWS, len(rows), "ranks")


def neighbour_rows(shown: CommunicatorView) -> list[tuple[Any, ...]]:
    """Return per rank: host, device, neighbours in rings (from, to) and trees (parents, children), NICs."""

    def names(ranks: list[int]) -> str:
        return " ".join(name_of(shown, rank) for rank in ranks) or "-"

    rows = []
    for member, near in zip(shown.members, shown.neighbours, strict=True):
        around = [names(ranks) for ranks in (near.ring_from, near.ring_to, near.parents, near.children)]
        device = "-" if member.device is None or member.device < 0 else str(member.device)
        rows.append(
            (
                name_of(shown, member.rank),
                member.host or "not read",
                device,
                *around,
                " ".join(near.nics) or "-",
            )
        )
    return rows


LOAD_HEADS = ("collective", "link inside", "link between", "NIC sends", "NIC receives", "between hosts")


def load_rows(shown: CommunicatorView) -> list[tuple[Any, ...]]:
    """Return per collective and algorithm: bytes on the busiest link inside and between hosts, on the busiest NIC, in all."""
    rows = []
    for load in shown.loads:
        nics = [[nic.sent_bytes for nic in load.nics], [nic.received_bytes for nic in load.nics]]
        known, channels = load.channels_known, load.channels
        name = f"{load.op} {load.algorithm}" + (f", {known} of {channels} channels known" if known < channels else "")
        links = (load.link_inside_bytes, load.link_between_bytes)
        rows.append((name, *links, *(max(nic_bytes, default=None) for nic_bytes in nics), load.between_hosts_bytes))
    return rows


def _loads(out: Console, shown: CommunicatorView) -> None:
    if not shown.loads:
        return
    out.print()
    layout.line(
        out,
        f"bytes that {format_size(shown.size_bytes)} of each collective put on the busiest link and NIC, {GROUND}:",
    )
    rows = [
        (row[0], *(None if amount is None else format_size(amount) for amount in row[1:])) for row in load_rows(shown)
    ]
    told = [column for column in range(len(LOAD_HEADS)) if any(row[column] is not None for row in rows)]
    heads = [LOAD_HEADS[column] for column in told]
    layout.table(out, heads, [[row[column] for column in told] for row in rows], left=("collective",))


def _nics(out: Console, topology: TopologyView) -> None:
    rows = [(row.host or "not read", row.nic, row.name, ranks(row.ranks), row.connections) for row in used(topology)]
    if not rows:
        return
    out.print()
    heads = ("host", "NIC", "name", "ranks that use it", "connections")
    layout.table(out, heads, rows[:TOP_ROWS], left=("host", "name", "ranks that use it"))
    layout.cut(out, TOP_ROWS, len(rows), "NICs")
    idle = len(topology.nics) - len(used(topology))
    if idle and topology.shown:
        layout.line(out, f"{idle:,} further NICs are named and no connection that was read uses them")
    rail = rail_text(topology)
    if rail:
        layout.line(out, rail)


def rail_text(topology: TopologyView) -> str:
    """Say how many connections between hosts stay on a rail, the empty string where that is not known."""
    shown = topology.shown
    rails = shown.rails if shown else None
    if not rails:
        return ""
    return (
        f"Rails: {rails.same_nic_at_both_ends:,} of {rails.connections:,} connections between hosts "
        "have the same number of NIC at both ends"
    )


def used(topology: TopologyView) -> list[NicView]:
    """Return the NICs that some connection uses; all where no connection was read."""
    busy = [row for row in topology.nics if row.connections]
    return busy or topology.nics


def ranks(values: list[int]) -> str:
    """Return ranks that use something, as text."""
    return numbers(values) or "none"


@dataclass(frozen=True, slots=True)
class TopologySection:
    """What the page's section shows."""

    title: str
    rings: RingPictures
    trees: TreePictures
    play: Play | None
    notes: list[str]
    rails: str
    ground: str
    tables: list[tables.PageTable]


def page(view: SeenSummary) -> TopologySection | None:
    """Return what the page's section shows; None where no topology was read."""
    topology = view.topology
    if not is_there(topology):
        return None
    shown = topology.shown
    return TopologySection(
        title=title(topology),
        rings=rings(topology),
        trees=trees(topology),
        play=log_play(topology),
        notes=shown.notes if shown else [],
        rails=rail_text(topology),
        ground=f"{format_size(shown.size_bytes)} of each collective, {GROUND}" if shown else "",
        tables=_tables(topology),
    )


def _tables(topology: TopologyView) -> list[tables.PageTable]:
    shown = topology.shown
    nics = [
        [
            tables.text(row.host),
            tables.text(row.nic),
            tables.text(row.name),
            tables.text(ranks(row.ranks)),
            tables.count(row.connections),
        ]
        for row in topology.nics
    ]
    transports = [
        [tables.text(row.transport), tables.count(row.links), tables.count(row.connections)]
        for row in topology.transports
    ]
    last = [
        tables.table("topology-nics", "NICs", ["host", "NIC", "name", "ranks that use it", "connections"], nics),
        tables.table("transports", "Transports", ["transport", "links", "connections"], transports),
    ]
    return [*(_of_shown(topology, shown) if shown else []), *last]


def _of_shown(topology: TopologyView, shown: CommunicatorView) -> list[tables.PageTable]:
    loads = [[tables.text(row[0]), *map(tables.size, row[1:])] for row in load_rows(shown)]
    near = [[tables.number(int(row[0])), *map(tables.text, row[1:])] for row in neighbour_rows(shown)]
    paths: list[list[tables.Cell]] = [
        [tables.text(kind), tables.text(channels), tables.Cell(layout.printable(text))]
        for kind, texts in (("ring", ring_texts(topology, shown)), ("tree", tree_texts(topology, shown)))
        for channels, text in texts
    ]
    return [
        tables.table("topology-loads", "Bytes on the busiest link and NIC", list(LOAD_HEADS), loads),
        tables.table("paths", "Rings and trees by channel", ["kind", "channels", "path"], paths),
        tables.table(
            "neighbours",
            "Who is whose neighbour",
            ["rank", "host", "GPU", "ring from", "ring to", "tree parents", "tree children", "NICs"],
            near,
        ),
        tables.table("links", "Links", ["from", "to", "hosts", "channels", "transport", "NICs", *_KEYS], _links(shown)),
    ]


_COLLECTIVE = "coll"  # channels of collectives
_KEYS = ("all-reduce ring", "all-gather ring", "all-reduce tree")


def _links(shown: CommunicatorView) -> list[list[tables.Cell]]:
    rows = []
    for link in shown.links:
        hosts = link.src_host if link.src_host == link.dst_host else f"{link.src_host or '?'} > {link.dst_host or '?'}"
        ends = [" ".join(link.nic_sends), " ".join(link.nic_receives)]
        nics = f"{ends[0] or '?'} > {ends[1] or '?'}" if any(ends) else ""
        rows.append(
            [
                *(tables.number(int(name_of(shown, rank))) for rank in (link.src, link.dst)),
                tables.text(hosts),
                tables.text(numbers(link.channels)),
                tables.text(", ".join(link.transports)),
                tables.text(nics),
                *(tables.size(link.bytes.get(key)) for key in _KEYS),
            ]
        )
    return rows
