"""The account of overlap for reading: fusions by pattern, exposed communication by cause, and what would hide it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.analysis.exposed.overlap_account import patterns
from ringwright.analysis.summary_view import KeptApart, SeenExposed, SeenFusion, SeenRemedy, SeenSummary
from ringwright.ground.documents import read_rows
from ringwright.reports import layout
from ringwright.reports.tables import Cell, PageTable, count, number, table, text

if TYPE_CHECKING:
    from rich.console import Console

MOST_LAYERS = 3
MOST_REMEDIES = 2
TOP = 4


def us(value: float | None) -> str:
    """Return microseconds, as milliseconds or seconds where that reads better."""
    if value is None:
        return "–"
    for limit, scale, unit in ((1e4, 1.0, "us"), (1e7, 1e3, "ms")):
        if abs(value) < limit:
            return f"{value / scale:,.1f} {unit}"
    return f"{value / 1e6:,.1f} s"


def write(out: Console, view: SeenSummary) -> None:
    """Write the account on a terminal: fusions, what keeps communication apart, systems that cut it, what cannot be told."""
    for row in read_rows(SeenFusion, patterns(view.overlap.fusions)):
        groups = f" of {', '.join(row.groups)}" if row.groups else ""
        layout.line(out, f"{row.pattern}{groups}: {row.fired:,} of {row.expected:,} fired{_missing(row)}")
        if row.missed:
            layout.line(out, f"to have it: {_short(row)}", indent=4)
    for kept in view.overlap.apart[:TOP]:
        layout.line(out, _kept_apart("kept", kept))
    for each in _curable(view):
        layout.line(out, f"{each.op}{_where(each)}, {us(each.exposed_us)} exposed; to cut it: {_short(each)}")
    for told in view.overlap.unknown:
        layout.line(out, told)


def _curable(view: SeenSummary) -> list[SeenExposed]:
    """Return what is exposed and a system would cut, one row per cause, operation and group, the costliest first."""
    seen, rows = set(), []
    for row in view.overlap.exposed:
        key = (row.cause, row.op, row.group)
        if key not in seen and row.system and row.cause not in ("fusion-not-matched", "same-communicator"):
            seen.add(key)
            rows.append(row)
    return rows[:MOST_REMEDIES]


def _short(row: SeenRemedy) -> str:
    """Return system, switch and what can be gained, without what is not known."""
    gain = f"gain at most {us(row.gain_us[1])}" if row.gain_us else ""
    return "; ".join(part for part in (row.system, row.switch, gain) if part)


def _kept_apart(kept: str, row: KeptApart) -> str:
    return f"{kept} apart by {row.what}: {us(row.exposed_us)} exposed, {row.cause}, {_times(row.count)}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _missing(row: SeenFusion) -> str:
    if not row.missed:
        return ""
    named = [layer for layer in row.layers if layer]
    more = f" and {len(named) - MOST_LAYERS} more" if len(named) > MOST_LAYERS else ""
    layers = f", not in {', '.join(named[:MOST_LAYERS])}{more}" if named else ""
    return f"{layers}: {row.why}"


def _where(row: SeenExposed) -> str:
    parts = [f"of {row.group}" if row.group else "", row.phase, row.layer]
    told = ", ".join(part for part in parts if part)
    return f" {told}" if told else ""


def _remedy(row: SeenRemedy) -> str:
    """Return the rewrite, the system, the switch, the gain and the memory in one sentence."""
    gain = f"gain at most {us(row.gain_us[1])}" if row.gain_us else "gain not predicted"
    said = (row.rewrite, row.system, row.switch, gain, f"memory: {row.memory}")
    return "; ".join(part for part in said if part)


def tables(view: SeenSummary) -> list[PageTable]:
    """Return the page's tables: fusions, and exposed communication by group, operation, phase, layer and cause."""
    fusions = [
        [
            text(row.pattern),
            text(", ".join(row.groups) or row.group),
            count(row.expected),
            count(row.fired),
            text(_missing(row).lstrip(",: ") or "none"),
            text(_remedy(row) if row.missed else ""),
        ]
        for row in read_rows(SeenFusion, patterns(view.overlap.fusions))
    ]
    exposed = [
        [
            text(row.group),
            text(row.op),
            text(row.phase),
            text(row.layer),
            text(row.cause),
            number(row.exposed_us, us),
            count(row.count),
            number(row.gain_us[1] if row.gain_us else None, us),
            _remedy_cell(row),
        ]
        for row in view.overlap.exposed
    ]
    return [
        table(
            "fusions",
            "Fusions expected and fired",
            ["pattern", "group", "expected", "fired", "missing", "to have them"],
            fusions,
        ),
        table(
            "exposed",
            "Exposed communication by cause",
            ["group", "operation", "phase", "layer", "cause", "exposed", "count", "gain at most", "what would hide it"],
            exposed,
        ),
    ]


def _remedy_cell(row: SeenRemedy) -> Cell:
    """Return the system, or how to switch it on; the tooltip says all."""
    return replace(text(row.system or row.switch), hint=_remedy(row) if row.system or row.switch else "")


def notes(view: SeenSummary) -> list[str]:
    """Return what keeps communication apart, variables that were set, and what cannot be told, a sentence each."""
    hidden = view.overlap
    told = [f"{_kept_apart('Kept', row)}." for row in hidden.apart]
    told += [f"{row.name}={row.value}: {row.note}." for row in hidden.environment if row.note]
    return [*told, *(f"{one[0].upper()}{one[1:]}." for one in hidden.unknown)]
