"""What a timeline shows of a run: per class of ranks what it computed and what was on its wires in the last step."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from ringwright.analysis.intervals import union
from ringwright.engines.job.run import COMPUTE, JobRun
from ringwright.ground.units import PS

MOST_CLASSES = 16
MOST_SPANS = 600  # of a track; smaller gaps are closed until so few are left


def tracks(run: JobRun) -> dict[str, Any]:
    """Return span_s and lanes: rank class, rank, how many ranks, name (compute or role) and parts (kind, starts, ends in s)."""
    begin, end = run.window()
    rank_classes = run.laid.rank_classes
    spans: dict[tuple[int, str], dict[str, list[tuple[np.ndarray, np.ndarray]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in run.laid.rows:
        name, kind = _track(row.what, row.kind, row.role)
        for step in range(run.laid.steps) if name else ():
            where = run.span(row, step)
            starts, ends = np.maximum(run.times.moved[where], begin), np.minimum(run.times.end[where], end)
            inside = ends > starts
            if inside.any():
                for rank_class in dict.fromkeys(row.rank_classes):
                    spans[rank_class, name][kind].append((starts[inside], ends[inside]))
    shown = sorted({rank_class for rank_class, _ in spans})[:MOST_CLASSES]
    made = [
        {
            "of": rank_classes.of[rank_class],
            "rank": rank_classes.ranks[rank_class],
            "ranks": rank_classes.counts[rank_class],
            "name": name,
            "parts": [
                {"kind": kind, **_spans(parts, begin, (end - begin) / 2000)} for kind, parts in sorted(kinds.items())
            ],
        }
        for (rank_class, name), kinds in sorted(
            spans.items(), key=lambda each: (each[0][0], each[0][1] != "compute", each[0][1])
        )
        if rank_class in shown
    ]
    return {"span_s": (end - begin) / PS, "lanes": made, "cells": len(rank_classes), "shown": len(shown)}


def _track(what: str, kind: str, role: str) -> tuple[str, str]:
    if what == "operation":
        return role, role
    if what != "task" or kind not in (*COMPUTE, "U"):
        return "", ""
    return "compute", {"F": "forward", "U": "update"}.get(kind, "backward")


def _spans(parts: list[tuple[np.ndarray, np.ndarray]], begin: int, gap: float) -> dict[str, list[float]]:
    """Return starts and ends in seconds from the window's begin; gaps too small to see are closed."""
    starts, ends = (np.concatenate([each[at] for each in parts]).astype(np.float64) for at in (0, 1))
    joined = union(starts, ends)
    while len(joined[0]) > MOST_SPANS:
        joined = union(joined[0], joined[1] + gap)
        joined = (joined[0], np.maximum(joined[1] - gap, joined[0]))
        gap *= 2
    return {"starts": ((joined[0] - begin) / PS).tolist(), "ends": ((joined[1] - begin) / PS).tolist()}
