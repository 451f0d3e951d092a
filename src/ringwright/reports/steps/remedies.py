"""What removes exposed communication, what a search tried, and which rules were applied, as tables of the page of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ringwright.jobs.job_document import PolicyStep, RemedyOfStep, SoughtPolicies
from ringwright.reports import tables


def helping(remedies: Sequence[RemedyOfStep]) -> tables.PageTable | None:
    """Return the table of remedies; None for none."""
    if not remedies:
        return None
    columns = [
        "Cause",
        "Policy",
        "Exposed ms",
        "Then ms",
        "Step saved ms",
        "5 % below",
        "95 % below",
        "Memory",
        "Equal",
        "Switch on",
    ]
    lines = [
        [
            tables.text(each.cause),
            tables.text(each.policy),
            *(
                tables.number(None if time_us is None else time_us / 1e3, _ms)
                for time_us in (
                    each.exposed_us,
                    each.exposed_after_us,
                    each.saved_us,
                    each.saved_us_p05,
                    each.saved_us_p95,
                )
            ),
            tables.size(each.memory_bytes),
            tables.text(each.equal),
            tables.text("; ".join(each.switch)),
        ]
        for each in remedies
    ]
    return tables.table("remedies", "What removes it", columns, lines)


def tried(search: SoughtPolicies | None) -> tables.PageTable | None:
    """Return what a search tried, the fastest first; None without one."""
    if not search:
        return None
    ranked = sorted(search.tried, key=lambda each: (each.step_us is None, each.step_us or 0.0))
    lines = [
        [
            tables.text(each.policy),
            tables.number(None if each.step_us is None else each.step_us / 1e3, _ms),
            tables.size(each.peak_memory_bytes),
            tables.text("yes" if each.policy in search.frontier else "no"),
            tables.text(each.declined or _least(each.least_us)),
        ]
        for each in ranked
    ]
    columns = ["Policy", "Simulated step ms", "Peak memory", "On the frontier", "Declined, or not simulated"]
    return tables.table("tried", "What was tried", columns, lines)


def _least(least_us: float | None) -> str | None:
    """Say why a policy was not simulated; None where it was."""
    return None if least_us is None else f"its step takes {_ms(least_us / 1e3)} ms or more"


def rules(rows: Sequence[PolicyStep]) -> tables.PageTable | None:
    """Return which rules rewrote the graph, policy by policy, with their effect on a step of one rank; None for none."""
    lines = []
    for row in rows:
        for rule, count in Counter(each.rule for each in row.applied).items():
            deltas = [each.delta for each in row.applied if each.rule == rule]
            lines.append(
                [
                    tables.text(row.policy),
                    tables.text(rule),
                    tables.count(count),
                    tables.size(sum(sum(each.wire_bytes.values()) for each in deltas)),
                    tables.number(sum(each.operations for each in deltas), _count),
                    tables.number(sum(each.launches for each in deltas), _count),
                    tables.number(sum(each.flops for each in deltas), _flops),
                ]
            )
    columns = ["Policy", "Rule", "Sites", "Wire bytes more", "Operations more", "Launches more", "FLOP more"]
    return (
        tables.table("rules", "Rewritten, and what that changes in a step of one rank", columns, lines)
        if lines
        else None
    )


def _ms(value: float) -> str:
    return f"{value:,.2f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _flops(value: float) -> str:
    return f"{value:.3g}"
