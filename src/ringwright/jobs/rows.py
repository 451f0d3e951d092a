"""The answers to policies as rows of one object, for reports and for ``--json``: what declines is a row too, with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from ringwright.calls.provenance import AskedOf, asked_of
from ringwright.engines.job.contention_factors import without_products
from ringwright.graph.algebra import RewriteError
from ringwright.graph.memory import UNKNOWN
from ringwright.ground import documents, stepwise
from ringwright.ground.errors import JobEndsError, RingwrightError, UsageError
from ringwright.jobs import job_end
from ringwright.jobs.auto import PolicySearch
from ringwright.jobs.explained.named_remedies import NamedRemedies
from ringwright.jobs.explained.pipeline_picture import as_json, picture
from ringwright.jobs.explained.remedies import remedies
from ringwright.jobs.explained.tracks import tracks
from ringwright.jobs.explained.why import Cause, why
from ringwright.jobs.job_document import HealthyStep
from ringwright.jobs.memory import fitting, peak
from ringwright.jobs.study import DECLINES, NONE, Job, PolicyResult, answer, scheduled_by
from ringwright.model.rewrites import is_sent_whole

if TYPE_CHECKING:
    from ringwright.jobs.outage_steps import Interrupted
    from ringwright.model.values import Applied
    from ringwright.model.workload import Workload

SCHEMA = "ringwright.simulate-job/1"
NOT_EQUAL = "not the same numbers: gradients do not travel in full and as they are"


def document(
    job: Job,
    policies: Sequence[str | Callable[..., Workload]],
    *,
    memory_bytes: int | None = None,
    search: PolicySearch | None = None,
    pictures: bool = False,
    kept: Callable[[PolicyResult], None] | None = None,
    progress: stepwise.Advance | None = None,
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.simulate-job/1``: assumptions, and a row per policy in microseconds.

    ``pictures`` adds what a timeline needs to each row; ``kept`` is shown each answer, whose run is let go before the next
    begins. A policy that declines the job, contradicts itself, or needs more than ``memory_bytes`` on a rank, beside others
    that do not, is a row with its reason in ``declined``, what declined where in ``declined_by``, and null for its times.
    Where a fault ends the job the row says in ``ends`` how, in which step and when. ``search`` is what found the policies, and is
    told. ``remedies`` say which policy removes how much of what the first one leaves exposed. UsageError for a policy that is
    named twice or not known, and the policy's own error where all decline.
    """
    if len(set(policies)) < len(policies):
        raise UsageError("a policy is named twice", remedy="each once: --policy pytorch-ddp,p3")
    labels = {policy: scheduled_by(policy)[0] for policy in policies}
    rows: list[dict[str, Any]] = []
    named = NamedRemedies(job)
    refused: list[RingwrightError] = []
    for spelling in stepwise.track_progress(policies, progress):
        try:
            result = answer(job, spelling)
            fitting(result.workload, memory_bytes)
        except JobEndsError as error:
            rows.append(
                _declining(labels[spelling], error) | {"ends": documents.as_json(job_end.in_step(job, spelling, error))}
            )
            continue
        except DECLINES as error:
            refused.append(error)
            rows.append(_declining(labels[spelling], error))
            continue
        if kept:
            kept(result)
        rows.append(_row_of(result, named, rows) | (_pictures(result) if pictures else {}))
        del result
    if refused and len(refused) == len(rows):
        raise refused[0]
    keys = dict.fromkeys(key for each in rows for key in each)
    rows = [dict.fromkeys(keys) | each for each in rows]
    return {
        "schema": SCHEMA,
        "asked": asked(job, policies),
        "workload": job.workload.name,
        "fabric": job.fabric,
        "mesh": dict(job.workload.mesh.axes),
        "assumptions": [*job.assumptions, *job.remarks(), _overlapped(job)],
        "rows": rows,
        "interference": job.interference.model,
        "remedies": remedies(rows),
        **({"search": search.document()} if search else {}),
        "left_out": list(job.left_out),
    }


def asked(job: Job, policies: Sequence[str | Callable[..., Workload]]) -> AskedOf:
    """Return what was asked of a job: of which machine, with which faults, and by which policies."""
    known = job.asked or asked_of(None)
    return {**known, "policies": [scheduled_by(policy)[0] for policy in policies]}


def _healthy(result: PolicyResult) -> HealthyStep | None:
    """Return the step without faults; None where there are none."""
    well = result.healthy
    if well is None:
        return None
    likely = well.probable
    return HealthyStep(
        step_us=well.step_s * 1e6,
        step_us_p05=likely.p05_us if likely else None,
        step_us_p50=likely.p50_us if likely else None,
        step_us_p95=likely.p95_us if likely else None,
        exposed_comm_us=well.exposed_s * 1e6,
    )


def _row_of(result: PolicyResult, named: NamedRemedies, before: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a row with the policies that would help in its causes, and why its own moves nothing where it does not."""
    made = row(result)
    plain = next((each["step_us"] for each in before if each["policy"] == NONE and each["declined"] is None), None)
    decided = [*named.in_either_order(result), *named.noted(result, plain)]
    if made["peak_memory_bytes"] is None and named.job.workload.values:
        made["memory_unknown"] = f"{result.policy} puts other tasks in their stead, and {UNKNOWN}"
    return made | {"why": named.told(made["why"], result), "decided": decided}


def _overlapped(job: Job) -> str:
    """Say how compute beside communication is slowed, and of how many tasks nothing was measured."""
    told = f"overlapped compute: interference {job.interference.model}"
    if job.interference.model != "measured":
        return told
    unknown, all_of_them = without_products(job.workload)
    return (
        f"{told} on {job.interference.gpu}: products beside copies on as many compute units; {unknown:,} of {all_of_them:,} "
        "tasks have none, and keep the share of compute units that is left"
    )


def _pictures(result: PolicyResult) -> dict[str, Any]:
    """Return what a page draws of a run: what each kind of ranks did, and the passes of a pipeline if it is one."""
    shown = picture(result.workload, result.run)
    return {"timeline": documents.as_json(tracks(result.run)), **({"pipeline": as_json(shown)} if shown else {})}


def _declining(policy: str, error: RingwrightError) -> dict[str, Any]:
    """Return the row of a policy without an answer: the rule that does not apply, or the policy, where, and why."""
    if isinstance(error, RewriteError):
        rule, site, why_not = error.rule, error.at, error.why
    else:
        rule, site, why_not = policy, error.where, error.what
    return {
        "policy": policy,
        "declined": error.what,
        "declined_by": {"rule": rule, "site": site, "why": why_not, "remedy": error.remedy},
    }


class AppliedRule(TypedDict):
    """A rule that rewrote the graph: which, where, its knobs, and what it changed in a step of one rank, as ``values.Change``."""

    rule: str
    site: str
    knobs: dict[str, object]
    delta: dict[str, object]


def _applied(each: Applied) -> AppliedRule:
    """Return a rule that rewrote the graph: which, where, its knobs, and what it changed in a step of one rank."""
    change = each.change
    return {
        "rule": each.rule,
        "site": each.at,
        "knobs": dict(each.settings),
        "delta": {
            "wire_bytes": dict(change.wire_bytes),
            "operations": change.operations,
            "flops": change.flops,
            "held_bytes": change.held_bytes,
            "launches": change.launches,
            "traffic_bytes": change.traffic_bytes,
            "copied_bytes": change.copied_bytes,
        },
    }


def told_equal(result: PolicyResult) -> str:
    """Return in words whether a step computes what it did: rules keep it, and what no longer travels as it is does not."""
    if not is_sent_whole(result.run.laid.operations):
        return NOT_EQUAL
    if result.workload.applied:
        return "rewritten by rules, each of which keeps every output to the bit where sums are exact"
    return "only what is sent when changes"


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
        "declined_by": None,
        "ends": None,
        "step_us": spent.step_s * 1e6,
        "step_us_hit": None if result.met is None else result.met.hit_s * 1e6,
        "step_us_p05": None if likely is None else likely.p05_us,
        "step_us_p50": None if likely is None else likely.p50_us,
        "step_us_p95": None if likely is None else likely.p95_us,
        "outside": ["job"] if likely is None else list(likely.outside),
        "healthy": documents.as_json(_healthy(result)),
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
        "applied": [_applied(each) for each in result.workload.applied],
        "equal": told_equal(result),
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
