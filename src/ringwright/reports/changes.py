"""What changed between two runs, most changed bytes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from ringwright.reports import layout
from ringwright.reports.layout import percent
from ringwright.units import format_count, format_size

if TYPE_CHECKING:
    from rich.console import Console

TOP_CHANGES = 20


def write(difference: dict[str, Any], file: TextIO, *, width: int | None = None) -> None:
    """Write the report of a ``ringwright.diff/1`` object to ``file``."""
    out = layout.console(file, width=width)
    for side in ("before", "after"):
        layout.line(out, f"{side}: {_side(difference[side])}", indent=0)
    for note in difference["notes"]:
        layout.line(out, f"- {note}", style="yellow")
    if difference.get("disturbance"):
        _disturbance(out, difference["disturbance"])
    changes = difference["changes"]
    layout.heading(out, "changes", f"{percent(difference['changed_share'])} of calls or bytes over (op, size)")
    if not changes:
        layout.line(out, "none: operations, sizes, communicators, algorithms and host pairs are equal")
        return
    _table(out, changes[:TOP_CHANGES])
    layout.cut(out, TOP_CHANGES, len(changes), "changes")


def _disturbance(out: Console, found: dict[str, Any]) -> None:
    where = [f"rank {rank}" for rank in found["ranks"]] + [str(host) for host in found["hosts"]]
    layout.heading(out, "what disturbed the later run", " · ".join([found["kind"], *where]))
    for evidence in found["evidence"]:
        layout.line(out, evidence)


def _side(side: dict[str, Any]) -> str:
    name = ", ".join(str(name) for name in side["inputs"][:3]) or "unnamed input"
    return f"{name}: {format_count(side['count'])} calls, {format_size(side['bytes'])}; {side['coverage']}".rstrip("; ")


def _table(out: Console, changes: list[dict[str, Any]]) -> None:
    layout.table(
        out,
        ("kind", "what", "count before", "after", "bytes changed"),
        [
            (
                change["kind"],
                _what(change),
                format_count(change["before_count"]),
                format_count(change["after_count"]),
                f"{'+' if change['delta_bytes'] >= 0 else '-'}{format_size(abs(change['delta_bytes']))}",
            )
            for change in changes
        ],
        left=("kind", "what"),
    )


def _what(change: dict[str, Any]) -> str:
    sign = {"added": "new: ", "removed": "gone: "}.get(change["change"], "")
    if change["kind"] in ("size", "algorithm") and change["size_bytes"] is not None:
        rest = change["key"].split(" ")[2:]
        return sign + " ".join([str(change["op"]), format_size(change["size_bytes"]), *rest])
    return sign + str(change["key"])
