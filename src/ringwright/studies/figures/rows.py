"""Rows of ``reproduce/<slug>.toml``: call the function that each names, hold the number against the claim."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ringwright.errors import InputError

EXACT = 1e-9


def paper(described: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return slug, figure, source, note and rows: figure, claimed, got, tolerance, pass, source, note.

    A row of the file has ``figure``, ``measure`` (a function of ``studies/figures/<slug>.py`` and the arguments in
    ``with``), ``tolerance`` ("exact", a relative number, or [low, high] for what is got), ``claimed`` (may be a sentence where
    the tolerance is a band) and, where it differs from the paper's, ``source``. InputError for a row that cannot be run.
    """
    slug = described["slug"]
    module = import_module(f"ringwright.studies.figures.{slug.replace('-', '_')}")
    rows = [_row(row, module, described, path) for row in described["rows"]]
    return {
        "slug": slug, "figure": described["figure"], "source": described["source"], "note": described.get("note", ""),
        "rows": rows, "inside": all(row["pass"] for row in rows),
    }  # fmt: skip


def _row(row: dict[str, Any], module: Any, described: dict[str, Any], path: Path) -> dict[str, Any]:
    missing = {"figure", "measure", "claimed", "tolerance"} - set(row)
    measure = None if missing else getattr(module, row["measure"], None)
    if measure is None:
        what = f"no '{min(missing)}'" if missing else f"nothing measures '{row['measure']}'"
        raise InputError(
            f"cannot be run: {what} in row '{row.get('figure')}'", where=str(path), remedy="see docs/reproduce.md"
        )
    got = measure(**row.get("with", {}))
    return {
        "figure": row["figure"], "claimed": row["claimed"], "got": got, "tolerance": row["tolerance"],
        "pass": holds(got, row["claimed"], row["tolerance"]), "source": row.get("source", described["source"]),
        "note": row.get("note", ""),
    }  # fmt: skip


def holds(got: float, claimed: Any, tolerance: Any) -> bool:
    """Say whether a number is the claimed one, within a tolerance: "exact", a relative number, or a band."""
    if isinstance(tolerance, list):
        return bool(tolerance[0] <= got <= tolerance[1])
    allowed = EXACT if tolerance == "exact" else float(tolerance)
    return abs(got - float(claimed)) <= allowed * abs(float(claimed))
