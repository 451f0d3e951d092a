"""Would the step be faster with another policy? One workload, one fabric, a run per policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.calls.arrivals import Asked, arriving
from ringwright.costs.measured_costs import NotMeasuredError
from ringwright.engines.job.flat import Interference
from ringwright.engines.job.outages import Outage
from ringwright.engines.job.reuse import Layouts
from ringwright.engines.job.run import JobRun, simulate
from ringwright.graph.algebra import RewriteError
from ringwright.ground.errors import InfeasibleError, NeverEndsError, WorkloadError
from ringwright.ground.notebook import line, table
from ringwright.ground.units import format_us
from ringwright.jobs.explained.account import Account, account
from ringwright.jobs.outage_steps import MOST_INSTANCES, Interrupted, MeetsOutages, interrupted
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.model.registry import scheduler
from ringwright.model.stages import Costs
from ringwright.model.workload import Workload
from ringwright.schedulers.compose import PolicyConflictError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringwright.calls.provenance import AskedOf
    from ringwright.costs.probable_time import Probable

NONE = "none"
# With these a policy declines a job.
DECLINES = (WorkloadError, InfeasibleError, RewriteError, PolicyConflictError, NotMeasuredError)
BY_LUCK = (
    "with the faults operations meet in another order, which by chance takes {:.2%} less: the step without them is told"
)
STEPS, MORE_STEPS = 3, 7


@dataclass(frozen=True)
class Job:
    """What is simulated: a workload, what operations cost, the slowdown of slow ranks, and what is known of all that."""

    workload: Workload
    costs: Costs
    slowdowns: Mapping[int, float] = field(default_factory=dict)
    marked: tuple[int, ...] = ()  # ranks whose links are not like those of others
    interference: Interference = field(default_factory=Interference)
    folded: bool = True
    assumptions: tuple[str, ...] = ()
    fabric: str = ""
    left_out: tuple[str, ...] = ()
    remarks: Callable[[], list[str]] = list  # what turned out while costs were asked for
    late: Mapping[int, float] = field(default_factory=dict)  # rank -> seconds by which it begins each step later
    passes: str = ""  # what its forward pass is called: prefill or decode; else it is one of training
    likely: Callable[[float], Probable] | None = None  # us of a simulated step -> what such steps took on GPUs
    layouts: Layouts = field(default_factory=Layouts, repr=False, compare=False)  # of the policies so far
    asked: AskedOf | None = None  # what was asked of which machine, for whoever says so
    healthy: Costs | None = None  # of the machine without its faults, where that was made beside it


@dataclass(frozen=True)
class PolicyResult:
    """One policy's run."""

    policy: str
    workload: Workload = field(repr=False)
    costs: Costs = field(repr=False)
    run: JobRun = field(repr=False)
    account: Account
    engine_s: float
    steady: bool
    decided: tuple[str, ...] = ()  # what the policy chose by itself, and why
    fabric: str = ""
    ask: Callable[[], Probable] | None = field(default=None, repr=False)  # what says how long such steps took on GPUs
    met: Interrupted | None = field(
        default=None, repr=False
    )  # what outages do; ``run`` ends with a step that meets one
    calm: JobRun | None = field(default=None, repr=False)  # the run without them
    healthy: PolicyResult | None = field(
        default=None, repr=False
    )  # on the machine without its faults; None: it has none

    def __repr__(self) -> str:
        spent, on = self.account, f" on {self.fabric}" if self.fabric else ""
        times = f"{spent.step_s * 1e3:,.6g} ms a step, {spent.exposed_s * 1e3:,.4g} ms of it exposed communication"
        return line(f"PolicyResult({self.workload.name}{on}, policy {self.policy}: {times})")

    def _repr_html_(self) -> str:
        spent = self.account
        parts = {
            "step": spent.step_s,
            "compute": spent.compute_s,
            "update": spent.update_s,
            "exposed communication": spent.exposed_s,
            "idle": spent.idle_s,
        }
        rows = [(name, f"{seconds * 1e3:,.6g}") for name, seconds in parts.items()]
        rows += [(f"exposed, {name}", f"{role.exposed_s * 1e3:,.6g}") for name, role in spent.roles.items()]
        on = f" on {self.fabric}" if self.fabric else ""
        return table(f"{self.workload.name}{on}, policy {self.policy}", ("mean over ranks", "ms"), rows)

    @cached_property
    def probable(self) -> Probable | None:
        """The most probable time of its step; None where no such steps were measured."""
        return None if self.ask is None else self.ask()

    @property
    def undisturbed(self) -> JobRun:
        """The run without outages: what it sends, and when, where none comes."""
        return self.calm or self.run

    @property
    def step_s(self) -> float:
        """Seconds of one step, mean over the ranks."""
        return self.account.step_s

    @property
    def exposed_s(self) -> float:
        """Seconds of a step in which a rank communicated and computed nothing, mean over the ranks."""
        return self.account.exposed_s


def arriving_late(job: Job, asked: Asked | None) -> Job:
    """Return the job whose ranks begin each step at the times asked for, counted from when they could; None: at once."""
    if asked is None:
        return job
    come = arriving(asked, job.workload.mesh.size)
    late = {rank: seconds for rank, seconds in enumerate(come.seconds.tolist()) if seconds}
    said = f"arrivals: {come.said}; in each step, the last rank {format_us(come.last_s)} later than it could"
    return replace(job, late=late, likely=None, assumptions=(*job.assumptions, said))


def without_faults_too(job: Job, healthy: Job) -> Job:
    """Return a job that knows what its operations take on the machine without faults, where ``healthy`` runs."""
    return replace(job, healthy=healthy.costs)


def answer(job: Job, policy: str | Callable[..., Workload]) -> PolicyResult:
    """Return the run of a policy, a scheduler or its spelling; ``none`` is the workload's own.

    No fault makes a step shorter: where operations meet in another order with it, which by chance takes less, the step without
    it is returned, and says so.
    """
    result, sound = simulated(job, policy), without_faults(job)
    well = result if sound is None else simulated(sound, policy)
    if well.step_s <= result.step_s * (1 + 1e-9):
        return result if sound is None else replace(result, healthy=well)
    by_luck = BY_LUCK.format(1 - result.step_s / well.step_s)
    return replace(well, decided=(*well.decided, by_luck, *(result.met.told if result.met else ())), healthy=well)


def without_faults(job: Job) -> Job | None:
    """Return the job on the machine without its faults; None where it has none."""
    costs, healthy = job.costs, job.healthy
    if isinstance(costs, FabricCosts) and not (isinstance(healthy, FabricCosts) and costs.differs_from(healthy)):
        healthy = costs.sound if costs.topology.faults or costs.passing else None
    return None if healthy is None else replace(job, costs=healthy, healthy=None, slowdowns={}, marked=())


def _waiting_in_a_circle(policy: str, error: NeverEndsError) -> PolicyConflictError:
    """Return why several policies together decline a job whose step would never end by them."""
    outer, inner = policy.split("+", 1)
    return PolicyConflictError(
        f"by {outer} and {inner} together tasks and operations wait for each other, so that a step would never end",
        where=error.where,
        remedy=f"one of the two: --policy {outer},{inner}",
    )


def simulated(job: Job, policy: str | Callable[..., Workload]) -> PolicyResult:
    """Return the run of a policy on the job's machine as it is."""
    label, schedule = scheduled_by(policy)
    began = time.perf_counter()
    scheduled = schedule(job.workload, job.costs)
    try:
        run = _run(job, scheduled, STEPS)
    except NeverEndsError as error:
        if "+" not in label:
            raise
        raise _waiting_in_a_circle(label, error) from error
    if not run.steady and run.laid.per_step * MORE_STEPS <= MOST_INSTANCES:
        run = _run(job, scheduled, MORE_STEPS)
    own = set(job.workload.assumptions)
    decided = tuple(each for each in scheduled.assumptions if each not in own)
    calm, spent, met = run, account(run), None
    if isinstance(job.costs, MeetsOutages) and job.costs.passing:
        again = lambda many, outages: _run(job, scheduled, many, outages)  # noqa: E731
        met = interrupted(again, run, job.costs.topology, job.costs.passing)
        run, spent = met.run, met.account
    likely = job.likely
    ask = None if likely is None else lambda: _with_outages(_probable(likely, job, scheduled, calm), calm, met)
    return PolicyResult(
        label,
        scheduled,
        job.costs,
        run,
        spent,
        time.perf_counter() - began,
        calm.steady,
        decided,
        job.fabric,
        ask,
        met,
        calm if met else None,
    )


def _with_outages(likely: Probable, calm: JobRun, met: Interrupted | None) -> Probable:
    """Return it with what outages add: they last as long on a slow machine."""
    if met is None:
        return likely
    low, middle, high = (max(0.0, each - account(calm).step_s) * 1e6 for each in met.step_s)
    return likely.later(low, middle, high)


def _probable(likely: Callable[[float], Probable], job: Job, scheduled: Workload, run: JobRun) -> Probable:
    """Return what such a step took on GPUs; what packets lose adds its seconds, for a time-out is as long on a slow machine."""
    costs, step_s = job.costs, account(run).step_s
    if not isinstance(costs, FabricCosts) or costs.calm is costs:
        return likely(step_s * 1e6)

    def by(other: FabricCosts) -> float:
        return account(_run(replace(job, costs=other), scheduled, run.laid.steps)).step_s

    calm_s = by(costs.calm)
    least_s, most_s = min(by(costs.at("low_s")), step_s), max(by(costs.at("high_s")), step_s)
    low, middle, high = (max(0.0, each - calm_s) * 1e6 for each in (least_s, step_s, most_s))
    return likely(calm_s * 1e6).later(low, middle, high)


def scheduled_by(policy: str | Callable[..., Workload]) -> tuple[str, Callable[..., Workload]]:
    """Return the label and the scheduler of a spelling, or of a scheduler; UsageError for a name that is not known."""
    if not isinstance(policy, str):
        return str(getattr(policy, "spelling", None) or getattr(policy, "__name__", "given")), policy
    return (NONE, _untouched) if policy in (NONE, "") else scheduler(policy)


def _run(job: Job, scheduled: Workload, steps: int, outages: Sequence[Outage] = ()) -> JobRun:
    return simulate(
        scheduled,
        job.costs,
        steps=steps,
        slowdowns=job.slowdowns,
        marked=job.marked,
        folded=job.folded,
        interference=job.interference,
        layouts=job.layouts,
        late=job.late,
        outages=outages,
    )


def _untouched(workload: Workload, _costs: Costs) -> Workload:
    return workload
