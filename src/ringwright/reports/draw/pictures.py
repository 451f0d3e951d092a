"""Geometry of the simulator's pictures, as numbers for SVG: time over size, the steps of a program, the load of links."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringwright.ground.units import format_size

if TYPE_CHECKING:
    from ringwright.calls.simulated_document import SimulatedRow
    from ringwright.model.program import Program

WIDTH, HEIGHT = 1000, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 12, 10, 30
MOST_STEPS = 18
MOST_RANKS = 64
MOST_LINES = 6000
MOST_LINKS = 12
LAST_COLOUR = 9


def curves(rows: Sequence[SimulatedRow]) -> dict[str, Any] | None:
    """Return one line per algorithm, with the band of its 90 % interval, and one of the bound; None where nothing is to draw.

    Both axes are logarithmic.
    """
    drawn = [row for row in rows if row.size_bytes > 0 and row.time_us > 0]
    if len({row.size_bytes for row in drawn}) < 2:
        return None
    names = list(dict.fromkeys(row.algorithm for row in drawn))
    floor = {row.size_bytes: row.lowest_bound_us for row in drawn if row.lowest_bound_us > 0}
    across = _Axis([row.size_bytes for row in drawn], LEFT, WIDTH - RIGHT)
    ends = [end for row in drawn for end in (row.time_us_p05, row.time_us_p95) if end]
    upwards = _Axis([row.time_us for row in drawn] + list(floor.values()) + ends, HEIGHT - BOTTOM, TOP)
    lines = [
        {
            "name": name,
            "colour": min(number + 1, LAST_COLOUR),
            "points": _points(
                ((row.size_bytes, row.time_us) for row in drawn if row.algorithm == name), across, upwards
            ),
            "band": _band([row for row in drawn if row.algorithm == name and row.time_us_p05], across, upwards),
        }
        for number, name in enumerate(names)
    ]
    bound = {"name": "bound", "colour": 0, "points": _points(sorted(floor.items()), across, upwards), "band": ""}
    return {
        "lines": [bound, *lines],
        "x": [(across(at), format_size(at)) for at in across.powers(2, 6)],
        "y": [(upwards(at), f"{at:,.0f} us" if at >= 1 else f"{at:g} us") for at in upwards.powers(10, 6)],
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "bottom": HEIGHT - BOTTOM,
    }


class _Axis:
    """A logarithmic axis from pixel to pixel."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self.low, self.high = math.log(min(values)), math.log(max(values))
        self.begin, self.end = begin, end

    def __call__(self, value: float) -> float:
        spread = self.high - self.low or 1.0
        return round(self.begin + (math.log(value) - self.low) / spread * (self.end - self.begin), 1)

    def powers(self, base: int, most: int) -> list[int]:
        """Return at most about ``most`` powers of ``base`` within the axis."""
        first, last = math.ceil(self.low / math.log(base) - 1e-9), math.floor(self.high / math.log(base) + 1e-9)
        return [base**power for power in range(max(first, 0), last + 1, max(1, -(-(last - first) // most)))]


def _band(rows: Sequence[SimulatedRow], across: _Axis, upwards: _Axis) -> str:
    """Return the corners of a 90 % interval: its lower end from left to right, its upper one back."""
    there = [(row.size_bytes, row.time_us_p05 or 0.0) for row in rows]
    back = [(row.size_bytes, row.time_us_p95 or 0.0) for row in reversed(rows)]
    return _points([*there, *back], across, upwards)


def _points(pairs: Iterable[tuple[float, float]], across: _Axis, upwards: _Axis) -> str:
    return " ".join(f"{across(size)},{upwards(time)}" for size, time in pairs)


@dataclass(frozen=True, slots=True)
class StepPicture:
    """Messages as lines with their ends and colour, labels of steps and names of ranks; ``shown`` of ``steps``."""

    lines: list[tuple[list[float], str]]
    labels: list[tuple[float, str]]
    names: list[tuple[float, str]]
    width: int
    height: float
    shown: int
    steps: int


def steps(program: Program) -> StepPicture | None:
    """Return who sends to whom step by step, a line per message; None where the group is too large to see."""
    nodes = program.n_nodes
    if nodes > MOST_RANKS or not program.n_steps:
        return None
    shown = min(program.n_steps, MOST_STEPS)
    pitch, row = WIDTH / (shown + 1), min(24.0, 560 / nodes)
    lines, labels = [], []
    for number, step in zip(range(shown), program.steps(), strict=False):
        labels.append((round(pitch * (number + 1), 1), step.label))
        pairs = {(int(s), int(d), int(b.op)) for b in step.blocks for s, d in zip(*b.arrays()[:2], strict=True)}
        for src, dst, op in sorted(pairs):
            ends = pitch * (number + 0.55), row * (src + 0.5), pitch * (number + 1.45), row * (dst + 0.5)
            lines.append(([round(end, 1) for end in ends], "f2" if op in (1, 3, 4) else "f1"))
    if len(lines) > MOST_LINES:
        return None
    names = [
        (round(row * (node + 0.5), 1), str(node) if node < program.p else f"sw{node - program.p}")
        for node in range(nodes)
    ]
    return StepPicture(lines, labels, names, WIDTH, round(row * nodes, 1), shown, program.n_steps)


def load(resources: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
    """Return the busiest links as bars, equal ones as one: name, share of the time in use, bytes of each."""
    alike: dict[tuple[float, float], list[str]] = {}
    for name, busy, size in sorted(resources, key=lambda each: -each[1]):
        alike.setdefault((round(busy, 4), size), []).append(name)
    bars = []
    for (busy, size), names in list(alike.items())[:MOST_LINKS]:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        percent = round(100 * busy, 1)
        bars.append(
            {"name": names[0] + more, "percent": percent, "bytes": format_size(size), "heat": min(3, int(busy * 4))}
        )
    return bars
