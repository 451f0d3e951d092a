"""The survey for a terminal: its tree, what each system is and has shown, and what each does for a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from ringwright.calls.provenance import asked_of
from ringwright.ground.documents import read_json
from ringwright.ground.units import format_size
from ringwright.reports import layout
from ringwright.reports.steps.jobs import fault_lines, milliseconds
from ringwright_lab.reports.reproduced import shown
from ringwright_lab.survey.survey_view import SurveyedPair, SurveyedSystem, SurveyView

NOTHING = "-"
ROUNDED = "the best pair changes what travels: its sums are not the plain ones, to the bit"
HERE = ["built", "simulated", "real ranks", "same bits", "claimed", "got", "kind"]
THERE = ["step ms", "simulated", "gain", "exposed ms", "wire"]


def write(survey: Mapping[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.survey/1``."""
    result = read_json(SurveyView, survey)
    out = layout.console(file, width=width)
    rows = result.rows
    layout.line(out, f"survey: {len(rows)} systems, {sum(row.built for row in rows)} built", style="bold", indent=0)
    if result.job is not None:
        _job(out, result)
    for each in result.tree:
        layout.heading(out, each.of_class, f"{each.family}; {each.built} of {each.systems} built")
        mine = [row for row in rows if row.of_class == each.of_class]
        head, cells = columns(result)
        layout.table(
            out, ["system", *head], [[row.slug, *cells(row)] for row in mine], left=("system", "claimed", "got")
        )
        for row in mine:
            _told(out, row, of_job=result.job is not None)
    _ground(out, result)


def columns(result: SurveyView) -> tuple[list[str], Any]:
    """Return the headings behind a system's name, and what makes its cells."""
    if result.job is None:
        return HERE, recorded_cells
    return [*THERE, *HERE], lambda row: [*job_cells(row), *recorded_cells(row)]


def recorded_cells(row: SurveyedSystem) -> list[str]:
    """Return what is recorded of a system."""
    return [
        *map(word, (row.built, row.simulated, row.real, row.equal_bits)),
        *(NOTHING if row.kind is None else shown(each) for each in (row.claim, row.got)),
        row.kind or NOTHING,
    ]


def job_cells(row: SurveyedSystem) -> list[str]:
    """Return what a system does for the job."""
    return [
        time(row.step_us if row.step_us_p50 is None else row.step_us_p50),
        time(row.step_us),
        NOTHING if row.speedup is None else f"{row.speedup:.3f}x",
        time(row.exposed_us),
        NOTHING if row.wire_bytes is None else format_size(round(row.wire_bytes)),
    ]


def time(microseconds: float | None) -> str:
    """Return a time in ms, a dash for none."""
    return NOTHING if microseconds is None else milliseconds(microseconds)


def word(value: bool | None) -> str:
    """Return yes, no, or a dash for what is not known."""
    return NOTHING if value is None else "yes" if value else "no"


def about(row: SurveyedSystem) -> list[str]:
    """Return what a system is: mechanism, collectives, needs, what it declines, what its claim is of."""
    year = f" ({row.year})" if row.year else ""
    lines = [f"{row.title}{year}: {row.mechanism}"]
    if row.collectives:
        lines.append(f"collectives: {', '.join(row.collectives)}")
    lines.append(f"needs: {', '.join(row.needs) or 'nothing besides its collectives'}")
    if row.claim_of is not None:
        lines.append(f"claim: {row.claim_of}")
    return lines


def outcome(row: SurveyedSystem) -> list[str]:
    """Return what there is to say of a system's figures for a job, or of their absence."""
    if row.why_not:
        built = row.built
        return [f"does not apply: {row.why_not}" if built else row.why_not]
    if row.declined:
        return [f"declined: {row.declined}"]
    return [f"left to the library: {each}" for each in row.left_to_library]


def _told(out: Any, row: SurveyedSystem, *, of_job: bool) -> None:
    layout.line(out, row.slug, style="bold")
    for text in about(row):
        layout.line(out, text, indent=4)
    for text in outcome(row) if of_job else ():
        layout.line(out, text, style="yellow", indent=4)


def _job(out: Any, result: SurveyView) -> None:
    baseline, best = result.baseline, result.best
    if baseline is None or best is None:
        return
    layout.line(out, f"job: {result.workload} on {result.fabric}", indent=0)
    for line in fault_lines(result.asked or asked_of(None), [baseline]):
        layout.line(out, line, style="yellow", indent=0)
    layout.line(out, f"baseline: {pair(baseline)}: {_figures(baseline)}", indent=0)
    gain = baseline.step_us / best.step_us if best.step_us and baseline.step_us else None
    told = "" if gain is None else f", gain {gain:.3f}x over the baseline"
    layout.line(out, f"best pair: {pair(best)}: {_figures(best)}{told}", style="bold", indent=0)
    layout.line(out, searched(best), indent=0)
    if best.equal_bits is False:
        layout.line(out, ROUNDED, style="yellow", indent=0)
    layout.command(out, best.command)
    for warning in result.warnings:
        layout.line(out, f"warning: {warning}", style="yellow", indent=0)


def pair(best: SurveyedPair) -> str:
    """Return an algorithm and a policy as one phrase."""
    return f"{best.algorithm} with policy {best.policy}"


def searched(best: SurveyedPair) -> str:
    """Say how the best pair was looked for."""
    how = "all of them" if best.exhaustive else "no exchange of one part alone is shorter (--exhaustive tries all)"
    return f"{best.tried:,} of {best.pairs:,} pairs simulated; {how}"


def _figures(figures: SurveyedPair) -> str:
    if figures.step_us is None:
        return "no step"
    wire = "" if figures.wire_bytes is None else f", {format_size(round(figures.wire_bytes))} on the wire"
    return f"step {step(figures)}, exposed {time(figures.exposed_us)} ms{wire}"


def step(figures: SurveyedPair) -> str:
    """Return a step: the most probable one with its interval and the simulated beside it; where none is known, the simulated."""
    simulated = f"{time(figures.step_us)} ms"
    if figures.step_us_p50 is None:
        return simulated
    ends = f"{time(figures.step_us_p05)} to {time(figures.step_us_p95)}"
    return f"{time(figures.step_us_p50)} ms ({ends}; simulated {simulated})"


def _ground(out: Any, result: SurveyView) -> None:
    layout.heading(out, "Needs")
    used = dict.fromkeys(need for row in result.rows for need in row.needs)
    for name in sorted(used):
        layout.line(out, f"{name}: {result.needs.get(name, 'as the system says')}")
    layout.heading(out, "Columns")
    for text in LEGEND if result.job is None else (*LEGEND, *JOB_LEGEND):
        layout.line(out, text)
    if result.job is not None:
        layout.heading(out, "Assumed")
        for each in result.assumptions:
            layout.line(out, each)
        layout.heading(out, "Left out")
        layout.line(out, "; ".join(result.left_out))


LEGEND = (
    "simulated: its recorded conformance campaign passed, or its step was simulated now",
    "real ranks: a recorded run on real processes was right",
    "same bits: what it delivers is the plain sum, to the bit, wherever adding is exact",
    "same bits of a scheduler: on the job simulated, without one on VGG-16 over four ranks",
    "claimed, got, kind: of its paper's rows the one that its abstract states (ringwright reproduce SLUG shows all)",
)
JOB_LEGEND = (
    "step: most probable, as simulate answers; simulated: the engine's own, of which exposed is a part",
    "simulated, exposed, wire: an algorithm with the baseline's policy, a policy with the baseline's algorithm; means over ranks",
    "gain: the baseline's step over this one's",
    "wire: bytes that a rank sends in a step, with the flags of protocols; what switches send is not counted",
)
