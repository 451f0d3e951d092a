"""Pipelines: in which order a device runs forward and backward passes of its stages, a published schedule at a time.

The folder listing is the registry: a file here is a place of schedules if it has them under ``SCHEDULES``, and an entry point of
``ringwright.graph.pipelines`` names a ``PipelineSchedule`` of another distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from ringwright.graph.pipelines import alternating
from ringwright.graph.pipelines.shape import BACKWARD, INPUTS, PHASES, WEIGHTS, Order, PipelineSchedule, Shape, Slot
from ringwright.ground import plugins
from ringwright.ground.errors import PluginError, UsageError
from ringwright.ground.plugins import Plugin

__all__ = ["PHASES", "SCHEDULES", "Order", "PipelineSchedule", "Shape", "Slot", "in_halves", "order", "schedule_of"]


def _listed() -> Iterator[PipelineSchedule]:
    """Yield what the files of this folder say under SCHEDULES; no other file is imported."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem != "__init__" and "\nSCHEDULES = " in path.read_text():
            yield from import_module(f"{__name__}.{path.stem}").SCHEDULES


_HOUSE = {each.name: each for each in _listed()}
SCHEDULES = tuple(_HOUSE)
_tried: dict[str, PipelineSchedule] = {}  # by ``trying``


def schedules() -> dict[str, PipelineSchedule]:
    """Return every schedule by name, those of other distributions last; what cannot be used is left out (``problems``)."""
    outside = (each for each in plugins.points("pipelines", _HOUSE) if _problem(each) is None)
    return {**_HOUSE, **{each.name: _outsider(each) for each in outside}, **_tried}


def plugin_of(name: str) -> Plugin | None:
    """Return the plug-in that adds a schedule; None for our own."""
    return next((each for each in plugins.points("pipelines", _HOUSE) if each.name == name and not each.refused), None)


def problems() -> list[PluginError]:
    """Return why schedules of others cannot be used."""
    listed = plugins.points("pipelines", _HOUSE)
    return [error for plugin in listed if (error := _problem(plugin)) is not None]


def _outsider(plugin: Plugin) -> PipelineSchedule:
    loaded = plugin.load()
    if not isinstance(loaded, PipelineSchedule):
        raise plugin.error(f"{plugin.value} is of type {type(loaded).__name__}, not a PipelineSchedule")
    return replace(loaded, name=plugin.name)


def _problem(plugin: Plugin) -> PluginError | None:
    return plugin.problem(lambda: _outsider(plugin))


@contextmanager
def trying(schedule: PipelineSchedule) -> Iterator[None]:
    """Have a schedule be known by its name for as long as the block lasts, as a contract needs one that nobody has installed."""
    before = dict(_tried)
    _tried[schedule.name] = schedule
    try:
        yield
    finally:
        _tried.clear()
        _tried.update(before)


def schedule_of(spelling: str) -> tuple[PipelineSchedule, int]:
    """Return the schedule that is spelled, ``1f1b`` or ``breadth-first:8``, and its group (0: its own); UsageError for none."""
    name, _, text = spelling.partition(":")
    if name not in (known := schedules()):
        raise UsageError(f"'{name}' is no pipeline schedule", remedy=f"one of: {', '.join(known)}")
    schedule = known[name]
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
