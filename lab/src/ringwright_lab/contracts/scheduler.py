"""The contract of schedulers: the laws of scheduling on small random jobs, and every knob that a scheduler declares.

A case is one scheduler, one kind of job (``layers`` in a chain, forward that is ``branching``, ``experts``, groups on a
``mesh``, ``stages`` of a pipeline, a model with ``tensor`` parallelism), one way to sum gradients, a seed that draws the
job, and values of knobs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ringwright.engines.job.run import simulate
from ringwright.graph.algebra import replayed
from ringwright.graph.algebra.assumed_values import valued
from ringwright.graph.algebra.equality import prove
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Knob, knobs_of
from ringwright.ground.units import MIB
from ringwright.model.registry import System, find, schedulers, values
from ringwright.model.rewrites import operations
from ringwright.model.stages import Costs, LinkCosts, ServerCosts
from ringwright.model.workload import Workload
from ringwright_lab.contracts import small_jobs
from ringwright_lab.contracts.knob_values import declared, settled
from ringwright_lab.contracts.outcome import DECLINED, Outcome, TriedInput, beside, made, raised
from ringwright_lab.contracts.scheduling_laws import LAWS, ON_A_MESH, STEPS, Scheduled

if TYPE_CHECKING:
    from ringwright.model.rewrites.operation import Operation

Scheduler = Callable[..., Workload]
JOBS = ("layers", "branching", "experts", "mesh", "stages", "tensor")
OPS = ("all-reduce", "push-pull")
SEEDS = 6
RATE = 1e6  # bytes a second: a byte takes whole picoseconds
MOST_PIECES = 4000
PROVEN_BYTES = 96  # tensors of a job that is carried out: a few hundred numbers, which come out even on 2 and 3 ranks
PROVEN_DIMS = {"hidden": 8, "heads": 4, "vocabulary": 16, "positions": 8}  # of a model that is carried out
EXAMPLE = "p3 layers all-reduce seed=3 knobs=slice_elements=50000"


@dataclass(frozen=True)
class SchedulerCase:
    """One thing to try; ``str(case)`` replays it."""

    slug: str
    job: str
    op: str
    seed: int
    knobs: str = ""

    def __str__(self) -> str:
        return f"{self.slug} {self.job} {self.op} seed={self.seed}" + (f" knobs={self.knobs}" if self.knobs else "")

    @classmethod
    def parsed(cls, text: str) -> SchedulerCase:
        """Return the case that ``str`` wrote; UsageError for anything else."""
        try:
            slug, job, op, *settings = text.split()
            given = dict(setting.split("=", 1) for setting in settings)
            if job in JOBS and op in OPS:
                return cls(slug, job, op, int(given["seed"]), given.get("knobs", ""))
        except (ValueError, KeyError):
            pass
        raise UsageError(f"'{text}' is not a case", remedy=f"as in: {EXAMPLE}")

    def workload(self, scale: int = 4 * MIB) -> Workload:
        """Return the job of the case, unscheduled; tensors are of megabytes, so that knobs in MiB bind, or ``scale`` bytes."""
        draw = random.Random(self.seed)  # noqa: S311 - a choice of tests
        if self.job == "experts":
            return small_jobs.experts(draw, scale=scale // 4)
        if self.job == "stages":
            return small_jobs.stages(draw, scale=scale)
        if self.job == "tensor":
            return small_jobs.tensor(draw, PROVEN_DIMS if scale == PROVEN_BYTES else {})
        if self.job == "branching":
            return small_jobs.branching(draw, scale=scale, element_bytes=4)
        made = small_jobs.layers(draw, scale=scale).job(op=self.op, element_bytes=4)
        return small_jobs.on_mesh(made) if self.job == "mesh" else made

    def costs(self) -> Costs:
        """Return the link of the case, or the parameter server where it is a push-pull."""
        return ServerCosts(RATE, 0.1) if self.op == "push-pull" else LinkCosts(RATE, overhead_s=0.1)


def cases(chosen: Iterable[System], seeds: Iterable[int] = range(SEEDS)) -> Iterator[SchedulerCase]:
    """Yield every scheduler as it is, on every kind of job."""
    for system in chosen:
        yield from _plain(system.slug, seeds)


def over_knobs(chosen: Iterable[System], seed: int, draws: int = 2) -> Iterator[SchedulerCase]:
    """Yield cases in which every knob takes both its ends, each of its words, and ``draws`` values more."""
    for system in chosen:
        if system.problem is None:
            yield from knob_cases(system.slug, system.knobs(), seed, draws)


def knob_cases(slug: str, knobs: Mapping[str, Knob], seed: int, draws: int) -> Iterator[SchedulerCase]:
    """Yield the cases over the knobs of one scheduler, on jobs in turn."""
    draw = random.Random(f"{slug} {seed}")  # noqa: S311 - a choice of tests
    for knob in (each for each in knobs.values() if each.can_be_typed):
        for text in (*settled(knob, ()), *[""] * draws):
            job = draw.choice(JOBS)
            said = f"{knob.name}={text or declared(knob, draw, 6, ())}"
            yield SchedulerCase(slug, job, draw.choice(OPS) if job == "layers" else OPS[0], draw.randrange(1000), said)


def _plain(slug: str, seeds: Iterable[int]) -> Iterator[SchedulerCase]:
    for seed in seeds:
        for job in JOBS:
            for op in OPS if job in ("layers", "mesh") else OPS[:1]:
                yield SchedulerCase(slug, job, op, seed)


def check(case: SchedulerCase) -> Outcome:
    """Run every law of a case on its scheduler."""
    return examine(case, find(case.slug, schedulers).load())


def examine(case: SchedulerCase, scheduler: Scheduler) -> Outcome:
    """Run every law of a case on any scheduler."""
    outcome, changes = Outcome(case), beside(scheduler, "CHANGES")
    if case.knobs:
        try:
            known = knobs_of(scheduler)
            said: dict[str, Any] = values(case.slug, known, case.knobs.split(":"), where=case.knobs)
        except UsageError as error:
            outcome.failed["knobs"] = f"refuses what it declares: {error.what}"
            return outcome
        scheduler = partial(scheduler, **said)
    before, costs = case.workload(), case.costs()
    job, why = made(lambda: scheduler(before, costs))
    if not isinstance(job, Workload):
        outcome.note("workload", why or f"it returned {type(job).__name__}, not a Workload")
        return outcome
    if not outcome.run("legal", lambda: LAWS["legal"](Scheduled(before, job, costs, None))):  # type: ignore[arg-type]
        return outcome
    if job.applied != before.applied:
        outcome.run("replayed", lambda: _replayed(before, job))
        outcome.run("equal", lambda: _equal(scheduler, case))
    outcome.run("same-again", lambda: _same_again(scheduler, case, job))
    outcome.run("same-on-every-rank", lambda: _same_under_other_names(scheduler, case, job))
    pieces = sum(operation.pieces for operation in operations(job))
    if pieces > MOST_PIECES:
        outcome.note("run", f"{DECLINED}more than {MOST_PIECES:,} pieces")
        return outcome
    run, why = made(lambda: simulate(job, costs, steps=STEPS))
    if run is None:
        outcome.note("run", why.removeprefix(DECLINED))
        return outcome
    each = Scheduled(before, job, costs, run, changes)
    for name, law in (LAWS | (ON_A_MESH if case.job == "mesh" else {})).items():
        if name != "legal":
            outcome.run(name, partial(law, each))
    return outcome


def _replayed(before: Workload, job: Workload) -> str | None:
    """What was applied, applied again, gives the same graph: nothing of it was changed without being said."""
    again = replayed(before, job.applied[len(before.applied) :])
    parts = [name for name in ("tasks", "payloads", "values") if getattr(again, name) != getattr(job, name)]
    parts += ["edges"] if set(again.edges) != set(job.edges) else []
    return f"its rules, applied again, give other {', '.join(parts)}" if parts else None


def _equal(scheduler: Scheduler, case: SchedulerCase) -> str | None:
    """The rewritten graph computes the same: a like job of few numbers, carried out before and after, to the bit."""
    before = valued(case.workload(PROVEN_BYTES))
    proof = prove(before, scheduler(before, case.costs()), draws=1, seed=case.seed)
    if not proof.compared:
        return f"{DECLINED}nothing says what the job computes"
    return f"it computes another {proof.differing[0]}" if proof.differing else None


def _same_again(scheduler: Scheduler, case: SchedulerCase, job: Workload) -> str | None:
    """Ranks schedule each for itself: the same job gets the same answer, however often it is asked."""
    again = [scheduler(case.workload(), case.costs()) for _ in range(2)]
    return None if all(each == job for each in again) else "the same job is scheduled in another way the next time"


def _same_under_other_names(scheduler: Scheduler, case: SchedulerCase, job: Workload) -> str | None:
    """Ranks are processes of their own, in which sets go round in other orders: what is decided must not follow from that.

    Names with another beginning sort alike, and lie elsewhere in sets and hashes.
    """
    mine = [_told(each, "") for each in operations(job)]
    for prefix in ("x.", "other.", "yet-another."):
        theirs = [
            _told(each, prefix) for each in operations(scheduler(_renamed(case.workload(), prefix), case.costs()))
        ]
        if theirs != mine:
            at = next((at for at, (one, two) in enumerate(zip(mine, theirs, strict=False)) if one != two), len(mine))
            what = " and ".join(str(each[at][0] if at < len(each) else "nothing") for each in (mine, theirs))
            return f"another rank may decide differently: operation {at} is {what} once names begin with '{prefix}'"
    return None


def _told(operation: Operation, prefix: str) -> tuple[object, ...]:
    names = tuple(payload.name.removeprefix(prefix) for payload in operation.payloads)
    return (names, operation.op, operation.size_bytes, operation.pieces, operation.key)


def _renamed(job: Workload, prefix: str) -> Workload:
    """Return the job with another beginning of the names of its tasks and payloads."""
    return replace(
        job,
        tasks=tuple(replace(each, name=prefix + each.name) for each in job.tasks),
        edges=tuple(replace(each, src=prefix + each.src, dst=prefix + each.dst) for each in job.edges),
        payloads=tuple(
            replace(
                each,
                name=prefix + each.name,
                producers=tuple(prefix + name for name in each.producers),
                consumers=tuple((prefix + name, distance) for name, distance in each.consumers),
            )
            for each in job.payloads
        ),
    )


def check_scheduler(
    scheduler: Scheduler, *, seeds: Iterable[int] = range(3), knobs: bool = True, seed: int = 0
) -> list[Outcome]:
    """Return the outcome of every law on a scheduler of your own; ``failures`` of them lists what is broken.

    Checked are the laws of scheduling on small random jobs: every byte is sent once, nothing is used before it has come, all
    ranks do the same ...

    Parameters
    ----------
    scheduler
        A callable ``(workload, costs, **knobs) -> Workload`` that sets parts of the policy. What it changes besides it says in
        ``CHANGES`` beside it: ``CHANGES = ("tasks",)``.
    seeds
        Each draws a job of every kind.
    knobs
        Whether to try each knob of its signature too: both ends of its range, each of its words, and values drawn.
    seed
        Of the values that are drawn.

    Returns
    -------
    list of Outcome
        One a case: a job, and values of knobs.

    Examples
    --------
    >>> import ringwright
    >>> from ringwright_lab.testing import check_scheduler, failures
    >>> failures(check_scheduler(ringwright.scheduler("p3"), seeds=[1], knobs=False))
    []
    """
    slug = getattr(scheduler, "__name__", "scheduler").replace("_", "-")
    try:
        typed = knobs_of(scheduler) if knobs else {}
    except Exception as error:  # noqa: BLE001 - a signature of others may hold anything
        return [Outcome(TriedInput(slug), failed={"knobs": raised(error)})]
    return [examine(case, scheduler) for case in (*_plain(slug, seeds), *knob_cases(slug, typed, seed, 1))]
