"""What the page's player shows: the picture of a machine, and the messages of a run with their times, routes and loads.

A picture and a run are plain columns. Times are whole ticks: picoseconds of a simulated run, thousandths of a step of an order
that has no times. Begins are told as differences from one message to the next, which keeps pages small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

import numpy as np

from ringwright.ground.units import format_size
from ringwright.reports.draw.machine_graph import spans
from ringwright.reports.draw.machine_picture import arrange, capacity_of, drawn
from ringwright.reports.draw.machine_rows import DrawnFrame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringwright.calls.message_playback import FollowedRun
    from ringwright.model.topology import Topology
    from ringwright.reports.draw.machine_graph import ShownMachine

PARTS = 48  # of the time, in each of which a link has one load
LONGEST_CHUNKS = 40  # characters
MOST_WIDE = 2000  # of a picture that is not folded: one moves, so it may be wider than the page


class PlayedNode(TypedDict):
    """A node: a rectangle with its text, its classes, and what it is in words."""

    x: float
    y: float
    width: float
    height: float
    text: str
    kind: str
    title: str


class PlayedLink(TypedDict):
    """What joins two nodes, by number: its path from the first to the second, its width, and what it is in words."""

    path: str
    width: float
    ends: tuple[int, int]
    title: str


class PlayedPicture(TypedDict):
    """A machine as the player draws it, in units of SVG."""

    width: float
    height: float
    frames: list[DrawnFrame]
    nodes: list[PlayedNode]
    links: list[PlayedLink]


class PlayedMessages(TypedDict):
    """Columns of messages in the order of their begin.

    ``start``: ticks since the begin of the one before; ``length`` in ticks; ``route`` into the run's routes; ``bytes`` (0: not
    known); ``adds`` 0 or 1; ``chunk`` into the run's chunks, -1 where it is not known; ``passes``: for each link of its route,
    ticks from its begin to when it enters that link and from then to when its last byte has left it, flat; none: all the time.
    """

    start: list[int]
    length: list[int]
    route: list[int]
    bytes: list[int]
    adds: list[int]
    chunk: list[int]
    passes: list[int]


class PlayedRoute(TypedDict):
    """From whom to whom, by name and by node of the picture; ``links``: twice the number of each link, odd: backwards."""

    names: tuple[str, str]
    nodes: tuple[int, int]
    links: list[int]


class PlayedLoad(TypedDict):
    """How busy links are in equal parts of the time, per mille; ``links``: which course each link and direction has."""

    links: list[int]
    courses: list[list[int]]


class PlayedRun(TypedDict):
    """One run on one of the pictures; ``tick_us`` is 0 where ticks are thousandths of a step."""

    name: str
    note: str
    picture: int
    tick_us: float
    end: int
    messages: PlayedMessages
    routes: list[PlayedRoute]
    chunks: list[str]
    load: PlayedLoad | None


class Play(TypedDict):
    """All that a page plays."""

    pictures: list[PlayedPicture]
    runs: list[PlayedRun]


class Numbering(NamedTuple):
    """Of each node of the machine its node of the picture, and of each link twice its number there, odd backwards, -1 undrawn."""

    node: np.ndarray
    link: np.ndarray


def play(topology: Topology, followed: Sequence[FollowedRun | tuple[str, str]]) -> tuple[Play | None, list[str]]:
    """Return what the page plays of some runs on one machine, and what is left out; ``followed``: or a name and why it is not."""
    notes = [f"not played: {each[0]} ({each[1]})" for each in followed if isinstance(each, tuple)]
    runs = [each for each in followed if not isinstance(each, tuple)]
    arranged, note = arrange(topology, None, (), MOST_WIDE)
    if arranged is None or not runs:
        return None, [*([note] if arranged is None else []), *notes]
    machine, shown = arranged.machine, drawn(arranged)
    picture = PlayedPicture(
        width=shown["width"],
        height=shown["height"],
        frames=shown["frames"],
        nodes=[
            PlayedNode(
                x=node["x"],
                y=node["y"],
                width=node["width"],
                height=node["height"],
                text=node["text"],
                kind=node["kind"],
                title=node["title"],
            )
            for node in shown["nodes"]
        ],
        links=[
            PlayedLink(
                path=link["path"],
                width=link["width"],
                ends=pair.ends,
                title=f"{_name(machine, pair.ends[0])} and {_name(machine, pair.ends[1])}, {capacity_of(pair)}",
            )
            for link, pair in zip(shown["links"], machine.pairs, strict=True)
        ],
    )
    numbering = _numbered(topology, machine)
    played = [_run(each, topology, numbering, len(machine.pairs)) for each in runs]
    return Play(pictures=[picture], runs=played), [*([note] if note else []), *notes]


def _name(machine: ShownMachine, number: int) -> str:
    node = machine.nodes[number]
    return f"{node.kind} {node.label}"


def _numbered(topology: Topology, machine: ShownMachine) -> Numbering:
    node = np.full(topology.n_nodes, -1)
    for number, each in enumerate(machine.nodes):
        node[each.nodes] = number
    pairs = {pair.ends: number for number, pair in enumerate(machine.pairs)}
    here, there = node[topology.src], node[topology.dst]
    link = [
        -1 if one == other else 2 * pairs[min(one, other), max(one, other)] + int(one > other)
        for one, other in zip(here.tolist(), there.tolist(), strict=True)
    ]
    return Numbering(node, np.array(link, np.int64).reshape(-1))


def _run(followed: FollowedRun, topology: Topology, numbering: Numbering, links: int) -> PlayedRun:
    run, flat = followed.run, followed.run.flat
    assert flat is not None  # noqa: S101 - a run that is followed has its messages
    end = min(followed.until_ps, run.time_ps)
    routes: dict[tuple[int, int, tuple[int, ...]], int] = {}
    passes: list[int] = []
    route_of = []
    hops, begins, leaves = flat.hops.tolist(), followed.passages.begin_ps.tolist(), followed.passages.leave_ps.tolist()
    for message in followed.messages.tolist():
        on = []
        begin, finish = int(run.start_ps[message]), int(run.end_ps[message])
        for hop in range(int(flat.hop_starts[message]), int(flat.hop_starts[message + 1])):
            number = int(numbering.link[hops[hop]]) if hops[hop] < topology.n_links else -1
            if number >= 0:
                on.append(number)
                # What is not followed to its end was cut where the picture ends.
                enters, left = (min(each[hop], finish) for each in (begins, leaves))
                passes += [max(enters - begin, 0), max(left - enters, 0)]
        key = int(flat.src[message]), int(flat.dst[message]), tuple(on)
        route_of.append(routes.setdefault(key, len(routes)))
    starts = run.start_ps[followed.messages]
    chunks, chunk_of = _chunks(followed)
    return PlayedRun(
        name=followed.name,
        note=_note(followed),
        picture=0,
        tick_us=1e-6,
        end=end,
        messages=PlayedMessages(
            start=np.diff(starts, prepend=0).tolist(),
            length=(run.end_ps[followed.messages] - starts).tolist(),
            route=route_of,
            bytes=flat.size_bytes[followed.messages].tolist(),
            adds=flat.adds[followed.messages].astype(int).tolist(),
            chunk=chunk_of,
            passes=passes,
        ),
        routes=[
            PlayedRoute(
                names=(_end(topology, src), _end(topology, dst)),
                nodes=(int(numbering.node[src]), int(numbering.node[dst])),
                links=list(on),
            )
            for src, dst, on in routes
        ],
        chunks=chunks,
        load=_load(followed, topology, numbering, links, end),
    )


def _end(topology: Topology, node: int) -> str:
    return f"rank {node}" if node < topology.n_ranks else topology.label(node)


def _note(followed: FollowedRun) -> str:
    run = followed.run
    told = [
        (
            f"{run.time_s * 1e6:,.6g} us by the {run.engine} engine for "
            f"{format_size(followed.program.collective.size_bytes)}, before any correction by measurements"
        )
    ]
    if followed.left:
        told.append(
            f"the first {followed.until_ps / 1e6:,.6g} us are shown, with {len(followed.messages):,} of "
            f"{len(followed.messages) + followed.left:,} messages"
        )
    if not followed.passages.is_exact:
        told.append("a message is drawn on all of its links from its begin to its end, as this engine says no more")
    return "; ".join(told)


def _chunks(followed: FollowedRun) -> tuple[list[str], list[int]]:
    """Return the names of sets of chunks, and which set each message carries, -1 where it is not known."""
    of: dict[int, list[int]] = {int(message): [] for message in followed.messages}
    if not len(followed.piece_message):
        return [], [-1] * len(of)
    shown = np.isin(followed.piece_message, followed.messages)
    for message, chunk in zip(
        followed.piece_message[shown].tolist(), followed.piece_chunk[shown].tolist(), strict=True
    ):
        of[message].append(chunk)
    names: dict[str, int] = {}
    numbers = []
    for carried in of.values():
        many = sorted(set(carried))
        text = ("chunk " if len(many) == 1 else "chunks ") + spans(many)
        if len(text) > LONGEST_CHUNKS:
            text = f"{len(many):,} chunks, {many[0]} to {many[-1]}"
        numbers.append(names.setdefault(text, len(names)))
    return list(names), numbers


def _load(followed: FollowedRun, topology: Topology, numbering: Numbering, links: int, end: int) -> PlayedLoad:
    """Return how busy each drawn link and direction is: the mean of its links, each counted by how fast it is."""
    run = followed.run
    assert run.flat is not None and run.machine is not None  # noqa: S101, PT018 - as above
    busy = followed.passages.load(run.flat.hops, run.machine.n, end, PARTS)[: topology.n_links]
    rate = np.asarray(topology.rate, float)
    drawn_at = np.flatnonzero(numbering.link >= 0)
    at = numbering.link[drawn_at]
    total = np.bincount(at, weights=rate[drawn_at], minlength=2 * links)
    load = np.zeros((2 * links, PARTS))
    np.add.at(load, at, busy[drawn_at] * rate[drawn_at, None])
    load /= np.maximum(total, 1e-300)[:, None]
    mille = np.rint(load * 1000).astype(int)
    mille[(load > 0) & (mille == 0)] = 1
    courses: dict[tuple[int, ...], int] = {}
    of = [courses.setdefault(tuple(each), len(courses)) for each in np.minimum(mille, 1000).tolist()]
    return PlayedLoad(links=of, courses=[list(course) for course in courses])


def step_messages(moves: Sequence[tuple[int, int, int, int]], step_ticks: int = 1000) -> PlayedMessages:
    """Return messages of an order without times, as (step, route, adds, chunk) in the order of steps; each lasts a step."""
    starts = [step * step_ticks for step, *_ in moves]
    return PlayedMessages(
        start=np.diff(starts, prepend=0).tolist() if starts else [],
        length=[step_ticks] * len(moves),
        route=[route for _, route, _, _ in moves],
        bytes=[0] * len(moves),
        adds=[adds for _, _, adds, _ in moves],
        chunk=[chunk for *_, chunk in moves],
        passes=[],
    )
