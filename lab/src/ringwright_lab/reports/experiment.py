"""An experiment as one page: claims and answers, sizes of requests, what disturbances do, what to provide, what agrees."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TextIO, TypeVar

from ringwright.ground.documents import read_json
from ringwright.ground.units import format_count, format_size
from ringwright.reports import html, layout, tables
from ringwright.reports.draw import plots
from ringwright_lab.reports.concluded import again_table, concluded_table, write_conclusions
from ringwright_lab.sweep.experiment_view import (
    AgreementView,
    ClaimRow,
    ConclusionsView,
    EffectView,
    ExperimentView,
    MeasuredCells,
    PatternView,
    ProvisionNeed,
    SimulatedCell,
)
from ringwright_lab.sweep.resumed import sentence

MOST_TRACKS = 60
MOST_COURSES = 18
WHOLE = "the same command with --json"


def page(experiment: Mapping[str, Any], command: str) -> str:
    """Return the page of an experiment (``papers.poster.study.experiment``)."""
    document = read_json(ExperimentView, experiment)
    rows, effects = document.rows, document.effects
    passed = sum(row.passes for row in rows)
    agree = sum(check.agrees for check in document.agreement)
    return render(
        document,
        command,
        title="Collective communication of ML workloads, measured again",
        ground=(
            f"{document.form} form; real model code with random weights, on gloo ranks of this machine, in network "
            "namespaces, and at full size without tensors; the paper's own figures could not be read: each row says where "
            "its claim is from"
        ),
        figures=[
            ("Rows", f"{passed} of {len(rows)} pass"),
            ("Cells", format_count(len(document.cells))),
            ("Formulas", f"{agree} of {len(document.agreement)} equal"),
            ("Disturbed runs", str(sum(effect.seeds for effect in effects))),
        ],
        rows=_rows(rows),
    )


def render(document: MeasuredCells, command: str, **more: Any) -> str:
    """Return the page of anything that has ``patterns``, ``provisions``, ``agreement``, perhaps ``effects`` and ``versions``."""
    effects = document.effects
    content = {
        "rows": None,
        "simulated": None,
        "most_tracks": MOST_TRACKS,
        "most_courses": MOST_COURSES,
        "not_run": list(document.not_run.items()),
        "resumed": sentence(document.resumed) if document.resumed else "",
        "sizes": plots.request_sizes([(row.label, row.sizes) for row in _tracks(document.patterns)]),
        "patterns": _patterns(document.patterns),
        "courses": _courses(document.patterns),
        "effects": _effects(effects) if effects else None,
        "ratios": plots.intervals([_ratio(row) for row in effects]),
        "steps": _steps(effects),
        "provisions": _provisions(document.provisions) if document.provisions else None,
        "agreement": _agreement(document.agreement) if document.agreement else None,
        "concluded": _concluded(document.conclusions),
        "command": command,
        "versions": ", ".join(f"{name} {number}" for name, number in document.versions.items()),
    }
    return html.render("experiment.html.j2", **content | more)


def _concluded(concluded: ConclusionsView | None) -> list[tables.PageTable]:
    if not concluded or not concluded.answers:
        return []
    return [concluded_table(concluded.answers), again_table(concluded.packets)]


def _tracks(rows: Sequence[PatternView]) -> list[PatternView]:
    """Return the patterns to draw, each once: without twins on the fake group, other seeds and faults."""
    tracks: dict[tuple[str, str], PatternView] = {}
    for row in sorted(rows, key=lambda row: bool(row.world)):
        tracks.setdefault(
            (label(row), row.dims), replace(row, label=label(row) + (f" ({row.dims})" if row.dims else ""))
        )
    return _in_turn(sorted(tracks.values(), key=lambda row: (row.size != "tiny", row.label)), MOST_TRACKS)


class _InTurn(Protocol):
    """What is drawn in turn."""

    @property
    def model(self) -> str: ...
    @property
    def mode(self) -> str: ...


Drawn = TypeVar("Drawn", bound=_InTurn)


def _in_turn(rows: Sequence[Drawn], most: int) -> list[Drawn]:
    """Return at most so many of the rows, in their order: where that is not all, as many of each model, training first."""
    waiting: dict[str, list[int]] = {}
    for index in sorted(range(len(rows)), key=lambda row: (rows[row].mode != "training", row)):
        waiting.setdefault(rows[index].model, []).append(index)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*waiting.values()))
    chosen = itertools.islice((index for index in turns if index is not None), most)
    return [rows[index] for index in sorted(chosen)]


def label(row: PatternView | ProvisionNeed | SimulatedCell) -> str:
    """Return what names a pattern in a plot."""
    name = row.model if row.size == "tiny" else row.size
    turn = "" if row.turn == "iteration" else f" {row.turn}"
    mode = "" if row.mode in ("training", "inference") else f" {row.mode}"
    return f"{name} {row.parallel.partition(',capacity')[0]}{mode}{turn}"


def _rows(rows: Sequence[ClaimRow]) -> tables.PageTable:
    columns = ["Figure", "Kind", "Claimed", "Got", "Tolerance", "Pass", "Source", "Note"]
    cells = [
        [
            *(tables.text(_plain(each)) for each in (row.figure, row.kind, row.claimed, row.got, row.tolerance)),
            tables.text("yes" if row.passes else "NO"),
            tables.text(row.source),
            tables.text(row.note),
        ]
        for row in rows
    ]
    return tables.table("claims", "Claims and answers", columns, cells)


def _plain(value: Any) -> str:
    return format_count(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _patterns(rows: Sequence[PatternView]) -> tables.PageTable:
    columns = [
        "What",
        "Ranks",
        "Calls",
        "Bytes",
        "Distinct sizes",
        "Largest",
        "Largest's share",
        "Burst",
        "Like",
        "Operations",
    ]
    cells = [
        [
            tables.text(label(row)),
            tables.count(row.ranks),
            tables.count(row.calls),
            tables.size(row.bytes),
            tables.count(row.distinct),
            tables.size(row.sizes[-1].size_bytes),
            tables.share(row.top_share),
            tables.size(row.burst_bytes),
            tables.text(row.like if row.turn == "iteration" else ""),
            tables.text(", ".join(f"{each.calls} {each.op}" for each in row.operations)),
        ]
        for row in rows
    ]
    return tables.table("patterns", "One iteration, prompt or token of one rank", columns, cells, whole=WHOLE)


@dataclass(frozen=True, slots=True)
class DrawnCourse:
    """The requests of one iteration over time, as lines."""

    label: str
    plot: dict[str, Any]
    model: str
    mode: str


def _courses(rows: Sequence[PatternView]) -> list[DrawnCourse]:
    """Return the courses to draw, each label once."""
    courses: dict[str, DrawnCourse] = {}
    for row in rows:
        plot = plots.course(row.course) if row.burst_bytes is not None else None
        if plot:
            courses.setdefault(label(row), DrawnCourse(label(row), plot, row.model, row.mode))
    return _in_turn(list(courses.values()), MOST_COURSES)


def _effects(rows: Sequence[EffectView]) -> tables.PageTable:
    columns = [
        "Model",
        "Disturbance",
        "Fault",
        "Step ratio",
        "95 %",
        "Collective ratio",
        "95 %",
        "Seeds",
        "Right",
        "Cannot tell",
        "Wrong",
        "Answers",
    ]
    cells = [
        [
            tables.text(row.model),
            tables.text(row.anomaly),
            tables.text(row.fault),
            tables.number(row.step_ratio, _two),
            tables.text(_range(row.step_ratio_low, row.step_ratio_high)),
            tables.number(row.collective_ratio, _two),
            tables.text(_range(row.collective_ratio_low, row.collective_ratio_high)),
            *map(tables.count, (row.seeds, row.right, row.cannot_tell, row.wrong)),
            tables.text(", ".join(_answer(*each) for each in zip(row.answers, row.named, strict=True))),
        ]
        for row in rows
    ]
    return tables.table("disturbances", "Disturbances", columns, cells, whole=WHOLE)


def _answer(kind: str, named: str) -> str:
    return f"{kind} ({named})" if named else kind


def _two(value: float) -> str:
    return f"{value:.2f}"


def _range(low: float | None, high: float | None) -> str:
    return f"{low:.2f} to {high:.2f}" if low and high else "one seed"


def _ratio(row: EffectView) -> plots.RatioRow:
    mean, low, high = row.step_ratio, row.step_ratio_low, row.step_ratio_high
    text = f"{row.model} {row.anomaly}: {mean:.2f} ({_range(low, high)})" if mean else ""
    return plots.RatioRow(f"{row.model}, {row.anomaly}", mean, low, high, text)


def _steps(rows: Sequence[EffectView]) -> list[dict[str, Any]]:
    made = ((row, plots.step_lines(row.usual_s, row.steps_s)) for row in rows)
    return [{"label": f"{row.model}, {row.anomaly}", "plot": plot} for row, plot in made if plot]


def _provisions(rows: Sequence[ProvisionNeed]) -> tables.PageTable:
    columns = ["What", "On the wire", "Largest request", "Largest burst", "Gbit/s for 100 ms", "What follows"]
    cells = [
        [
            tables.text(label(row)),
            tables.size(row.wire_bytes),
            tables.size(row.largest_bytes),
            tables.size(row.burst_bytes),
            tables.number(row.rate_for_100ms_gbit_s, lambda value: f"{value:,.3g}"),
            tables.text(row.advice),
        ]
        for row in rows
    ]
    return tables.table("provide", "A rank's wire", columns, cells, whole=WHOLE)


def _agreement(rows: Sequence[AgreementView]) -> tables.PageTable:
    columns = [
        "Cell",
        "When",
        "Ranks",
        "Calls calculated",
        "recorded",
        "Bytes calculated",
        "recorded",
        "Equal",
        "Difference",
    ]
    cells = [
        [
            tables.text(row.cell),
            tables.text(row.when),
            tables.count(row.ranks),
            tables.count(row.expected_calls),
            tables.count(row.recorded_calls),
            tables.count(row.expected_bytes),
            tables.count(row.recorded_bytes),
            tables.text("yes" if row.agrees else "NO"),
            tables.text(row.difference),
        ]
        for row in rows
    ]
    return tables.table("equal", "Every cell", columns, cells, whole=WHOLE)


def write(experiment: Mapping[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the rows of an experiment for a terminal."""
    document = read_json(ExperimentView, experiment)
    out = layout.console(file, width=width)
    rows = document.rows
    layout.line(
        out,
        f"{sum(row.passes for row in rows)} of {len(rows)} rows pass ({document.form} form)",
        style="bold",
        indent=0,
    )
    if document.resumed:
        layout.line(out, sentence(document.resumed), indent=0)
    for row in rows:
        layout.line(
            out,
            f"{'pass' if row.passes else 'FAIL'}  {row.kind}: {row.figure}",
            style="" if row.passes else "red",
            indent=0,
        )
        layout.line(out, f"claimed {_plain(row.claimed)}; got {_plain(row.got)}; tolerance {row.tolerance}", indent=6)
        if row.note and not row.passes:
            layout.line(out, row.note[:300], indent=6)
    write_conclusions(out, document.conclusions or ConclusionsView())
    layout.line(out, f"pictures and tables: {document.out}/report.html", indent=0)


def largest(rows: Sequence[PatternView]) -> str:
    """Return the largest request of some patterns, for a headline."""
    sizes = [row.sizes[-1].size_bytes or 0 for row in rows]
    return format_size(max(sizes)) if sizes else "none"
