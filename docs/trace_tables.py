"""Writes the reference of the Trace tables from ``ground.trace_tables``: columns and types from the data, notes from the
comments beside them, so that the page cannot fall behind the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from ringwright.ground import trace_tables

UNITS = {"bytes": "B", "s": "s"}
TYPES = {
    "str": "string",
    "i32": "32-bit integer",
    "i64": "64-bit integer",
    "f64": "64-bit float",
    "bool": "boolean",
    "list_i32": "list of 32-bit integers",
}
COLUMN = re.compile(r'"(\w+)": "\w+",(?:\s*#\s*(.*))?')
PURPOSE = {
    "events": "What happened, one row per event or per group of equal events. Weight every count by `multiplicity`.",
    "edges": "Which event had to wait for which: dependencies and flows.",
    "communicators": "Who talks to whom, with the role that was read or inferred.",
    "topology": "Devices, rings, trees, connections and NICs.",
    "links": "Bytes per link and time bin.",
    "claims": "Every value that was not simply read, with its source, its ground and how sure it is.",
    "ledger": "What became of each input line: understood, repaired, refused, or other text; and records that are missing.",
}


def notes() -> dict[str, dict[str, str]]:
    """Return ``table -> column -> comment`` from the source of the schema."""
    found: dict[str, dict[str, str]] = {}
    table = ""
    for line in inspect.getsource(trace_tables).splitlines():
        opened = re.match(r"([A-Z]+) = \{", line)
        table = opened[1].lower() if opened else table
        column = COLUMN.match(line.strip())
        if column and table in trace_tables.TABLES:
            found.setdefault(table, {})[column[1]] = column[2] or ""
    return found


def unit(column: str) -> str:
    return UNITS.get(column.rsplit("_", 1)[-1], "")


def page() -> str:
    """Return the reference as Markdown."""
    comments = notes()
    parts = []
    for table, columns in trace_tables.TABLES.items():
        rows = [
            f"| `{name}` | {TYPES[kind]} | {unit(name)} | {comments.get(table, {}).get(name, '')} |"
            for name, kind in columns.items()
        ]
        head = ["| column | type | unit | note |", "|---|---|---|---|"]
        parts.append("\n".join([f"## {table}", "", PURPOSE.get(table, ""), "", *head, *rows]))
    return "\n\n".join(parts) + "\n"


def write(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(page())
