"""A job from a model card: the workload, the fabric it runs on, and every default that was taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ringwright.calls.other_jobs import programs
from ringwright.calls.provenance import asked_of
from ringwright.costs.contention.multiprocessors import ALIKE
from ringwright.costs.fits import load
from ringwright.costs.gpus import OF_FABRIC, WIDTHS, element_type, gpu
from ringwright.costs.learnt.steps import named, probable
from ringwright.costs.probable_time import Probable
from ringwright.engines.job.flat import INTERFERENCE, Interference
from ringwright.ground.errors import UsageError
from ringwright.jobs import faults
from ringwright.jobs.model_workload import WorkloadSpec, assumptions, settled, usual_dtype
from ringwright.jobs.pricing.costs import LIBRARY, FabricCosts, stages_of
from ringwright.jobs.pricing.networks import on_networks, said_of
from ringwright.jobs.step_tables import SYSTEMS
from ringwright.jobs.study import Job
from ringwright.model.registry import scheduler
from ringwright.model.topology import Topology
from ringwright.model.workload import Workload
from ringwright.workloads.job import job
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.models import model
from ringwright.workloads.step import StepSpec
from ringwright.workloads.times import Roofline

if TYPE_CHECKING:
    from ringwright.fabrics._congestion import Congestion

MOST_BESIDE = 256  # ranks of a job beside another
BESIDE = "each operation takes as many times longer as it does where links are shared fairly, by the flow engine"
DEFAULT_FABRIC, GPUS_A_NODE = "dgx-h100", 8
UNCHARGED = (
    f"no start of a call, no protocol and no work a message are charged to what no library has, as they are to {LIBRARY}: "
    "where operations are small, that may be all that it gains"
)
LEFT_OUT = (
    "input pipeline, checkpoints, host jitter",
    "contention in the switches between groups of different hosts",
    "scalars: the loss, the norm of the gradients",
)


@dataclass(frozen=True)
class GeneratedJobSpec:
    """A job's settings besides the model: the device, the algorithms, the pipeline schedule."""

    card: WorkloadSpec
    gpu: str | None = None
    algorithms: Mapping[str, str] = field(default_factory=dict)
    schedule: str = "1f1b"
    step_ms: float | None = None
    compute: Mapping[str, float] = field(default_factory=dict)  # figures of the device that are changed
    fit: str | None = None  # name or file of efficiencies fitted to measured steps


def made(
    question: GeneratedJobSpec,
    topology: Topology | None = None,
    beside: Sequence[Congestion] = (),
    networks: Mapping[str, Topology] | None = None,
) -> Job:
    """Return the job; UsageError where model, parallel form, fabric and options do not fit together.

    ``beside``: what other jobs on the fabric repeat; each operation takes what it takes meanwhile, and no rank is like another.
    ``networks``: further ones of the same ranks, by name, for operations that name them.
    """
    card, step, dtype = _settled(question)
    topology, told = _fabric(topology, step.parallel.world)
    device, more = _device(question, topology)
    fitted = load(question.fit) if question.fit else None
    figures = {**(fitted.figures if fitted else {}), **question.compute}
    more += [fitted.provenance] if fitted else _without_fit(card, device)
    roofline = Roofline(gpu(device, **figures), dtype, max(step.width_bytes, WIDTHS[dtype]))
    generated = job(card, step, roofline, schedule=question.schedule)
    if question.step_ms is not None:
        generated, scaled = _scaled(generated, question.step_ms * 1e-3)
        more.append(scaled)
    others = tuple(programs(beside, topology))
    if others and generated.mesh.size > MOST_BESIDE:
        raise UsageError(
            f"a job of {generated.mesh.size:,} ranks beside another is not simulated: no rank is like another then",
            where=beside[0].text,
            remedy=f"a job of {MOST_BESIDE} ranks at the most",
        )
    networks = networks or {}
    costs = on_networks(networks, topology, generated.mesh, stages_of(generated), question.algorithms, others)
    told = [*told, *said_of(networks), *(f"beside: {other.text}, again and again; {BESIDE}" for other in beside)]
    known = [each for each in assumptions(card, step, question.card) if not each.startswith("gradients travel")]
    library = question.algorithms.get("", LIBRARY)
    collectives = (
        f"collectives by {library}, timed by the event engine; groups that do the same on one link are timed together"
    )
    systems = question.algorithms.values() or (LIBRARY,)
    if not library.startswith(LIBRARY):
        collectives += f"; {UNCHARGED}"
    return Job(
        generated,
        costs,
        faults.slowdowns(costs.topology),
        costs.marked,
        Interference(units=roofline.gpu.units, gpu=roofline.gpu.name),
        folded=not others,
        passes="" if question.card.mode == "training" else question.card.mode,
        assumptions=(*known, *generated.assumptions, *told, *more, *_ground(roofline), collectives),
        fabric=topology.name,
        left_out=LEFT_OUT,
        remarks=costs.told,
        likely=None if others else _likely(question, card, device, step.parallel.world),
        asked=asked_of(topology, systems, beside=[other.text for other in beside], networks=networks),
    )


def laid_out_anew(job: Job, topology: Topology) -> Job:
    """Return a job without further networks on the same machine with its ranks in other places."""
    if not isinstance(job.costs, FabricCosts):
        return job
    costs = replace(job.costs, topology=topology)
    return replace(
        job,
        costs=costs,
        slowdowns=faults.slowdowns(costs.topology),
        marked=costs.marked,
        fabric=topology.name,
        remarks=costs.told,
    )


def _without_fit(trained: ModelCard, device: str) -> list[str]:
    """Say which fit there is for the device, where the model is one that fits are made of."""
    name = SYSTEMS[device][2] if device in SYSTEMS and not trained.takes_samples else ""
    return [f"figures of the data sheet; --fit {name} takes those of measured steps"] if name else []


def _likely(
    question: GeneratedJobSpec, trained: ModelCard, device: str, ranks: int
) -> Callable[[float], Probable] | None:
    """Return what tells how long such steps took on GPUs; None where no table has it: words and attention are trained there."""
    if (
        not {"vocabulary", "heads"} <= set(trained.dims)
        or question.card.mode != "training"
        or question.step_ms is not None
    ):
        return None
    kind = named(experts=trained.is_mixture, fitted=bool(question.fit))
    return partial(probable, kind=kind, fit=question.fit or "", device=device, gpus=ranks)


def usual_fabric(question: GeneratedJobSpec) -> Topology:
    """Return the fabric that is taken where none is named: as many nodes as the GPUs need."""
    return _fabric(None, _settled(question)[1].parallel.world)[0]


def workload(question: GeneratedJobSpec, policy: str | None = None) -> Workload:
    """Return the workload alone, without a fabric, with its assumptions; a policy is told the costs of the usual fabric."""
    card, step, dtype = _settled(question)
    roofline = Roofline(gpu(question.gpu or "h100", **question.compute), dtype, max(step.width_bytes, WIDTHS[dtype]))
    generated = job(card, step, roofline, schedule=question.schedule)
    generated = replace(generated, assumptions=(*assumptions(card, step, question.card), *_ground(roofline)))
    return generated if policy is None else scheduler(policy)[1](generated, made(question).costs)


def interference(name: str, usual: Interference) -> Interference:
    """Return how communication slows the compute beside it on a job's device; UsageError for a model that is not known."""
    if name not in INTERFERENCE:
        raise UsageError(f"'{name}' is no model", remedy=f"one of: {', '.join(INTERFERENCE)}")
    if name == "measured" and usual.gpu not in ALIKE:
        what = f"a {usual.gpu}" if usual.gpu else "a recorded job's device"
        raise UsageError(
            f"what communication costs {what} was not measured",
            remedy=f"--interference share, or a job from a model with --gpu {' or '.join(ALIKE)}",
        )
    return replace(usual, model=name)


def _settled(question: GeneratedJobSpec) -> tuple[ModelCard, StepSpec, str]:
    """Return card, step and the type of matrix products; what is narrower than 16 bits travels in 16."""
    card = model(question.card.model, **question.card.dims)
    dtype = element_type(question.card.dtype or usual_dtype(card))
    travels = dtype if WIDTHS[dtype] > 1 else "bfloat16"
    return card, settled(card, replace(question.card, dtype=travels)), dtype


def _fabric(topology: Topology | None, ranks: int) -> tuple[Topology, list[str]]:
    if topology is not None:
        return topology, []
    from ringwright.fabrics import fabric

    nodes = -(-ranks // GPUS_A_NODE)
    return fabric(f"{DEFAULT_FABRIC}:{nodes}"), [f"fabric: {DEFAULT_FABRIC}:{nodes}, enough nodes for {ranks} GPUs"]


def _device(question: GeneratedJobSpec, topology: Topology) -> tuple[str, list[str]]:
    if question.gpu is not None:
        return question.gpu, []
    family = topology.name.partition(":")[0]
    gpu = OF_FABRIC.get(family, "h100")
    return gpu, [f"device: {gpu}" + ("" if family in OF_FABRIC else ", for the fabric names none")]


def _ground(roofline: Roofline) -> list[str]:
    device = roofline.gpu
    return [
        f"{device.name}: {device.rate(roofline.dtype) / 1e12:.0f} TFLOP/s {roofline.dtype} ({device.provenance})",
        f"matrix products reach {device.efficiency:.0%} of that in full waves",
    ]


def _scaled(workload: Workload, step_s: float) -> tuple[Workload, str]:
    """Return the workload with its compute scaled so that one rank's tasks of a step take ``step_s``."""
    if step_s <= 0:
        raise UsageError(f"a step of {step_s * 1e3:g} ms is not above 0", remedy="--step-ms 250")
    times = [0.0]
    for each in workload.classes:
        mine = (task for task in workload.tasks if task.of == each.name)
        times.append(sum(t.seconds * (workload.micro_batches if t.per == "micro-batch" else 1) for t in mine))
    factor = step_s / max(times)
    tasks = tuple(replace(task, seconds=task.seconds * factor) for task in workload.tasks)
    return replace(workload, tasks=tasks), f"compute scaled by {factor:.3g} to {step_s * 1e3:g} ms a step on one GPU"
