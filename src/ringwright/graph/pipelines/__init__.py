"""Pipelines: in which order a device runs forward and backward passes of its stages, a published schedule at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringwright.graph.pipelines import alternating, both_ends, zero_bubble
from ringwright.graph.pipelines.shape import BACKWARD, INPUTS, PHASES, WEIGHTS, Order, Shape, Slot
from ringwright.ground.errors import UsageError

__all__ = ["PHASES", "SCHEDULES", "Order", "PipelineSchedule", "Shape", "Slot", "in_halves", "order", "schedule_of"]


@dataclass(frozen=True)
class PipelineSchedule:
    """A schedule: the order of one device, and what it asks of a pipeline.

    ``splits`` backward passes into gradients of inputs and of weights; ``folded`` pipelines go there and back; ``chunks`` of a
    device that it is made for (0: any); micro-batches for each device that it needs at the least; ``grouped``: by a number
    of micro-batches behind a colon; ``versions`` of the parameters that are there at a time; ``sides`` of the pipeline at
    which micro-batches enter, each into a copy of the model of its own.
    """

    name: str
    of: Callable[..., Order]
    chunks: int = 0
    splits: bool = False
    folded: bool = False
    least: int = 0
    grouped: bool = False
    versions: int = 1
    sides: int = 1

    def halved(self, devices: int, micro_batches: int, chunks: int) -> Shape:
        """Return the shape of the pipeline as one side has it: a pair of devices is one device with two chunks."""
        sides = self.sides
        return Shape(devices // sides, micro_batches // sides, chunks * sides, self.folded or sides > 1)


_LISTED = (
    PipelineSchedule("1f1b", alternating.in_turns),
    PipelineSchedule("gpipe", alternating.forward_first),
    PipelineSchedule("breadth-first", alternating.breadth_first, grouped=True),
    PipelineSchedule("aiao", alternating.all_in_all_out),
    PipelineSchedule("2bw", alternating.without_flush, 1, least=1, versions=2),
    PipelineSchedule("zb-h1", zero_bubble.h1, 1, splits=True),
    PipelineSchedule("zb-h2", zero_bubble.h2, 1, splits=True),
    PipelineSchedule("zb-v", zero_bubble.v_shape, 2, splits=True, folded=True, least=2),
    PipelineSchedule("dualpipe-v", both_ends.dualpipe_v, 2, splits=True, folded=True, least=2),
    PipelineSchedule("dualpipe", both_ends.dualpipe_v, 1, splits=True, least=2, sides=2),
)
_BY_NAME = {each.name: each for each in _LISTED}
SCHEDULES = tuple(_BY_NAME)


def schedule_of(spelling: str) -> tuple[PipelineSchedule, int]:
    """Return the schedule that is spelled, ``1f1b`` or ``breadth-first:8``, and its group (0: its own); UsageError for none."""
    name, _, text = spelling.partition(":")
    if name not in _BY_NAME:
        raise UsageError(f"'{name}' is no pipeline schedule", remedy=f"one of: {', '.join(SCHEDULES)}")
    schedule = _BY_NAME[name]
    if text and not (schedule.grouped and text.isdecimal() and int(text)):
        remedy = f"{name}:8, groups of 8 micro-batches" if schedule.grouped else name
        raise UsageError(f"'{text}' is nothing that {name} takes", where=spelling, remedy=remedy)
    return schedule, int(text or 0)


def order(spelling: str, stages: int, stage: int, micro_batches: int, chunks: int = 1, *, trains: bool = True) -> Order:
    """Return (phase, chunk, micro-batch) of a device in the order of its work.

    Of a pipeline with two sides (``dualpipe``), chunk 0 is the stage for micro-batches that enter at the nearer side, chunk 1 the
    one for those from the other side; both count their half of the micro-batches from 0.

    Parameters
    ----------
    spelling
        One of ``SCHEDULES``; ``breadth-first:8`` takes groups of 8 micro-batches.
    stages, stage
        Devices of the pipeline, and which of them.
    micro_batches, chunks
        Micro-batches of a step, and chunks of the model on each device.
    trains
        False: forward passes alone.

    Raises
    ------
    UsageError
        For a schedule that is not known, or that this pipeline is not made for.
    """
    schedule, group = schedule_of(spelling)
    _refuse_sides(schedule, stages, micro_batches, chunks)
    shape = schedule.halved(stages, micro_batches, chunks)
    stage = min(stage, stages - 1 - stage) if schedule.sides > 1 else stage
    if not trains:
        return alternating.forward_only(shape, group)
    _refuse(schedule, shape, group)
    return schedule.of(shape, stage, group) if schedule.grouped else schedule.of(shape, stage)


def in_halves(slots: Order) -> Order:
    """Return an order whose backward passes are those of inputs (phase B) and, right behind or later, of weights (W)."""
    halves = {BACKWARD: (BACKWARD, WEIGHTS), INPUTS: (BACKWARD,)}
    return tuple((half, chunk, batch) for phase, chunk, batch in slots for half in halves.get(phase, (phase,)))


def _refuse_sides(schedule: PipelineSchedule, devices: int, micro_batches: int, chunks: int) -> None:
    """Raise UsageError for a pipeline that has no two equal sides."""
    sides = schedule.sides
    if sides > 1 and chunks > 1:
        what = f"{schedule.name} has one stage of each copy of the model on a device, not {chunks} chunks"
        raise UsageError(what, remedy=f"no vp, or {schedule.name}-v with vp2")
    for what, number, option in (("devices", devices, "pp"), ("micro-batches", micro_batches, "--micro-batches ")):
        if number % sides:
            text = f"{schedule.name} feeds a pipeline from {sides} ends: {number} {what} are no multiple of that"
            raise UsageError(text, remedy=f"{option}{number + 1}")


def _refuse(schedule: PipelineSchedule, shape: Shape, group: int) -> None:
    """Raise UsageError for a pipeline that a schedule is not made for."""
    sides = schedule.sides
    if schedule.chunks and shape.chunks != schedule.chunks * sides:
        what = f"{schedule.name} is made for {schedule.chunks} chunks a device, not {shape.chunks}"
        raise UsageError(what, remedy=f"vp{schedule.chunks}" if schedule.chunks > 1 else "no vp, or 1f1b")
    if shape.micro_batches < schedule.least * shape.devices:
        least, devices = schedule.least * shape.devices * sides, shape.devices * sides
        what = f"{schedule.name} needs {least} micro-batches on {devices} devices, not {shape.micro_batches * sides}"
        raise UsageError(what, remedy=f"--micro-batches {least}")
    if group and shape.chunks > 1 and group < min(shape.devices, shape.micro_batches):
        what = f"groups of {group} micro-batches leave some of {shape.devices} devices without work in every round"
        raise UsageError(what, remedy=f"{schedule.name}:{shape.devices} or more")
