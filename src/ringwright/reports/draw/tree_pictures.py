"""Geometry of the pictures of trees, from the root downwards: a box is the ranks of a host that hang together, in units of SVG.

Beyond :data:`MOST_HOSTS` hosts nothing is drawn and the reason is said.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ringwright.analysis.topology_view import CommunicatorView, TopologyView
from ringwright.reports.topology_names import MOST_HOSTS, MOST_PICTURES, hosts_of, name_of, shortened, too_many

MOST_IN_ROW = 8
GAP_X, GAP_Y = 14, 34  # between siblings, and between a box and those below it


@dataclass(frozen=True, slots=True)
class RankLine:
    """A line of ranks in a box, at the height y."""

    text: str
    y: float


@dataclass(frozen=True, slots=True)
class TreeFrame:
    """The box of a host's ranks, with its texts centred on cx."""

    x: float
    y: float
    width: float
    height: float
    cx: float
    host: str
    title: str
    ranks: list[RankLine]


@dataclass(frozen=True, slots=True)
class TreeLine:
    """The line from a box to one below it, "in" a host or over the "net", and its text at (tx, ty)."""

    x1: float
    y1: float
    x2: float
    y2: float
    kind: str
    text: str
    tx: float
    ty: float


@dataclass(frozen=True, slots=True)
class TreePicture:
    """One tree, of the channels that have it."""

    channels: list[int]
    root: str
    width: float
    height: float
    frames: list[TreeFrame]
    lines: list[TreeLine]


@dataclass(frozen=True, slots=True)
class TreePictures:
    """The different trees, and what is left out."""

    pictures: list[TreePicture]
    note: str


@dataclass
class TreeRun:
    """Ranks of one host that hang together; ``joins`` names the edge to the node above, the rest is where it is drawn."""

    host: str
    joins: str
    ranks: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    left: float = 8.0
    x: float = 0.0
    y: float = 6.0
    wide: float = 0.0
    tall: float = 0.0
    need: float = 0.0  # width of all that is below
    room: float = 0.0  # width that it takes with all that is below


def trees(view: TopologyView) -> TreePictures:
    """Return ``pictures`` of the shown communicator's different trees, a box per host, from the root downwards."""
    shown = view.shown
    if not shown:
        return TreePictures([], "")
    hosts = hosts_of(shown)
    different = shapes(view, shown)
    if not different:
        return TreePictures([], "")
    if len(set(hosts)) > MOST_HOSTS:
        return TreePictures([], too_many(shown.size, hosts))
    drawn = [_tree(edges, channels, shown, hosts) for edges, channels in list(different.items())[:MOST_PICTURES]]
    left = len(different) - len(drawn)
    note = f"{left} further tree{'s' if left > 1 else ''} of another shape in the data only" if left else ""
    return TreePictures(drawn, note)


def shapes(view: TopologyView, shown: CommunicatorView) -> dict[tuple[tuple[int, int], ...], list[int]]:
    """Return the channels of each different tree of the shown communicator, by its edges (child, parent)."""
    different: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for tree in view.trees:
        if tree.communicator == shown.communicator:
            edges = tuple((child, parent) for child, parent in tree.edges)
            different.setdefault(edges, []).append(tree.channel)
    return different


def _tree(
    edges: tuple[tuple[int, int], ...], channels: list[int], shown: CommunicatorView, hosts: list[str]
) -> TreePicture:
    """Return one tree: nodes are runs of ranks in one host, each below its parent."""
    nodes = runs_of(edges, shown.size, hosts)
    root = nodes[0].ranks[0]
    _spread(nodes)
    lines: list[TreeLine] = []
    for above in nodes:
        for number in above.below:
            below, y = nodes[number], above.y + above.tall
            lines.append(
                TreeLine(
                    x1=round(above.x, 1),
                    y1=y,
                    x2=round(below.x, 1),
                    y2=below.y,
                    kind="in" if above.host == below.host else "net",
                    text=below.joins,
                    tx=round((above.x + 2 * below.x) / 3, 1),
                    ty=round((y + 2 * below.y) / 3 - 1, 1),
                )
            )
    return TreePicture(
        channels=channels,
        root=name_of(shown, root),
        width=round(max(nodes[0].room + 16, 120), 1),
        height=round(max(node.y + node.tall for node in nodes) + 8, 1),
        frames=[_frame(node, shown) for node in nodes],
        lines=lines,
    )


def _spread(nodes: list[TreeRun]) -> None:
    """Give each node its place: as much room as its children need, they side by side below it."""
    for node in reversed(nodes):  # a node comes before its children
        rows = min(-(-len(node.ranks) // MOST_IN_ROW), 2)
        node.wide, node.tall = max(104.0, 26.0 * min(len(node.ranks), MOST_IN_ROW) + 14), 22 + 16 * rows
        node.need = sum(nodes[child].room for child in node.below) + GAP_X * max(len(node.below) - 1, 0)
        node.room = max(node.wide, node.need)
    for each in nodes:
        each.x = each.left + each.room / 2
        left = each.x - each.need / 2
        for child in each.below:
            nodes[child].left, nodes[child].y = left, each.y + each.tall + GAP_Y
            left += nodes[child].room + GAP_X


def _frame(node: TreeRun, shown: CommunicatorView) -> TreeFrame:
    """Return a node as a box with its host and at most two rows of ranks."""
    names = [name_of(shown, rank) for rank in node.ranks]
    rows = [names[at : at + MOST_IN_ROW] for at in range(0, len(names), MOST_IN_ROW)]
    if len(rows) > 2:
        rows = [[*names[: MOST_IN_ROW - 2], "..."], ["...", *names[-MOST_IN_ROW + 2 :]]]
    return TreeFrame(
        x=round(node.x - node.wide / 2, 1),
        y=node.y,
        width=node.wide,
        height=node.tall,
        cx=round(node.x, 1),
        host=shortened(node.host, node.wide),
        title=f"{node.host}: ranks {' '.join(names)}",
        ranks=[RankLine(" ".join(row), node.y + 32 + 16 * at) for at, row in enumerate(rows)],
    )


def runs_of(edges: tuple[tuple[int, int], ...], size: int, hosts: list[str]) -> list[TreeRun]:
    """Return the tree with the ranks of one host that hang together as one node, parents before children."""
    children: dict[int, list[int]] = defaultdict(list)
    for child, parent in edges:
        children[parent].append(child)
    (root,) = set(range(size)) - {child for child, _ in edges}
    nodes: list[TreeRun] = []
    waiting: list[tuple[int, int, str]] = [(root, -1, "")]
    while waiting:
        first, above, joins = waiting.pop(0)
        number = len(nodes)
        node = TreeRun(hosts[first], joins)
        nodes.append(node)
        if above >= 0:
            nodes[above].below.append(number)
        inside = [first]
        while inside:
            rank = inside.pop(0)
            node.ranks.append(rank)
            for child in sorted(children[rank]):
                if hosts[child] == hosts[rank]:
                    inside.append(child)
                else:
                    waiting.append((child, number, f"{child}→{rank}"))
    return nodes
