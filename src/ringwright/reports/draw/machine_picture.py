"""Geometry of the picture of a machine: ranks, NICs and switches, links as wide as they are fast, in the colour of their load.

Machines of ranks alone are drawn along their axes; others in rows, each host a frame, switches above by how far they are from
the ranks. What is too wide is folded: a host is one node, switches that are alike are one, and the first host is drawn by itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ringwright.reports.draw.curves import Spot, apex, line
from ringwright.reports.draw.machine_graph import ShownMachine, ShownNode, ShownPair, only, shown
from ringwright.reports.draw.machine_rows import ARC, EDGE, NODE, DrawnFrame, in_rows, node_width
from ringwright.reports.draw.rank_grid import rank_grid
from ringwright.reports.layout import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.engines.result import Run
    from ringwright.model.topology import Topology

MOST_RANKS = 256  # of a grid
MOST_NODES, MOST_WIDE = 150, 1250  # of rows that are not folded
MOST_SHOWN = 40  # hosts, or switches of a depth, that are drawn at all
SHADES = (0.0, 0.25, 0.5, 0.75, 0.9)  # share busy above which a line is darker
WIDEST = 6.0


class DrawnNode(TypedDict):
    """A node: a rectangle around (cx, cy) with its text; ``kind`` and, where the cut has it, "cut" are its classes."""

    x: float
    y: float
    cx: float
    cy: float
    width: float
    height: float
    text: str
    title: str
    kind: str


class DrawnLink(TypedDict):
    """Links between two nodes as one line: its path, its width, its classes, what it is in words."""

    path: str
    width: float
    kind: str
    crosses: bool
    title: str


class MachinePicture(TypedDict):
    """One picture of a machine, its caption, and the words for those who do not see it."""

    caption: str
    width: float
    height: float
    frames: list[DrawnFrame]
    links: list[DrawnLink]
    nodes: list[DrawnNode]
    words: str


class MachineLayout(NamedTuple):
    """What a picture shows of a machine, where its nodes stand, and the frames of hosts; ``is_folded``: by hosts."""

    machine: ShownMachine
    at: Sequence[Spot]
    frames: list[DrawnFrame]
    is_folded: bool


def pictures(topology: Topology, run: Run | None, cut: Sequence[int]) -> tuple[list[MachinePicture], str]:
    """Return the pictures of a machine and what is left out of them; ``cut``: the nodes that prove the bound."""
    time_s = 0.0 if run is None else run.time_s
    arranged, note = arrange(topology, run, cut)
    if arranged is None:
        return [], note
    made = [_picture(arranged, time_s, "By host: a line is all links between two nodes" if arranged.is_folded else "")]
    if arranged.is_folded:
        first = only(shown(topology, run, cut, folded=False), lambda node: node.host == 0)
        if any(node.host == 0 for node in first.nodes) and len(first.nodes) <= MOST_NODES:
            inside = MachineLayout(first, *in_rows(first), is_folded=False)
            made.append(_picture(inside, time_s, "The first host, and what it hangs on"))
    return made, note


def arrange(
    topology: Topology, run: Run | None, cut: Sequence[int], most_wide: float = MOST_WIDE
) -> tuple[MachineLayout | None, str]:
    """Return where a machine's nodes stand and what is folded; None where it is more than a picture can show, and why.

    ``most_wide``: the width from which on rows are folded, in units of SVG.
    """
    if topology.n_nodes == topology.n_ranks:
        if topology.n_ranks > MOST_RANKS:
            return None, f"{topology.n_ranks:,} ranks are more than a picture can show"
        machine = shown(topology, run, cut, folded=False)
        machine.in_rows = False
        return MachineLayout(machine, _on_grid(topology), [], is_folded=False), ""
    if topology.n_nodes <= MOST_NODES:
        machine = shown(topology, run, cut, folded=False)
        at, frames = in_rows(machine)
        if max(point.x for point in at) <= most_wide:
            return MachineLayout(machine, at, frames, is_folded=False), ""
    folded = shown(topology, run, cut, folded=True)
    levels = [sum(node.depth == depth for node in folded.nodes) for depth in {node.depth for node in folded.nodes}]
    if max(levels) > MOST_SHOWN or len(folded.nodes) == 1:
        return None, f"{max(levels):,} hosts or switches side by side are more than a picture can show"
    note = f"{topology.n_ranks:,} ranks on {topology.n_nodes:,} nodes are folded: lines between hosts hold many links"
    return MachineLayout(folded, *in_rows(folded), is_folded=True), note


def drawn(arranged: MachineLayout) -> MachinePicture:
    """Return the picture of a machine without loads, its links in the order of its pairs."""
    return _picture(arranged, 0.0, "")


def shade(share: float) -> int:
    """Return the shade of a share of the time: 0 for unused, 1 to 5 for more and more."""
    return 0 if share <= 0 else sum(share > bound for bound in SHADES)


def _on_grid(topology: Topology) -> list[Spot]:
    grid = rank_grid(topology)
    pitch = max(36.0, min(84.0, 640.0 / max(grid.columns, grid.rows)))
    margin = EDGE + pitch / 2
    return [Spot(margin + x * pitch, margin + y * pitch) for x, y in zip(grid.x, grid.y, strict=True)]


def _picture(arranged: MachineLayout, time_s: float, caption: str) -> MachinePicture:
    machine, at, frames, _ = arranged
    fastest = max((pair.capacity for pair in machine.pairs), default=1.0) or 1.0
    widest = max(2.5, min(WIDEST, 14 * WIDEST / max(len(machine.pairs), 1)))
    links, apexes = [], [Spot(0.0, 0.0)]
    for pair in sorted(machine.pairs, key=lambda pair: pair.load(time_s)):
        here, there = (at[end] for end in pair.ends)
        bend = _arc(here, there) if machine.is_chord(pair) else _bend(here, there, at)
        apexes.append(apex(here, there, bend))
        wide = 1.0 + (widest - 1.0) * math.sqrt(pair.capacity / fastest)
        links.append(_link(machine, pair, line(here, there, bend=bend), wide, pair.load(time_s)))
    nodes = [_node(node, point) for node, point in zip(machine.nodes, at, strict=True)]
    right = max([*(node["x"] + node["width"] for node in nodes), *(point.x for point in apexes)])
    bottom = max([*(node["y"] + node["height"] for node in nodes), *(point.y for point in apexes)])
    return MachinePicture(
        caption=caption,
        width=round(max([right, *(each["x"] + each["width"] for each in frames)]) + EDGE, 1),
        height=round(max([bottom, *(each["y"] + each["height"] for each in frames)]) + EDGE / 2, 1),
        frames=frames,
        links=links,
        nodes=nodes,
        words=f"{len(nodes)} nodes and {len(links)} pairs of them that links join",
    )


def _node(node: ShownNode, point: Spot) -> DrawnNode:
    wide = node_width(node)
    return DrawnNode(
        x=round(point.x - wide / 2, 1),
        y=round(point.y - NODE / 2, 1),
        cx=round(point.x, 1),
        cy=round(point.y, 1),
        width=round(wide, 1),
        height=NODE,
        text=node.label,
        title=f"{node.kind} {node.label}" + (", of the set that proves the bound" if node.is_cut else ""),
        kind=f"{node.kind} cut" if node.is_cut else node.kind,
    )


def _link(machine: ShownMachine, pair: ShownPair, path: str, wide: float, load: float) -> DrawnLink:
    names = [machine.nodes[end].label for end in pair.ends]
    return DrawnLink(
        path=path,
        width=round(wide, 1),
        kind=f"u{shade(load)}" + (" ill" if pair.is_ill else ""),
        crosses=pair.crosses,
        title=f"{names[0]} to {names[1]}: {_said(pair, load)}",
    )


def _said(pair: ShownPair, load: float) -> str:
    return f"{capacity_of(pair)}, busy {percent(load)}"


def capacity_of(pair: ShownPair) -> str:
    """Return how fast the links between two nodes are, in words."""
    links = "" if pair.links <= 2 else f"{pair.links} links, "
    ill = f", {min(pair.rate.values()) / 1e9:,.6g} GB/s under faults" if pair.is_ill else ""
    return f"{links}{pair.capacity / 1e9:,.6g} GB/s a direction{ill}"


def _arc(here: Spot, there: Spot) -> float:
    """Return how far a line between two ranks of a row hangs below it."""
    return math.copysign(10.0 + ARC * abs(there.x - here.x), here.x - there.x) if abs(there.y - here.y) < 1 else 0.0


def _bend(here: Spot, there: Spot, at: Sequence[Spot]) -> float:
    """Return how far a line in a row or column must stand off, so that it does not run through nodes between its ends."""
    if min(abs(there.x - here.x), abs(there.y - here.y)) > 1:
        return 0.0
    far = math.hypot(there.x - here.x, there.y - here.y)
    for other in at:
        along = ((other.x - here.x) * (there.x - here.x) + (other.y - here.y) * (there.y - here.y)) / (far * far or 1.0)
        if not 0.01 < along < 0.99:
            continue
        off = abs((other.x - here.x) * (there.y - here.y) - (other.y - here.y) * (there.x - here.x)) / (far or 1.0)
        if off < NODE / 2:
            return -min(max(0.14 * far, 16.0), 46.0) if abs(there.y - here.y) < 1 else 30.0
    return 0.0
