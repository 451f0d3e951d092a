"""What a device holds of parameters, gradients and the states of an optimiser, and what of its memory is free for them."""

from __future__ import annotations

from ringwright.model.workload import Payload, Workload

MEMORY = "memory"  # resource of a workload whose device is known; its capacity is in bytes
FOR_STATES = 0.8  # share of the memory; the rest is left for activations and buffers
PARAMETER, STATES = (
    2,
    12,
)  # bytes each: what is computed with, and Adam's master copy with two moments in single precision
SUMS = ("all-reduce", "reduce-scatter", "push-pull")


def free_bytes(workload: Workload, memory_gb: float) -> float:
    """Return the bytes of a device for parameters, gradients and states; infinite where nothing is known of the device."""
    if memory_gb:
        return memory_gb * 1e9
    held = [each.capacity for each in workload.resources if each.name == MEMORY]
    return min(held) * FOR_STATES if held else float("inf")


def held_bytes(workload: Workload, factor: int, *, experts: str) -> float:
    """Return the bytes on the fullest device with ``factor`` times the experts; ``experts`` is the role of their gradients."""
    by_class = dict.fromkeys((each.name for each in workload.classes), 0.0)
    for each in workload.payloads:
        if each.op in SUMS and each.role in ("dp", experts):
            by_class[each.of] += _held(each, workload.mesh.extent(each.axes), factor if each.role == experts else 1)
    return max(by_class.values(), default=0.0)


def _held(payload: Payload, ranks: int, factor: int) -> float:
    """Return the bytes of a layer; what is scattered has its states shared out, each micro-batch anew its parameters too."""
    elements = factor * (payload.elements or payload.size_bytes // 4)
    gradients = factor * payload.size_bytes
    if payload.op != "reduce-scatter":
        return elements * (PARAMETER + STATES) + gradients
    shared = elements * STATES
    whole = elements * PARAMETER + gradients
    ranks *= factor
    return shared / ranks + (whole / ranks if payload.per == "micro-batch" else whole)
