"""A step of a pipeline as a picture: a row for each stage, a colour for each kind of pass, idle share and memory beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringwright.ground.units import format_size
from ringwright.jobs.job_document import PipelineOfStep, PolicyStep

WIDTH, LEFT, RIGHT, TRACK, BAR = 1000, 76, 176, 26, 18
COLOURS = {"F": 1, "B": 2, "I": 4, "W": 3}
NAMES = {"F": "forward", "B": "backward", "I": "gradients of inputs", "W": "gradients of weights"}
FAINTEST = 0.45  # opacity of the last chunk; the first one has 1
LEAST_LABEL = 9  # units of the picture below which a pass has no number


@dataclass(frozen=True)
class PassBar:
    """A pass in the picture; ``number`` is its micro-batch, where there is room."""

    x: float
    y: float
    width: float
    colour: int
    opacity: float
    title: str
    number: str


@dataclass(frozen=True)
class PipelineRows:
    """The picture of one policy: bars, (y, name, what is said at the end) of the rows, and (x, label) of the scale."""

    policy: str
    said: str
    bars: tuple[PassBar, ...]
    rows: tuple[tuple[float, str, str], ...]
    marks: tuple[tuple[float, str], ...]
    width: int
    height: int
    left: int
    bar: int


def pictures(rows: Sequence[PolicyStep]) -> list[PipelineRows]:
    """Return a picture for each policy whose run was one of a pipeline, all in one scale."""
    shown = [(row, row.pipeline) for row in rows if row.pipeline is not None]
    longest = max((told.span_s for _, told in shown), default=0.0)
    return [_picture(row, told, longest) for row, told in shown]


def legend(rows: Sequence[PolicyStep]) -> list[tuple[str, int]]:
    """Return the kinds of passes that occur, and their colours."""
    told = [row.pipeline for row in rows if row.pipeline is not None]
    seen = {each[0] for pipeline in told for device in pipeline.devices for each in device.passes}
    return [(name, COLOURS[phase]) for phase, name in NAMES.items() if phase in seen]


def _picture(row: PolicyStep, told: PipelineOfStep, longest: float) -> PipelineRows:
    scale = (WIDTH - LEFT - RIGHT) / longest if longest else 0.0
    bars: list[PassBar] = []
    listed: list[tuple[float, str, str]] = []
    for at, device in enumerate(told.devices):
        top = at * TRACK + 2
        held = "" if device.peak_bytes is None else f", {format_size(device.peak_bytes)}"
        listed.append((top + BAR - 5, device.of, f"idle {device.idle:.1%}{held}"))
        for phase, chunk, batch, start, end in device.passes:
            width = max((end - start) * scale, 0.4)
            opacity = 1 - (1 - FAINTEST) * chunk / max(1, told.chunks - 1)
            title = f"{NAMES[phase]}, stage {chunk} of {device.of}, micro-batch {batch}: {(end - start) * 1e3:,.3g} ms"
            number = str(batch) if width >= LEAST_LABEL else ""
            bars.append(
                PassBar(
                    round(LEFT + start * scale, 2),
                    top,
                    round(width, 2),
                    COLOURS[phase],
                    round(opacity, 2),
                    title,
                    number,
                )
            )
    marks = tuple(
        (round(LEFT + (WIDTH - LEFT - RIGHT) * part / 4, 1), f"{longest * part / 4 * 1e3:,.4g} ms") for part in range(5)
    )
    said = f"{row.step_us / 1e3:,.1f} ms, no pass under way {told.idle:.1%} of the time"
    height = len(told.devices) * TRACK + 24
    return PipelineRows(row.policy, said, tuple(bars), tuple(listed), marks, WIDTH, height, LEFT, BAR)
