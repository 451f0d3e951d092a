"""What is advised on: a job as it runs today, and the same job with other settings, in each of its iterations.

A recorded job is calibrated on its own operations: each keeps its measured time, and a change of who does it, or where, takes
what the engines say of that change. A job from a model has simulated times.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.advise.layers.fsdp import ahead
from ringwright.advise.links import hosts_of, mended_links
from ringwright.advise.machines import machine_of
from ringwright.advise.provision.variants import is_spelled
from ringwright.advise.settings import (
    BROKEN,
    FORM,
    IN,
    LINK,
    MACHINE,
    NETWORK,
    OPERATION,
    PLACED,
    PREFETCH,
    REPAIRS,
    Setup,
)
from ringwright.advise.software import library_of, mpi_library
from ringwright.advise.unmeasured_operations import LikenedCosts
from ringwright.advise.without_stragglers import factors
from ringwright.ground.errors import InputError, UsageError
from ringwright.jobs import model_job
from ringwright.jobs.pricing.costs import FabricCosts, on_fabric
from ringwright.jobs.recorded_job import Changed
from ringwright.jobs.study import Job
from ringwright.model.registry import scheduler
from ringwright.workloads.recorded.finer import NOTE, in_pieces
from ringwright.workloads.recorded.lines import steady_steps
from ringwright.workloads.replay import GROUNDS, Replay, lasted_s, replayed

if TYPE_CHECKING:
    from ringwright.jobs.model_job import GeneratedJobSpec
    from ringwright.model.stages import Costs
    from ringwright.model.topology import Topology
    from ringwright.model.trace import Trace
    from ringwright.model.workload import Rewrite, Workload

MOST_ITERATIONS = 8
MOST_READ_BYTES = 256 << 20  # of a recording that every process reads
AS_RECORDED, MODEL = "as recorded", "model"
BENCHMARK = "it holds what a benchmark measured, and no step of a job"
BENCHMARKED = "ringwright summary tells what was measured; of a job: ringwright run -- COMMAND"
RECORD = "record the job with times: ringwright run -- COMMAND, or PyTorch's profiler on every rank"
PLANNED_BY = (FORM, PREFETCH)  # those of them that a policy sees; it plans with the costs of today
MADE_BY = (MACHINE, FORM, PLACED, PREFETCH, *REPAIRS)  # slots, besides those of operations, that make another job


@dataclass(frozen=True)
class SituationRecipe:
    """What makes a situation: a model and the policy that it runs by, or the ``paths`` of a recording; and the machine."""

    topology: Topology | None
    spec: GeneratedJobSpec | None = None
    policy: str = ""
    paths: tuple[str, ...] = ()

    def situation(self) -> Situation:
        """Return what is advised on."""
        if self.spec is not None:
            return of_model(self.spec, self.topology, self.policy)
        from ringwright.formats.sources import read

        return of_recording(read(self.paths), self.topology)


@dataclass(frozen=True)
class Situation:
    """A job that advice is asked for.

    Attributes
    ----------
    name, ground
        What it is, and what is known of it: ``dependencies``, ``times``, ``communication-only`` or ``model``.
    today
        The policy that it runs by, as a scheduler and in words.
    measured_s
        Seconds of the steps that were recorded, none of a model; so many ``iterations`` of them can be replayed.
    topology
        The machine, None where none is known.
    make
        Makes the job of a setup, in an iteration, without its policy.
    trace, spec
        The recording, or the model, that it comes from.
    machine
        How the machine is named on a command line; empty where no command names it.
    unusable
        Why no step of the recording can be replayed, and what to record instead; None where one can.
    again
        What makes it in another process; None where nothing does.
    """

    name: str
    ground: str
    today: Callable[..., Workload] = field(repr=False)
    policy: str
    topology: Topology | None = field(repr=False)
    make: Callable[[Setup, int], Job] = field(repr=False)
    measured_s: tuple[float, ...] = ()
    iterations: int = 1
    trace: Trace | None = field(default=None, repr=False)
    spec: GeneratedJobSpec | None = None
    assumptions: tuple[str, ...] = ()
    machine: str = ""
    unusable: tuple[str, str] | None = None
    again: SituationRecipe | None = None
    jobs: dict[tuple[object, ...], Job] = field(default_factory=dict, repr=False, compare=False)

    def job(self, setup: Setup, iteration: int = 0) -> Job:
        """Return the job of a setup, from memory where it was asked for before; its policy is not set."""
        made = Setup(tuple(each for each in setup if each.slot in MADE_BY or each.slot.startswith(OPERATION)))
        key = (made.key, iteration)
        if key not in self.jobs:
            job = self.make(made.without(PREFETCH), iteration)
            depth = made.spelling(PREFETCH)
            self.jobs[key] = replace(job, workload=ahead(job.workload, int(depth))) if depth else job
        return self.jobs[key]

    def schedulers(self, setup: Setup) -> list[Callable[..., Workload]]:
        """Return the schedulers of a setup: the policy of today, or the ways to join what is set, the usual one first."""
        return [scheduler(each)[1] for each in setup.policies] or [self.today]

    @property
    def workload(self) -> Workload:
        """A step of it as it runs today, without its policy."""
        return self.job(Setup()).workload

    @property
    def mpi(self) -> str:
        """The slug of the MPI library that it was recorded with; empty for any other job."""
        return mpi_library(self.trace)

    @property
    def is_timed(self) -> bool:
        """Whether computation is known, so that a step can be told."""
        return self.ground != GROUNDS[2]


def of_model(spec: GeneratedJobSpec, topology: Topology | None, policy: str) -> Situation:
    """Return a job from a model, which runs by ``policy`` today; UsageError where its parts do not fit together."""
    machine = topology or model_job.usual_fabric(spec)

    plain: dict[object, Job] = {}

    def on(setup: Setup) -> Job:
        key = tuple(setup.spelling(slot) for slot in (FORM, MACHINE, PLACED))
        if key in plain:
            return plain[key]
        if setup.spelling(PLACED):
            job = on(setup.without(PLACED))
            plain[key] = model_job.laid_out_anew(job, machine_of(machine, job.workload, setup))
        else:
            asked = _formed(spec, setup.spelling(FORM))
            plain[key] = model_job.made(asked, machine_of(machine, model_job.workload(asked), setup))
        return plain[key]

    def make(setup: Setup, iteration: int) -> Job:
        job = on(setup)
        if not setup.algorithms or not isinstance(job.costs, FabricCosts):
            return job
        return replace(job, costs=job.costs.done_by({**spec.algorithms, **setup.algorithms}))

    made = make(Setup(), 0)
    return Situation(
        made.workload.name,
        MODEL,
        scheduler(policy)[1],
        policy,
        machine,
        make,
        spec=spec,
        assumptions=(*made.assumptions, *made.remarks()),
        machine=named(machine),
        again=SituationRecipe(topology, spec, policy),
    )


def _formed(spec: GeneratedJobSpec, spelling: str) -> GeneratedJobSpec:
    """Return the question about another form, 'tp4,pp2 in 16' micro-batches."""
    if not spelling:
        return spec
    form, _, batches = spelling.rpartition(IN)
    return replace(spec, card=replace(spec.card, parallel=form, micro_batches=int(batches)))


def of_recording(
    trace: Trace, topology: Topology | None, most: int = MOST_ITERATIONS, paths: Sequence[str] = ()
) -> Situation:
    """Return a recorded job, up to ``most`` steps of it replayed; one without a call to replay says so in ``unusable``.

    ``paths``: what it was read from, where other processes may read it too.
    """
    try:
        first = replayed(trace)
    except InputError as error:
        return _unusable(trace, topology, error)
    steps = steady_steps(trace) if first.ground != GROUNDS[2] else {}
    more = [replayed(trace, step=step) for step in _spread(list(steps), first, most)]
    replays = (first, *(each for each in more if each.costs is not None))
    finer = None if first.costs is None else in_pieces(first.workload)
    return Situation(
        first.workload.name,
        first.ground,
        _as_it_is if finer is None else _joined([each for replay in replays if (each := in_pieces(replay.workload))]),
        AS_RECORDED,
        topology,
        _Recorded(replays, topology, library_of(trace), hosts_of(trace)).made,
        lasted_s(steps, replays),
        len(replays),
        trace,
        assumptions=(*first.workload.assumptions, *((NOTE,) if finer else ())),
        machine="" if topology is None else named(topology),
        again=_again(paths, topology),
    )


def _again(paths: Sequence[str], topology: Topology | None) -> SituationRecipe | None:
    """Return what makes a recorded job in other processes; None of standard input, and of more than each should read."""
    files = [each for path in map(Path, paths) for each in (path, *path.rglob("*")) if each.is_file()]
    is_read = 0 < sum(each.stat().st_size for each in files) <= MOST_READ_BYTES
    return SituationRecipe(topology, paths=tuple(str(Path(each).absolute()) for each in paths)) if is_read else None


def _unusable(trace: Trace, topology: Topology | None, error: InputError) -> Situation:
    """Return a recording of which nothing can be replayed: a benchmark's tables, a log without calls."""

    def make(setup: Setup, iteration: int) -> Job:
        raise error

    import polars as pl

    name = str(trace.meta.get("source") or "recording")
    measured = trace.scan("events").filter(pl.col("kind") == "measurement").limit(1).collect()
    why = (BENCHMARK, BENCHMARKED) if len(measured) else (error.what, RECORD)
    return Situation(name, GROUNDS[2], _as_it_is, AS_RECORDED, topology, make, trace=trace, unusable=why)


def named(topology: Topology) -> str:
    """Return how a machine is named on a command line; empty where it is not what its name says."""
    return f"--fabric {shlex.quote(topology.name)}" if is_spelled(topology) else ""


def _spread(steps: list[int], first: Replay, most: int) -> list[int]:
    """Return up to so many steps, evenly spread, without the one that is replayed first."""
    others = [step for step in steps if first.step != f"step {step}"]
    count = min(len(others), most - 1)
    return [others[at * len(others) // count] for at in range(count)]


def _as_it_is(workload: Workload, _costs: object = None) -> Workload:
    return workload


def _joined(pieces: Sequence[tuple[Workload, Workload]]) -> Callable[..., Workload]:
    """Return what gives a step in pieces the buckets that were recorded: those of the first step whose pieces it has."""
    known = [joined.policy.rewrites or () for _, joined in pieces]

    def as_recorded(workload: Workload, _costs: object = None) -> Workload:
        sent = {each.name for each in workload.payloads}
        fitting = (each for each in known if sent.issuperset(name for one in each for name in _named(one)))
        return workload.with_policy(AS_RECORDED, rewrites=next(fitting, known[0]))

    return as_recorded


def _named(rewrite: Rewrite) -> list[str]:
    """Return the payloads that a rewrite of recorded buckets names; none of one by their caps."""
    return [name for names in rewrite.settings.get("names", ()) for name in names]


@dataclass(frozen=True)
class _Recorded:
    """Makes a recorded job with other settings. ``timed`` remembers what machines were asked for."""

    replays: tuple[Replay, ...]
    topology: Topology | None
    library: str = ""  # who does the operations today; empty: the latest NCCL
    host_of: Mapping[int, str] = field(default_factory=dict, repr=False)
    timed: dict[object, FabricCosts] = field(default_factory=dict, repr=False)

    @cached_property
    def workloads(self) -> list[Workload]:
        """The step of each iteration, its gradients in pieces where it has any."""
        pieces = [None if each.costs is None else in_pieces(each.workload) for each in self.replays]
        return [finer[0] if finer else each.workload for finer, each in zip(pieces, self.replays, strict=True)]

    def made(self, setup: Setup, iteration: int) -> Job:
        replay, workload = self.replays[iteration], self.workloads[iteration]
        mended = setup.spelling(BROKEN)
        slowdowns = factors(workload, [int(rank) for rank in mended.split(",")]) if mended else {}
        measured = self._measured(replay, setup)
        made = Setup(tuple(each for each in setup if each.slot not in REPAIRS))
        if measured is not None and not made:
            return Job(workload, measured, slowdowns, assumptions=workload.assumptions)
        after = self._on(made, workload)
        if measured is None:
            return Job(workload, after, slowdowns, after.marked, assumptions=workload.assumptions)
        costs = Changed(measured, self._on(Setup(), workload), after)
        return Job(workload, costs, slowdowns, after.marked, assumptions=workload.assumptions)

    def _measured(self, replay: Replay, setup: Setup) -> Costs | None:
        """Return the measured times, without a slow link that is mended; None where the network is another one, or without."""
        if replay.ground == GROUNDS[2] or replay.costs is None or setup.spelling(NETWORK):
            return None
        measured, mended = LikenedCosts(replay.costs), setup.spelling(LINK)
        return mended_links(measured, mended, self.host_of) if mended else measured

    def _on(self, setup: Setup, workload: Workload) -> FabricCosts:
        """Return what operations take on the machine of a setup."""
        if self.topology is None:
            raise UsageError(
                "who does an operation, and where, is told on a machine that is known",
                where=workload.name,
                remedy=f"--fabric switch:{workload.mesh.size}, or what it ran on (list fabrics)",
            )
        key = (setup.key, workload.mesh)
        if key not in self.timed:
            others = Setup(tuple(each for each in setup if not each.slot.startswith(OPERATION)))
            usual = {"": self.library} if self.library else {}
            if setup.algorithms:
                self.timed[key] = self._on(others, workload).done_by(usual | setup.algorithms)
            else:
                self.timed[key] = on_fabric(machine_of(self.topology, workload, setup), workload, self.library)
        return self.timed[key]
