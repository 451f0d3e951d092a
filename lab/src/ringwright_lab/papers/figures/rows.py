"""Rows of ``papers/rows/<slug>.toml``: call the function that each names, hold the number against the claim."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from ringwright.ground.errors import InputError
from ringwright_lab.papers.figures import collectives
from ringwright_lab.papers.figures.kinds import KINDS, NOT_PREDICTABLE, tally

EXACT = 1e-9
EXAMPLE = Path(__file__).resolve().parents[1] / "rows" / "blueconnect.toml"  # to compare a file with


def paper(described: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return slug, figure, source, note, kinds and rows: figure, kind, claimed, got, tolerance, pass, source, note, headline.

    A row of the file has ``figure``, ``kind`` (one of :data:`KINDS`), ``measure`` (a function of
    ``papers/figures/<slug>.py`` or of ``collectives.py`` there, and the arguments in ``with``), ``tolerance`` ("exact", a
    relative number, or [low, high] for what is got), ``claimed`` (may be a sentence where the tolerance is a band) and, where it
    differs from the paper's, ``source``. A row of kind ``not predictable`` has ``because`` in place of a measure
    and a tolerance: what it would take. One of several rows has ``headline = true``: what the paper's abstract claims.
    InputError for a row that cannot be run; none is run before all are read.
    """
    headline = _headline(described["rows"], path)
    measures = [_measure(row, path, described["slug"]) for row in described["rows"]]
    rows = [
        (_unforeseen(row, described) if measure is None else _row(row, measure, described))
        | {"headline": row is headline}
        for row, measure in zip(described["rows"], measures, strict=True)
    ]
    return {
        "slug": described["slug"],
        "figure": described["figure"],
        "source": described["source"],
        "note": described.get("note", ""),
        "kinds": tally(rows),
        "rows": rows,
        "inside": all(row["pass"] is not False for row in rows),
    }


def _headline(written: list[dict[str, Any]], path: Path) -> dict[str, Any] | None:
    """Return the row that states the paper's own claim: the one that says so, or the only one."""
    marked = [row for row in written if row.get("headline", False) is not False]
    if len(written) > 1 and (len(marked) != 1 or marked[0]["headline"] is not True):
        raise InputError(
            f"cannot be run: {len(marked)} of {len(written)} rows say that they are the paper's own claim, not one",
            where=str(path),
            remedy="write headline = true in the row that the abstract states, and in no other",
        )
    return next(iter(marked or written), None)


def _measure(row: dict[str, Any], path: Path, slug: str) -> Any:
    """Return the function that a row names, once the row has all it needs; None for what is not predictable."""
    if row.get("kind") == NOT_PREDICTABLE:
        return _require_reason(row, path)
    missing = {"figure", "kind", "measure", "claimed", "tolerance"} - set(row)
    measure = None if missing else _named(row["measure"], slug)
    what = ""
    if missing:
        what = f"no '{min(missing)}'"
    elif row["kind"] not in KINDS:
        what = f"kind '{row['kind']}' is none of {', '.join(KINDS)}"
    elif measure is None:
        what = f"nothing measures '{row['measure']}'"
    elif not _is_claim(row["claimed"], row["tolerance"]):
        what = f"the tolerance {row['tolerance']!r} needs a claimed number or a band [low, high]"
    else:
        what = _misses(measure, row.get("with", {}))
    if what:
        raise InputError(
            f"cannot be run: {what} in row '{row.get('figure')}'", where=str(path), remedy=f"compare it with {EXAMPLE}"
        )
    return measure


def _require_reason(row: Mapping[str, Any], path: Path) -> None:
    """Raise InputError where a row that is not predictable does not say what is claimed and why, or names a measure as well."""
    lacking = {"figure", "claimed", "because"} - {name for name in row if row[name]}
    beside = {"measure", "tolerance"} & set(row)
    if lacking or beside:
        what = f"no '{min(lacking)}'" if lacking else f"'{min(beside)}'"
        raise InputError(
            f"cannot be run: {what} in row '{row.get('figure')}', which is not predictable",
            where=str(path),
            remedy='because = "it needs ...", and neither measure nor tolerance',
        )


def _unforeseen(row: Mapping[str, Any], described: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row that has a reason where others have an answer."""
    said = {"figure": row["figure"], "kind": row["kind"], "claimed": row["claimed"], "because": row["because"]}
    nothing = dict.fromkeys(("got", "tolerance", "pass"))
    return said | nothing | {"source": row.get("source", described["source"]), "note": row.get("note", "")}


def _misses(measure: Any, arguments: object) -> str:
    """Say why a function cannot be called with what stands in ``with``; the empty string where it can."""
    if not isinstance(arguments, dict):
        return "'with' is no table"
    try:
        signature(measure).bind(**arguments)
    except TypeError as error:
        return f"'{measure.__name__}': {error}"
    return ""


def _named(measure: str, slug: str) -> Any:
    own = f"ringwright_lab.papers.figures.{slug.replace('-', '_')}"
    modules: list[ModuleType] = [import_module(own)] if find_spec(own) else []
    return next((getattr(each, measure) for each in (*modules, collectives) if hasattr(each, measure)), None)


def _is_claim(claimed: Any, tolerance: Any) -> bool:
    if isinstance(tolerance, list):
        return len(tolerance) == 2 and all(isinstance(end, int | float) for end in tolerance)
    return isinstance(claimed, int | float) and (tolerance == "exact" or isinstance(tolerance, int | float))


def _row(row: dict[str, Any], measure: Any, described: dict[str, Any]) -> dict[str, Any]:
    got = measure(**row.get("with", {}))
    return {
        "figure": row["figure"],
        "kind": row["kind"],
        "claimed": row["claimed"],
        "got": got if math.isfinite(got) else None,
        "tolerance": row["tolerance"],
        "pass": holds(got, row["claimed"], row["tolerance"]),
        "source": row.get("source", described["source"]),
        "note": row.get("note", ""),
    }


def holds(got: float, claimed: Any, tolerance: Any) -> bool:
    """Say whether a number is the claimed one, within a tolerance: "exact", a relative number, or a band."""
    if isinstance(tolerance, list):
        return bool(tolerance[0] <= got <= tolerance[1])
    allowed = EXACT if tolerance == "exact" else float(tolerance)
    return abs(got - float(claimed)) <= allowed * abs(float(claimed))
