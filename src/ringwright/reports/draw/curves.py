"""Lines between the nodes of a picture, as paths of SVG: straight, or bent around what stands between."""

from __future__ import annotations

import math
from typing import NamedTuple


class Spot(NamedTuple):
    """A point of a picture, in units of SVG."""

    x: float
    y: float


def line(here: Spot, there: Spot, *, bend: float = 0.0, shift: float = 0.0, ends: float = 0.0) -> str:
    """Return the path from a point to another.

    ``bend``: how far its middle stands off to the left, ``shift``: how far all of it does to the right, ``ends``: by how much it
    is shorter at either end.
    """
    dx, dy = there.x - here.x, there.y - here.y
    far = math.hypot(dx, dy) or 1.0
    across = Spot(-dy / far, dx / far)  # to the right of the direction, as y grows downwards
    start = Spot(here.x + shift * across.x, here.y + shift * across.y)
    stop = Spot(there.x + shift * across.x, there.y + shift * across.y)
    middle = Spot((start.x + stop.x) / 2 - 2 * bend * across.x, (start.y + stop.y) / 2 - 2 * bend * across.y)
    start, stop = _towards(start, middle, ends), _towards(stop, middle, ends)
    if not bend:
        return f"M{start.x:.1f} {start.y:.1f}L{stop.x:.1f} {stop.y:.1f}"
    return f"M{start.x:.1f} {start.y:.1f}Q{middle.x:.1f} {middle.y:.1f} {stop.x:.1f} {stop.y:.1f}"


def apex(here: Spot, there: Spot, bend: float) -> Spot:
    """Return the point of a bent line that stands off farthest, the middle of a straight one."""
    dx, dy = there.x - here.x, there.y - here.y
    far = math.hypot(dx, dy) or 1.0
    return Spot((here.x + there.x) / 2 + bend * dy / far, (here.y + there.y) / 2 - bend * dx / far)


def _towards(point: Spot, other: Spot, by: float) -> Spot:
    far = math.hypot(other.x - point.x, other.y - point.y) or 1.0
    share = min(by / far, 0.45)
    return Spot(point.x + share * (other.x - point.x), point.y + share * (other.y - point.y))
