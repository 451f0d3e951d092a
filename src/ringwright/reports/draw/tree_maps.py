"""Geometry of the trees that the data of one root run along: a small map of the ranks for each, its moves as arrows.

What is added up on its way is dashed. Of many trees those with most bytes are drawn, and how many others there are is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ringwright.ground.units import format_size
from ringwright.reports.draw.curves import Spot, apex, line
from ringwright.reports.draw.rank_grid import rank_grid
from ringwright.reports.layout import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.model.program import Program
    from ringwright.model.topology import Topology
    from ringwright.search.chunk_routes import CarriedTree

MOST_TREES = 8
MOST_RANKS = 256
RADIUS = 9.0


class TreeMark(TypedDict):
    """A rank of the map: its middle, its number, whether it is the root, and whether the tree has it."""

    x: float
    y: float
    text: str
    kind: str


class TreeArrow(TypedDict):
    """A move: its path, whether it adds, and what it is in words."""

    path: str
    kind: str
    title: str


class TreeMap(TypedDict):
    """One tree, its colour and caption."""

    colour: int
    caption: str
    words: str
    view: str
    width: float
    marks: list[TreeMark]
    arrows: list[TreeArrow]


class TreeMaps(TypedDict):
    """The trees that are drawn, whose they are, and what is left out."""

    lead: str
    adds: bool
    maps: list[TreeMap]
    note: str


def tree_maps(program: Program, topology: Topology, trees: Sequence[CarriedTree]) -> TreeMaps:
    """Return the maps of the trees of one root."""
    group = list(program.collective.group)
    if not trees:
        return {"lead": "", "adds": False, "maps": [], "note": "the transfers are too many to follow chunk by chunk"}
    if topology.n_ranks > MOST_RANKS:
        return {
            "lead": "",
            "adds": False,
            "maps": [],
            "note": f"{topology.n_ranks:,} ranks are more than a map can show",
        }
    nodes = [*group, *program.aggregators]
    at, step = _positions(topology, program.aggregators)
    total = sum(each.size_bytes for each in trees)
    drawn = [
        _map(number + 1, each, nodes, at, step, topology, each.size_bytes / total if total else 0.0)
        for number, each in enumerate(trees[:MOST_TREES])
    ]
    left = trees[MOST_TREES:]
    share = percent(sum(each.size_bytes for each in left) / total) if total else ""
    note = f"{len(left)} further {'tree carries' if len(left) == 1 else 'trees carry'} {share}" if left else ""
    adds = any(bool(each.collects.any()) for each in trees)
    return {"lead": _lead(program, trees, nodes, topology), "adds": adds, "maps": drawn, "note": note}


def _lead(program: Program, trees: Sequence[CarriedTree], nodes: Sequence[int], topology: Topology) -> str:
    roots = {each.root for each in trees}
    total = format_size(sum(each.size_bytes for each in trees))
    count = f"{len(trees)} {'tree' if len(trees) == 1 else 'different trees'}"
    op = program.collective.op
    if op == "all-to-all":
        return f"What {topology.label(nodes[program.collective.root])} sends to all others, {total}, by its first hop"
    if roots == {-1} or not roots:
        return f"The moves that {total} make, by the chunks that share them: no rank is the root of all"
    root = topology.label(nodes[min(roots)])
    whose = {"all-reduce": f"summed up at {root} and sent from there", "reduce-scatter": f"summed up for {root}"}
    return f"{total} {whose.get(op, f'of {root}')}, along {count}; other roots have theirs"


def _positions(topology: Topology, above: Sequence[int]) -> tuple[dict[int, Spot], float]:
    """Return where the nodes of a map stand, nodes of the network that add in a row on top; and half a step of its grid.

    Half a step is 0 where rows stand so far apart that lines within them may bend more, the farther they go.
    """
    grid = rank_grid(topology)
    columns = max(grid.columns, float(len(above)))
    pitch = 44.0 if columns <= 6 else 36.0 if columns <= 10 else 28.0 if columns <= 18 else 23.0
    by_host = topology.n_nodes > topology.n_ranks and not grid.is_circle
    upright = max(pitch, 40.0 + 5.0 * grid.columns) if by_host else pitch
    at = {rank: Spot(x * pitch, y * upright) for rank, (x, y) in enumerate(zip(grid.x, grid.y, strict=True))}
    for number, node in enumerate(above):
        at[node] = Spot((number + 0.5) * columns * pitch / len(above), -60.0)
    return at, 0.0 if by_host else pitch / 2


def _map(
    colour: int,
    tree: CarriedTree,
    nodes: Sequence[int],
    at: dict[int, Spot],
    step: float,
    topology: Topology,
    share: float,
) -> TreeMap:
    rows = list(zip(tree.src.tolist(), tree.dst.tolist(), tree.step.tolist(), tree.collects.tolist(), strict=True))
    reached = {nodes[end] for src, dst, _, _ in rows for end in (src, dst)}
    root = nodes[tree.root] if tree.root >= 0 else -1
    arrows, ends = [], list(at.values())
    for src, dst, number, adds in rows:
        here, there = at[nodes[src]], at[nodes[dst]]
        bend = _bend(at, nodes[src], nodes[dst], step, below=adds)
        ends.append(apex(here, there, bend))
        said = f"step {number + 1}: {topology.label(nodes[src])} to {topology.label(nodes[dst])}"
        arrows.append(
            TreeArrow(
                path=line(here, there, bend=bend, shift=0.0 if bend else 2.5, ends=RADIUS + 1),
                kind="adds" if adds else "sends",
                title=said + (", added up there" if adds else ""),
            )
        )
    left, top = min(point.x for point in ends) - 14, min(point.y for point in ends) - 14
    wide, tall = max(point.x for point in ends) + 14 - left, max(point.y for point in ends) + 14 - top
    marks = [
        TreeMark(
            x=round(point.x, 1),
            y=round(point.y, 1),
            text=str(node) if node < topology.n_ranks else "sw",
            kind="root" if node == root else "rank" if node in reached else "rank apart",
        )
        for node, point in at.items()
    ]
    counts = f"{_several(len(rows), 'move')}, {tree.height} in a row, {_several(tree.chunks, 'chunk')}"
    caption = f"{format_size(tree.size_bytes)}, {percent(share)}: {counts}"
    return TreeMap(
        colour=colour,
        caption=caption,
        words=f"Tree {colour} with {_several(len(rows), 'move')}: {_told(rows, nodes, topology)}",
        view=f"{left:.1f} {top:.1f} {wide:.1f} {tall:.1f}",
        width=round(wide, 1),
        marks=marks,
        arrows=arrows,
    )


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def _told(rows: Sequence[tuple[int, int, int, bool]], nodes: Sequence[int], topology: Topology) -> str:
    """Return the first moves in words, for those who do not see them."""
    told = [f"{topology.label(nodes[src])} to {topology.label(nodes[dst])}" for src, dst, _, _ in rows[:12]]
    return ", ".join(told) + (f" and {len(rows) - 12} more" if len(rows) > 12 else "")


def _bend(at: dict[int, Spot], src: int, dst: int, step: float, *, below: bool) -> float:
    """Return how far a move stands off where others are between its ends: upwards or to the left, or the other side."""
    here, there = at[src], at[dst]
    dx, dy = abs(here.x - there.x), abs(here.y - there.y)
    between = any(
        min(here.x, there.x) - 1 < other.x < max(here.x, there.x) + 1
        and min(here.y, there.y) - 1 < other.y < max(here.y, there.y) + 1
        and (dx < 1 or dy < 1)
        for node, other in at.items()
        if node not in (src, dst)
    )
    bend = (step or 6.0 + 0.13 * dx + 0.06 * dy) if between else 0.0
    turned = (there.x < here.x if dy < 1 else there.y > here.y) != below
    return -bend if turned else bend
