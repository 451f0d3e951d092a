"""Whole jobs as one HTML page: a row per policy, where the step goes, a timeline per policy, why communication is not hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ringwright.ground.units import format_count
from ringwright.jobs.explained.tracks import StepTracks
from ringwright.jobs.job_document import JobSteps, PolicyStep
from ringwright.reports import bursts, html, tables
from ringwright.reports.draw import pipeline_picture
from ringwright.reports.steps import aggregated, memory
from ringwright.reports.steps import remedies as job_remedies
from ringwright.reports.steps.jobs import (
    burst_title,
    declined,
    ended,
    fault_lines,
    likely,
    outage_lines,
    replay_words,
)

WIDTH, LEFT, TRACK, BAR = 1000, 150, 15, 11
ROLES = {"tp": 3, "cp": 4, "ep": 5, "pp": 6, "dp": 7, "edp": 8, "embedding": 9}
KINDS = {"forward": 1, "backward": 2, "update": 10}


def page(result: JobSteps, command: str) -> str:
    """Return the page of a ``ringwright.simulate-job/1`` object made with pictures."""
    rows = result.answered
    best = min(rows, key=lambda row: row.step_us)
    longest = max(row.timeline.span_s for row in rows if row.timeline is not None)
    first = rows[0]
    return html.render(
        "jobs.html.j2",
        title=f"{result.workload} on {result.fabric}",
        ground="; ".join(_ground(result, first)),
        figures=[
            ("Ranks", format_count(first.ranks)),
            ("Policies", str(len(rows))),
            ("Fastest", best.policy),
            *_step_figures(best),
            ("Exposed there", f"{best.exposed_comm_us / 1e3:,.1f} ms"),
            ("Ceiling", f"{first.ceiling:.3f}"),
        ],
        shares=_shares(rows),
        times=_times(rows),
        likely=_likely(rows),
        roles=_roles(rows),
        timelines=[timeline(row.policy, _step(row), row.timeline, longest) for row in rows if row.timeline is not None],
        legend=timeline_legend([row.timeline for row in rows if row.timeline is not None]),
        pipelines=pipeline_picture.pictures(rows),
        passes=pipeline_picture.legend(rows),
        causes=_causes(rows),
        remedies=job_remedies.helping(result.remedies),
        tried=job_remedies.tried(result.search),
        rules=job_remedies.rules(rows),
        in_network=aggregated.page_tables(result.in_network),
        outages=outage_lines(rows),
        decided=list(dict.fromkeys(each for row in rows for each in row.decided)),
        warnings=[
            *memory.unfitting(rows),
            *filter(None, ["; ".join(fault_lines(result.asked, rows))]),
            *result.warnings,
            *(f"{name} declined: {why}" for name, why in declined(result)),
            *ended(result),
        ],
        assumptions=result.assumptions,
        bursts=bursts.page(result.bursts, result.bursts_unknown, burst_title(result.bursts)),
        left_out=result.left_out,
        command=command,
    )


def _ground(result: JobSteps, first: PolicyStep) -> list[str]:
    """Say what was simulated, and of a recording what it is held against."""
    told = [
        f"simulated, {first.simulated_ranks:,} of {first.ranks:,} ranks stand for all",
        f"engine {first.engine}",
    ]
    return [*told, replay_words(result.step, result.baseline)] if result.baseline is not None else told


def _step_figures(best: PolicyStep) -> list[tuple[str, str]]:
    """Return the step of the fastest policy: the most probable one where there is one, with its interval, and the simulated."""
    simulated = f"{best.step_us / 1e3:,.1f} ms"
    if best.step_us_p50 is None or best.step_us_p05 is None or best.step_us_p95 is None:
        return [("Its step", simulated)]
    ends = f"{best.step_us_p05 / 1e3:,.1f} to {best.step_us_p95 / 1e3:,.1f}"
    return [("Its step", f"{best.step_us_p50 / 1e3:,.1f} ms"), ("90 %", f"{ends} ms"), ("Simulated", simulated)]


def _likely(rows: Sequence[PolicyStep]) -> tables.PageTable | None:
    """Return how long such steps took on GPUs, policy by policy; None where none were measured."""
    told = likely(rows)
    if told is None:
        return None
    columns = ["Policy", "Most probable ms", "5 % below", "95 % below"]
    lines = [
        [
            tables.text(row.policy),
            *(
                tables.number((time_us or 0.0) / 1e3, _ms)
                for time_us in (row.step_us_p50, row.step_us_p05, row.step_us_p95)
            ),
        ]
        for row in told.rows
    ]
    return tables.table("likely", f"Most probable step, {told.ground}", columns, lines)


def _times(rows: list[PolicyStep]) -> tables.PageTable:
    columns = [
        "Policy",
        "Simulated step ms",
        "Against first",
        "Compute ms",
        "Update ms",
        "Exposed ms",
        "Idle ms",
        "Overlap",
        "Steady",
    ]
    cells = [
        [
            tables.text(row.policy),
            tables.number(row.step_us / 1e3, _ms),
            tables.number(rows[0].step_us / row.step_us, _ratio),
            *(
                tables.number(time_us / 1e3, _ms)
                for time_us in (row.compute_us, row.update_us, row.exposed_comm_us, row.idle_us)
            ),
            tables.share(row.overlap),
            tables.text("yes" if row.steady else "no"),
        ]
        for row in rows
    ]
    return tables.table("policies", "Policy by policy", columns, cells)


def _roles(rows: list[PolicyStep]) -> tables.PageTable:
    columns = ["Policy", "Role", "Operations", "Bytes", "On the wire ms", "Exposed ms", "Queued ms, each"]
    cells = [
        [
            tables.text(row.policy),
            tables.text(role),
            tables.number(each.operations, _none),
            tables.size(round(each.bytes)),
            *(tables.number(time_us / 1e3, _ms) for time_us in (each.busy_us, each.exposed_us)),
            tables.number(each.queued_us / max(each.operations, 1) / 1e3, _ms),
        ]
        for row in rows
        for role, each in row.by_role.items()
    ]
    return tables.table("roles", "Role by role, per rank and step", columns, cells)


def _causes(rows: list[PolicyStep]) -> tables.PageTable:
    columns = ["Policy", "Cause", "Exposed ms", "Operations", "Costliest", "What helps"]
    cells = [
        [
            tables.text(row.policy),
            tables.text(each.cause),
            tables.number(each.exposed_us / 1e3, _ms),
            tables.number(each.count, _none),
            tables.text(each.costliest),
            tables.text(each.advice),
        ]
        for row in rows
        for each in row.why
    ]
    return tables.table("causes", "Cause by cause", columns, cells)


def _shares(rows: list[PolicyStep]) -> list[dict[str, Any]]:
    """Return a stacked bar per policy, all in the scale of the longest step."""
    longest = max(row.step_us for row in rows)
    made = []
    for row in rows:
        parts = [("compute", row.compute_us, 1), ("update", row.update_us, 10)]
        parts += [(f"{role} exposed", each.exposed_us, ROLES.get(role, 9)) for role, each in row.by_role.items()]
        parts.append(("idle", row.idle_us, 11))
        made.append(
            {
                "policy": row.policy,
                "step": f"{row.step_us / 1e3:,.1f} ms",
                "parts": [
                    {
                        "title": f"{name} {value / 1e3:,.2f} ms",
                        "percent": round(value / longest * 100, 3),
                        "colour": colour,
                    }
                    for name, value, colour in parts
                    if value / longest > 0.0005
                ],
            }
        )
    return made


@dataclass(frozen=True, slots=True)
class TimelinePicture:
    """A step as rectangles: x, y, width and colour of each; names of lanes and marks of time with their places."""

    policy: str
    step: str
    rectangles: list[tuple[float, int, float, int]]
    names: list[tuple[int, str, str]]
    note: str
    width: int
    height: int
    left: int
    bar: int
    marks: list[tuple[float, str]]


def _step(row: PolicyStep) -> str:
    return f"{row.step_us / 1e3:,.1f} ms" if row.step_us_hit is None else "a step that meets an outage"


def timeline(title: str, step: str, picture: StepTracks, longest: float) -> TimelinePicture:
    """Return a step's tracks as rectangles, ``longest`` seconds over the whole width, so that several have one scale."""
    scale = (WIDTH - LEFT) / longest if longest else 0.0
    rectangles, names = [], []
    for at, track in enumerate(picture.tracks):
        top = at * TRACK + 2
        who = f"{track.of}" if track.name == "compute" else ""
        names.append((top + BAR - 2, who, track.name))
        for part in track.parts:
            colour = KINDS.get(part.kind) or ROLES.get(part.kind, 9)
            rectangles += [
                (round(LEFT + a * scale, 2), top, max(round((b - a) * scale, 2), 0.3), colour)
                for a, b in zip(part.starts, part.ends, strict=True)
            ]
    shown = f"{picture.shown} of {picture.classes} kinds of ranks" if picture.shown < picture.classes else ""
    return TimelinePicture(
        policy=title,
        step=step,
        rectangles=rectangles,
        names=names,
        note=shown,
        width=WIDTH,
        height=len(picture.tracks) * TRACK + 24,
        left=LEFT,
        bar=BAR,
        marks=[
            (round(LEFT + (WIDTH - LEFT) * part / 4, 1), f"{longest * part / 4 * 1e3:,.4g} ms") for part in range(5)
        ],
    )


def timeline_legend(pictures: Sequence[StepTracks]) -> list[tuple[str, int]]:
    """Return the kinds of what some steps' tracks show, each with the number of its colour."""
    shown = {part.kind for picture in pictures for track in picture.tracks for part in track.parts}
    return [(name, number) for name, number in {**KINDS, **ROLES}.items() if name in shown]


def _ms(value: float) -> str:
    return f"{value:,.2f}"


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _none(value: float) -> str:
    return f"{value:,.0f}"
