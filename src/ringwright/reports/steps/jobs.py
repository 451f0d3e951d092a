"""Whole jobs by policy: step time, what was exposed and by whom, and the most that any order could gain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from ringwright.ground.documents import read_json
from ringwright.ground.units import format_size
from ringwright.jobs.job_end import JobEndInStep
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
def write(result: dict[str, Any], file: TextIO, *, width: int | None = None, shows_bursts: bool = False) -> None:
    """Write the object of schema ``ringwright.simulate-job/1`` for a terminal, ``shows_bursts`` where it holds them."""
    out = layout.console(file, width=width)
    rows = answered(result)
    if not rows:
        _only_ends(out, result)
        return
    first = rows[0]
    for each in memory.unfitting(rows):
        layout.line(out, each, style="bold yellow", indent=0)
    layout.line(
        out,
        f"simulated: {result['workload']} on {result['fabric']}, {first['ranks']:,} rank{'s' * (first['ranks'] > 1)}",
        style="bold",
        indent=0,
    )
    for line in fault_lines(result, rows):
        layout.line(out, line, style="yellow", indent=0)
    simulated = first["simulated_ranks"]
    alike = (
        "every rank simulated"
        if simulated == first["ranks"]
        else f"{simulated:,} of them simulated, the others are alike"
    )
    layout.line(out, alike, indent=0)
    if result.get("ground"):
        _replayed(out, result)
    _steps(out, rows)
    roles = list(dict.fromkeys(role for row in rows for role in row["by_role"]))
    for name, why in declined(result):
        layout.line(out, f"{name} declined: {why}", style="yellow")
    _listed(out, ended(result), "The job ends")
    _listed(out, outage_lines(rows), "Outages", "what passes, and how much longer steps are for it")
    if roles:
        layout.heading(out, "Exposed communication in ms", "on the wire while its rank computed nothing; by role")
        table = [
            [row["policy"], *(milliseconds(row["by_role"].get(r, {}).get("exposed_us", 0.0)) for r in roles)]
            for row in rows
        ]
        layout.table(out, ["policy", *roles], table, left=("policy",))
    _listed(out, rules_applied(rows), "Rewritten", "the graph of the step, which computes the same")
    memory.of_policies(out, rows)
    _listed(
        out, list(dict.fromkeys(each for row in rows for each in row.get("decided", ()))), "Decided by the policies"
    )
    _compared(out, rows)
    if result.get("tuned"):
        layout.heading(out, "Tuned", "the first trial is what the system ships with")
    for each in result.get("tuned", ()):
        first, best = each["first_step_us"], each["step_us"]
        layout.line(
            out,
            f"{each['best']}: {milliseconds(best)} ms, {first / best:.3f} x the first of {len(each['trials'])} trials",
        )
    _why(out, rows)
    _helped(out, result.get("remedies", ()), result.get("interference", ""))
    _sought(out, result.get("search"))
    aggregated.write(out, result.get("in_network"))
    unsteady = [row["policy"] for row in rows if not row["steady"]]
    if unsteady:
        layout.line(out, f"not steady yet, steps still differ: {', '.join(unsteady)}")
    if shows_bursts:
        bursts.write(out, result["bursts"], result["bursts_unknown"], burst_title(result["bursts"]))
    layout.heading(out, "Assumed")
    for each in result["assumptions"]:
        layout.line(out, each)
    layout.heading(out, "Left out")
    layout.line(out, "; ".join(result["left_out"]))


def burst_title(told: Mapping[str, Any] | None) -> str:
    """Return the title of bursts: of which policy."""
    return "Bursts" if told is None else f"Bursts by {told['policy']}"


def _listed(out: Any, lines: Sequence[str], title: str, about: str = "") -> None:
    """Write lines under a heading; nothing where there are none."""
    if lines:
        layout.heading(out, title, about)
    for each in lines:
        layout.line(out, each)


def fault_lines(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return which faults act, and what they cost beside the step without them, a line per policy; empty without faults."""
    told = [row for row in rows if row.get("healthy") is not None]
    asked = result["asked"]
    lines = [*faults_asked(asked), *(f"beside: {other}, again and again" for other in asked["beside"])]
    for row in told[:MOST_COSTS]:
        whose = "a step" if len(rows) == 1 else f"{row['policy']}: a step"
        known = row.get("step_us_p50") is not None and row["healthy"].get("step_us_p50") is not None
        answer = "step_us_p50" if known else "step_us"
        lines.append(f"{whose} takes {cost_of_faults(row[answer], row['healthy'][answer])}")
    return lines


def cost_of_faults(step_us: float, healthy_us: float) -> str:
    """Return a time beside the one without faults, in words."""
    longer = step_us / healthy_us - 1 if healthy_us else 0.0
    times = f"{milliseconds(step_us)} ms, {milliseconds(healthy_us)} without the faults"
    return f"{times}: they change nothing" if abs(longer) < SAME else f"{times}: {longer:+.1%}"


def outage_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what outages do, a line per policy and kind of outage."""
    return [f"{row['policy']}: {each}" for row in rows for each in row.get("outages", ())]


def answered(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the policies that have times."""
    return [row for row in result["rows"] if row.get("declined") is None]


def declined(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the policies that have none, and why."""
    rows = [row for row in result["rows"] if row.get("declined") is not None and not row.get("ends")]
    return [(row["policy"], row["declined"]) for row in rows]


def ended(result: Mapping[str, Any]) -> list[str]:
    """Return of each policy with which the job ends in which step, when, and how."""
    return [
        f"{row['policy']}: in step {ends['step']}, {in_words(read_json(JobEndInStep, ends))}"
        for row in result["rows"]
        if (ends := row.get("ends"))
    ]


def _only_ends(out: Any, result: dict[str, Any]) -> None:
    """Say how a job ends that has no step by any policy."""
    layout.line(out, f"simulated: {result['workload']} on {result['fabric']}", style="bold", indent=0)
    for line in fault_lines(result, ()):
        layout.line(out, line, style="yellow", indent=0)
    _listed(out, ended(result), "The job ends")
    for name, why in declined(result):
        layout.line(out, f"{name} declined: {why}", style="yellow")
    _listed(out, result["assumptions"], "Assumed")


def _replayed(out: Any, result: dict[str, Any]) -> None:
    """Say how far the replay, unchanged, is from what was measured."""
    layout.heading(out, "Replay", f"{result['step']}; ground: {result['ground']}")
    baseline = result["baseline"]
    if baseline is None:
        layout.line(out, UNMEASURED if result["ground"] != COMMUNICATION_ALONE else WITHOUT_TIMES)
        return
    layout.line(out, replay_words(result["step"], baseline))
    for warning in result.get("warnings", ()):
        layout.line(out, f"warning: {warning}", style="yellow")


def replay_words(step: str, baseline: Mapping[str, Any]) -> str:
    """Say how long a replayed step took, is replayed to take, and what the recording's steps take in the mean."""
    own = (
        f"{step} took {milliseconds(baseline['step_us'])} ms, replayed with its own times "
        f"{milliseconds(baseline['replayed_us'])} ms: {baseline['error']:+.1%}"
    )
    if baseline["steps"] < 2:
        return own
    return f"{own}; measured {milliseconds(baseline['measured_us'])} ms a step, the mean of {baseline['steps']} steps"


def _steps(out: Any, rows: list[dict[str, Any]]) -> None:
    """Write the answer, how long such a step takes, and where the simulated one goes; they are one where none was measured."""
    best = min(row["step_us"] for row in rows)
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


def _starred(row: Mapping[str, Any], time_us: float, best: float) -> str:
    return milliseconds(time_us) + ("*" if row["step_us"] <= best * (1 + 1e-9) else "")


def _answer(row: Mapping[str, Any], best: float) -> list[str]:
    """Return a policy's most probable step, its interval and the simulated step; without the former where it has none."""
    if row["step_us_p50"] is None:
        return [row["policy"], "-", "none", milliseconds(row["step_us"])]
    ends = f"{milliseconds(row['step_us_p05'])} to {milliseconds(row['step_us_p95'])}"
    return [row["policy"], _starred(row, row["step_us_p50"], best), ends, milliseconds(row["step_us"])]


def _cells(row: dict[str, Any], best: float) -> list[str]:
    times = [milliseconds(row[name]) for name in ("compute_us", "update_us", "exposed_comm_us", "idle_us")]
    return [row["policy"], _starred(row, row["step_us"], best), *times, layout.percent(row["overlap"])]


@dataclass(frozen=True)
class LikelySteps:
    """The rows of policies that have a most probable step, and what it rests on."""

    rows: Sequence[Mapping[str, Any]]
    ground: str


def likely(rows: Sequence[Mapping[str, Any]]) -> LikelySteps | None:
    """Return the rows with a most probable step and its ground; None where no such steps were measured."""
    told = [row for row in rows if row.get("step_us_p50") is not None]
    if not told:
        return None
    away = ", ".join(OUTSIDE[word] for word in told[0]["outside"])
    beyond = f"; extrapolated beyond them in {away}" if away else ""
    return LikelySteps(told, f"from measured steps of such models on GPUs{beyond}")


def rules_applied(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return which rules rewrote the graph of the step, at how many places and what that changed, a line per policy."""
    return [f"{row['policy']}: {_rules(row['applied'])}" for row in rows if row.get("applied")]


def _rules(applied: Sequence[Mapping[str, Any]]) -> str:
    counted = Counter(each["rule"] for each in applied)
    return ", ".join(f"{rule} at {count:,} {'place' if count == 1 else 'places'}" for rule, count in counted.items())


def _compared(out: Any, rows: list[dict[str, Any]]) -> None:
    first = rows[0]
    layout.heading(out, "Against each other")
    for row in rows[1:]:
        layout.line(out, f"{row['policy']}: {first['step_us'] / row['step_us']:.3f} x {first['policy']}")
    layout.line(
        out,
        f"ceiling {first['ceiling']:.3f}: over an ideal wait-free backward pass no order of the gradients can gain more"
        " (1 + F/(F+B))",
    )


def _why(out: Any, rows: list[dict[str, Any]]) -> None:
    layout.heading(out, "Why it is not hidden", "exposed ms per cause, operations added up")
    for row in rows:
        causes = [f"{each['cause']} {milliseconds(each['exposed_us'])}" for each in row["why"][:MOST_CAUSES]]
        layout.line(out, f"{row['policy']}: {', '.join(causes) or 'all of it is'}")
    seen: dict[str, tuple[str, Mapping[str, Any]]] = {}  # what helps the first policy that has a cause
    for row in rows:
        for each in row["why"][:MOST_CAUSES]:
            seen.setdefault(each["cause"], (row["policy"], each))
    for cause, (policy, each) in seen.items():
        of = f" of {policy}" if len(rows) > 1 else ""
        worst = f"{each['costliest']}, {milliseconds(each['costliest_us'])} ms"
        layout.line(out, f"{cause}{of}: {each['advice']}; costliest: {worst}", style="dim")


def _helped(out: Any, remedies: Sequence[Mapping[str, Any]], interference: str) -> None:
    """Say which policy removes how much of each cause, at what price and how it is switched on."""
    if not remedies:
        return
    speed = "" if interference != "none" else "; compute beside communication at full speed (--interference)"
    layout.heading(
        out, "What removes it", f"ms of a step; saved: of the whole step, and memory of a rank at its peak{speed}"
    )
    head = ["cause", "policy", "exposed", "then", "saved", "memory"]
    layout.table(out, head, [remedy_cells(each) for each in remedies], left=("cause", "policy"))
    for policy, equal, switches in dict.fromkeys((r["policy"], r["equal"], tuple(r["switch"])) for r in remedies):
        layout.line(out, "; ".join((f"{policy}: {equal}", *switches)), style="dim")


def remedy_cells(remedy: Mapping[str, Any]) -> list[str]:
    """Return the cells of a remedy: cause, policy, exposed before and after, what the step saves, memory."""
    saved = milliseconds(remedy["saved_us"])
    if remedy["saved_us_p05"] is not None:
        saved += f" ({milliseconds(remedy['saved_us_p05'])} to {milliseconds(remedy['saved_us_p95'])})"
    held = remedy["memory_bytes"]
    memory_told = "not known" if held is None else f"{'-' if held < 0 else '+'}{format_size(abs(held))}"
    exposed = (milliseconds(remedy[name]) for name in ("exposed_us", "exposed_after_us"))
    return [remedy["cause"], remedy["policy"], *exposed, saved, memory_told]


def _sought(out: Any, search: Mapping[str, Any] | None) -> None:
    """Say what ``auto`` tried, and the frontier of time and memory."""
    if not search:
        return
    tried, declined_all = search["tried"], [each for each in search["tried"] if each["declined"]]
    more = "more could be tried: auto:tries=N" if search["stopped"] else "nothing is left to try"
    layout.heading(out, "Search", f"{len(tried)} policies tried, {len(declined_all)} declined; {more}")
    if search["pruned"] or search["alike"]:
        told = (
            f"{search['pruned']} cannot win by the least that their step takes, {search['alike']} do what another does"
        )
        layout.line(out, f"not simulated: {told}")
    layout.line(out, f"on the frontier of time and memory: {', '.join(search['frontier'])}")
    for each in search["left_out"]:
        layout.line(out, f"not tried: {each['policy']} needs {each['needs']}")


def milliseconds(microseconds: float) -> str:
    """Return a time in ms with three digits or more."""
    value = microseconds / 1e3
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.1f}" if value >= 100 else f"{value:.2f}"
