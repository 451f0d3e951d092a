"""Geometry of the pictures of rings and trees: boxes are hosts, squares are ranks, in units of SVG.

A ring is drawn as the path that it takes: hosts in the order of their first visit, row by row, to and fro, and ranks in the
order in which the ring visits them; so neighbours in the ring are neighbours on the page. A tree is drawn from its root
downwards, a box per host. Beyond :data:`MOST_RANKS` ranks a square is a host with its range of ranks, beyond
:data:`MOST_HOSTS` hosts nothing is drawn and the reason is said.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

MOST_RANKS = 128
MOST_HOSTS = 128
MOST_PICTURES = 4
WIDTH = 980
SQUARE, FOLDED, BETWEEN = 30, 78, 8  # height and width of a rank's square, width of a host's, space between
BOX_PAD, BOX_HEAD = 10, 20
GAP_X, GAP_Y, EDGE = 44, 34, 26
MOST_IN_ROW = 8
TREE_GAP = 14
UNKNOWN = "host not read"


class Square(NamedTuple):
    """The middle of a square, and the box that it is in."""

    x: float
    y: float
    box: int
    half: float  # of its width


def rings(view: dict[str, Any]) -> dict[str, Any]:
    """Return ``pictures`` of the shown communicator's different rings, and a ``note`` on what is folded or left out."""
    shown = view.get("shown")
    if not shown:
        return {"pictures": [], "note": ""}
    mine = [ring for ring in view["rings"] if ring["communicator"] == shown["communicator"]]
    different: dict[tuple[int, ...], list[int]] = {}
    for ring in mine:
        different.setdefault(tuple(ring["ranks"]), []).append(ring["channel"])
    hosts = [member["host"] or UNKNOWN for member in shown["members"]]
    note = _too_many(shown["size"], hosts)
    if note and len(set(hosts)) > MOST_HOSTS:
        return {"pictures": [], "note": note}
    first = list(different.items())[:MOST_PICTURES]
    left = len(different) - len(first)
    more = (
        f"{left} further ring{'s' if left > 1 else ''} of another order {'are' if left > 1 else 'is'} in the data only"
        if left
        else ""
    )
    nics = _nic_of(shown)
    return {
        "pictures": [_ring(order, channels, shown, hosts, nics) for order, channels in first],
        "note": ". ".join(part for part in (note, more) if part),
    }


def _too_many(size: int, hosts: list[str]) -> str:
    if len(set(hosts)) > MOST_HOSTS:
        return f"{len(set(hosts)):,} hosts are more than a picture can show; the tables and --json hold what was read"
    if size > MOST_RANKS:
        return f"{size:,} ranks are folded: a square is a host, with the first and last rank that the ring visits there"
    return ""


def _nic_of(shown: dict[str, Any]) -> dict[tuple[int, int], str]:
    """Return what is written beside a link between hosts: ``NIC 2 > 3``, sender's and receiver's."""
    nics = {}
    for link in shown["links"]:
        ends = ["/".join(link[name]) for name in ("nic_sends", "nic_receives")]
        if link["between_hosts"] and any(ends):
            nics[link["src"], link["dst"]] = f"{ends[0] or '?'}>{ends[1] or '?'}"
    return nics


def _ring(
    order: tuple[int, ...],
    channels: list[int],
    shown: dict[str, Any],
    hosts: list[str],
    nics: dict[tuple[int, int], str],
) -> dict[str, Any]:
    """Return boxes, squares and lines of one ring."""
    stops = _stops(order, hosts, folded=shown["size"] > MOST_RANKS)
    boxes: dict[str, list[int]] = {}
    for number, stop in enumerate(stops):
        boxes.setdefault(hosts[stop[0]], []).append(number)
    square = FOLDED if shown["size"] > MOST_RANKS else SQUARE
    frames, places, height = _laid_out(boxes, square)
    lines = [_line(stops, number, places, frames, nics, height) for number in range(len(stops))]
    squares = [
        {
            "x": round(at.x - at.half, 1),
            "width": square,
            "y": round(at.y - SQUARE / 2, 1),
            "cx": round(at.x, 1),
            "cy": round(at.y + 4, 1),
            "text": _label(stop, shown),
            "title": _title(stop, shown),
            "small": len(_label(stop, shown)) * 8 > square,
        }
        for stop, at in zip(stops, places, strict=True)
    ]
    return {
        "channels": channels,
        "width": WIDTH,
        "height": round(height, 1),
        "boxes": frames,
        "squares": squares,
        "lines": [line for line in lines if line],
    }


def _stops(order: tuple[int, ...], hosts: list[str], *, folded: bool) -> list[list[int]]:
    """Return the ranks of each square in the order of the ring: one each, or all of a visit to a host where folded."""
    stops: list[list[int]] = []
    for rank in order:
        if folded and stops and hosts[stops[-1][0]] == hosts[rank]:
            stops[-1].append(rank)
        else:
            stops.append([rank])
    return stops


def _label(stop: list[int], shown: dict[str, Any]) -> str:
    names = [_global(rank, shown) for rank in (stop[0], stop[-1])]
    return names[0] if len(stop) == 1 else f"{names[0]}..{names[1]}"


def _global(rank: int, shown: dict[str, Any]) -> str:
    number = shown["members"][rank]["global_rank"]
    return str(rank if number is None else number)


def _title(stop: list[int], shown: dict[str, Any]) -> str:
    member = shown["members"][stop[0]]
    device = "" if member["device"] is None else f", GPU {member['device']}"
    return f"rank {_label(stop, shown)} on {member['host'] or UNKNOWN}{device}"


def _laid_out(boxes: dict[str, list[int]], square: int) -> tuple[list[dict[str, Any]], list[Square], float]:
    """Place boxes row by row, to and fro, and their squares likewise; all boxes are as large as the largest."""
    pitch = square + BETWEEN
    most = max(len(inside) for inside in boxes.values())
    across = min(most, MOST_IN_ROW if len(boxes) > 1 else 2 * MOST_IN_ROW)
    deep = -(-most // across)
    wide, tall = across * pitch + 2 * BOX_PAD, deep * (SQUARE + BETWEEN) + BOX_HEAD + BOX_PAD
    wide = max(wide, 120)
    in_row = max(1, int((WIDTH - 2 * EDGE + GAP_X) // (wide + GAP_X)))
    frames: list[dict[str, Any]] = []
    places: dict[int, Square] = {}
    for number, (host, inside) in enumerate(boxes.items()):
        row, at = divmod(number, in_row)
        back = row % 2 == 1
        column = in_row - 1 - at if back else at
        x, y = EDGE + column * (wide + GAP_X), 6 + row * (tall + GAP_Y)
        frames.append(
            {"x": x, "y": y, "width": wide, "height": tall, "host": shortened(host, wide), "title": host, "row": row}
        )
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


def shortened(host: str, wide: float) -> str:
    """Return a host's name as it fits a box: the end tells hosts apart, so the beginning goes."""
    room = max(4, int((wide - 12) / 7))
    return host if len(host) <= room else f"…{host[-room + 1 :]}"


def _line(
    stops: list[list[int]],
    number: int,
    places: list[Square],
    frames: list[dict[str, Any]],
    nics: dict[tuple[int, int], str],
    height: float,
) -> dict[str, Any] | None:
    """Return the arrow from a square to the next; the last one goes home along the edge of the picture."""
    if len(stops) < 2:
        return None
    here, there = places[number], places[(number + 1) % len(stops)]
    src, dst = stops[number][-1], stops[(number + 1) % len(stops)][0]
    inside = here.box == there.box
    is_last = number + 1 == len(stops)
    rows = frames[here.box]["row"], frames[there.box]["row"]
    if not is_last and (inside or _is_clear(here, there, places, rows)):
        path, middle = _straight(here, there), ((here.x + there.x) / 2, (here.y + there.y) / 2 - 6)
    elif not inside and rows[0] == rows[1] and (not is_last or abs(here.box - there.box) == 1):
        path, middle = _arc(here, there)
    else:
        path, middle = _home(here, there, frames, height), (here.x + 8, height - 10)
    return {
        "path": path,
        "kind": "in" if inside else "net",
        "text": "" if inside else nics.get((src, dst), ""),
        "x": round(middle[0], 1),
        "y": round(middle[1], 1),
        "anchor": "start" if path.count("L") > 2 else "middle",
    }


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


def _home(here: Square, there: Square, frames: list[dict[str, Any]], height: float) -> str:
    """Return a way around the boxes: down, along the bottom, up the left edge, and in from the left."""
    bottom = height - 6
    same_row = frames[here.box]["row"] == frames[there.box]["row"]
    margin = 8.0
    if same_row and here.box == there.box:
        low = frames[here.box]["y"] + frames[here.box]["height"] + 10
        return (
            f"M{here.x:.1f} {here.y + SQUARE / 2:.1f}L{here.x:.1f} {low:.1f}L{there.x:.1f} {low:.1f}"
            f"L{there.x:.1f} {there.y + SQUARE / 2 + 3:.1f}"
        )
    side = there.x - there.half - 3
    around = [(here.x, here.y + SQUARE / 2), (here.x, bottom), (margin, bottom), (margin, there.y), (side, there.y)]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in around)


def trees(view: dict[str, Any]) -> dict[str, Any]:
    """Return ``pictures`` of the shown communicator's different trees, a box per host, from the root downwards."""
    shown = view.get("shown")
    if not shown:
        return {"pictures": [], "note": ""}
    mine = [tree for tree in view["trees"] if tree["communicator"] == shown["communicator"]]
    hosts = [member["host"] or UNKNOWN for member in shown["members"]]
    different: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for tree in mine:
        different.setdefault(tuple((child, parent) for child, parent in tree["edges"]), []).append(tree["channel"])
    if not different:
        return {"pictures": [], "note": ""}
    if len(set(hosts)) > MOST_HOSTS:
        return {"pictures": [], "note": _too_many(shown["size"], hosts)}
    drawn = [_tree(edges, channels, shown, hosts) for edges, channels in list(different.items())[:MOST_PICTURES]]
    left = len(different) - len(drawn)
    note = f"{left} further tree{'s' if left > 1 else ''} of another shape in the data only" if left else ""
    return {"pictures": drawn, "note": note}


def _tree(
    edges: tuple[tuple[int, int], ...], channels: list[int], shown: dict[str, Any], hosts: list[str]
) -> dict[str, Any]:
    """Return one tree: nodes are runs of ranks in one host, each below its parent."""
    children: dict[int, list[int]] = defaultdict(list)
    for child, parent in edges:
        children[parent].append(child)
    (root,) = set(range(shown["size"])) - {child for child, _ in edges}
    nodes = _runs(root, children, hosts)
    _spread(nodes)
    arrows = []
    for above in nodes:
        for number in above["below"]:
            below, y = nodes[number], above["y"] + above["tall"]
            arrows.append(
                {
                    "x1": round(above["x"], 1),
                    "y1": y,
                    "x2": round(below["x"], 1),
                    "y2": below["y"],
                    "kind": "in" if above["host"] == below["host"] else "net",
                    "text": below["joins"],
                    "tx": round((above["x"] + 2 * below["x"]) / 3, 1),
                    "ty": round((y + 2 * below["y"]) / 3 - 1, 1),
                }
            )
    return {
        "channels": channels,
        "root": _global(root, shown),
        "width": round(max(nodes[0]["room"] + 16, 120), 1),
        "height": round(max(node["y"] + node["tall"] for node in nodes) + 8, 1),
        "boxes": [_box(node, shown) for node in nodes],
        "lines": arrows,
    }


def _spread(nodes: list[dict[str, Any]]) -> None:
    """Give each node its place: as much room as its children need, they side by side below it."""
    for node in reversed(nodes):  # a node comes before its children
        rows = min(-(-len(node["ranks"]) // MOST_IN_ROW), 2)
        node["wide"], node["tall"] = max(104.0, 26.0 * min(len(node["ranks"]), MOST_IN_ROW) + 14), 22 + 16 * rows
        node["need"] = sum(nodes[child]["room"] for child in node["below"]) + TREE_GAP * max(len(node["below"]) - 1, 0)
        node["room"] = max(node["wide"], node["need"])
    nodes[0]["left"], nodes[0]["y"] = 8.0, 6.0
    for each in nodes:
        each["x"] = each["left"] + each["room"] / 2
        left = each["x"] - each["need"] / 2
        for child in each["below"]:
            nodes[child]["left"], nodes[child]["y"] = left, each["y"] + each["tall"] + GAP_Y
            left += nodes[child]["room"] + TREE_GAP


def _box(node: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """Return a node as a box with its host and at most two rows of ranks."""
    names = [_global(rank, shown) for rank in node["ranks"]]
    rows = [names[at : at + MOST_IN_ROW] for at in range(0, len(names), MOST_IN_ROW)]
    if len(rows) > 2:
        rows = [[*names[: MOST_IN_ROW - 2], "..."], ["...", *names[-MOST_IN_ROW + 2 :]]]
    return {
        "x": round(node["x"] - node["wide"] / 2, 1),
        "y": node["y"],
        "width": node["wide"],
        "height": node["tall"],
        "cx": round(node["x"], 1),
        "host": shortened(node["host"], node["wide"]),
        "title": f"{node['host']}: ranks {' '.join(names)}",
        "ranks": [{"text": " ".join(row), "y": node["y"] + 32 + 16 * at} for at, row in enumerate(rows)],
    }


def _runs(root: int, children: dict[int, list[int]], hosts: list[str]) -> list[dict[str, Any]]:
    """Return the tree with the ranks of one host that hang together as one node, parents before children."""
    nodes: list[dict[str, Any]] = []
    waiting: list[tuple[int, int, str]] = [(root, -1, "")]
    while waiting:
        first, above, joins = waiting.pop(0)
        number = len(nodes)
        node: dict[str, Any] = {"host": hosts[first], "ranks": [], "below": [], "joins": joins}
        nodes.append(node)
        if above >= 0:
            nodes[above]["below"].append(number)
        inside = [first]
        while inside:
            rank = inside.pop(0)
            node["ranks"].append(rank)
            for child in sorted(children[rank]):
                if hosts[child] == hosts[rank]:
                    inside.append(child)
                else:
                    waiting.append((child, number, f"{child}→{rank}"))
    return nodes
