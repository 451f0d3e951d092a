"""Geometry of the load of links over time: a row for each link, or for links that are alike, from the start to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np

from ringwright.ground.units import format_size
from ringwright.reports.draw.machine_picture import shade
from ringwright.reports.layout import percent
from ringwright.reports.topology_names import shortened

if TYPE_CHECKING:
    from ringwright.engines.machine import Machine
    from ringwright.engines.result import Run

MOST_ROWS = 40
LEFT, WIDE, RIGHT, TALL = 232, 700, 68, 15
ALIKE = 2  # digits of the share busy to which links are alike


class LoadStrip(TypedDict):
    """Parts of the time in a row in which a link is about as busy: from x on, so wide, in a shade from 0 to 5."""

    x: float
    width: float
    shade: int


class LoadRow(TypedDict):
    """A link, or several that are alike: their name as it fits, their load in all, and over time."""

    y: float
    name: str
    title: str
    share: str
    strips: list[LoadStrip]


class LoadPicture(TypedDict):
    """The rows that are drawn, the time under them, and what is left out."""

    width: int
    height: float
    bottom: float
    left: int
    rows: list[LoadRow]
    ticks: list[tuple[float, str]]
    note: str


def load_picture(run: Run, load: np.ndarray) -> LoadPicture:
    """Return the load of links over time, the busiest first.

    ``load``: share of each part of the time in which a resource is busy, float64 of shape (resources, parts).
    """
    machine = run.machine
    assert machine is not None  # noqa: S101 - who has a load has followed messages on a machine
    used = np.flatnonzero((load.sum(axis=1) > 0) & ~machine.sends)
    alike: dict[bytes, list[int]] = {}
    for resource in used[np.argsort(-load[used].mean(axis=1), kind="stable")].tolist():
        alike.setdefault(np.round(load[resource], ALIKE).tobytes(), []).append(resource)
    groups = list(alike.values())
    rows = [_row(machine, run, mine, load, at) for at, mine in enumerate(groups[:MOST_ROWS])]
    bottom = TALL * len(rows) + 6.0
    idle = machine.topology.n_links - int((used < machine.topology.n_links).sum())
    hidden = sum(map(len, groups[MOST_ROWS:]))
    notes = [f"{hidden:,} links that are less busy are not shown" if hidden else ""]
    notes.append(f"{idle:,} of {machine.topology.n_links:,} links carry nothing" if idle else "")
    marks = [(LEFT + WIDE * part / 4, f"{run.time_s * 1e6 * part / 4:,.4g} us") for part in range(5)]
    return {
        "width": LEFT + WIDE + RIGHT,
        "height": bottom + 20,
        "bottom": bottom,
        "left": LEFT,
        "rows": rows,
        "ticks": marks,
        "note": "; ".join(filter(None, notes)),
    }


def _row(machine: Machine, run: Run, mine: list[int], load: np.ndarray, at: int) -> LoadRow:
    name = machine.label(mine[0])
    more = f" +{len(mine) - 1}" if len(mine) > 1 else ""
    mean = float(load[mine[0]].mean())
    names = ", ".join(machine.label(each) for each in mine[:16]) + (" ..." if len(mine) > 16 else "")
    carried = format_size(float(run.bytes[mine[0]]))
    return {
        "y": TALL * at + 4.0,
        "name": shortened(name, LEFT - 7.0 * len(more)) + more,
        "title": f"{names}: {carried}{' each' if more else ''}, busy {percent(mean)} of the time",
        "share": percent(mean),
        "strips": _strips(load[mine[0]]),
    }


def _strips(shares: np.ndarray) -> list[LoadStrip]:
    """Return neighbours of one shade as one strip; what is not busy is left blank."""
    shades = [shade(float(share)) for share in shares]
    wide = WIDE / len(shades)
    strips: list[LoadStrip] = []
    begin = 0
    for at in range(1, len(shades) + 1):
        if at < len(shades) and shades[at] == shades[begin]:
            continue
        if shades[begin]:
            strips.append(
                {"x": round(LEFT + begin * wide, 1), "width": round((at - begin) * wide, 1), "shade": shades[begin]}
            )
        begin = at
    return strips
