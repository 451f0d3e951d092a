"""The survey as one HTML page: a sortable table of all systems, what each is, and what each does for a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringwright.calls.provenance import asked_of
from ringwright.ground.documents import read_json
from ringwright.ground.units import format_size
from ringwright.reports import html, tables
from ringwright.reports.steps import jobs
from ringwright_lab.reports import survey
from ringwright_lab.survey.survey_view import SurveyedSystem, SurveyView

MOST = 500


def page(told: Mapping[str, Any], command: str) -> str:
    """Return the page of a ``ringwright.survey/1`` object."""
    result = read_json(SurveyView, told)
    rows, of_job = result.rows, result.job is not None
    best, baseline = result.best, result.baseline
    return html.render(
        "survey.html.j2",
        title=f"Survey: {result.workload} on {result.fabric}" if of_job else "Survey of collective communication",
        ground=_ground(result),
        figures=_figures(result),
        best="" if best is None else f"{survey.pair(best)}: {survey.searched(best)}",
        best_command="" if best is None else best.command,
        baseline="" if baseline is None else survey.pair(baseline),
        warnings=[
            *filter(
                None, ["; ".join(jobs.fault_lines(result.asked or asked_of(None), [baseline]))] if baseline else []
            ),
            *result.warnings,
            *([survey.ROUNDED] if best and best.equal_bits is False else []),
        ],
        job=_job(rows) if of_job else None,
        shown=_shown(rows),
        classes=[
            {
                "name": each.of_class,
                "family": each.family,
                "built": each.built,
                "systems": each.systems,
                "rows": [_about(row, of_job=of_job) for row in rows if row.of_class == each.of_class],
            }
            for each in result.tree
        ],
        needs=[(name, result.needs.get(name, "")) for name in sorted({n for row in rows for n in row.needs})],
        legend=[*survey.LEGEND, *(survey.JOB_LEGEND if of_job else ())],
        assumptions=result.assumptions,
        left_out=result.left_out,
        command=command,
    )


def _ground(result: SurveyView) -> str:
    recorded = "recorded campaigns and papers' figures"
    return f"steps simulated now; {recorded}" if result.job is not None else recorded


def _figures(result: SurveyView) -> list[tuple[str, str]]:
    rows = result.rows
    figures = [("Systems", str(len(rows))), ("Built", str(sum(row.built for row in rows)))]
    baseline, best = result.baseline, result.best
    if baseline is None or best is None:
        return figures
    return [
        *figures,
        ("Baseline's step", f"{survey.time(baseline.step_us)} ms"),
        ("Best pair", f"{best.algorithm} + {best.policy}"),
        ("Its step", survey.step(best)),
    ]


def _job(rows: list[SurveyedSystem]) -> tables.PageTable:
    columns = [
        "System",
        "Class",
        "Step ms",
        "Simulated ms",
        "Gain",
        "Exposed ms",
        "On the wire",
        "Why not, or what is left to the library",
    ]
    cells = [
        [
            tables.text(row.slug),
            tables.text(row.of_class),
            tables.number(row.step_us if row.step_us_p50 is None else row.step_us_p50, survey.time),
            tables.number(row.step_us, survey.time),
            tables.number(row.speedup, _gain),
            tables.number(row.exposed_us, survey.time),
            tables.number(row.wire_bytes, _size),
            tables.text("; ".join(survey.outcome(row))),
        ]
        for row in rows
    ]
    return tables.table("job", "System by system, in the baseline's place", columns, cells, MOST)


def _shown(rows: list[SurveyedSystem]) -> tables.PageTable:
    columns = ["System", "Class", "Year", *(name.capitalize() for name in survey.HERE), "Claim of"]
    cells = [
        [
            tables.text(row.slug),
            tables.text(row.of_class),
            tables.number(row.year),
            *(tables.text(cell) for cell in survey.recorded_cells(row)),
            tables.text(row.claim_of),
        ]
        for row in rows
    ]
    return tables.table("shown", "Recorded", columns, cells, MOST)


def _about(row: SurveyedSystem, *, of_job: bool) -> dict[str, Any]:
    first, *more = survey.about(row)
    return {
        "slug": row.slug,
        "built": row.built,
        "first": first,
        "more": [*more, *(survey.outcome(row) if of_job else ())],
    }


def _gain(value: float) -> str:
    return f"{value:.3f}x"


def _size(value: float) -> str:
    return format_size(round(value))
