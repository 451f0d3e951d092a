"""Steps on the rings and trees that a log named: who sends to whom in which step of an all-reduce. A log has an order, no times.

In step s of a ring each rank sends the chunk that it got in the step before to the next rank, first to be added, then as it is.
In a tree a rank sends to its parent when all its children have, and the sum comes down the same edges.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from ringwright.reports.draw.player import (
    Play,
    PlayedLink,
    PlayedNode,
    PlayedPicture,
    PlayedRoute,
    PlayedRun,
    step_messages,
)
from ringwright.reports.draw.ring_pictures import RingPicture, orders, rings, visits
from ringwright.reports.draw.tree_pictures import TreePicture, TreeRun, runs_of, shapes, trees
from ringwright.reports.topology_names import MOST_PICTURES, MOST_RANKS, hosts_of, name_of

if TYPE_CHECKING:
    from ringwright.analysis.topology_view import CommunicatorView, TopologyView

MOST_MESSAGES = 8_100  # of one ring or tree
STEP = 1000  # ticks


class DrawnOrder(NamedTuple):
    """A picture of a ring or tree, its name, and its steps: (step, from, to, adds, chunk) by rank of the communicator."""

    picture: PlayedPicture
    name: str
    moves: list[tuple[int, int, int, int, int]]
    node_of: dict[int, int]
    link_of: dict[tuple[int, int], int]  # twice the number of the line between two ranks, odd: backwards
    chunks: int


def log_play(view: TopologyView) -> Play | None:
    """Return the different rings and trees of the shown communicator, played in steps; None where none is drawn."""
    shown = view.shown
    if not shown:
        return None
    hosts = hosts_of(shown)
    made = [
        _ring(order, drawn, shown, hosts)
        for order, drawn in zip(list(orders(view, shown))[:MOST_PICTURES], rings(view).pictures, strict=False)
        if len(order) > 1
    ]
    made += [
        _tree(edges, drawn, shown, hosts)
        for edges, drawn in zip(list(shapes(view, shown))[:MOST_PICTURES], trees(view).pictures, strict=False)
        if edges
    ]
    if not made:
        return None
    return Play(
        pictures=[each.picture for each in made],
        runs=[_played(number, each, shown) for number, each in enumerate(made)],
    )


def _named(kind: str, channels: list[int]) -> str:
    return f"{kind} of channel{'s' if len(channels) > 1 else ''} {', '.join(map(str, channels))}"


def _ring(order: tuple[int, ...], drawn: RingPicture, shown: CommunicatorView, hosts: list[str]) -> DrawnOrder:
    n = len(order)
    stops = visits(order, hosts, folded=shown.size > MOST_RANKS)
    node_of = {rank: number for number, stop in enumerate(stops) for rank in stop}
    ends = [(stop[-1], stops[(number + 1) % len(stops)][0]) for number, stop in enumerate(stops)]
    picture = PlayedPicture(
        width=drawn.width,
        height=drawn.height,
        frames=[
            {"x": each.x, "y": each.y, "width": each.width, "height": each.height, "text": each.host}
            for each in drawn.frames
        ],
        nodes=[
            PlayedNode(
                x=each.x,
                y=each.y,
                width=each.width,
                height=30,
                text=each.text,
                kind="rank",
                title=each.title,
            )
            for each in drawn.squares
        ],
        links=[
            PlayedLink(
                path=each.path,
                width=2,
                ends=(number, (number + 1) % len(stops)),
                title=_between(ends[number], shown),
            )
            for number, each in enumerate(drawn.lines)
        ],
    )
    links = {pair: 2 * number for number, pair in enumerate(ends)} if drawn.lines else {}
    moves = [
        (step, order[at], order[(at + 1) % n], int(step < n - 1), (at - step) % n)
        for step in range(2 * (n - 1))
        for at in range(n)
    ]
    return DrawnOrder(picture, _named("ring", drawn.channels), moves, node_of, links, n)


def _between(ends: tuple[int, int], shown: CommunicatorView) -> str:
    return f"rank {name_of(shown, ends[0])} and rank {name_of(shown, ends[1])}"


def _tree(
    edges: tuple[tuple[int, int], ...], drawn: TreePicture, shown: CommunicatorView, hosts: list[str]
) -> DrawnOrder:
    runs = runs_of(edges, shown.size, hosts)
    node_of = {rank: number for number, run in enumerate(runs) for rank in run.ranks}
    crossing = _crossing(edges, runs, node_of)
    picture = PlayedPicture(
        width=drawn.width,
        height=drawn.height,
        frames=[],
        nodes=[
            PlayedNode(
                x=each.x,
                y=each.y,
                width=each.width,
                height=each.height,
                text="\n".join([each.host, *(row.text for row in each.ranks)]),
                kind="host",
                title=each.title,
            )
            for each in drawn.frames
        ],
        links=[
            PlayedLink(
                path=f"M{line.x1} {line.y1}L{line.x2} {line.y2}",
                width=2,
                ends=(node_of[parent], node_of[child]),
                title=_between((child, parent), shown),
            )
            for line, (child, parent) in zip(drawn.lines, crossing, strict=True)
        ],
    )
    links: dict[tuple[int, int], int] = {}
    for number, (child, parent) in enumerate(crossing):
        links[parent, child], links[child, parent] = 2 * number, 2 * number + 1
    return DrawnOrder(picture, _named("tree", drawn.channels), _up_and_down(edges), node_of, links, 1)


def _crossing(
    edges: tuple[tuple[int, int], ...], runs: list[TreeRun], node_of: dict[int, int]
) -> list[tuple[int, int]]:
    """Return the edge (child, parent) of each line, in the order in which lines are drawn: node by node, those below each."""
    above = dict(edges)
    return [(runs[below].ranks[0], above[runs[below].ranks[0]]) for run in runs for below in run.below]


def _up_and_down(edges: tuple[tuple[int, int], ...]) -> list[tuple[int, int, int, int, int]]:
    """Return the sum's way up and the result's way down: each edge as soon as it can, both times."""
    children: dict[int, list[int]] = defaultdict(list)
    for child, parent in edges:
        children[parent].append(child)
    (root,) = set(children) - {child for child, _ in edges}
    downwards = [root]
    for rank in downwards:
        downwards += children[rank]
    ready: dict[int, int] = {}
    for rank in reversed(downwards):  # the step in which a rank can send upwards
        ready[rank] = max((ready[child] + 1 for child in children[rank]), default=0)
    has = {root: ready[root]}
    moves = [(ready[child], child, parent, 1, 0) for child, parent in edges]
    for rank in downwards:
        for child in children[rank]:
            has[child] = has[rank] + 1
            moves.append((has[rank], rank, child, 0, 0))
    return sorted(moves, key=lambda move: move[0])


def _played(number: int, made: DrawnOrder, shown: CommunicatorView) -> PlayedRun:
    whole, moves = made.moves[-1][0] + 1, made.moves
    if len(moves) > MOST_MESSAGES:
        last = max(moves[MOST_MESSAGES][0], 1)
        moves = [move for move in moves if move[0] < last]
    steps = moves[-1][0] + 1
    routes: dict[tuple[int, int], int] = {}
    rows = [(step, routes.setdefault((src, dst), len(routes)), adds, chunk) for step, src, dst, adds, chunk in moves]
    hidden = sum(pair not in made.link_of for pair in routes)
    told = [
        "the order of an all-reduce on what the log named; a log has no times of messages, so all steps last equally long"
    ]
    if steps < whole:
        told.append(f"the first {steps:,} of {whole:,} steps")
    if hidden:
        told.append("what passes inside a box has no line of its own and colours the edge of the box")
    return PlayedRun(
        name=made.name,
        note="; ".join(told),
        picture=number,
        tick_us=0.0,
        end=steps * STEP,
        messages=step_messages(rows, STEP),
        routes=[
            PlayedRoute(
                names=(f"rank {name_of(shown, src)}", f"rank {name_of(shown, dst)}"),
                nodes=(made.node_of[src], made.node_of[dst]),
                links=[made.link_of[src, dst]] if (src, dst) in made.link_of else [],
            )
            for src, dst in routes
        ],
        chunks=[f"chunk {chunk}" for chunk in range(made.chunks)] if made.chunks > 1 else ["the sum"],
        load=None,
    )
