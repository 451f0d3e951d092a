"""The parallel form of a job where none is given: of the simple ones that fit the devices, the fastest on the fabric as it is.

Forms are tried from the least cut on: first by ranks that share one copy of the model (tensor times pipeline parallel), then by
how much of the optimizer and the parameters is shared out (nothing, zero1, fsdp; no more than it takes to fit). Experts lie on as
many ranks of a stage as divide them evenly. In training every form has four micro-batches a stage, as the usual of pipelines, so
that gradients weigh alike; serving has no pipeline unless nothing else fits. The first few that fit are simulated and compared
by seconds a sequence, for their steps hold different numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.ground.errors import InfeasibleError, RingwrightError, UsageError, WorkloadError
from ringwright.jobs import model_job, study
from ringwright.jobs.memory import peak, too_large
from ringwright.jobs.model_workload import settled
from ringwright.workloads.models import model, parameters

if TYPE_CHECKING:
    from ringwright.jobs.model_job import GeneratedJobSpec
    from ringwright.jobs.study import Job
    from ringwright.model.topology import Topology
    from ringwright.workloads.model_cards import ModelCard

MOST_TENSOR, MOST_STAGES = 8, 16
MOST_SIMULATED = 4
MICRO_BATCHES = 4  # a stage
ZERO = {
    "": 18,
    "zero1": 6,
    "fsdp": 0,
}  # least bytes of a parameter that no other rank holds: in 16 bits, gradient, Adam
SERVED_BYTES = 1  # of a parameter, at least


@dataclass(frozen=True)
class ChosenForm:
    """A parallel form, what a rank holds at its peak, samples of a step; ``refused``: why the device cannot hold it."""

    parallel: str
    samples: float
    micro_batches: int
    peak_bytes: int | None
    device_bytes: int | None
    refused: str = ""
    remarks: tuple[str, ...] = ()


def chosen_form(question: GeneratedJobSpec, topology: Topology, policy: str) -> ChosenForm:
    """Return the form that is asked for, or the fastest of those that fit; UsageError for one that cannot be."""
    if question.card.parallel is not None:
        return _held(question, model_job.made(question, topology))
    fitting: list[tuple[ChosenForm, Job]] = []
    nearest: ChosenForm | None = None
    refused: RingwrightError | None = None
    held: set[str] = set()  # forms whose like fits with less shared out
    for form in _forms(question):
        if form.cut in held or (form.serves and form.stages > 1 and fitting):
            continue
        asked = replace(question, card=replace(question.card, parallel=form.text, micro_batches=form.micro_batches))
        try:
            job = model_job.made(asked, topology)
        except (UsageError, WorkloadError) as error:
            refused = refused or error
            continue
        made = _held(asked, job)
        if made.refused:
            nearest = made if nearest is None else min(nearest, made, key=lambda each: each.peak_bytes or 0)
            continue
        held.add(form.cut)
        fitting.append((made, job))
        if len(fitting) == MOST_SIMULATED:
            break
    if not fitting:
        return _none(question, nearest, refused)
    return _fastest(question, fitting, policy)


def _held(question: GeneratedJobSpec, job: Job) -> ChosenForm:
    held = peak(job.workload)
    step = settled(model(question.card.model, **question.card.dims), question.card)
    samples = float(step.parallel.dp * step.micro_batches * step.micro_batch_size)
    told = question.card.parallel or str(step.parallel)
    peak_bytes, device_bytes = held["peak_memory_bytes"], held["device_memory_bytes"]
    return ChosenForm(
        told, samples, step.micro_batches, peak_bytes, device_bytes, too_large(told, peak_bytes, device_bytes)
    )


def _none(question: GeneratedJobSpec, nearest: ChosenForm | None, refused: RingwrightError | None) -> ChosenForm:
    """Return the form that lacks least memory; raise what the first one was refused for where none can be."""
    if nearest is None:
        raise refused or UsageError("no parallel form can be", remedy="--parallel tp8,pp4")
    return replace(nearest, refused=f"no simple form fits {question.card.gpus} GPUs; the nearest, {nearest.refused}")


def _fastest(question: GeneratedJobSpec, fitting: list[tuple[ChosenForm, Job]], policy: str) -> ChosenForm:
    times: list[tuple[float, ChosenForm]] = []
    for form, job in fitting:
        if len(fitting) == 1:
            return form
        try:
            times.append((study.answer(job, policy).step_s / form.samples, form))
        except (InfeasibleError, WorkloadError):
            continue
    if not times:
        return fitting[0][0]
    best = min(times, key=lambda each: each[0])[1]
    others = ", ".join(form.parallel for _, form in times)
    name = question.card.model
    told = f"{name}: {best.parallel} is the fastest a sample of {len(times)} forms that fit ({others}); --parallel names one"
    return replace(best, remarks=(told,))


@dataclass(frozen=True)
class TriedForm:
    """A form that is tried: ``cut`` are its words without what is shared out."""

    text: str
    cut: str
    stages: int
    micro_batches: int | None
    serves: bool


def _forms(question: GeneratedJobSpec) -> Iterator[TriedForm]:
    """Yield forms in the order in which they are tried."""
    given = question.card
    trained, gpus = model(given.model, **given.dims), given.gpus or 1
    if trained.takes_samples:
        yield TriedForm(f"dp{gpus}", "", 1, given.micro_batches, serves=False)
        return
    trains = given.mode == "training"
    degrees = [
        (tensor, stages)
        for tensor in _powers(MOST_TENSOR if trains else gpus)
        for stages in _powers(MOST_STAGES)
        if gpus % (tensor * stages) == 0
    ]
    shared = ("", "zero1", "fsdp") if trains else ("",)
    tried = [
        (not trains and stages > 1, tensor * stages, zero, stages, tensor)
        for tensor, stages in degrees
        for zero in range(len(shared))
    ]
    for _, cut, zero, stages, tensor in sorted(tried):
        if (shared[zero] == "fsdp" and stages > 1) or not _may_fit(trained, cut, shared[zero], trains=trains):
            continue
        words = _spelled(trained, gpus, tensor, stages, trains=trains)
        each = given.micro_batches or (MICRO_BATCHES * stages if trains else None)
        yield TriedForm(
            ",".join(words + [shared[zero]] * bool(zero)) or "dp1", ",".join(words), stages, each, not trains
        )


def _may_fit(trained: ModelCard, cut: int, zero: str, *, trains: bool) -> bool:
    """Return whether the parameters alone leave room on the largest devices; where experts are shared out that is not asked."""
    from ringwright.costs.gpus import GPUS

    if trained.is_mixture:
        return True
    each = ZERO[zero] if trains else SERVED_BYTES
    return parameters(trained) * each / cut <= max(gpu.capacity_bytes for gpu in GPUS.values())


def _spelled(trained: ModelCard, gpus: int, tensor: int, stages: int, *, trains: bool) -> list[str]:
    copies = gpus // (tensor * stages)
    words = [f"tp{tensor}"] * (tensor > 1) + [f"pp{stages}"] * (stages > 1) + [f"dp{copies}"] * (copies > 1)
    experts = math.gcd(trained.dims.get("experts", 1), tensor * copies)
    return words + [f"ep{experts}"] * (experts > 1) + ["sp"] * (tensor > 1 and trains)


def _powers(most: int) -> list[int]:
    return [1 << each for each in range(most.bit_length()) if 1 << each <= most]
