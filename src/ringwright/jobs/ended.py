"""When a job ends whose links are down for good: in which step, and when its transport gives up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from ringwright.calls import job_ends
from ringwright.engines.job.groups import OperationGroups
from ringwright.engines.job.step import PS
from ringwright.ground.documents import as_json
from ringwright.ground.errors import JobEndsError
from ringwright.jobs.pricing.costs import FabricCosts
from ringwright.jobs.recorded import Changed
from ringwright.jobs.study import Job, PolicyResult, simulated, without_faults
from ringwright.model.workload import Workload


@dataclass(frozen=True, slots=True)
class JobEndInStep(job_ends.JobEnd):
    """How a job ends, and in which step, from 1."""

    step: int


def in_step(job: Job, policy: str | Callable[..., Workload], ends: JobEndsError) -> JobEndInStep:
    """Return how a job ends by a policy, for a row of JSON: as of one collective, in which step, and when since the first began.

    ``step`` counts from 1. Steps before are those of the healthy machine; the first operation among as many ranks that begins
    when the link is down waits for it until its transport gives up.
    """
    sound, since_s = _sound(job)
    well = simulated(sound, policy)
    run, begins_s = well.undisturbed, _begins_s(well, len(ends.ranks))
    simulated_s = begins_s[-1] if begins_s else 0.0
    further = ceil((since_s - simulated_s) / well.step_s) if since_s > simulated_s and well.step_s else 0
    begin_s = min((each for each in begins_s if each >= since_s - further * well.step_s), default=simulated_s)
    done = sum(run.finished(step) / PS <= begin_s for step in range(run.laid.steps))
    at_s = further * well.step_s + begin_s + ends.at_s
    told = replace(job_ends.as_row(ends), at_us=at_s * 1e6)
    return JobEndInStep(**as_json(told), step=done + further + 1)


def _sound(job: Job) -> tuple[Job, float]:
    """Return the job on its machine without faults, and since when a link of that is down for good, in seconds."""
    costs = job.costs
    if isinstance(costs, Changed):
        well = replace(job, costs=Changed(costs.measured, costs.before, costs.before), slowdowns={}, marked=())
        return well, costs.after.dead_since_s
    return without_faults(job) or job, costs.dead_since_s if isinstance(costs, FabricCosts) else 0.0


def _begins_s(well: PolicyResult, ranks: int) -> list[float]:
    """Return when operations among so many ranks begin, in seconds from the begin of the first step."""
    run = well.undisturbed
    groups = OperationGroups(well.workload, run.laid.rank_classes)
    mine = {each.name for each in run.laid.operations if any(len(it.ranks) == ranks for it in groups.groups(each))}
    rows = [row for row in run.laid.rows if row.what == "operation" and row.name in mine]
    starts = (run.starts(row, step).tolist() for row in rows for step in range(run.laid.steps))
    return sorted(start / PS for many in starts for start in many)
