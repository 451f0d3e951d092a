"""Would the step be faster with another policy? One workload, one fabric, a row per policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ringwright import steps
from ringwright.costs.stages import Costs
from ringwright.engines.job.flat import Interference
from ringwright.engines.job.outages import Outage
from ringwright.engines.job.reuse import Layouts
from ringwright.engines.job.run import JobRun, simulate
from ringwright.errors import InfeasibleError, RingwrightError, UsageError, WorkloadError
from ringwright.notebook import line, table
from ringwright.registry import scheduler
from ringwright.studies.arrivals import Asked, arriving
from ringwright.studies.jobs.account import Account, account
from ringwright.studies.jobs.costs import FabricCosts
from ringwright.studies.jobs.interrupted import MOST_INSTANCES, Interrupted, MeetsOutages, interrupted
from ringwright.studies.jobs.memory import peak
from ringwright.studies.jobs.tracks import tracks
from ringwright.studies.jobs.why import Cause, why
from ringwright.units import format_us
from ringwright.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringwright.costs.probable import Probable

SCHEMA = "ringwright.simulate-job/1"
NONE = "none"
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
    layouts: Layouts = field(init=False, default_factory=Layouts, repr=False, compare=False)  # of the policies so far


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


def answer(job: Job, policy: str | Callable[..., Workload]) -> PolicyResult:
    """Return the run of a policy, a scheduler or its spelling; ``none`` is the workload's own.

    No fault makes a step shorter: where operations meet in another order with it, which by chance takes less, the step without
    it is returned, and says so.
    """
    result, sound = _simulated(job, policy), _without_faults(job)
    well = result if sound is None else _simulated(sound, policy)
    if well.step_s <= result.step_s * (1 + 1e-9):
        return result
    by_luck = BY_LUCK.format(1 - result.step_s / well.step_s)
    return replace(well, decided=(*well.decided, by_luck, *(result.met.told if result.met else ())))


def _without_faults(job: Job) -> Job | None:
    """Return the job on the machine without its faults; None where it has none."""
    costs = job.costs
    if not isinstance(costs, FabricCosts) or not (costs.topology.faults or costs.passing):
        return None
    return replace(job, costs=costs.sound, slowdowns={}, marked=())


def _simulated(job: Job, policy: str | Callable[..., Workload]) -> PolicyResult:
    label, schedule = _schedule(policy)
    began = time.perf_counter()
    scheduled = schedule(job.workload, job.costs)
    run = _run(job, scheduled, STEPS)
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


def _schedule(policy: str | Callable[..., Workload]) -> tuple[str, Callable[..., Workload]]:
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


def document(
    job: Job,
    policies: Sequence[str],
    *,
    pictures: bool = False,
    kept: Callable[[PolicyResult], None] | None = None,
    progress: steps.Advance | None = None,
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.simulate-job/1``: assumptions, and a row per policy in microseconds.

    ``pictures`` adds what a timeline needs to each row; ``kept`` is shown each answer, whose run is let go before the next
    begins. A policy that declines the job beside others that do not is a row with its reason in ``declined`` and null for its
    times. UsageError for a policy that is named twice or not known, and the policy's own error where all decline.
    """
    if len(set(policies)) < len(policies):
        raise UsageError("a policy is named twice", remedy="each once: --policy pytorch-ddp,p3")
    for spelling in policies:
        _schedule(spelling)
    rows: list[dict[str, Any]] = []
    refused: list[RingwrightError] = []
    for spelling in steps.told(policies, progress):
        try:
            result = answer(job, spelling)
        except (WorkloadError, InfeasibleError) as error:
            refused.append(error)
            rows.append({"policy": spelling, "declined": error.what})
            continue
        if kept:
            kept(result)
        rows.append(row(result) | ({"timeline": tracks(result.run)} if pictures else {}))
        del result
    if refused and len(refused) == len(rows):
        raise refused[0]
    keys = dict.fromkeys(key for each in rows for key in each)
    rows = [dict.fromkeys(keys) | each for each in rows]
    return {
        "schema": SCHEMA,
        "workload": job.workload.name,
        "fabric": job.fabric,
        "mesh": dict(job.workload.mesh.axes),
        "assumptions": [*job.assumptions, *job.remarks(), f"overlapped compute: interference {job.interference.model}"],
        "rows": rows,
        "left_out": list(job.left_out),
    }


def _why(result: PolicyResult) -> list[Cause]:
    """Return why communication was exposed: where outages come and go, as much of a step that meets one as steps have of it."""
    forward_s = result.account.forward_s
    shown = why(result.run, result.workload, result.costs, forward_s)
    if result.met is None or result.calm is None:
        return shown
    share = result.met.share
    causes: dict[str, Cause] = {}
    for each in shown:
        causes[each["cause"]] = {**each, "exposed_us": share * each["exposed_us"], "count": share * each["count"]}
    for each in why(result.calm, result.workload, result.costs, forward_s):
        known = causes.setdefault(each["cause"], {**each, "exposed_us": 0.0, "count": 0.0})
        known["exposed_us"] += (1.0 - share) * each["exposed_us"]
        known["count"] += (1.0 - share) * each["count"]
    return sorted(causes.values(), key=lambda each: -each["exposed_us"])


def _added(met: Interrupted | None) -> dict[str, float | None]:
    """Return what one outage adds, at least, in the mean and at most, by the moment at which it comes; None without outages."""
    added = (None, None, None) if met is None else tuple(each * 1e6 for each in met.added_s)
    return dict(zip(("outage_adds_us_low", "outage_adds_us", "outage_adds_us_high"), added, strict=True))


def row(result: PolicyResult) -> dict[str, Any]:
    """Return one row of the document."""
    spent, rank_classes, likely = result.account, result.run.laid.rank_classes, result.probable
    return {
        "policy": result.policy,
        "declined": None,
        "step_us": spent.step_s * 1e6,
        "step_us_hit": None if result.met is None else result.met.hit_s * 1e6,
        "step_us_p05": None if likely is None else likely.p05_us,
        "step_us_p50": None if likely is None else likely.p50_us,
        "step_us_p95": None if likely is None else likely.p95_us,
        "outside": ["job"] if likely is None else list(likely.outside),
        "compute_us": spent.compute_s * 1e6,
        "update_us": spent.update_s * 1e6,
        "exposed_comm_us": spent.exposed_s * 1e6,
        "idle_us": spent.idle_s * 1e6,
        "overlap": spent.overlap,
        "ceiling": spent.ceiling,
        "by_role": {
            name: {
                "exposed_us": role.exposed_s * 1e6,
                "busy_us": role.busy_s * 1e6,
                "queued_us": role.queued_s * 1e6,
                "operations": role.operations,
                "bytes": role.size_bytes,
            }
            for name, role in spent.roles.items()
        },
        "decided": list(result.decided),
        "outages": list(result.met.told) if result.met else [],
        **_added(result.met),
        "applied": [each.rule for each in result.workload.applied],
        **peak(result.workload),
        "why": _why(result),
        "ranks": sum(rank_classes.counts),
        "simulated_ranks": len(rank_classes),
        "folded": len(rank_classes) < sum(rank_classes.counts),
        "instances": result.run.laid.flat.n,
        "steady": result.steady,
        "engine": result.run.engine,
        "engine_s": result.engine_s,
    }
