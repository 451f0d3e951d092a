"""What a rank of a job holds at its peak, stage by stage, and beside it what its device has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from ringwright.graph.memory import UNKNOWN, memory, peak_bytes
from ringwright.ground.errors import InfeasibleError
from ringwright.ground.units import format_size
from ringwright.model.workload import Resource, Workload

KEEPING_LESS = "--recompute selective-op or full"
MEMORY = "memory"  # the resource whose capacity is that of the device, in bytes


@dataclass(frozen=True, slots=True)
class StageMemory:
    """The peak of one class of ranks, in bytes; what holds it adds up to it."""

    stage: int
    peak_bytes: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    buffers: int


class PeakMemory(TypedDict):
    """The highest peak of a job, in bytes; null with its reason where it is not known; the device's memory, where it is.

    ``fits`` is null where either is not known; ``too_large`` says of a job that does not fit what it needs.
    """

    peak_memory_bytes: int | None
    memory_unknown: str | None
    device_memory_bytes: int | None
    fits: bool | None
    too_large: str | None


def stages(workload: Workload) -> list[StageMemory]:
    """Return the peak of each stage; nothing where the tasks say nothing of what they read and write."""
    return [
        StageMemory(
            stage=number,
            peak_bytes=each.peak_bytes,
            parameters=each.by_kind["parameter"],
            gradients=each.by_kind["gradient"],
            optimizer=each.by_kind["optimizer"],
            activations=each.by_kind["activation"],
            buffers=each.by_kind["buffer"],
        )
        for number, each in enumerate(memory(workload))
    ]


def worst(passes: Sequence[list[StageMemory]]) -> list[StageMemory]:
    """Return, for each stage, the pass that needs most."""
    return [max(each, key=lambda stage: stage.peak_bytes) for each in zip(*passes, strict=True)]


def peak(workload: Workload) -> PeakMemory:
    """Return the most that a rank of any class holds, in the order that the workload's policy gives."""
    return held_at_most(peak_bytes(workload), device_bytes(workload))


def held_at_most(most: int | None, there: int | None) -> PeakMemory:
    """Return a peak beside what the device has, in bytes; None where either is not known."""
    return {
        "peak_memory_bytes": most,
        "memory_unknown": None if most is not None else UNKNOWN,
        "device_memory_bytes": there,
        "fits": None if most is None or there is None else most <= there,
        "too_large": too_large("a rank", most, there) or None,
    }


def too_large(who: str, most: int | None, there: int | None) -> str:
    """Say that a peak is more than a device has, in bytes; nothing where it is not, or where either is not known."""
    if most is None or there is None or most <= there:
        return ""
    return f"{who} needs {format_size(most)} on a device of {format_size(there)}"


def device_bytes(workload: Workload) -> int | None:
    """Return what the memory of a device holds; None where the workload does not say."""
    return next((int(each.capacity) for each in workload.resources if each.name == MEMORY), None)


def limited(workload: Workload, memory_bytes: int) -> Workload:
    """Return the workload on devices with this much memory, for schedulers that choose by it."""
    others = tuple(each for each in workload.resources if each.name != MEMORY)
    return replace(workload, resources=(*others, Resource(MEMORY, "tokens", float(memory_bytes))))


def fitting(workload: Workload, memory_bytes: int | None) -> None:
    """Raise InfeasibleError where a rank holds more than this at its peak, or nobody knows; None: no limit."""
    if memory_bytes is not None:
        fits(peak_bytes(workload), memory_bytes)


def fits(most: int | None, memory_bytes: int) -> None:
    """Raise InfeasibleError where a peak is more than this, or not known (None)."""
    if most is None:
        raise InfeasibleError(f"whether {format_size(memory_bytes)} are enough is not known: {UNKNOWN}")
    if most > memory_bytes:
        raise InfeasibleError(
            f"a rank holds {format_size(most)} at its peak, more than the limit of {format_size(memory_bytes)}",
            remedy=f"--memory {-(-most // (1 << 30))}GiB, {KEEPING_LESS}, or a policy that keeps less",
        )
