"""Geometry of the inline charts: stacked bars as rectangles in a box of 1000 x 100, scaled by the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ringwright.analysis.document import Row
from ringwright.analysis.summary_view import SeenClass, SeenSummary
from ringwright.ground.units import format_count, format_size
from ringwright.reports import cuts

MOST_OPS = 8  # further ops share the last colour


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars as the page draws them: each with its parts, and labels below; of a course over time also what it stands on."""

    bars: list[Row]
    pitch: float
    width: float
    peak: str
    labels: list[str] = field(default_factory=list)
    note: str = ""
    bin: str = ""
    clock: str = ""
    origin: str = ""


def colours(view: SeenSummary) -> dict[str, int]:
    """Return the colour number of every op: those with most bytes first, from 1; 9 is shared by the rest."""
    ordered = sorted(view.operations, key=lambda o: (-(o.bytes or 0), o.op))
    return {operation.op: min(at, MOST_OPS) + 1 for at, operation in enumerate(ordered)}


def histogram(view: SeenSummary, palette: dict[str, int], quantity: str) -> Chart | None:
    """Return the log2 histogram of ``quantity`` (count or bytes) stacked by op, or None without sizes."""
    classes = view.size_classes or _classes(view)
    filled = [c for c in classes if c.count]
    if not filled:
        return None
    lows = sorted({max(0, int(c.log2_low_bytes)) for c in filled})
    slots = _slots(lows)
    stacks: list[dict[str, float]] = [{} for _ in slots]
    for entry in filled:
        stack = stacks[slots.index(max(0, int(entry.log2_low_bytes)))]
        stack[entry.op] = stack.get(entry.op, 0) + (entry.bytes if quantity == "bytes" else entry.count)
    show = format_size if quantity == "bytes" else lambda v: format_count(round(v)) + " calls"
    titles = [f"{format_size(low)} to {format_size(2 * low) if low else '0 B'}" for low in slots]
    chart = _stacked(stacks, palette, titles, show)
    every = max(1, -(-len(slots) // 8))
    return replace(chart, labels=[format_size(low) if at % every == 0 else "" for at, low in enumerate(slots)])


def powers(classes: Sequence[tuple[int, int]], show: Callable[[float], str], what: str) -> Chart | None:
    """Return bars of (low bound, count) for powers of two, ``what`` being counted; None without any."""
    if not classes:
        return None
    counted = dict(classes)
    slots = _slots(sorted(counted))
    titles = [f"{show(low)} to {show(2 * low if low else 1)}" for low in slots]
    stacks: list[dict[str, float]] = [{what: counted[low]} if low in counted else {} for low in slots]
    chart = _stacked(stacks, {what: 1}, titles, lambda value: format_count(round(value)))
    every = max(1, -(-len(slots) // 8))
    labels = [show(low) if at % every == 0 else "" for at, low in enumerate(slots)]
    return replace(chart, labels=labels)


def _slots(lows: list[int]) -> list[int]:
    """Return every power of two from the smallest to the largest class, and 0 where it occurs."""
    positive = [low for low in lows if low > 0]
    slots = [0] if 0 in lows else []
    if positive:
        slots += [1 << power for power in range(positive[0].bit_length() - 1, positive[-1].bit_length())]
    return slots + [low for low in positive if low not in slots]


def _classes(view: SeenSummary) -> list[SeenClass]:
    """Derive log2 classes from the exact sizes, for a summary that brings none."""
    classes = []
    for operation in view.operations:
        for entry in operation.size_histogram or []:
            if entry.size_bytes is None:
                continue
            size = int(entry.size_bytes)
            low = 1 << (size.bit_length() - 1) if size > 0 else 0
            moved = size * entry.count
            classes.append(SeenClass(operation.op, low, entry.count, moved))
    return classes


def timeline(view: SeenSummary, palette: dict[str, int]) -> Chart | None:
    """Return bytes over time stacked by op in at most 240 bins, or None without times."""
    course = view.timeline
    if not course or not any(series.bytes for series in course.series):
        return None
    longest = max(len(series.bytes) for series in course.series)
    width = max(1, -(-longest // cuts.MOST_BINS))
    bin_s = course.bin_s * width
    binned = {series.op: cuts.rebinned(series.bytes, cuts.MOST_BINS) for series in course.series}
    slots = -(-longest // width)
    stacks = [{op: row[at] for op, row in binned.items() if at < len(row) and row[at]} for at in range(slots)]
    zero_s = cuts.time_origin_s(course)
    begin = (course.start_s or 0.0) - zero_s
    titles = [f"{begin + at * bin_s:.4g} s to {begin + (at + 1) * bin_s:.4g} s" for at in range(slots)]
    chart = _stacked(stacks, palette, titles, format_size)
    return replace(
        chart,
        labels=[f"{begin + longest * course.bin_s * part / 4:.4g} s" for part in range(5)],
        note=f"{width} bins of {course.bin_s:.4g} s are drawn as one" if width > 1 else "",
        bin=f"{bin_s:.4g} s",
        clock=cuts.short(course.clock or "not stated"),
        origin=datetime.fromtimestamp(zero_s, UTC).isoformat(" ", "seconds") if zero_s else "",
    )


def _stacked(stacks: list[dict[str, float]], palette: dict[str, int], titles: list[str], show: Any) -> Chart:
    """Return rectangles (x, y, width, height, colour) and one title per bar; the box is 1000 wide and 100 high."""
    peak = max((sum(stack.values()) for stack in stacks), default=0) or 1
    pitch = 1000 / max(1, len(stacks))
    gap = min(6.0, pitch * 0.18)
    bars = []
    for at, stack in enumerate(stacks):
        level = 100.0
        parts = []
        for op in sorted(stack, key=lambda name: palette.get(name, MOST_OPS + 1)):
            height = 100 * stack[op] / peak
            level -= height
            parts.append({"y": round(level, 3), "height": round(height, 3), "colour": palette.get(op, MOST_OPS + 1)})
        detail = ", ".join(f"{op} {show(amount)}" for op, amount in sorted(stack.items(), key=lambda i: -i[1])[:10])
        bars.append({"x": round(at * pitch, 2), "parts": parts, "title": f"{titles[at]}: {detail or 'nothing'}"})
    return Chart(bars, round(pitch, 3), round(pitch - gap, 3), show(peak))
