"""What a pipeline did in a step: the passes of each stage, how long it waited for others, and what it held."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ringwright.analysis.intervals import union
from ringwright.engines.job.run import JobRun
from ringwright.graph.memory import memory
from ringwright.graph.pipelines.stages import passes_in_order, stages_of
from ringwright.ground.errors import WorkloadError
from ringwright.ground.units import PS
from ringwright.model.workload import Workload, turn_of

MOST_DEVICES, MOST_PASSES = 32, 4_000  # that can still be told apart in a picture


@dataclass(frozen=True)
class DevicePasses:
    """The passes of a device in a step: F, B, I or W, chunk, micro-batch, start, end in seconds; ``idle``: share between them."""

    of: str
    passes: tuple[tuple[str, int, int, float, float], ...]
    idle: float
    peak_bytes: int | None


@dataclass(frozen=True)
class PipelinePicture:
    """The devices of a pipeline from the first stage on, over ``span_s``; ``idle`` is the mean share without a pass."""

    span_s: float
    devices: tuple[DevicePasses, ...]
    chunks: int

    @property
    def idle(self) -> float:
        """Mean share of the step in which a device has no pass under way."""
        return sum(each.idle for each in self.devices) / len(self.devices)


def picture(workload: Workload, run: JobRun) -> PipelinePicture | None:
    """Return a steady step of a pipeline, or None where there is none, or too much of it to be seen."""
    try:
        stages = stages_of(workload, "pipeline")
    except WorkloadError:
        return None
    shape = stages.shape
    number = shape.devices * stages.sides
    passes = 3 * number * shape.chunks * shape.micro_batches
    if not 1 < number <= MOST_DEVICES or passes > MOST_PASSES:
        return None
    held = {each.of: each.peak_bytes for each in memory(workload)}
    begin, end = _window(run)
    devices = tuple(_device(workload, run, of, (begin, end), held.get(of)) for of in stages.devices)
    if stages.sides > 1:
        devices = _both_sides(devices, shape.micro_batches)
    return PipelinePicture((end - begin) / PS, devices, shape.chunks)


def _both_sides(near: tuple[DevicePasses, ...], half: int) -> tuple[DevicePasses, ...]:
    """Return the devices of a pipeline that is fed from both ends: those behind the middle do the same for the other end.

    Micro-batches of the far end count on from those of the near one.
    """

    def seen(each: DevicePasses, at: int, side: int) -> DevicePasses:
        passes = ((phase, chunk, batch + half * (chunk != side), *times) for phase, chunk, batch, *times in each.passes)
        return replace(each, of=f"device {at}", passes=tuple(passes))  # type: ignore[arg-type]

    far = [seen(each, len(near) + at, 1) for at, each in enumerate(reversed(near))]
    return (*(seen(each, at, 0) for at, each in enumerate(near)), *far)


def _window(run: JobRun) -> tuple[int, int]:
    """Return from when to when the step before the last one lasted: stages that are ahead have begun the next one meanwhile."""
    last = run.laid.steps - 1
    return (run.finished(last - 2), run.finished(last - 1)) if last > 1 else run.window()


def _device(workload: Workload, run: JobRun, of: str, window: tuple[int, int], held: int | None) -> DevicePasses:
    begin, end = window
    first = run.laid.rank_classes.of.index(of)
    rows = {row.name: row for row in run.laid.rows if row.what == "task" and row.rank_classes == (first,)}
    passes: list[tuple[str, int, int, float, float]] = []
    for (phase, chunk, turn), names in passes_in_order(workload, of):
        mine, (batch, _) = [rows[name] for name in names if name in rows], turn_of(turn, workload.micro_batches)
        for step in range(run.laid.steps) if mine else ():
            start = min(int(run.starts(row, step)[batch]) for row in mine)
            ended = max(int(run.ends(row, step)[batch]) for row in mine)
            if ended > begin and start < end:
                inside = (max(start, begin) - begin) / PS, (min(ended, end) - begin) / PS
                passes.append((phase, chunk, batch, *inside))
    spans = np.array([each[3:] for each in passes]).reshape(-1, 2)
    starts, ends = union(spans[:, 0], spans[:, 1])
    busy = float((ends - starts).sum())
    return DevicePasses(of, tuple(sorted(passes, key=lambda each: each[3])), 1 - busy * PS / (end - begin), held)


def as_json(shown: PipelinePicture | None) -> dict[str, Any] | None:
    """Return what a page draws."""
    if shown is None:
        return None
    devices = [
        {"of": each.of, "idle": each.idle, "peak_bytes": each.peak_bytes, "passes": each.passes}
        for each in shown.devices
    ]
    return {"span_s": shown.span_s, "idle": shown.idle, "chunks": shown.chunks, "devices": devices}
