"""A parallel form for a model on a machine, where none is named: the smallest cut at which a device can hold its part."""

from __future__ import annotations

from collections.abc import Iterator

from ringwright.ground.errors import UsageError
from ringwright.jobs.model_workload import WorkloadSpec, settled
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.models import active_parameters, model, parameters
from ringwright.workloads.stage_layers import as_published

PARAMETER_BYTES = 18  # parameters and gradients of a training step (2 + 4), Adam's master copy and moments (12)
FOR_STATES = 0.8  # share of a device's memory; the rest is left for activations and buffers


def fitting(name: str, gpus: int, per_host: int, memory_bytes: float) -> tuple[str, str]:
    """Return a parallel form of ``gpus`` devices as ``--parallel`` takes it, and why it was taken.

    Tensor parallelism grows to the ranks of a host, then the pipeline; experts are shared out instead, where there are any.
    UsageError, with the remedy, where no form is small enough.
    """
    card = model(name)
    if card.takes_samples:
        return f"dp{gpus}", "data parallel, as models of images are trained"
    least = float("inf")
    for text, held in _forms(card, gpus, per_host):
        if not _legal(name, gpus, text):
            continue
        least = min(least, held)
        if held > FOR_STATES * memory_bytes:
            continue
        return text, (
            f"parameters, gradients and Adam's states take {held / 1e9:.0f} GB of a device's {memory_bytes / 1e9:.0f},"
            f" {PARAMETER_BYTES} B a parameter"
        )
    raise UsageError(
        f"{card.size} is too large for {gpus} GPUs of {memory_bytes / 1e9:.0f} GB: {least / 1e9:.0f} GB each at least",
        where="the parallel form, which is chosen where none is named",
        remedy="a larger --fabric, or name a form: --parallel tp8,pp8,fsdp",
    )


def _forms(card: ModelCard, gpus: int, per_host: int) -> Iterator[tuple[str, float]]:
    """Yield forms and the bytes that each leaves on a device, the least cut first."""
    every, routed = parameters(card), _routed(card)
    experts = card.dims.get("experts", 0) if routed else 0
    shared = [ep for ep in range(2, experts + 1) if experts % ep == 0 and gpus % ep == 0]
    inside = [ep for ep in shared if ep <= per_host][-1:]
    cuts = [(f"ep{ep}", every - routed + routed / ep, 1) for ep in inside + [ep for ep in shared if ep > per_host]]
    cuts = cuts or [(f"tp{tp}", every / tp, tp) for tp in _powers(min(per_host, gpus))]
    for at, (word, elements, ranks) in enumerate(cuts):
        last = at == len(cuts) - 1 or bool(experts)
        for pp in _powers(gpus // ranks) if last else [1]:
            if gpus % (ranks * pp) == 0:
                words = [word, f"pp{pp}", f"dp{gpus // (ranks * pp)}"]
                text = ",".join(each for each in words if each not in ("tp1", "pp1"))
                yield text, PARAMETER_BYTES * elements / pp


def _routed(card: ModelCard) -> float:
    """Return the parameters of the routed experts, 0 without any."""
    experts, active = card.dims.get("experts", 0), card.dims.get("active", 0)
    return (parameters(card) - active_parameters(card)) * experts / (experts - active) if experts > active else 0.0


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(max(most, 1).bit_length())]


def _legal(name: str, gpus: int, parallel: str) -> bool:
    """Say whether a form can be, with stages as long as each other or as the model was made."""
    card = model(name)
    try:
        step = settled(card, WorkloadSpec(name, gpus, parallel))
    except UsageError:
        return False
    return bool(as_published(card, step.parallel))
