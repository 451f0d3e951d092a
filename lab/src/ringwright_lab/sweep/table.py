"""The whole sweep as one Parquet table, and what agrees with the closed formulas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources import read
from ringwright.ground.drafts import draft
from ringwright.ground.errors import InputError, RingwrightError
from ringwright_lab.sweep.measure import agreement, calls, results
from ringwright_lab.sweep.patterns import patterns, provisions
from ringwright_lab.sweep.point import GridPoint
from ringwright_lab.sweep.run import CELLS, SIMULATED, facts_of

if TYPE_CHECKING:
    import polars as pl

Rows = list[dict[str, Any]]
RESULTS = "results.parquet"
SCHEMA = "ringwright.sweep/1"


def finished(out: Path) -> list[tuple[GridPoint, Path, dict[str, Any]]]:
    """Return every grid point that was run, done or failed, with its folder and facts; sorted by key."""
    points = []
    for folder in sorted((out / CELLS).glob("*")) if (out / CELLS).is_dir() else []:
        facts = facts_of(folder)
        if facts is not None:
            points.append((GridPoint(**facts["cell"]), folder, facts))
    if not points:
        raise InputError("no cell of a sweep", where=str(out), remedy="ringwright sweep GRID.toml -o DIR")
    return points


def gather(out: Path) -> dict[str, Any]:
    """Read every grid point's recording, write the table, and return the object of schema ``ringwright.sweep/1``."""
    rows: Rows = []
    checks: Rows = []
    seen: Rows = []
    points = []
    for point, folder, facts in finished(out):
        told = _told(point, facts)
        points.append(told)
        if facts["outcome"] != "done":
            continue
        if point.ground == "simulated":
            timed = _simulated(folder / SIMULATED)
            told |= {} if timed else {"outcome": "unreadable", "why": f"no times in {SIMULATED}"}
            rows += timed
            continue
        try:
            trace = read([str(path) for path in recordings(folder)])
        except RingwrightError as error:
            told |= {"outcome": "unreadable", "why": error.what}
            continue
        frame = calls(trace) if point.ranks > 1 else None
        if frame is not None:
            rows += results(point, trace, frame)
            checks += agreement(point, frame)
            seen += patterns(point, frame)
    table = _table(rows)
    with draft(out / RESULTS) as path:
        table.write_parquet(path)
    agree = sum(check["agrees"] for check in checks)
    return {
        "schema": SCHEMA,
        "out": str(out),
        "table": str(out / RESULTS),
        "rows": table.height,
        "cells": points,
        "simulated": [row for row in rows if row["what"] == "communication"],
        "patterns": seen,
        "provisions": provisions(seen),
        "agreement": checks,
        "agreeing": agree,
        "checked": len(checks),
    }


def _told(point: GridPoint, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a grid point's configuration with what came of it."""
    told = {"outcome": facts["outcome"], "why": facts.get("why", ""), "took_s": facts["took_s"]}
    return {**point.row(), **told, "lab_verdict": facts.get("lab_verdict", "")}


def _simulated(path: Path) -> Rows:
    """Return the rows of a cell that a library's model has timed; none where the file is not what was written."""
    with suppress(OSError, ValueError):
        kept = json.loads(path.read_text())
        if isinstance(kept, list) and all(isinstance(row, dict) and row.get("ground") == "simulated" for row in kept):
            return kept
    return []


def recordings(folder: Path) -> list[Path]:
    """Return the files of a grid point's recording."""
    return sorted(folder.glob("calls.*.jsonl"))


def _table(rows: Rows) -> pl.DataFrame:
    import polars as pl

    names = list(dict.fromkeys(name for row in rows for name in row))
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in names}, strict=False)
