"""Collectives that copy engines carry out: asked for, no kernel, but copies from device to device launched by the call."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from ringwright.analysis.exposed.fusion_rows import COPIES, Fusion, FusionRows
from ringwright.ground.trace_tables import Row

AFTER_CALL_S = 0.005  # the copies of a call are launched within it


def copies_of(rows: FusionRows) -> dict[int, list[Row]]:
    """Return per call, counted in ``rows.asked``, the copies that carried it out."""
    calls = [row["enqueue_s"] for row in rows.asked]
    made = defaultdict[int, list[Row]](list)
    for copy in rows.copies:
        called = copy["enqueue_s"]
        if called is None or rows.in_fused(called):
            continue
        number = bisect_right(calls, called) - 1
        if number >= 0 and rows.asked[number]["start_s"] is None and called - calls[number] <= AFTER_CALL_S:
            made[number].append(copy)
    return dict(made)


def copied_collectives(rows: FusionRows, copied: dict[int, list[Row]]) -> list[Fusion]:
    """Return the collectives by copy engine, and those of the same group and kind that a kernel carried out all the same."""
    kinds = {(rows.asked[number]["communicator"], rows.asked[number]["op"]) for number in copied}
    made = []
    for number, row in enumerate(rows.asked):
        if (row["communicator"], row["op"]) not in kinds:
            continue
        pieces = copied.get(number)
        if pieces is None and row["start_s"] is None:
            continue  # neither a kernel nor copies: nothing can be said of it
        took = sum(one["duration_s"] for one in pieces) if pieces else row["duration_s"]
        fault = "" if pieces else "a kernel, where others of its group and kind are copies"
        where = (row["communicator"], pieces is not None, row["file"], row["line"], fault, took * 1e6)
        made.append(Fusion(COPIES, rows.rank, row["iteration"], row["layer"] or "", *where))
    return made
