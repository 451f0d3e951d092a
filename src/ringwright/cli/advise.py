"""``ringwright advise``: what to change in a job, by how much, and how sure that is."""

from __future__ import annotations

import math
import shlex
import sys
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ringwright.cli import options, progress, reading
from ringwright.cli.fabrics import MachineOptions
from ringwright.ground.documents import as_json
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.advise.advise import AdviceSpec
    from ringwright.advise.situation import Situation
    from ringwright.model.topology import Topology
    from ringwright.model.trace import Trace


@Parameter(name="*", group=options.JOB)
@dataclass(frozen=True, kw_only=True)
class AdvisedModel:
    """A job from a model, in place of a recording."""

    model: Annotated[
        str | None, Parameter(help="llama3-70b, resnet50 ... (list models), where there is no recording.")
    ] = None
    gpus: Annotated[int | None, Parameter(help="Number of GPUs.")] = None
    parallel: Annotated[str | None, Parameter(help="tp8,pp16,dp128,sp,zero1,fsdp.")] = None
    micro_batches: Annotated[int | None, Parameter(help="Micro-batches of an iteration.")] = None
    micro_batch_size: Annotated[int | None, Parameter(help="Sequences, or images, of one.")] = None
    seq: Annotated[int | None, Parameter(help="Tokens of a sequence.")] = None
    dtype: Annotated[str | None, Parameter(help="Element type (default: bfloat16).")] = None
    gpu: Annotated[str | None, Parameter(help="Device: a100, h100, b200 ... (list gpus)")] = None
    fit: Annotated[str | None, Parameter(help="Name or file of efficiencies fitted to measured steps.")] = None
    policy: Annotated[str, Parameter(help="What the model runs by today (list policies).")] = "pytorch-ddp"

    def situation(self, machine: MachineOptions) -> Situation:
        """Return what is advised on; UsageError where no model is named."""
        from ringwright.advise.situation import of_model
        from ringwright.jobs.model_job import GeneratedJobSpec
        from ringwright.jobs.model_workload import WorkloadSpec

        if self.model is None:
            raise UsageError(
                "no job is named", remedy="ringwright advise job/, --sample, or --model llama3-8b --gpus 16"
            )
        sizes = (self.gpus, self.parallel, self.micro_batches, self.micro_batch_size, self.seq, self.dtype)
        spec = GeneratedJobSpec(WorkloadSpec(self.model, *sizes), self.gpu, fit=self.fit)
        return of_model(spec, machine.build() if machine.is_named else None, self.policy)

    def words(self) -> list[str]:
        """Return the options as they are typed, those that were left out left out."""
        given = [(each.name.replace("_", "-"), getattr(self, each.name), each.default) for each in fields(self)]
        return [word for name, value, usual in given if value != usual for word in (f"--{name}", str(value))]


@Parameter(name="*", group=options.QUESTION)
@dataclass(frozen=True, kw_only=True)
class HeldAgainst:
    """Whether a prediction was true."""

    back_test: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=True,
            negative="",
            help="Judge a prediction: of the first half on the second, or beside OTHER, a run after --change.",
        ),
    ] = None
    change: Annotated[str, Parameter(help="What is different in OTHER: ddp:bucket_cap_mb=25, p3, repair:3 ...")] = ""

    @property
    def is_asked(self) -> bool:
        """Whether a prediction is judged."""
        return self.back_test is not None or bool(self.change)

    def answer(self, trace: Trace, machine: Topology | None, seed: int, *, json: bool) -> int:
        """Print how a recording's prediction did; 1 where it was wrong."""
        from ringwright.advise.backtest import of_halves, of_pair
        from ringwright.reports.steps.backtested import write_judged

        if self.back_test:
            made = of_pair(trace, reading.trace(reading.inputs(tuple(self.back_test))), self.change, machine, seed)
        elif self.change:
            raise UsageError("a change is judged beside a run with it", where="--change", remedy="--back-test OTHER")
        else:
            made = of_halves(trace, machine, seed)
        if json:
            reading.print_json(as_json(made))
        else:
            write_judged(made, sys.stdout)
        return 1 if made.is_inside is False else 0


@Parameter(name="*", group=options.QUESTION)
@dataclass(frozen=True, kw_only=True)
class AdviceQuestion:
    """What may be changed, for how long is searched, and what an advice has to keep."""

    may: Annotated[
        str | None,
        Parameter(
            help="What may be changed, comma separated: repair, nccl, algorithm, ddp, fsdp, policy, rewrites, placement, "
            "parallel, switch,\nfabric (default: all but parallel and fabric)."
        ),
    ] = None
    work: Annotated[
        int | None,
        Parameter(help="How much to search: tasks and operations simulated (default: 6000000, about a minute)."),
    ] = None
    budget: Annotated[
        str | None,
        Parameter(help="For how long at the most, 60s; the answer then depends on the machine (default: no clock)."),
    ] = None
    seed: Annotated[int, Parameter(help="Of what is drawn.")] = 0
    memory: Annotated[str | None, Parameter(help="What a rank may hold, 80GiB (default: what its device has).")] = None
    release: Annotated[
        str, Parameter(help="NCCL's release, 2.27, whose combinations are tried (default: the latest that is known).")
    ] = ""
    inexact: Annotated[
        bool, Parameter(help="Also what makes gradients other numbers: fewer bits, or only some of them.")
    ] = False

    def spec(self, recording: str, words: list[str]) -> AdviceSpec:
        """Return the question as the search takes it; ``words``: how the verb is called for the same job."""
        from ringwright.advise.advise import AdviceSpec
        from ringwright.advise.search import WORK
        from ringwright.advise.software import asked_release
        from ringwright.advise.space import asked_layers
        from ringwright.cli import advice_output
        from ringwright.ground.units import parse_size, parse_time

        layers, needless = asked_layers(self.may), f"--release {self.release} is for nccl, which --may leaves out"
        if self.release and "nccl" not in layers:
            raise UsageError(needless, remedy=f"--may nccl,{self.may}")
        limit = None if self.memory is None else parse_size(self.memory)
        release, seed = self.release or None, self.seed or None
        asked = {"may": self.may, "work": self.work, "budget": self.budget, "memory": self.memory}
        asked |= {"release": release, "seed": seed}
        words = [*words, *advice_output.typed(asked), *["--inexact"] * self.inexact]
        seconds = math.inf if self.budget is None else parse_time(self.budget)
        again, work = shlex.join(["ringwright", "advise", *words]), WORK if self.work is None else self.work
        numbers = (seconds, self.seed, limit)
        return AdviceSpec(layers, *numbers, asked_release(self.release), self.inexact, recording, again, work)


NO_MODEL, ANY_MACHINE, NOT_HELD, ANYTHING = AdvisedModel(), MachineOptions(), HeldAgainst(), AdviceQuestion()


def advise(
    *paths: str,
    sample: options.Sample = False,
    asked: AdviceQuestion = ANYTHING,
    model: AdvisedModel = NO_MODEL,
    judged: HeldAgainst = NOT_HELD,
    machine: MachineOptions = ANY_MACHINE,
    output: options.Target = None,
    force: options.Force = False,
    executor: options.Executor = None,
    json: options.Json = False,
) -> int:
    """Advise on a job: at most five changes, each with what it gains together with those above it, and with its interval.

    Parameters
    ----------
    paths
        A recording of one job, of any kind that summary reads. --fabric says what it ran on.
    output
        A folder for the advice, its page and the files of every change, each read back; FILE.html for the page alone.
    force
        Overwrite what an earlier advice wrote there.
    json
        Print one JSON object instead (schema ringwright.advise/1).

    Examples
    --------
    ringwright advise --sample
    ringwright advise --model gpt3-125m --gpus 4 --fabric switch:4,rate=10Gb/s --may ddp,policy
    ringwright advise --model gpt3-125m --gpus 8 --parallel fsdp --fabric dgx-h100:1 --may fsdp
    """
    from ringwright.advise.advise import advised as answer
    from ringwright.advise.situation import of_recording
    from ringwright.cli import advice_output

    if asked.seed < 0:
        raise UsageError(f"{asked.seed} is no seed", where="--seed", remedy="a whole number from 0 on")
    named = bool(paths) or sample
    _refuse(model.words() if named else [], machine.words() if not machine.is_named else [])
    words = [*["--sample"] * sample, *(paths or model.words()), *machine.words()]
    spec = asked.spec(shlex.join(paths) or "PATH", words)
    target = advice_output.claimed(output, force=force)
    with progress.steps("trying") as advance:
        if named:
            trace = reading.trace(inputs := reading.inputs(paths, sample=sample))
            built = machine.build() if machine.is_named else None
            if judged.is_asked:
                return judged.answer(trace, built, asked.seed, json=json)
            situation = of_recording(trace, built, paths=inputs)
        elif judged.is_asked:
            raise UsageError(
                "only a recording is judged", where="--back-test", remedy="ringwright advise job/ --back-test"
            )
        else:
            situation = model.situation(machine)
        if machine.is_named:
            situation = replace(situation, machine=shlex.join(replace(machine, ranks=None).words()))
        made = answer(situation, spec, advance, executor=executor)
    return advice_output.show(made, spec.again, target, json=json)


def _refuse(model: list[str], machine: list[str]) -> None:
    """Raise UsageError for words of a model beside a recording, and of a machine that is not named."""
    if model:
        raise UsageError(
            f"{model[0]} is for a job from a model, and a recording is named", remedy="leave one of them out"
        )
    if machine:
        raise UsageError(
            f"{machine[0]} is of a machine, and none is named", remedy="--fabric dgx-h100:2, or --topology"
        )
