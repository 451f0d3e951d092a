"""One verb for programs and jobs alike: how long it takes, without doing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from ringwright.calls import arguments
from ringwright.calls.library_calls import usual_algorithm
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.calls.switch_assignment import seated
from ringwright.ground.errors import UsageError
from ringwright.model.collective import OPS, Collective
from ringwright.model.program import Program
from ringwright.model.trace import Trace
from ringwright.model.workload import Workload

if TYPE_CHECKING:
    from ringwright.calls.arrivals import Asked
    from ringwright.calls.asked_faults import AskedFaults
    from ringwright.costs.calibration import Calibration
    from ringwright.costs.probable_time import Probable
    from ringwright.engines.result import Run
    from ringwright.jobs.study import Job, PolicyResult
    from ringwright.model.topology import Topology

Operation = Literal[
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all-to-all",
    "barrier",
    "send-recv",
    "scan",
    "exscan",
]
Policy = str | Callable[..., Workload]


@overload
def simulate(
    what: Program | Collective | Operation,
    on: arguments.Machine,
    *,
    algorithm: str | Callable[..., Program] | None = None,
    size: int | str | None = None,
    faults: Iterable[str] = (),
    seed: int = 0,
    engine: str = "auto",
    alpha: str = "pipelined",
    arrivals: Asked | None = None,
    calibration: Calibration | str | Path | None = None,
) -> Run: ...
@overload
def simulate(
    what: Workload | Trace | Path,
    on: arguments.Machine | None = None,
    *,
    algorithm: str | None = None,
    policy: Policy = "none",
    faults: Iterable[str] = (),
    seed: int = 0,
    arrivals: Asked | None = None,
) -> PolicyResult: ...
@overload
def simulate(
    what: str,
    on: arguments.Machine | None = None,
    *,
    algorithm: str | None = None,
    policy: Policy = "none",
    faults: Iterable[str] = (),
    seed: int = 0,
    arrivals: Asked | None = None,
) -> Run | PolicyResult: ...
def simulate(
    what: Program | Collective | Workload | Trace | str | Path,
    on: arguments.Machine | None = None,
    *,
    algorithm: str | Callable[..., Program] | None = None,
    policy: Policy | None = None,
    size: int | str | None = None,
    faults: Iterable[str] = (),
    seed: int = 0,
    engine: str | None = None,
    alpha: str | None = None,
    arrivals: Asked | None = None,
    calibration: Calibration | str | Path | None = None,
) -> Run | PolicyResult:
    """Say how long a program, or one step of a whole job, takes on a machine.

    Parameters
    ----------
    what
        A collective: a Program, a Collective, or an operation such as ``all-reduce`` over all ranks of the machine.
        A job: a Workload, a Trace (replayed), the path of a recording or of a workload file, or a model such as
        ``llama3-70b`` on all ranks of the machine.
    on
        The machine: a Topology, ``dgx-h100:16``, or a file that describes one. A Trace with times may go without: its
        operations then take the times that were measured. With one, a simulated job's Trace is moved to it from the network that
        it says it ran on; of any other Trace it is taken for the network that it ran on.
    algorithm
        Which algorithm does the collectives (not of a Program, which is one): a spelling such as
        ``blueconnect:factors=8x2``, or, of one collective, a callable. Usual: NCCL's own choices in a job and where ranks
        are GPUs, elsewhere ``ring``, or ``open-mpi`` for what no ring does.
    policy
        Of a job, the order of its communication: ``p3``, ``outer+inner``, a callable ``(workload, costs) -> workload``, or
        ``none``, its own (``pytorch-ddp`` of a model, as on the command line).
    size
        Of an operation: bytes, or ``64M`` (binary), the size column of nccl-tests. Usual: 64 MiB.
    faults, seed
        Lines such as ``rank 3 slow 2x`` or ``link node0/nic0 rate 50%``, and the seed of what they leave to chance.
    engine
        Of a collective: ``auto``, ``closed-form``, ``recurrence``, ``events`` or ``flows``.
    alpha
        Of a collective, whether a link is free (``pipelined``, usual) or ``busy`` during its latency.
    arrivals
        When the ranks come: seconds by rank in the group, ``late:3=2ms``, ``normal:20us,seed=1``, ``exponential:20us``,
        ``uniform:20us``, or the path of a recording whose ranks were measured. Usual: all together. Of a job: by how much
        later than it could each rank begins each step.
    calibration
        Of a collective, what was measured on the machine: a name or a file of ``ringwright calibrate``, or a Calibration.

    Returns
    -------
    Run
        Of a collective: ``time_s`` in seconds, ``start_ps`` and ``end_ps`` of each simulated message (int64, ps, one entry a
        message), ``bottleneck``, ``path()``, and what the engine leaves out. ``probable`` has the most probable time with its
        90 % interval, learnt from measured tables where there are some.
    PolicyResult
        Of a job: ``step_s`` and ``exposed_s`` in seconds, and in ``account`` where the rest of the step went.

    Raises
    ------
    UsageError
        What is named does not exist, does not fit on the machine, or an option does not belong to it.
    InfeasibleError
        A message never arrives, or nothing here can hold the program.
    WorkloadError
        The job contradicts itself, or the policy declines it.

    Examples
    --------
    >>> import ringwright
    >>> ringwright.simulate("all-reduce", "dgx-h100:2", algorithm="ring", size="64M")
    Run(ring, all-reduce of 64 MiB over 16 ranks on dgx-h100:2: 2,519 us, events)
    >>> likely = ringwright.simulate("all-reduce", "dgx-h100:2", size="64M").probable
    >>> likely.p05_us < likely.p50_us < likely.p95_us, likely.calibration
    (True, 'prior')
    >>> step = ringwright.job("vgg16", gpus=8)
    >>> answer = ringwright.simulate(step, "dgx-h100:1", policy="p3")
    >>> answer.exposed_s < answer.step_s
    True
    """
    if isinstance(what, Program | Collective) or what in OPS:
        if policy is not None:
            raise UsageError("a policy orders the operations of a job, this is one", remedy="leave policy out")
        machine, held = arguments.machine(_named(on)), _calibration(calibration)
        if held is not None:
            from ringwright.costs.calibration import calibrated

            machine = calibrated(machine, held)
        made, program = _program(what, machine, algorithm, size, held)
        asked = _asked(faults, seed)
        question = SimulationSpec(
            program.collective.op,
            machine if asked is None else asked.on(machine),
            engine,
            alpha or "pipelined",
            program.collective.group,
            arrivals=arrivals,
            healthy=machine,
            calibration=held,
            faults=asked,
        )
        return _run(question, made, program)
    strange = {"size": size, "engine": engine, "alpha": alpha, "calibration": calibration}
    if given := [name for name, value in strange.items() if value is not None]:
        raise UsageError(f"{given[0]} is for one collective, this is a job", remedy=f"leave {given[0]} out")
    if algorithm is not None and not isinstance(algorithm, str):
        algorithm = _spelling(algorithm)
    from ringwright.jobs.study import answer, arriving_late, without_faults_too

    lines, opened = _lines(faults), _opened(what)
    job, usual = _job(opened, on, algorithm or "", lines, seed)
    if lines:
        job = without_faults_too(job, _job(opened, on, algorithm or "", (), seed)[0])
    return answer(arriving_late(job, arrivals), usual if policy is None else policy)


def _asked(faults: Iterable[str], seed: int) -> AskedFaults | None:
    from ringwright.calls.asked_faults import AskedFaults

    lines = _lines(faults)
    return AskedFaults(lines, seed) if lines else None


def _lines(faults: Iterable[str]) -> tuple[str, ...]:
    return (faults,) if isinstance(faults, str) else tuple(faults)


def _named(on: arguments.Machine | None) -> arguments.Machine:
    if on is None:
        raise UsageError("no machine is named", remedy="ringwright.simulate('all-reduce', 'dgx-h100:2')")
    return on


def _spelling(algorithm: object) -> str:
    if spelling := getattr(algorithm, "spelling", None):
        return str(spelling)
    raise UsageError("a job's algorithm is named, not given", where=repr(algorithm), remedy="algorithm='ring'")


def _calibration(named: Calibration | str | Path | None) -> Calibration | None:
    from ringwright.costs.calibration import load

    return load(named) if isinstance(named, str | Path) else named


def _program(
    what: object,
    topology: Topology,
    algorithm: str | Callable[..., Program] | None,
    size: int | str | None,
    calibration: Calibration | None,
) -> tuple[arguments.Algorithm, Program]:
    """Return the algorithm and its program; a Program stands for an algorithm that makes it."""
    if isinstance(what, Program):
        if algorithm is not None or size is not None:
            raise UsageError("a Program has its algorithm and size", where=repr(what), remedy="leave both out")
        given = what
        return arguments.Algorithm("", "", lambda _, on: seated(given, on)), seated(given, topology)
    collective = arguments.collective(what if isinstance(what, Collective) else str(what), topology, size)
    if algorithm is None:
        algorithm = usual_algorithm(collective, topology, calibration)
    made = algorithm
    if isinstance(made, str):
        made = arguments.algorithm(made)
    elif not isinstance(made, arguments.Algorithm):
        made = arguments.Algorithm("", "", made)
    return made, made(collective, topology)


def _probable(question: SimulationSpec, made: arguments.Algorithm, program: Program, run: Run) -> Probable:
    """Return the most probable time of a program that an engine ran, not below its bound."""
    from ringwright.calls.answers import Answers
    from ringwright.calls.floors import Floors

    said = Answers(question, [program.collective.size_bytes]).of(made, program, run, question.topology)
    return said.at_least(Floors(question).under(program)[0] * 1e6)


def _opened(what: object) -> object:
    """Return what a path holds, a Workload or a Trace; the name of a model where there is no such path."""
    from ringwright.jobs import workload_files

    if not isinstance(what, str | Path):
        return what
    path = Path(what)
    if not path.exists():
        return str(what)
    if workload_files.is_workload(path):
        return workload_files.read(path)
    from ringwright.formats.sources import read

    return read(path)


def _job(
    what: object, on: arguments.Machine | None, algorithm: str, faults: Iterable[str], seed: int
) -> tuple[Job, str]:
    """Return the job, and the policy that is usual for what it was made of."""
    from ringwright.jobs import workload_files

    if isinstance(what, str):
        return _of_model(what, arguments.machine(_named(on), faults, seed=seed), algorithm), "pytorch-ddp"
    if isinstance(what, Workload):
        return workload_files.job(what, arguments.machine(_named(on), faults, seed=seed), algorithm), "none"
    return _of_recording(what, on, algorithm, faults, seed), "none"


def _of_model(name: str, topology: Topology, algorithm: str) -> Job:
    from ringwright.jobs.model_job import GeneratedJobSpec, made
    from ringwright.jobs.model_workload import WorkloadSpec

    card = WorkloadSpec(name, topology.n_ranks)
    return made(GeneratedJobSpec(card, algorithms={"": algorithm} if algorithm else {}), topology)


def _of_recording(what: object, on: arguments.Machine | None, algorithm: str, faults: Iterable[str], seed: int) -> Job:
    from ringwright.jobs import recorded_job
    from ringwright.workloads.replay import replayed

    if not isinstance(what, Trace):
        raise UsageError(f"a {type(what).__name__} cannot be simulated", remedy="a Program, Workload or Trace")
    lines = [*faults]
    if on is None:
        if lines:
            raise UsageError("faults are of a machine, and none is named", remedy="on='dgx-h100:2'")
        return recorded_job.job(replayed(what), recorded_job.Counterfactual(algorithm))
    named = arguments.machine(on)
    healthy = replace(named, faults=())
    faulty = arguments.machine(named, lines, seed=seed) if lines or named.faults else healthy
    return recorded_job.job(replayed(what), recorded_job.Counterfactual(algorithm, healthy, faulty))


def _run(question: SimulationSpec, made: arguments.Algorithm, program: Program) -> Run:
    run = question.run(program, question.topology)
    while (longer := question.lasting(run.time_s)) is not question:
        question = longer
        run = question.run(program, question.topology)
    return replace(run, ask=lambda: _probable(question, made, program, run))
