"""The job that the survey is asked about, as every system will meet it: one workload, one machine, costs by any algorithm."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ringwright.costs.gpus import OF_FABRIC, gpu
from ringwright.ground.errors import UsageError
from ringwright.jobs import model_job, recorded_job, study, workload_files
from ringwright.jobs.model_job import DEFAULT_FABRIC, GPUS_A_NODE
from ringwright.jobs.model_workload import WorkloadSpec, form
from ringwright.jobs.pricing.costs import LIBRARY, FabricCosts, on_fabric
from ringwright.workloads.models import model
from ringwright.workloads.replay import replayed
from ringwright_lab.survey.form import fitting

if TYPE_CHECKING:
    from ringwright.jobs.study import Job
    from ringwright.model.topology import Topology
    from ringwright.model.trace import Trace
    from ringwright.workloads.replay import Replay

DEFAULT_POLICY, DEFAULT_NODES = "pytorch-ddp", 8


@dataclass(frozen=True)
class NamedMachine:
    """A machine, the options of the command line that name it, and what was taken because nobody said it."""

    topology: Topology
    options: str
    told: tuple[str, ...] = ()
    healthy: Topology | None = None  # without its faults; None: it has none


@dataclass(frozen=True)
class SurveySpec:
    """A model as ``simulate --model`` takes it. None takes a default, which the answer names."""

    gpus: int | None = None
    parallel: str | None = None
    micro_batches: int | None = None
    micro_batch_size: int | None = None
    seq: int | None = None
    mode: str = "training"


@dataclass(frozen=True)
class JobRecipe:
    """What makes a job: a model and how it is cut, or a file, which has no ``spec``; and the machine."""

    job: str | Path
    machine: NamedMachine
    spec: SurveySpec | None = None

    def asked(self) -> Asked:
        """Return the job."""
        if self.spec is not None:
            return of_model(str(self.job), self.machine, self.spec)
        if workload_files.is_workload(Path(self.job)):
            return of_file(str(self.job), self.machine)
        from ringwright.formats.sources import read

        return of_recording(str(self.job), replayed(read(self.job)), self.machine)


@dataclass(frozen=True)
class Asked:
    """A job on a machine. ``jobs`` makes it with the collectives of one algorithm ("" for the baseline's own).

    ``policy`` and LIBRARY are the baseline. ``fabric_costs`` are those of an algorithm on the machine, which also tell what
    travels. ``command`` is what to type for one pair; ``measured_us`` what a recording says of its step.
    """

    name: str
    topology: Topology
    policy: str
    jobs: Callable[[str], Job] = field(repr=False)
    fabric_costs: Callable[[Job, str], FabricCosts] = field(repr=False)
    command: Callable[[str, str], str] = field(repr=False)
    recorded: bool = False
    measured_us: float | None = None
    told: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    again: JobRecipe | None = None  # by which another process makes it

    @property
    def baseline(self) -> tuple[str, str]:
        """Algorithm and policy that all others are held against."""
        return LIBRARY, self.policy

    def saying(self, told: tuple[str, ...]) -> Asked:
        """Return it with more assumptions, in front of its own."""
        return replace(self, told=(*told, *self.told))


def of_model(name: str, machine: NamedMachine, question: SurveySpec) -> Asked:
    """Return a model's step on all ranks of the machine, or on ``gpus`` of them, in a form that fits where none is named."""
    topology = machine.topology
    gpus, parallel, told = _form(name, topology, question)
    card = WorkloadSpec(
        name, gpus, parallel, question.micro_batches, question.micro_batch_size, question.seq, mode=question.mode
    )
    made = model_job.made(model_job.GeneratedJobSpec(card), topology)
    base = made.costs
    assert isinstance(base, FabricCosts)  # noqa: S101 - what ``model_job`` makes
    healthy = None if machine.healthy is None else on_fabric(machine.healthy, made.workload)

    def jobs(algorithm: str) -> Job:
        costs = _by(base, algorithm)
        well = None if healthy is None else _by(healthy, algorithm)
        return replace(made, costs=costs, remarks=costs.told, healthy=well)

    options = f"--model {name} --gpus {gpus} --parallel {parallel}{_options(question)} {machine.options}"
    return Asked(
        name,
        topology,
        DEFAULT_POLICY,
        jobs,
        lambda job, _: job.costs,  # type: ignore[arg-type, return-value]
        lambda algorithm, policy: f"ringwright simulate {options} --algorithm {algorithm} --policy {policy}",
        told=(*machine.told, *told, *made.assumptions),
        again=JobRecipe(name, machine, question),
    )


def of_recording(path: str, replay: Replay, machine: NamedMachine) -> Asked:
    """Return a recorded step; its operations keep their measured times but for what an algorithm, or a fault, changes."""
    topology, healthy = machine.topology, machine.healthy or machine.topology
    own = recorded_job.job(replay, recorded_job.Counterfactual("", healthy, topology))
    beside = recorded_job.ground(replay)
    seen: dict[str, FabricCosts] = {}

    def jobs(algorithm: str) -> Job:
        changed = "" if algorithm == LIBRARY else algorithm
        made = recorded_job.job(replay, recorded_job.Counterfactual(changed, healthy, topology))
        if machine.healthy is None:
            return made
        return study.without_faults_too(
            made, recorded_job.job(replay, recorded_job.Counterfactual(changed, healthy, healthy))
        )

    def fabric_costs(_job: Job, algorithm: str) -> FabricCosts:
        return seen.setdefault(algorithm, on_fabric(topology, replay.workload, algorithm))

    measured = beside["baseline"]
    return Asked(
        Path(path).name,
        topology,
        study.NONE,
        jobs,
        fabric_costs,
        _command(path, machine.options),
        recorded=True,
        measured_us=measured["measured_us"] if measured else None,
        told=(
            *own.assumptions,
            f"bytes on the wire: collectives by {LIBRARY} on {topology.name} where nothing else is said",
        ),
        warnings=tuple(beside["warnings"]),
        again=JobRecipe(Path(path), machine),
    )


def of_file(path: str, machine: NamedMachine) -> Asked:
    """Return a workload file's step on the machine."""
    topology = machine.topology
    workload = workload_files.read(Path(path))
    made = workload_files.job(workload, topology)
    base = made.costs
    assert isinstance(base, FabricCosts)  # noqa: S101 - what ``workload_files`` makes

    def jobs(algorithm: str) -> Job:
        costs = _by(base, algorithm)
        return replace(made, costs=costs, remarks=costs.told)

    return Asked(
        Path(path).name,
        topology,
        study.NONE,
        jobs,
        lambda job, _: job.costs,  # type: ignore[arg-type, return-value]
        _command(path, machine.options),
        told=made.assumptions,
        again=JobRecipe(Path(path), machine),
    )


def of_path(path: str, machine_of: Callable[[int], NamedMachine], read: Callable[[str], Trace]) -> Asked:
    """Return what a file asks: a workload file's step, or a recorded one.

    ``machine_of`` returns the machine for so many ranks, where the user may have named none; ``read`` reads a recording.
    """
    if workload_files.is_workload(Path(path)):
        machine = machine_of(workload_files.read(Path(path)).mesh.size)
        return of_file(path, machine).saying(machine.told)
    replay = replayed(read(path))
    machine = machine_of(replay.workload.mesh.size)
    return of_recording(path, replay, machine).saying(machine.told)


def usual_fabric(gpus: int | None, parallel: str | None) -> str:
    """Return the fabric that is taken where none is named: enough nodes for the GPUs, eight where no number is said."""
    ranks = gpus if gpus is not None else (form(parallel, None).world if parallel else DEFAULT_NODES * GPUS_A_NODE)
    return f"{DEFAULT_FABRIC}:{max(1, -(-ranks // GPUS_A_NODE))}"


def known(name: str) -> None:
    """Raise UsageError for what is neither a model nor a file that is there."""
    try:
        model(name)
    except UsageError as error:
        near = "" if (error.remedy or "").startswith("one of") else f"{error.remedy}; "
        raise UsageError(
            f"'{name}' is no model known here, and no recording of that name is there",
            where=str(Path.cwd()),
            remedy=f"{near}ringwright survey llama3-70b --fabric dgx-h100:8",
        ) from None


def _form(name: str, topology: Topology, question: SurveySpec) -> tuple[int | None, str, tuple[str, ...]]:
    """Return GPUs and parallel form, and how they were chosen where they were."""
    if question.parallel is not None:
        named = question.gpus is not None or "dp" in question.parallel.replace("fsdp", "")
        gpus = question.gpus if named else topology.n_ranks
        parallel = form(question.parallel, gpus)
        return parallel.world, question.parallel, ()
    gpus = topology.n_ranks if question.gpus is None else question.gpus
    if gpus < 1:
        raise UsageError(f"--gpus is {gpus}", where=name, remedy="--gpus 1 or more")
    device = gpu(OF_FABRIC.get(topology.name.partition(":")[0], "h100"))
    per_host = GPUS_A_NODE if topology.hosts is None else int(np.bincount(topology.hosts).max())
    text, why = fitting(name, gpus, per_host, device.capacity_bytes)
    return gpus, text, (f"parallel form: {text}, the first that fits; {why} (--parallel names another)",)


def _options(question: SurveySpec) -> str:
    given = {
        "micro-batches": question.micro_batches,
        "micro-batch-size": question.micro_batch_size,
        "seq": question.seq,
    }
    told = "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
    return told + ("" if question.mode == "training" else f" --mode {question.mode}")


def _command(path: str, machine: str) -> Callable[[str, str], str]:
    def command(algorithm: str, policy: str) -> str:
        chosen = "" if algorithm == LIBRARY else f" --algorithm {algorithm}"
        return f"ringwright simulate {shlex.quote(path)} {machine}{chosen} --policy {policy}"

    return command


def _by(base: FabricCosts, algorithm: str) -> FabricCosts:
    """Return the costs by another algorithm; what every algorithm leaves to the library is timed once for all."""
    return base.done_by({"": algorithm} if algorithm else {})
