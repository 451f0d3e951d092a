"""Intervals of host events by thread: which of them hold a moment, or begin within another."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container

from ringwright.formats.sources.kineto.columns import EventColumns

NEST = 24  # how deep host events are looked through


class Spans:
    """Intervals of a table by thread, ``but`` for some, for the question which of them hold a moment."""

    def __init__(self, table: EventColumns, but: Container[int] = ()) -> None:
        by_thread: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
        for number, (start, dur, thread) in enumerate(zip(table.ts, table.dur, table.thread, strict=True)):
            if number not in but:
                by_thread[thread].append((start, -dur, number))
        self._rows = {thread: sorted(rows) for thread, rows in by_thread.items()}
        self._starts = {thread: [row[0] for row in rows] for thread, rows in self._rows.items()}

    def around(self, thread: int, moment: float, slack: float = 0.0) -> list[int]:
        """Return the spans of a thread that hold a moment, the innermost first."""
        rows = self._rows.get(thread, [])
        last = bisect_right(self._starts.get(thread, []), moment)
        near = rows[max(0, last - NEST) : last]
        return [number for start, minus, number in reversed(near) if start - minus + slack >= moment]

    def within(self, thread: int, start: float, end: float) -> list[int]:
        """Return the spans of a thread that begin in an interval, in order."""
        starts = self._starts.get(thread, [])
        first, last = bisect_left(starts, start), bisect_right(starts, end)
        return [row[2] for row in self._rows.get(thread, [])[first : min(last, first + NEST)]]
