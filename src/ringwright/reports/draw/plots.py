"""Plots of a comparison, as numbers for SVG: sizes of requests, steps over iterations, ratios with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ringwright.ground.units import format_size

WIDTH = 1000
RIGHT = 40
LETTER = 7.2  # width of a letter of a label
TRACK = 26
AXIS = 28
_COLOURS = {
    "all-reduce": 1,
    "all-gather": 2,
    "reduce-scatter": 3,
    "all-to-all": 4,
    "broadcast": 5,
    "send": 6,
    "recv": 7,
}


def colour(op: str) -> int:
    """Return the colour number of an operation, the same in every plot."""
    return _COLOURS.get(op, 8)


def _left(labels: Iterable[str]) -> int:
    """Return where the axis begins, so that the labels have room."""
    return min(WIDTH // 2, max(120, round(max(map(len, labels), default=0) * LETTER) + 20))


@dataclass(frozen=True, slots=True)
class SizedRequest:
    """How often an operation is called with a size."""

    op: str
    size_bytes: int | None
    calls: int


@dataclass(frozen=True, slots=True)
class RatioRow:
    """A ratio with its interval (None: not known), and what is said of it."""

    label: str
    mean: float | None
    low: float | None
    high: float | None
    text: str


def request_sizes(rows: Sequence[tuple[str, Sequence[SizedRequest]]]) -> dict[str, Any] | None:
    """Return a track per row (label, requests): a dot per size and operation, its area the share of the row's bytes."""
    sizes = [each.size_bytes for _, requests in rows for each in requests if each.size_bytes]
    if not sizes:
        return None
    low, high = math.floor(math.log2(min(sizes))), math.ceil(math.log2(max(sizes)) + 0.01)
    span = max(1, high - low)
    left = _left(label for label, _ in rows)

    def across(size: float) -> float:
        return round(left + (math.log2(size) - low) / span * (WIDTH - left - RIGHT), 1)

    tracks = []
    for number, (label, requests) in enumerate(rows):
        total = sum((each.size_bytes or 0) * each.calls for each in requests) or 1
        dots = [
            {
                "x": across(each.size_bytes),
                "r": round(2.5 + 8 * math.sqrt(each.size_bytes * each.calls / total), 1),
                "colour": colour(each.op),
                "title": f"{each.calls} x {each.op} of {format_size(each.size_bytes)} ({each.size_bytes:,} B)",
            }
            for each in requests
            if each.size_bytes
        ]
        tracks.append({"y": round((number + 0.5) * TRACK, 1), "label": label, "dots": dots})
    every = max(1, math.ceil(span / 9))
    ticks = [(across(2.0**power), format_size(2.0**power)) for power in range(low, high + 1, every)]
    used = {each.op: colour(each.op) for _, requests in rows for each in requests if each.size_bytes}
    return {
        "tracks": tracks,
        "ticks": ticks,
        "width": WIDTH,
        "height": len(tracks) * TRACK + AXIS,
        "bottom": len(tracks) * TRACK,
        "left": left,
        "legend": sorted(used.items(), key=lambda item: item[1]),
    }


def step_lines(usual_s: Sequence[float], steps_s: Sequence[float], height: int = 90) -> dict[str, Any] | None:
    """Return two lines over iterations on one scale from zero: the steps undisturbed, and disturbed."""
    if not usual_s or not steps_s:
        return None
    top = max([*usual_s, *steps_s]) * 1.05 or 1.0
    most = max(len(usual_s), len(steps_s)) - 1 or 1

    def line(values: Sequence[float]) -> str:
        return " ".join(
            f"{40 + at / most * 440:.1f},{height - value / top * (height - 8):.1f}" for at, value in enumerate(values)
        )

    return {
        "usual": line(usual_s),
        "steps": line(steps_s),
        "height": height,
        "top": f"{top * 1e3:,.0f} ms",
        "width": 490,
    }


def intervals(rows: Sequence[RatioRow]) -> dict[str, Any] | None:
    """Return a track per row of ratios on a logarithmic axis with a rule at 1."""
    values = [value for row in rows for value in (row.mean, row.low, row.high) if value]
    if not values:
        return None
    low, high = min(0.9, *values), max(1.2, *values)
    span = math.log(high / low)
    left = _left(row.label for row in rows)

    def across(value: float) -> float:
        return round(left + math.log(value / low) / span * (WIDTH - left - RIGHT), 1)

    tracks = [
        {
            "y": round((number + 0.5) * TRACK, 1),
            "label": row.label,
            "x": across(row.mean),
            "text": row.text,
            "from": across(row.low or row.mean),
            "to": across(row.high or row.mean),
        }
        for number, row in enumerate(rows)
        if row.mean
    ]
    ticks = [(across(value), f"{value:g}x") for value in (0.5, 1, 1.5, 2, 3, 4, 5, 7, 10, 20) if low <= value <= high]
    return {
        "tracks": tracks,
        "ticks": ticks,
        "one": across(1.0),
        "width": WIDTH,
        "height": len(rows) * TRACK + AXIS,
        "bottom": len(rows) * TRACK,
        "left": left,
    }


def course(points: Sequence[tuple[float, int, str]], height: int = 90) -> dict[str, Any] | None:
    """Return the requests of one iteration over time: a line for each, as high as the logarithm of its bytes."""
    drawn = [(at, size, op) for at, size, op in points if size > 0]
    if len(drawn) < 2 or drawn[-1][0] <= 0:
        return None
    end, top = drawn[-1][0], math.log2(max(size for _, size, _ in drawn)) + 1
    lines = [
        {
            "x": round(10 + at / end * 470, 1),
            "colour": colour(op),
            "y": round(height - math.log2(size + 1) / top * (height - 6), 1),
        }
        for at, size, op in drawn[:2000]
    ]
    return {"lines": lines, "height": height, "width": 490, "end": f"{end * 1e3:,.0f} ms"}
