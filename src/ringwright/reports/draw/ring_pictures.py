"""Geometry of the pictures of rings: boxes are hosts, squares are ranks, in units of SVG.

A ring is drawn as the path that it takes: hosts in the order of their first visit, row by row, to and fro, and ranks in the
order in which the ring visits them; so neighbours in the ring are neighbours on the page. Beyond :data:`MOST_RANKS` ranks a
square is a host with its range of ranks, beyond :data:`MOST_HOSTS` hosts nothing is drawn and the reason is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ringwright.analysis.topology_view import CommunicatorView, TopologyView
from ringwright.reports.topology_names import (
    MOST_HOSTS,
    MOST_PICTURES,
    MOST_RANKS,
    UNKNOWN,
    hosts_of,
    name_of,
    shortened,
    too_many,
)

WIDTH = 980
SQUARE, FOLDED, BETWEEN = 30, 78, 8  # height and width of a rank's square, width of a host's, space between
BOX_PAD, BOX_HEAD = 10, 20
GAP_X, GAP_Y, EDGE = 44, 34, 26
MOST_IN_ROW = 8


@dataclass(frozen=True, slots=True)
class HostFrame:
    """The box of a host, its name as it fits, and the row of boxes that it stands in."""

    x: float
    y: float
    width: float
    height: float
    host: str
    title: str
    row: int


@dataclass(frozen=True, slots=True)
class DrawnSquare:
    """The square of a rank, or of a host's ranks, with its text at (cx, cy)."""

    x: float
    width: float
    y: float
    cx: float
    cy: float
    text: str
    title: str
    small: bool


@dataclass(frozen=True, slots=True)
class RingArrow:
    """The arrow between two squares, "in" a host or over the "net", and its text at (x, y)."""

    path: str
    kind: str
    text: str
    x: float
    y: float
    anchor: str


@dataclass(frozen=True, slots=True)
class RingPicture:
    """One ring, of the channels that have it."""

    channels: list[int]
    width: float
    height: float
    frames: list[HostFrame]
    squares: list[DrawnSquare]
    lines: list[RingArrow]


@dataclass(frozen=True, slots=True)
class RingPictures:
    """The different rings, and what is folded or left out."""

    pictures: list[RingPicture]
    note: str


class Square(NamedTuple):
    """The middle of a square, and the box that it is in."""

    x: float
    y: float
    box: int
    half: float  # of its width


def rings(view: TopologyView) -> RingPictures:
    """Return ``pictures`` of the shown communicator's different rings, and a ``note`` on what is folded or left out."""
    shown = view.shown
    if not shown:
        return RingPictures([], "")
    different = orders(view, shown)
    hosts = hosts_of(shown)
    note = too_many(shown.size, hosts)
    if note and len(set(hosts)) > MOST_HOSTS:
        return RingPictures([], note)
    first = list(different.items())[:MOST_PICTURES]
    left = len(different) - len(first)
    more = (
        f"{left} further ring{'s' if left > 1 else ''} of another order {'are' if left > 1 else 'is'} in the data only"
        if left
        else ""
    )
    nics = _nic_of(shown)
    return RingPictures(
        [_ring(order, channels, shown, hosts, nics) for order, channels in first],
        ". ".join(part for part in (note, more) if part),
    )


def orders(view: TopologyView, shown: CommunicatorView) -> dict[tuple[int, ...], list[int]]:
    """Return the channels of each different ring of the shown communicator, by its ranks in their order."""
    different: dict[tuple[int, ...], list[int]] = {}
    for ring in view.rings:
        if ring.communicator == shown.communicator:
            different.setdefault(tuple(ring.ranks), []).append(ring.channel)
    return different


def _nic_of(shown: CommunicatorView) -> dict[tuple[int, int], str]:
    """Return what is written beside a link between hosts: ``NIC 2 > 3``, sender's and receiver's."""
    nics = {}
    for link in shown.links:
        ends = ["/".join(link.nic_sends), "/".join(link.nic_receives)]
        if link.between_hosts and any(ends):
            nics[link.src, link.dst] = f"{ends[0] or '?'}>{ends[1] or '?'}"
    return nics


def _ring(
    order: tuple[int, ...],
    channels: list[int],
    shown: CommunicatorView,
    hosts: list[str],
    nics: dict[tuple[int, int], str],
) -> RingPicture:
    """Return boxes, squares and lines of one ring."""
    stops = visits(order, hosts, folded=shown.size > MOST_RANKS)
    boxes: dict[str, list[int]] = {}
    for number, stop in enumerate(stops):
        boxes.setdefault(hosts[stop[0]], []).append(number)
    square = FOLDED if shown.size > MOST_RANKS else SQUARE
    frames, places, height = _laid_out(boxes, square)
    lines = [_line(stops, number, places, frames, nics, height) for number in range(len(stops))]
    squares = [
        DrawnSquare(
            x=round(at.x - at.half, 1),
            width=square,
            y=round(at.y - SQUARE / 2, 1),
            cx=round(at.x, 1),
            cy=round(at.y + 4, 1),
            text=_label(stop, shown),
            title=_title(stop, shown),
            small=len(_label(stop, shown)) * 8 > square,
        )
        for stop, at in zip(stops, places, strict=True)
    ]
    return RingPicture(
        channels=channels,
        width=WIDTH,
        height=round(height, 1),
        frames=frames,
        squares=squares,
        lines=[line for line in lines if line],
    )


def visits(order: tuple[int, ...], hosts: list[str], *, folded: bool) -> list[list[int]]:
    """Return the ranks of each square in the order of the ring: one each, or all of a visit to a host where folded."""
    stops: list[list[int]] = []
    for rank in order:
        if folded and stops and hosts[stops[-1][0]] == hosts[rank]:
            stops[-1].append(rank)
        else:
            stops.append([rank])
    return stops


def _label(stop: list[int], shown: CommunicatorView) -> str:
    names = [name_of(shown, rank) for rank in (stop[0], stop[-1])]
    return names[0] if len(stop) == 1 else f"{names[0]}..{names[1]}"


def _title(stop: list[int], shown: CommunicatorView) -> str:
    member = shown.members[stop[0]]
    device = "" if member.device is None else f", GPU {member.device}"
    return f"rank {_label(stop, shown)} on {member.host or UNKNOWN}{device}"


def _laid_out(boxes: dict[str, list[int]], square: int) -> tuple[list[HostFrame], list[Square], float]:
    """Place boxes row by row, to and fro, and their squares likewise; all boxes are as large as the largest."""
    pitch = square + BETWEEN
    most = max(len(inside) for inside in boxes.values())
    across = min(most, MOST_IN_ROW if len(boxes) > 1 else 2 * MOST_IN_ROW)
    deep = -(-most // across)
    wide, tall = across * pitch + 2 * BOX_PAD, deep * (SQUARE + BETWEEN) + BOX_HEAD + BOX_PAD
    wide = max(wide, 120)
    in_row = max(1, int((WIDTH - 2 * EDGE + GAP_X) // (wide + GAP_X)))
    frames: list[HostFrame] = []
    places: dict[int, Square] = {}
    for number, (host, inside) in enumerate(boxes.items()):
        row, at = divmod(number, in_row)
        back = row % 2 == 1
        column = in_row - 1 - at if back else at
        x, y = EDGE + column * (wide + GAP_X), 6 + row * (tall + GAP_Y)
        frames.append(HostFrame(x=x, y=y, width=wide, height=tall, host=shortened(host, wide), title=host, row=row))
        for position, stop in enumerate(inside):
            line, step = divmod(position, across)
            turn = back != (line % 2 == 1)
            used = min(len(inside), across)
            left = x + (wide - used * pitch) / 2
            slot = used - 1 - step if turn else step
            places[stop] = Square(
                left + (slot + 0.5) * pitch, y + BOX_HEAD + (line + 0.5) * (SQUARE + BETWEEN), number, square / 2
            )
    rows = -(-len(boxes) // in_row)
    height = 6 + rows * (tall + GAP_Y)
    return frames, [places[number] for number in range(len(places))], height


def _line(
    stops: list[list[int]],
    number: int,
    places: list[Square],
    frames: list[HostFrame],
    nics: dict[tuple[int, int], str],
    height: float,
) -> RingArrow | None:
    """Return the arrow from a square to the next; the last one goes home along the edge of the picture."""
    if len(stops) < 2:
        return None
    here, there = places[number], places[(number + 1) % len(stops)]
    src, dst = stops[number][-1], stops[(number + 1) % len(stops)][0]
    inside = here.box == there.box
    is_last = number + 1 == len(stops)
    rows = frames[here.box].row, frames[there.box].row
    if not is_last and (inside or _is_clear(here, there, places, rows)):
        path, middle = _straight(here, there), ((here.x + there.x) / 2, (here.y + there.y) / 2 - 6)
    elif not inside and rows[0] == rows[1] and (not is_last or abs(here.box - there.box) == 1):
        path, middle = _arc(here, there)
    else:
        path, middle = _home(here, there, frames, height), (here.x + 8, height - 10)
    return RingArrow(
        path=path,
        kind="in" if inside else "net",
        text="" if inside else nics.get((src, dst), ""),
        x=round(middle[0], 1),
        y=round(middle[1], 1),
        anchor="start" if path.count("L") > 2 else "middle",
    )


def _is_clear(here: Square, there: Square, places: list[Square], rows: tuple[int, int]) -> bool:
    """Whether no square stands on the straight way between two; between rows only the next below is one."""
    if rows[0] != rows[1]:
        return rows[1] - rows[0] == 1 and abs(here.x - there.x) < SQUARE
    low, high = sorted((here.x, there.x))
    return here.y == there.y and not any(low < at.x < high and at.y == here.y for at in places)


def _arc(here: Square, there: Square) -> tuple[str, tuple[float, float]]:
    """Return a way over the squares to the right, or below them to the left, and the place for its text."""
    up = -1 if there.x > here.x else 1
    begin, end = here.y + up * SQUARE / 2, there.y + up * (SQUARE / 2 + 3)
    bend = max(begin, end) + 42 if up > 0 else min(begin, end) - 20
    path = f"M{here.x:.1f} {begin:.1f}C{here.x:.1f} {bend:.1f} {there.x:.1f} {bend:.1f} {there.x:.1f} {end:.1f}"
    return path, ((here.x + there.x) / 2, (begin + 3 * bend) / 4 + (12 if up > 0 else 0))


def _straight(here: Square, there: Square) -> str:
    """Return a line from the edge of one square to that of the other."""
    dx, dy = there.x - here.x, there.y - here.y
    long = max(abs(dx), abs(dy), 1e-9)
    cut = (here.half if abs(dx) > abs(dy) else SQUARE / 2) / long
    x1, y1, x2, y2 = (
        here.x + dx * cut,
        here.y + dy * cut,
        there.x - dx * (cut + 3 / long),
        there.y - dy * (cut + 3 / long),
    )
    return f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"


def _home(here: Square, there: Square, frames: list[HostFrame], height: float) -> str:
    """Return a way around the boxes: down, along the bottom, up the left edge, and in from the left."""
    bottom = height - 6
    same_row = frames[here.box].row == frames[there.box].row
    margin = 8.0
    if same_row and here.box == there.box:
        low = frames[here.box].y + frames[here.box].height + 10
        return (
            f"M{here.x:.1f} {here.y + SQUARE / 2:.1f}L{here.x:.1f} {low:.1f}L{there.x:.1f} {low:.1f}"
            f"L{there.x:.1f} {there.y + SQUARE / 2 + 3:.1f}"
        )
    side = there.x - there.half - 3
    around = [(here.x, here.y + SQUARE / 2), (here.x, bottom), (margin, bottom), (margin, there.y), (side, there.y)]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in around)
