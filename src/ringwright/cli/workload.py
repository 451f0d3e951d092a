"""``ringwright workload``: what a model is, and which collectives and memory a parallel form costs its ranks."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.cli.fabrics import MachineOptions
from ringwright.cli.placement_options import PlacementOptions
from ringwright.cli.workload_file import WorkloadFile
from ringwright.jobs import model_workload


@Parameter(name="*", group=options.JOB)
@dataclass(frozen=True, kw_only=True)
class ModelForm:
    """How a model is run: its parallel form, batches and number formats."""

    gpus: Annotated[
        int | None, Parameter(help="Number of GPUs; data parallelism takes what the parallel form leaves.")
    ] = None
    parallel: Annotated[str | None, Parameter(help="Words like tp8,pp16,vp2,cp2,ep8,dp128,sp,sg,zero1,fsdp.")] = None
    micro_batches: Annotated[
        int | None, Parameter(help="Micro-batches of an iteration (default: four a pipeline stage).")
    ] = None
    micro_batch_size: Annotated[int | None, Parameter(help="Sequences of one, or images.")] = None
    seq: Annotated[int | None, Parameter(help="Tokens of a sequence (default: as the model was trained).")] = None
    dtype: Annotated[str | None, Parameter(help="Type of parameters and activations: float32, bfloat16, float16.")] = (
        None
    )
    gradients: Annotated[str | None, Parameter(help="Type of gradients (default: float32).")] = None
    recompute: Annotated[
        str,
        Parameter(
            help="none, selective (scores of attention), selective-op (what torchtitan runs once more by default) or full."
        ),
    ] = "none"
    mode: Annotated[
        str,
        Parameter(
            help="training, prefill, decode, or serve: a pass over the prompts and a decoded token in one table."
        ),
    ] = "training"
    stages: Annotated[str, Parameter(help="Layers of each stage, listed by hand: 10,11,11, or 9,14*8,9.")] = ""


NO_FILE, NO_MACHINE, AS_NUMBERED, AS_PUBLISHED = WorkloadFile(), MachineOptions(), PlacementOptions(), ModelForm()


def workload(
    model: str,
    *,
    form: ModelForm = AS_PUBLISHED,
    stage: int | None = None,
    all_stages: bool = False,
    dims: Annotated[dict[str, int] | None, Parameter(name="--dims")] = None,
    placed: PlacementOptions = AS_NUMBERED,
    machine: MachineOptions = NO_MACHINE,
    file: WorkloadFile = NO_FILE,
    json: options.Json = False,
) -> int:
    """Print a model's parameters, operations for a token, collectives of a rank and memory; or where its axes should lie.

    Parameters
    ----------
    model
        vgg16, resnet50, bert-large, gpt3-175b, llama3-70b, mixtral-8x7b, deepseek-v3 ... (list models)
    stage
        Pipeline stage whose collectives are shown (default: a middle one).
    all_stages
        Show those of every pipeline stage in one table.
    dims
        Another dimension: --dims.vocabulary 32000.
    json
        Print one JSON object instead (schema ringwright.workload/1, of placements ringwright.placements/1).

    Examples
    --------
    ringwright workload llama3-70b --gpus 64 --parallel tp4,pp8 --all-stages
    ringwright workload llama3-8b --gpus 16 --parallel tp4,pp2 --place --fabric dgx-h100:2
    """
    question = model_workload.WorkloadSpec(model, **asdict(form), stage=stage, dims=dims or {}, all_stages=all_stages)
    if placed.places_axes:
        if file.output is not None:
            file.save(question)
        return placed.show(question, file.gpu, file.policy, machine, json=json)
    placed.refuse(machine)
    result = model_workload.workload(question, file.gpu or model_workload.DEVICE)
    file.save(question)
    if json:
        reading.print_json(result)
        return 0
    from ringwright.ground.documents import read_json
    from ringwright.jobs.workload_document import WorkloadFigures
    from ringwright.reports.steps.workload import write

    write(read_json(WorkloadFigures, result), sys.stdout)
    return 0
