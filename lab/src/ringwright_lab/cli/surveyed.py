"""What the survey is asked about: a model or a file, and the machine."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.cli.fabrics import MachineOptions
from ringwright.cli.jobs import switch
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright_lab.survey.survey_job import Asked, NamedMachine

EVERYWHERE = MachineOptions()


@Parameter(name="*", group=options.JOB)
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a model's step is cut, where the job is a model."""

    gpus: Annotated[int | None, Parameter(help="Number of GPUs (default: all of the fabric).")] = None
    parallel: Annotated[str | None, Parameter(help="tp8,pp4,dp2 ... (default: the first form that fits).")] = None
    micro_batches: Annotated[int | None, Parameter(help="Micro-batches of an iteration.")] = None
    micro_batch_size: Annotated[int | None, Parameter(help="Sequences, or images, of one.")] = None
    seq: Annotated[int | None, Parameter(help="Tokens of a sequence.")] = None
    mode: Annotated[str, Parameter(help="training, prefill or decode.")] = "training"


NO_OPTIONS = ModelOptions()


def question(job: str | None, machine: MachineOptions, model: ModelOptions) -> Asked | None:
    """Return what is asked; UsageError for options of a job without one, and for a job that is neither model nor file."""
    from ringwright_lab.survey import survey_job

    if job is None:
        if machine != EVERYWHERE or model != NO_OPTIONS:
            raise UsageError(
                "no job is named for that machine", remedy="ringwright survey llama3-70b --fabric dgx-h100:8"
            )
        return None
    if machine.ranks is not None:
        raise UsageError("--ranks is the group of one collective, not of a job", where=job, remedy="--gpus 8")
    if Path(job).exists():
        if model != NO_OPTIONS:
            raise UsageError(f"options of a model, and {job} is a file: it is what it is", remedy="leave them out")
        return survey_job.of_path(job, partial(_named, machine), lambda path: reading.trace([path]))
    survey_job.known(job)
    told: tuple[str, ...] = ()
    if machine.fabric is None and machine.topology is None:
        machine = replace(machine, fabric=survey_job.usual_fabric(model.gpus, model.parallel))
        told = (f"fabric: {machine.fabric}, for none was named",)
    spec = survey_job.SurveySpec(
        model.gpus, model.parallel, model.micro_batches, model.micro_batch_size, model.seq, model.mode
    )
    return survey_job.of_model(job, replace(_named(machine, 0), told=told), spec)


def _named(machine: MachineOptions, ranks: int) -> NamedMachine:
    from ringwright_lab.survey import survey_job

    machine, told = switch(machine, ranks)
    healthy = machine.healthy().build() if machine.fault else None
    return survey_job.NamedMachine(machine.build(), _options(machine), told, healthy)


def _options(machine: MachineOptions) -> str:
    """Return the machine as it was typed, or as it was taken where it was not."""
    words = ["--topology", str(machine.topology)] if machine.topology else ["--fabric", str(machine.fabric)]
    for each in machine.fault:
        words += ["--fault", each]
    words += ["--seed", str(machine.seed)] if machine.fault and machine.seed else []
    words += ["--calibration", machine.calibration] if machine.calibration else []
    return shlex.join(words)
