"""What a timeline shows of a run: per class of ranks what it computed and what was on its wires in the last step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from ringwright.analysis.intervals import union
from ringwright.engines.job.run import COMPUTE, JobRun
from ringwright.ground.units import PS

MOST_CLASSES = 16
MOST_SPANS = 600  # of a track; smaller gaps are closed until so few are left


@dataclass(frozen=True, slots=True)
class TrackPart:
    """When one kind of work began and ended on a track, in s."""

    kind: str
    starts: list[float]
    ends: list[float]


@dataclass(frozen=True, slots=True)
class StepTrack:
    """What a class of ``ranks`` ranks did, one of which is ``rank``; ``name``: compute, or the role of what is on the wire."""

    of: str
    rank: int
    ranks: int
    name: str
    parts: list[TrackPart]


@dataclass(frozen=True, slots=True)
class StepTracks:
    """The tracks of one step of ``span_s``, of as many classes of ranks as are ``shown`` of all ``classes``."""

    span_s: float
    tracks: list[StepTrack] = field(metadata={"key": "lanes"})
    classes: int = field(metadata={"key": "cells"})
    shown: int


def tracks(run: JobRun) -> StepTracks:
    """Return what each kind of ranks did in a step."""
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
        StepTrack(
            of=rank_classes.of[rank_class],
            rank=rank_classes.ranks[rank_class],
            ranks=rank_classes.counts[rank_class],
            name=name,
            parts=[
                TrackPart(kind, *_spans(parts, begin, (end - begin) / 2000)) for kind, parts in sorted(kinds.items())
            ],
        )
        for (rank_class, name), kinds in sorted(
            spans.items(), key=lambda each: (each[0][0], each[0][1] != "compute", each[0][1])
        )
        if rank_class in shown
    ]
    return StepTracks(span_s=(end - begin) / PS, tracks=made, classes=len(rank_classes), shown=len(shown))


def _track(what: str, kind: str, role: str) -> tuple[str, str]:
    if what == "operation":
        return role, role
    if what != "task" or kind not in (*COMPUTE, "U"):
        return "", ""
    return "compute", {"F": "forward", "U": "update"}.get(kind, "backward")


def _spans(parts: list[tuple[np.ndarray, np.ndarray]], begin: int, gap: float) -> tuple[list[float], list[float]]:
    """Return starts and ends in seconds from the window's begin; gaps too small to see are closed."""
    starts, ends = (np.concatenate([each[at] for each in parts]).astype(np.float64) for at in (0, 1))
    joined = union(starts, ends)
    while len(joined[0]) > MOST_SPANS:
        joined = union(joined[0], joined[1] + gap)
        joined = (joined[0], np.maximum(joined[1] - gap, joined[0]))
        gap *= 2
    return ((joined[0] - begin) / PS).tolist(), ((joined[1] - begin) / PS).tolist()
