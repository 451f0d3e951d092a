"""A machine in rows: each host in a frame, its ranks side by side, above them what leads out of it, below what only joins them.

What lies between hosts stands in rows on top, by how far it is from the ranks, each node near those that it hangs on.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypedDict

from ringwright.reports.draw.curves import Spot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.reports.draw.machine_graph import ShownMachine, ShownNode

LEVEL, EDGE, NODE = 72, 30, 26
CHORD = 68  # between ranks of a row that links join
AIR = 34  # more between the levels of the network, whose lines go far
ARC = 0.16  # depth of an arc over its width


class DrawnFrame(TypedDict):
    """The frame of a host."""

    x: float
    y: float
    width: float
    height: float
    text: str


def in_rows(machine: ShownMachine) -> tuple[list[Spot], list[DrawnFrame]]:
    """Return where nodes stand, level above level, and the frames of hosts."""
    levels = _levels(machine)
    top = max(levels)
    between = min(
        (level for level, node in zip(levels, machine.nodes, strict=True) if node.host < 0 and level), default=top
    )
    at = [
        Spot(0.0, EDGE + LEVEL * (top - level) + AIR * max(top - max(level, between - 1), 0) + NODE / 2)
        for level in levels
    ]
    groups: dict[int, list[int]] = defaultdict(list)
    for number, node in enumerate(machine.nodes):
        if node.host >= 0 or levels[number] == 0:
            groups[node.host].append(number)
    left, frames = float(EDGE), []
    for host, mine in sorted(groups.items()):
        rows = [[number for number in mine if levels[number] == level] for level in {levels[each] for each in mine}]
        wide = max(_width(machine, row) for row in rows)
        for row in rows:
            _spread_row(machine, row, at, left + (wide - _width(machine, row)) / 2)
        if host >= 0:
            ys = [at[number].y for number in mine]
            y = min(ys) - NODE / 2 - 24
            chords = [pair.ends for pair in machine.pairs if machine.is_chord(pair) and pair.ends[0] in mine]
            deep = max((10.0 + ARC * abs(at[here].x - at[there].x) for here, there in chords), default=0.0)
            frames.append(
                DrawnFrame(
                    x=left - 8,
                    y=y,
                    width=wide + 8,
                    height=max(ys) + NODE - 2 - y + deep,
                    text=machine.hosts.get(host, ""),
                )
            )
        left += wide + (26 if host >= 0 else 0)
    _above(machine, levels, at, left)
    return at, frames


def _above(machine: ShownMachine, levels: Sequence[int], at: list[Spot], wide: float) -> None:
    """Spread the nodes between hosts over the width, each near those below it."""
    between = [number for number, node in enumerate(machine.nodes) if node.host < 0 and levels[number] > 0]
    beside: dict[int, list[int]] = defaultdict(list)
    for pair in machine.pairs:
        beside[pair.ends[0]].append(pair.ends[1])
        beside[pair.ends[1]].append(pair.ends[0])
    for level in sorted({levels[number] for number in between}):
        row = [number for number in between if levels[number] == level]
        middle = {
            number: [at[other].x for other in beside[number] if levels[other] < level] or [wide / 2] for number in row
        }
        row.sort(key=lambda number: (round(sum(middle[number]) / len(middle[number])), number))
        need = _width(machine, row)
        room = max(wide - EDGE - need, 0.0) / (len(row) + 1)
        _spread_row(machine, row, at, EDGE + room, room)


# branches: a level for each kind of part that is there
def _levels(machine: ShownMachine) -> list[int]:
    """Return the level of each node: ranks 0, above them what leads out of the host, below what only joins its ranks."""
    inner = [node.host >= 0 and node.kind != "rank" for node in machine.nodes]
    beside: dict[int, set[int]] = defaultdict(set)
    for pair in machine.pairs:
        beside[pair.ends[0]].add(pair.ends[1])
        beside[pair.ends[1]].add(pair.ends[0])
    gates = [
        number
        for number, node in enumerate(machine.nodes)
        if inner[number]
        and (node.kind == "nic" or any(machine.nodes[other].host != node.host for other in beside[number]))
    ]
    out, waiting = set(gates), list(gates)
    while waiting:
        for other in beside[waiting.pop()]:
            if inner[other] and other not in out:
                out.add(other)
                waiting.append(other)
    highest = max((machine.nodes[number].depth for number in out), default=0)
    depths = sorted({node.depth for node in machine.nodes if node.host < 0 and node.depth > 0})
    levels = []
    for number, node in enumerate(machine.nodes):
        if node.host < 0:
            levels.append(highest + 1 + depths.index(node.depth) if node.depth else 0)
        else:
            levels.append(node.depth if number in out or node.kind == "rank" else -node.depth)
    return levels


def node_width(node: ShownNode) -> float:
    """Return the width of a node, in which its label fits."""
    return max(NODE, 6.4 * len(node.label) + 10)


def _room(machine: ShownMachine, number: int) -> float:
    """Return the width that a node takes in its row: ranks that links join directly stand apart, for the arcs below them."""
    node = machine.nodes[number]
    return CHORD if node.kind == "rank" and machine.has_chords else node_width(node) + 8


def _width(machine: ShownMachine, row: Sequence[int]) -> float:
    return sum(_room(machine, number) for number in row)


def _spread_row(machine: ShownMachine, row: Sequence[int], at: list[Spot], left: float, room: float = 0.0) -> None:
    for number in row:
        wide = _room(machine, number)
        at[number] = Spot(left + wide / 2 - 4, at[number].y)
        left += wide + room
