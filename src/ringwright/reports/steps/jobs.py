"""Whole jobs by policy: step time, what was exposed and by whom, and the most that any order could gain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from ringwright.calls.provenance import AskedOf
from ringwright.ground.units import format_size
from ringwright.jobs.bursts import PolicyBursts
from ringwright.jobs.job_document import (
    CauseOfStep,
    HealthyStep,
    JobSteps,
    PolicyStep,
    RemedyOfStep,
    ReplayedStep,
    RuleOfStep,
    SoughtPolicies,
)
from ringwright.reports import bursts, layout
from ringwright.reports.calls.fault_costs import MOST_COSTS, SAME, faults_asked
from ringwright.reports.calls.probable_times import OUTSIDE
from ringwright.reports.calls.simulated import in_words
from ringwright.reports.steps import aggregated, memory

MOST_CAUSES = 3
COMMUNICATION_ALONE = "communication-only"  # the ground of a replay of which no time is known
WITHOUT_TIMES = "no time of a step is recorded: communication alone, in simulated times"
UNMEASURED = "how long the step took as a whole is not recorded: nothing is held against the replay"


# long: the sections of the answer in their order
def write(result: JobSteps, file: TextIO, *, width: int | None = None, shows_bursts: bool = False) -> None:
    """Write the object of schema ``ringwright.simulate-job/1`` for a terminal, ``shows_bursts`` where it holds them."""
    out = layout.console(file, width=width)
    rows = result.answered
    if not rows:
        _only_ends(out, result)
        return
    first = rows[0]
    for each in memory.unfitting(rows):
        layout.line(out, each, style="bold yellow", indent=0)
    layout.line(
        out,
        f"simulated: {result.workload} on {result.fabric}, {first.ranks:,} rank{'s' * (first.ranks > 1)}",
        style="bold",
        indent=0,
    )
    for line in fault_lines(result.asked, rows):
        layout.line(out, line, style="yellow", indent=0)
    simulated = first.simulated_ranks
    alike = (
        "every rank simulated" if simulated == first.ranks else f"{simulated:,} of them simulated, the others are alike"
    )
    layout.line(out, alike, indent=0)
    if result.ground:
        _replayed(out, result)
    _steps(out, rows)
    roles = list(dict.fromkeys(role for row in rows for role in row.by_role))
    for name, why in declined(result):
        layout.line(out, f"{name} declined: {why}", style="yellow")
    _listed(out, ended(result), "The job ends")
    _listed(out, outage_lines(rows), "Outages", "what passes, and how much longer steps are for it")
    if roles:
        layout.heading(out, "Exposed communication in ms", "on the wire while its rank computed nothing; by role")
        table = [[row.policy, *(milliseconds(_exposed_us(row, role)) for role in roles)] for row in rows]
        layout.table(out, ["policy", *roles], table, left=("policy",))
    _listed(out, rules_applied(rows), "Rewritten", "the graph of the step, which computes the same")
    memory.of_policies(out, rows)
    _listed(out, list(dict.fromkeys(each for row in rows for each in row.decided)), "Decided by the policies")
    _compared(out, rows)
    if result.tuned:
        layout.heading(out, "Tuned", "the first trial is what the system ships with")
    for tuned in result.tuned:
        times = f"{milliseconds(tuned.step_us)} ms, {tuned.first_step_us / tuned.step_us:.3f} x the first"
        layout.line(out, f"{tuned.best}: {times} of {len(tuned.trials)} trials")
    _why(out, rows)
    _helped(out, result.remedies, result.interference)
    _sought(out, result.search)
    aggregated.write(out, result.in_network)
    unsteady = [row.policy for row in rows if not row.steady]
    if unsteady:
        layout.line(out, f"not steady yet, steps still differ: {', '.join(unsteady)}")
    if shows_bursts:
        bursts.write(out, result.bursts, result.bursts_unknown, burst_title(result.bursts))
    layout.heading(out, "Assumed")
    for each in result.assumptions:
        layout.line(out, each)
    layout.heading(out, "Left out")
    layout.line(out, "; ".join(result.left_out))


def _exposed_us(row: PolicyStep, role: str) -> float:
    return row.by_role[role].exposed_us if role in row.by_role else 0.0


def burst_title(told: PolicyBursts | None) -> str:
    """Return the title of bursts: of which policy."""
    return "Bursts" if told is None else f"Bursts by {told['policy']}"


def _listed(out: Any, lines: Sequence[str], title: str, about: str = "") -> None:
    """Write lines under a heading; nothing where there are none."""
    if lines:
        layout.heading(out, title, about)
    for each in lines:
        layout.line(out, each)


class SteppedRow(Protocol):
    """A step by a policy, on the machine as it is asked for and on the healthy one."""

    @property
    def policy(self) -> str:
        """Its name."""

    @property
    def step_us(self) -> float | None:
        """The simulated step, None where there is none."""

    @property
    def step_us_p50(self) -> float | None:
        """The most probable step, None where no such steps were measured."""

    @property
    def healthy(self) -> HealthyStep | None:
        """The step without faults, None where there are none."""


def fault_lines(asked: AskedOf, rows: Sequence[SteppedRow]) -> list[str]:
    """Return which faults act, and what they cost beside the step without them, a line per policy; empty without faults."""
    lines = [*faults_asked(asked), *(f"beside: {other}, again and again" for other in asked["beside"])]
    told = [(row, row.healthy) for row in rows if row.healthy is not None]
    for row, healthy in told[:MOST_COSTS]:
        whose = "a step" if len(rows) == 1 else f"{row.policy}: a step"
        taken_us, healthy_us = row.step_us, healthy.step_us
        if row.step_us_p50 is not None and healthy.step_us_p50 is not None:
            taken_us, healthy_us = row.step_us_p50, healthy.step_us_p50
        lines.append(f"{whose} takes {cost_of_faults(taken_us or 0.0, healthy_us)}")
    return lines


def cost_of_faults(step_us: float, healthy_us: float) -> str:
    """Return a time beside the one without faults, in words."""
    longer = step_us / healthy_us - 1 if healthy_us else 0.0
    times = f"{milliseconds(step_us)} ms, {milliseconds(healthy_us)} without the faults"
    return f"{times}: they change nothing" if abs(longer) < SAME else f"{times}: {longer:+.1%}"


def outage_lines(rows: Sequence[PolicyStep]) -> list[str]:
    """Return what outages do, a line per policy and kind of outage."""
    return [f"{row.policy}: {each}" for row in rows for each in row.outages]


def declined(result: JobSteps) -> list[tuple[str, str]]:
    """Return the policies that have no times, and why."""
    return [(row.policy, row.declined) for row in result.refused if row.ends is None]


def ended(result: JobSteps) -> list[str]:
    """Return of each policy with which the job ends in which step, when, and how."""
    told = [(row.policy, row.ends) for row in result.refused if row.ends is not None]
    return [f"{policy}: in step {ends.step}, {in_words(ends)}" for policy, ends in told]


def _only_ends(out: Any, result: JobSteps) -> None:
    """Say how a job ends that has no step by any policy."""
    layout.line(out, f"simulated: {result.workload} on {result.fabric}", style="bold", indent=0)
    for line in fault_lines(result.asked, ()):
        layout.line(out, line, style="yellow", indent=0)
    _listed(out, ended(result), "The job ends")
    for name, why in declined(result):
        layout.line(out, f"{name} declined: {why}", style="yellow")
    _listed(out, result.assumptions, "Assumed")


def _replayed(out: Any, result: JobSteps) -> None:
    """Say how far the replay, unchanged, is from what was measured."""
    layout.heading(out, "Replay", f"{result.step}; ground: {result.ground}")
    baseline = result.baseline
    if baseline is None:
        layout.line(out, UNMEASURED if result.ground != COMMUNICATION_ALONE else WITHOUT_TIMES)
        return
    layout.line(out, replay_words(result.step, baseline))
    for warning in result.warnings:
        layout.line(out, f"warning: {warning}", style="yellow")


def replay_words(step: str, baseline: ReplayedStep) -> str:
    """Say how long a replayed step took, is replayed to take, and what the recording's steps take in the mean."""
    own = (
        f"{step} took {milliseconds(baseline.step_us)} ms, replayed with its own times "
        f"{milliseconds(baseline.replayed_us)} ms: {baseline.error:+.1%}"
    )
    if baseline.steps < 2:
        return own
    return f"{own}; measured {milliseconds(baseline.measured_us)} ms a step, the mean of {baseline.steps} steps"


def _steps(out: Any, rows: list[PolicyStep]) -> None:
    """Write the answer, how long such a step takes, and where the simulated one goes; they are one where none was measured."""
    best = min(row.step_us for row in rows)
    title, about, simulated = "Time of a step in ms", "means over ranks; the fastest is starred", "step"
    if told := likely(rows):
        layout.heading(
            out, title, f"most probable, {told.ground}; simulated: without that correction; the fastest is starred"
        )
        layout.table(
            out, ["policy", "step", "90 %", "simulated"], [_answer(row, best) for row in rows], left=("policy",)
        )
        title, about, simulated, best = "Where the simulated step goes in ms", "means over ranks", "simulated", -1.0
    layout.heading(out, title, about)
    head = ["policy", simulated, "compute", "update", "exposed", "idle", "overlap"]
    layout.table(out, head, [_cells(row, best) for row in rows], left=("policy",))


def _starred(row: PolicyStep, time_us: float, best: float) -> str:
    return milliseconds(time_us) + ("*" if row.step_us <= best * (1 + 1e-9) else "")


def _answer(row: PolicyStep, best: float) -> list[str]:
    """Return a policy's most probable step, its interval and the simulated step; without the former where it has none."""
    if row.step_us_p50 is None or row.step_us_p05 is None or row.step_us_p95 is None:
        return [row.policy, "-", "none", milliseconds(row.step_us)]
    ends = f"{milliseconds(row.step_us_p05)} to {milliseconds(row.step_us_p95)}"
    return [row.policy, _starred(row, row.step_us_p50, best), ends, milliseconds(row.step_us)]


def _cells(row: PolicyStep, best: float) -> list[str]:
    times = map(milliseconds, (row.compute_us, row.update_us, row.exposed_comm_us, row.idle_us))
    return [row.policy, _starred(row, row.step_us, best), *times, layout.percent(row.overlap)]


class LikelyRow(SteppedRow, Protocol):
    """A step with its most probable time, if such steps were measured."""

    @property
    def step_us_p05(self) -> float | None:
        """It is longer in 95 % of cases."""

    @property
    def step_us_p95(self) -> float | None:
        """It is shorter in 95 % of cases."""

    @property
    def outside(self) -> list[str]:
        """What of the question nothing was learnt of."""


@dataclass(frozen=True)
class LikelySteps:
    """The rows of policies that have a most probable step, and what it rests on."""

    rows: Sequence[LikelyRow]
    ground: str


def likely(rows: Sequence[LikelyRow]) -> LikelySteps | None:
    """Return the rows with a most probable step and its ground; None where no such steps were measured."""
    told = [row for row in rows if row.step_us_p50 is not None]
    if not told:
        return None
    away = ", ".join(OUTSIDE[word] for word in told[0].outside)
    beyond = f"; extrapolated beyond them in {away}" if away else ""
    return LikelySteps(told, f"from measured steps of such models on GPUs{beyond}")


def rules_applied(rows: Sequence[PolicyStep]) -> list[str]:
    """Return which rules rewrote the graph of the step, at how many places and what that changed, a line per policy."""
    return [f"{row.policy}: {_rules(row.applied)}" for row in rows if row.applied]


def _rules(applied: Sequence[RuleOfStep]) -> str:
    counted = Counter(each.rule for each in applied)
    return ", ".join(f"{rule} at {count:,} {'place' if count == 1 else 'places'}" for rule, count in counted.items())


def _compared(out: Any, rows: list[PolicyStep]) -> None:
    first = rows[0]
    layout.heading(out, "Against each other")
    for row in rows[1:]:
        layout.line(out, f"{row.policy}: {first.step_us / row.step_us:.3f} x {first.policy}")
    layout.line(
        out,
        f"ceiling {first.ceiling:.3f}: over an ideal wait-free backward pass no order of the gradients can gain more"
        " (1 + F/(F+B))",
    )


def _why(out: Any, rows: list[PolicyStep]) -> None:
    layout.heading(out, "Why it is not hidden", "exposed ms per cause, operations added up")
    for row in rows:
        causes = [f"{each.cause} {milliseconds(each.exposed_us)}" for each in row.why[:MOST_CAUSES]]
        layout.line(out, f"{row.policy}: {', '.join(causes) or 'all of it is'}")
    seen: dict[str, tuple[str, CauseOfStep]] = {}  # what helps the first policy that has a cause
    for row in rows:
        for each in row.why[:MOST_CAUSES]:
            seen.setdefault(each.cause, (row.policy, each))
    for cause, (policy, each) in seen.items():
        of = f" of {policy}" if len(rows) > 1 else ""
        worst = f"{each.costliest}, {milliseconds(each.costliest_us)} ms"
        layout.line(out, f"{cause}{of}: {each.advice}; costliest: {worst}", style="dim")


def _helped(out: Any, remedies: Sequence[RemedyOfStep], interference: str) -> None:
    """Say which policy removes how much of each cause, at what price and how it is switched on."""
    if not remedies:
        return
    speed = "" if interference != "none" else "; compute beside communication at full speed (--interference)"
    layout.heading(
        out, "What removes it", f"ms of a step; saved: of the whole step, and memory of a rank at its peak{speed}"
    )
    head = ["cause", "policy", "exposed", "then", "saved", "memory"]
    layout.table(out, head, [remedy_cells(each) for each in remedies], left=("cause", "policy"))
    for policy, equal, switches in dict.fromkeys((r.policy, r.equal, tuple(r.switch)) for r in remedies):
        layout.line(out, "; ".join((f"{policy}: {equal}", *switches)), style="dim")


def remedy_cells(remedy: RemedyOfStep) -> list[str]:
    """Return the cells of a remedy: cause, policy, exposed before and after, what the step saves, memory."""
    saved = milliseconds(remedy.saved_us)
    if remedy.saved_us_p05 is not None and remedy.saved_us_p95 is not None:
        saved += f" ({milliseconds(remedy.saved_us_p05)} to {milliseconds(remedy.saved_us_p95)})"
    held = remedy.memory_bytes
    memory_told = "not known" if held is None else f"{'-' if held < 0 else '+'}{format_size(abs(held))}"
    exposed = map(milliseconds, (remedy.exposed_us, remedy.exposed_after_us))
    return [remedy.cause, remedy.policy, *exposed, saved, memory_told]


def _sought(out: Any, search: SoughtPolicies | None) -> None:
    """Say what ``auto`` tried, and the frontier of time and memory."""
    if not search:
        return
    tried, declined_all = search.tried, [each for each in search.tried if each.declined]
    more = "more could be tried: auto:tries=N" if search.stopped else "nothing is left to try"
    layout.heading(out, "Search", f"{len(tried)} policies tried, {len(declined_all)} declined; {more}")
    if search.pruned or search.alike:
        told = f"{search.pruned} cannot win by the least that their step takes, {search.alike} do what another does"
        layout.line(out, f"not simulated: {told}")
    layout.line(out, f"on the frontier of time and memory: {', '.join(search.frontier)}")
    for each in search.left_out:
        layout.line(out, f"not tried: {each.policy} needs {each.needs}")


def milliseconds(microseconds: float) -> str:
    """Return a time in ms with three digits or more."""
    value = microseconds / 1e3
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.1f}" if value >= 100 else f"{value:.2f}"
