"""What a model is and what it makes its ranks issue, as one object; every default that was taken is said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ringwright.costs.gpus import WIDTHS, element_type, gpu
from ringwright.ground.documents import as_json
from ringwright.ground.errors import UsageError
from ringwright.jobs import memory
from ringwright.workloads.collectives import collectives, totals
from ringwright.workloads.flops import BOTH_WAYS, MODES, default_mtp, flops_per_token
from ringwright.workloads.job import job
from ringwright.workloads.model_cards import ModelCard
from ringwright.workloads.models import active_parameters, model, parameters, usual_sequence
from ringwright.workloads.parallel import Parallel, parse
from ringwright.workloads.recomputed import OPERATIONS
from ringwright.workloads.replicas import has_ddp
from ringwright.workloads.requests import RankRequest, request_sizes, requests
from ringwright.workloads.stage_layers import listed, sizes
from ringwright.workloads.step import StepSpec, refuse
from ringwright.workloads.times import Roofline

IMAGES_A_RANK, SAMPLES_A_RANK = 32, 2048
DEVICE = "h100"  # whose memory is compared where none is named
TURNS = 4  # micro-batches a stage after which 1F1B, interleaved or not, has been at its peak
NARROWEST = 2  # bytes of an element on the wire
SERVE = "serve"  # both of its passes
PASSES = ("prefill", "decode")


@dataclass(frozen=True)
class WorkloadSpec:
    """What is asked, in the words of the command line; None takes a default, which the answer names."""

    model: str
    gpus: int | None = None
    parallel: str | None = None
    micro_batches: int | None = None
    micro_batch_size: int | None = None
    seq: int | None = None
    dtype: str | None = None
    gradients: str | None = None
    recompute: str = "none"
    mode: str = "training"
    stage: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    stages: str = ""  # layers of each chunk along the model: 7,8,8
    all_stages: bool = False  # requests of every stage, not of one


def workload(question: WorkloadSpec, device: str = DEVICE) -> dict[str, Any]:
    """Return the object of schema ``ringwright.workload/1``; UsageError where the model or its parallel form cannot be.

    The device says whether attention keeps its scores on chip, and what its memory holds.
    """
    card = model(question.model, **question.dims)
    steps = _passes(card, question)
    step, roofline = steps[0], _roofline(card, question, steps[0], device)
    jobs = [job(card, each, roofline, most=TURNS * step.parallel.pp) for each in steps]
    rows = {each.mode: _requests(card, each, question) for each in steps}
    held, there = memory.worst([memory.stages(each) for each in jobs]), memory.device_bytes(jobs[0])
    return {
        "schema": "ringwright.workload/1",
        "model": question.model,
        "card": card.size,
        "dims": dict(card.dims),
        "parameters": parameters(card),
        "active_parameters": active_parameters(card),
        "flops_per_token": flops_per_token(card, step.sequence),
        "unit": card.unit,
        "gpus": step.parallel.world,
        "parallel": str(step.parallel),
        "mode": question.mode,
        "stage": step.place,
        "all_stages": question.all_stages,
        "assumptions": [
            *assumptions(card, step, question),
            *remembered(step, device, takes_samples=card.takes_samples),
        ],
        "collectives": totals([row for each in steps for row in collectives(card, each)]),
        "requests": [row for mine in rows.values() for row in mine],
        "request_sizes": [row for mode, mine in rows.items() for row in request_sizes(mine, mode)],
        "memory": as_json(held),
        **memory.held_at_most(max((each.peak_bytes for each in held), default=None), there),
    }


def _passes(trained: ModelCard, question: WorkloadSpec) -> list[StepSpec]:
    """Return the step that is asked about, or both passes of serving; UsageError where mode or stages cannot be."""
    if question.mode not in (*MODES, SERVE):
        raise UsageError(f"'{question.mode}' does not exist", remedy=f"one of: {', '.join((*MODES, SERVE))}")
    if question.all_stages and question.stage is not None:
        raise UsageError(f"--stage {question.stage} and --all-stages at once", remedy="one of both")
    modes = PASSES if question.mode == SERVE else (question.mode,)
    return [settled(trained, replace(question, mode=mode)) for mode in modes]


def _roofline(trained: ModelCard, question: WorkloadSpec, step: StepSpec, device: str) -> Roofline:
    return Roofline(gpu(device), element_type(question.dtype or usual_dtype(trained)), step.width_bytes)


def _requests(trained: ModelCard, step: StepSpec, question: WorkloadSpec) -> list[RankRequest]:
    """Return the requests of the stage that is asked about, or of each."""
    stages = range(step.parallel.pp) if question.all_stages else (step.place,)
    return [row for stage in stages for row in requests(trained, replace(step, stage=stage))]


def remembered(step: StepSpec, device: str, *, takes_samples: bool) -> Iterator[str]:
    """Yield what the account of memory takes for granted."""
    scores = "" if takes_samples or gpu(device).flash else ", scores of attention among them"
    yield (
        f"memory on {device}: what forward keeps for backward{scores}, parameters, gradients and buffers of what is sent; "
        "not what a kernel needs within itself, fragments, or the libraries' own"
    )
    if step.recompute == OPERATIONS:
        yield (
            "recomputation as torchtitan does it by default: attention and every second matrix are kept, all else of a block "
            "runs once more; the loss is PyTorch's cross-entropy in 32 bits"
        )
    elif step.trains and step.recompute == "none" and step.parallel.zero == 3:
        yield f"nothing is recomputed; torchtitan's default is --recompute {OPERATIONS}"
    if step.trains:
        yield "optimizer: Adam, with a copy of parameters of 16 bits in 32"


def settled(card: ModelCard, question: WorkloadSpec) -> StepSpec:
    """Return the step that is asked about, defaults filled in; UsageError where it cannot be."""
    parallel = replace(
        form(question.parallel, question.gpus), stages=listed(question.stages) if question.stages else ()
    )
    dtype = question.dtype or usual_dtype(card)
    step = StepSpec(
        parallel,
        usual_sequence(card) if question.seq is None else question.seq,
        _micro_batches(parallel) if question.micro_batches is None else question.micro_batches,
        _micro_batch_size(card) if question.micro_batch_size is None else question.micro_batch_size,
        question.mode,
        question.recompute,
        width_of(dtype),
        width_of(question.gradients or "float32"),
        question.stage,
    )
    refuse(card, step)
    return step


def form(text: str | None, gpus: int | None) -> Parallel:
    """Return the parallel form of so many GPUs: data parallel where only their number is given, one rank without either."""
    if gpus is not None and gpus < 1:
        raise UsageError(f"--gpus is {gpus}", remedy="--gpus 1 or more")
    return parse(text or "", gpus)


def width_of(dtype: str) -> int:
    """Return the bytes of an element; UsageError for a type that is not known."""
    name = element_type(dtype)
    if WIDTHS[name] < NARROWEST:
        raise UsageError(
            f"'{dtype}' does not travel: collectives add in 16 bits or more", remedy="bfloat16, or float32"
        )
    return WIDTHS[name]


def usual_dtype(card: ModelCard) -> str:
    """Return the type of parameters and activations that is taken where none is named."""
    return "float32" if card.takes_samples else "bfloat16"


def _micro_batches(parallel: Parallel) -> int:
    """Return enough for a pipeline to be busy four fifths of the time; one where there is none."""
    return 4 * parallel.pp if parallel.pp > 1 else 1


def _micro_batch_size(card: ModelCard) -> int:
    return SAMPLES_A_RANK if card.has_tables else IMAGES_A_RANK if card.takes_images else 1


def assumptions(card: ModelCard, step: StepSpec, question: WorkloadSpec) -> Iterator[str]:
    """Yield every default that was taken, and what the figures hold and leave out."""
    parallel = step.parallel
    if question.parallel is None:
        yield "no parallel form was given: " + (f"data parallel over {parallel.dp}" if parallel.dp > 1 else "one GPU")
    elif question.gpus is None:
        yield f"GPUs: {parallel.world}, the product of the parallel form"
    elif "dp" not in question.parallel.replace("fsdp", ""):
        yield f"dp{parallel.dp} follows from {question.gpus} GPUs"
    yield from _amounts(card, step, question)
    if question.dtype is None:
        yield f"data type of parameters and activations: {usual_dtype(card)}"
    if question.gradients is None and step.trains:
        yield "data type of gradients: float32"
    if question.mode == SERVE:
        yield "serving: one pass over the prompts, then one decoded token of each sequence, after as many tokens"
    if question.stage is None and parallel.pp > 1 and not question.all_stages:
        yield f"collectives of stage {step.place} of {parallel.pp} (--stage asks for another)"
    yield from _counted(card, step)
    if parallel.world > 1:
        yield from _communicated(card, step)


def _amount(trained: ModelCard) -> str:
    return "samples" if trained.has_tables else "images" if trained.takes_images else "sequence"


def _amounts(trained: ModelCard, step: StepSpec, question: WorkloadSpec) -> Iterator[str]:
    """Yield how much a rank works on, where it was not said."""
    if question.micro_batches is None:
        yield f"micro-batches: {step.micro_batches}" + (", four a pipeline stage" if step.parallel.pp > 1 else "")
    if question.micro_batch_size is None:
        yield f"micro-batch size: {step.micro_batch_size} {_amount(trained)}"
    if trained.fixed_tokens:
        yield f"an image is {trained.fixed_tokens:,} tokens"
    elif question.seq is None and not trained.takes_samples:
        yield f"sequence: {step.sequence} tokens, as the model was trained"


def _counted(card: ModelCard, step: StepSpec) -> Iterator[str]:
    """Yield what parameters and operations hold."""
    if card.takes_samples:
        yield f"operations are those of forward and backward pass for one {card.unit}, two a multiply-add"
    elif card.family == "transformer":
        yield "operations are those of a pair of one source and one target token, forward and backward"
    elif card.family in BOTH_WAYS:
        yield "operations are those of forward and backward pass for one token, attention in both directions"
    elif "state" in card.dims:
        yield "operations are those of the matrices, forward and backward for one token; convolution and recurrence are left out"
    else:
        yield "operations are those of forward and backward pass for one token, attention halved as causal"
    if card.family == "bert":
        yield "the pooler is counted, the masked-word head is not"
    if card.family == "deepseek-v3":
        yield f"operations include {default_mtp(card)} module that predicts one more token; parameters and collectives do not"
        yield "parameters include the corrections of the routers' scores"
    if "experts" in card.dims:
        yield "operations leave the routers out; routed tokens come out even over the experts"
    if card.size.startswith("gpt3-"):
        yield "the vocabulary of 50,257 words is padded to 51,200"


# branches: a sentence for each choice of the parallel form
def _communicated(card: ModelCard, step: StepSpec) -> Iterator[str]:
    """Yield how the collectives are made where systems differ."""
    parallel = step.parallel
    if card.has_tables:
        yield "memory and lookups are those of the rank with the largest tables, the all-to-all that of a rank with most of them"
        yield "tables: plain gradient descent on the rows that were looked up; sums of gradients hold the MLPs alone"
    yield "scalars (the loss, the norm of the gradients) are left out"
    if parallel.tp > 1 and not parallel.sp:
        yield "sequence parallelism is off (sp switches it on)"
        if parallel.pp > 1:
            parts = (
                "sends its part of a stage's output"
                if parallel.sg
                else "sends the whole output of its stage (sg: its part)"
            )
            yield f"every rank of a tensor parallel group {parts}"
    if parallel.ep > 1:
        yield "experts are not cut by tensor parallelism; tokens are dispatched in the data type of activations"
        if parallel.tp > 1 and not parallel.sp:
            yield "every rank of a tensor parallel group sends all its tokens to the experts, for sp is off"
    if parallel.cp > 1:
        yield "context parallelism passes keys and values round a ring"
    shared_out = "" if card.takes_samples else sizes(card, parallel)[1]
    if shared_out:
        yield shared_out
    if not step.trains or parallel.zero == 3:
        return
    if parallel.zero == 0 and parallel.replicas > 1 and "zero" not in card.refused:
        yield "zero0: every replica adds up all gradients (zero1, fsdp share them out)"
    if has_ddp(card, parallel):
        yield "gradients travel in the buckets of PyTorch's DistributedDataParallel (1 MiB, then 25 MiB)"
    elif parallel.replicas > 1:
        yield "gradients travel in buckets of 40 million parameters, or one million a replica where that is more"
