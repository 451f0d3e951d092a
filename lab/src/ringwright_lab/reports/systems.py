"""The list of systems."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TextIO

from ringwright.ground.documents import read_json
from ringwright.ground.units import format_count
from ringwright.reports import layout
from ringwright_lab.survey.systems_view import ListedSystem, ListedSystems

if TYPE_CHECKING:
    from rich.console import Console


def write(listed: Mapping[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.systems/1`` for a terminal."""
    result = read_json(ListedSystems, listed)
    out = layout.console(file, width=width)
    systems = result.systems
    layout.line(out, f"{len(systems)} systems; checks: {result.ground}", style="bold", indent=0)
    kinds = dict.fromkeys((system.of_class == system.family, system.of_class) for system in systems)
    for _, kind in sorted(kinds, key=lambda each: each[0]):  # what is of a class of its own comes first
        mine = [system for system in systems if system.of_class == kind]
        has_papers = any(system.reproduced or system.figure for system in mine)
        layout.heading(out, kind, mine[0].family if mine[0].family != kind else "")
        rows = [
            [
                system.slug + ("" if system.origin == "house" else f" ({system.origin})"),
                system.lines,
                _checks(system.conformance, "passed"),
                _checks(system.conformance, "declined"),
                system.conformance.get("failed", 0) or "",
                *([system.reproduced or _claimed(system.figure)] if has_papers else []),
            ]
            for system in mine
        ]
        columns = ["slug", "lines", "passed", "declined", "failed", *(["figure"] if has_papers else [])]
        layout.table(out, columns, rows, left=("slug", "figure"))
    if result.in_network:
        layout.heading(out, "How they add", "each on a small fabric of its own, 1 MiB")
        _adding(out, result.in_network)
    if result.refused:
        layout.heading(out, "Plug-ins that cannot be used", f"{len(result.refused)}")
    for error in result.refused:
        layout.line(out, error.what)
        layout.line(out, f"at:  {error.where}", indent=4)
        layout.line(out, f"try: {error.attempt}", indent=4)


def _adding(out: Console, rows: list[dict[str, Any]]) -> None:
    """Write what systems that add in the network declare, one a row; ``-`` where ranks add and nothing is leased."""
    columns = list(rows[0])
    shown = [[_told(row[column]) for column in columns] for row in rows]
    text = [column for column in columns if not any(isinstance(row[column], int) for row in rows)]
    layout.table(
        out, [column.replace("_", " ") for column in columns], shown, left=[each.replace("_", " ") for each in text]
    )


def _told(value: Any) -> Any:
    """Return a value of the table as it is shown."""
    if isinstance(value, list):
        return ", ".join(value)
    return format_count(value) if isinstance(value, int) else value


def write_one(listed: Mapping[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the object of schema ``ringwright.system/1`` for a terminal: each knob, what may be typed, what it means."""
    system = read_json(ListedSystem, listed)
    out = layout.console(file, width=width)
    layout.line(out, f"{system.slug} ({_home(system)})", style="bold", indent=0)
    if system.collectives:
        layout.line(out, f"Collectives: {', '.join(system.collectives)}")
    for name, text in system.headings.items():
        if name != "Knobs":
            layout.line(out, f"{name}: {text}".replace("``", ""))
    knobs = system.knobs
    layout.heading(out, "Knobs", f"typed {system.spelled}" if knobs else "none")
    for knob in knobs:
        layout.line(out, f"{knob.name}={knob.default}", style="bold")
        meaning = f"; {knob.meaning}" if knob.meaning else ""
        layout.line(out, f"{knob.expects}{meaning}", indent=4)


def _home(system: ListedSystem) -> str:
    """Return the class of a system, and whose it is where it is not ours."""
    added = "" if system.origin == "house" else f", added by {system.origin}"
    return f"{system.of_class}{added}"


def _claimed(figure: str) -> str:
    """Return the paper's figure, short; nothing where it claims none."""
    return (
        "" if figure.lower().startswith("none") else "claimed: " + shorten(figure.rstrip("."), 60, placeholder=" ...")
    )


def _checks(conformance: dict[str, Any], name: str) -> str:
    """Return a count of checks; what no campaign has run on is no zero."""
    return format_count(conformance[name]) if conformance.get("recorded", True) else "not run"
