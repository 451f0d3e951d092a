"""A pipeline that is fed from both ends (DualPipe), as one side has it: a pair of opposite devices is one device with two chunks.

Opposite devices hold the same two stages and do the same, each for its own end: they are replicas, along the axis ``side`` of the
mesh. A micro-batch goes up one side, changes to the other in the middle, and ends on the device opposite to its first one.
"""

from __future__ import annotations

from dataclasses import replace

from ringwright.graph.pipelines import PipelineSchedule
from ringwright.workloads.step import StepSpec


def two_sided(step: StepSpec, known: PipelineSchedule) -> StepSpec:
    """Return the step with pairs of devices as stages, two chunks on each, and the micro-batches of one end."""
    shape = known.halved(step.parallel.pp, step.micro_batches, step.parallel.vp)
    parallel = replace(step.parallel, pp=shape.devices, vp=shape.chunks, folded=shape.folded, sides=known.sides)
    return replace(step, parallel=parallel, micro_batches=shape.micro_batches)


def copies_told(devices: int, micro_batches: int) -> tuple[str, ...]:
    """Return what stages, micro-batches and sums of gradients mean there, in words."""
    half, last = micro_batches // 2, devices - 1
    return (
        f"stage k is device k and device {last} - k: both hold stages k and {last} - k of the model, and do the same",
        f"each end takes in {half} micro-batches",
        "gradients are summed over both copies of the model, which are replicas",
    )
