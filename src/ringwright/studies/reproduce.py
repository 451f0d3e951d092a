"""Is the paper right? Run what a ``reproduce/<slug>.toml`` describes and hold the answer against its band."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from ringwright.errors import InputError, UsageError
from ringwright.studies.figures import rows
from ringwright.studies.simulate import Floors, Question, measure
from ringwright.units import parse_size

SCHEMA = "ringwright.reproduce/1"
FOLDER = Path(__file__).resolve().parents[3] / "reproduce"  # of a checkout
RECORD = "reproduced.json"
STUDIES = ("poster",)  # experiments: they take long and run by themselves
FIGURES = "figures"  # rows, each measured by a function
QUANTITIES = ("time_ratio", "time_us")


def find(names: Iterable[str]) -> list[Path]:
    """Return the files named by slug or path; all of the checkout's where none is named, but experiments, which take long."""
    wanted = list(names)
    if not wanted:
        found = [path for path in sorted(FOLDER.glob("*.toml")) if study_of(path) is None]
        if not found:
            raise UsageError("no reproduce folder here", remedy="name a file, or run from a checkout")
        return found
    paths = [Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml" for name in wanted]
    missing = [name for name, path in zip(wanted, paths, strict=True) if not path.is_file()]
    if missing:
        known = ", ".join(path.stem for path in sorted(FOLDER.glob("*.toml")))
        raise UsageError(f"nothing to reproduce for '{missing[0]}'", remedy=f"one of: {known}")
    return paths


def study_of(path: Path) -> str | None:
    """Return the name of the experiment that a file stands for, None for a paper of points and a band."""
    try:
        setup = tomllib.loads(path.read_text()).get("setup", {})
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return None
    study = setup.get("study") if isinstance(setup, dict) else None
    if study == FIGURES:
        return None
    if study is not None and study not in STUDIES:
        raise InputError(f"no experiment '{study}'", where=str(path), remedy=f"one of: {', '.join(STUDIES)}")
    return study


def reproduce(paths: Iterable[Path]) -> dict[str, Any]:
    """Return the object of schema ``ringwright.reproduce/1``: claim, band, what was measured, and whether it lies inside.

    For a single paper also ``slug`` and ``rows``, one per point.
    """
    papers = [_one(path) for path in paths]
    single = {"slug": papers[0]["slug"], "rows": _rows(papers[0])} if len(papers) == 1 else {}
    return {"schema": SCHEMA, **single, "papers": papers}


def _rows(paper: dict[str, Any]) -> list[dict[str, Any]]:
    """Return figure, claimed, got, tolerance, pass and source of each point of a paper."""
    if "rows" in paper:
        found: list[dict[str, Any]] = paper["rows"]
        return found
    band = [paper["low"], paper["high"]]
    return [
        {
            "figure": f"{paper['figure']} ({paper['quantity']} at {point['size_bytes']} B)", "claimed": band,
            "got": point["value"], "tolerance": "inside the band", "pass": band[0] <= point["value"] <= band[1],
            "source": paper["source"], "note": paper["note"],
        }
        for point in paper["points"]
    ]  # fmt: skip


def _one(path: Path) -> dict[str, Any]:
    described = _read(path)
    if described["setup"].get("study") == FIGURES:
        return rows.paper(described, path)
    setup, expected = described["setup"], described["expected"]
    got = [_point(setup, expected["quantity"], parse_size(str(size)), path) for size in setup["sizes"]]
    inside = all(expected["low"] <= point["value"] <= expected["high"] for point in got)
    return {
        "slug": described["slug"],
        "figure": described["figure"],
        "source": described["source"],
        "note": described.get("note", ""),
        "quantity": expected["quantity"],
        "low": expected["low"],
        "high": expected["high"],
        "points": got,
        "inside": inside,
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        described = tomllib.loads(path.read_text())
        if described["setup"].get("study") == FIGURES:
            lacking = {"slug", "figure", "source", "rows"} - set(described)
            if lacking:
                raise KeyError(min(lacking))
            return described
        for part, keys in (
            ("setup", ("collective", "fabric", "sizes", "algorithm")),
            ("expected", ("quantity", "low", "high")),
        ):
            missing = [key for key in keys if key not in described[part]]
            if missing:
                raise KeyError(f"{part}.{missing[0]}")
        if described["expected"]["quantity"] not in QUANTITIES:
            raise KeyError(f"expected.quantity, one of {', '.join(QUANTITIES)}")
    except (OSError, tomllib.TOMLDecodeError, KeyError, UnicodeDecodeError) as error:
        remedy = "compare it with reproduce/blueconnect.toml"
        raise InputError(f"cannot be run: {error}", where=str(path), remedy=remedy) from error
    return described


def _point(setup: dict[str, Any], quantity: str, size_bytes: int, path: Path) -> dict[str, Any]:
    from ringwright.fabrics import fabric

    question = Question(setup["collective"], fabric(setup["fabric"]))
    time_us = _time_us(question, setup["algorithm"], size_bytes)
    point = {"size_bytes": size_bytes, "time_us": time_us, "value": time_us}
    if quantity == "time_ratio":
        if "baseline" not in setup:
            raise InputError("a ratio needs a baseline", where=str(path))
        baseline_us = _time_us(question, setup["baseline"], size_bytes)
        point |= {"baseline_us": baseline_us, "value": baseline_us / time_us}
    return point


def _time_us(question: Question, spelling: str, size_bytes: int) -> float:
    from ringwright.studies.registry import algorithm

    _, make, knobs = algorithm(spelling)
    program = make(question.collective(size_bytes), question.topology, **knobs)
    return measure(question, program, spelling, Floors(question))[0].time_us


def recorded() -> dict[str, str]:
    """Return per slug what the last recorded run got against its band; empty where none ships."""
    record = files("ringwright") / "studies" / RECORD
    if not record.is_file():
        return {}
    return {paper["slug"]: sentence(paper) for paper in json.loads(record.read_text())["papers"]}


def sentence(paper: dict[str, Any]) -> str:
    """Return what was measured, in words: ``time_ratio 4.7 in 4 to 8``, or how many rows pass."""
    if "rows" in paper:
        return f"{sum(row['pass'] for row in paper['rows'])} of {len(paper['rows'])} rows"
    values = sorted({f"{point['value']:.3g}" for point in paper["points"]}, key=float)
    where = "in" if paper["inside"] else "NOT in"
    got = " to ".join(dict.fromkeys((values[0], values[-1])))
    return f"{paper['quantity']} {got} {where} {paper['low']:g} to {paper['high']:g}"
