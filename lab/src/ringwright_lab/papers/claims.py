"""Is the paper right? Run what a ``papers/rows/<slug>.toml`` describes and hold each answer against its tolerance."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from ringwright.executors.fan_out import Chosen, fan_out
from ringwright.ground import stepwise
from ringwright.ground.errors import InputError, UsageError
from ringwright_lab.papers.figures import rows
from ringwright_lab.papers.figures.kinds import sentence, tally

SCHEMA = "ringwright.reproduce/1"
FOLDER = Path(__file__).resolve().parent / "rows"  # one TOML file for each paper
RECORD = "reproduced.json"
STUDIES = ("poster",)  # experiments: they take long and run by themselves
FIGURES = "figures"  # rows, each measured by a function


def find(names: Iterable[str]) -> list[Path]:
    """Return the files named by slug or path; all papers' where none is named, but experiments, which take long.

    Raises UsageError for a slug or path that is none.
    """
    wanted = list(names)
    if not wanted:
        return [path for path in sorted(FOLDER.glob("*.toml")) if study_of(path) is None]
    paths = [Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml" for name in wanted]
    missing = [name for name, path in zip(wanted, paths, strict=True) if not path.is_file()]
    if missing:
        known = ", ".join(path.stem for path in sorted(FOLDER.glob("*.toml")))
        raise UsageError(f"nothing to reproduce for '{missing[0]}'", remedy=f"one of: {known}")
    return paths


def study_of(path: Path) -> str | None:
    """Return the name of the experiment that a file stands for, None for a paper of rows."""
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


def reproduce(
    paths: Iterable[Path], progress: stepwise.Advance | None = None, executor: Chosen = None
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.reproduce/1``: per paper the rows, and ``kinds``, how many of each kind pass.

    For a single paper also ``slug`` and ``rows``. ``progress`` is told of each paper; ``executor`` runs them. Raises InputError
    for a file that cannot be run, before any is.
    """
    described = [(read(path), path) for path in paths]
    with fan_out(executor) as fan:
        papers = fan.map(rows.paper, described, title=lambda _, path: path.stem, progress=progress)
    single = {"slug": papers[0]["slug"], "rows": papers[0]["rows"]} if len(papers) == 1 else {}
    kinds = tally(row for paper in papers for row in paper["rows"])
    return {"schema": SCHEMA, **single, "kinds": kinds, "papers": papers, "executor": fan.account.document()}


def papers_of(record: Path) -> list[dict[str, Any]]:
    """Return the papers that a record holds, none where there is no such file; InputError for a file that is no record."""
    if not record.is_file():
        return []
    try:
        document = json.loads(record.read_bytes())
        schema, papers = document["schema"], document["papers"]
        named = [paper["slug"] for paper in papers if paper["rows"] is not None]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "is no record of papers", where=str(record), remedy="name another file for --record"
        ) from error
    if schema != SCHEMA or len(named) < len(papers):
        raise InputError(
            f"is a record of {schema}, not {SCHEMA}", where=str(record), remedy="name another file for --record"
        )
    return list(papers)


def joined(result: dict[str, Any], before: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return an answer with the papers of an earlier record that were not asked now, all by slug."""
    by_slug = {paper["slug"]: paper for paper in (*before, *result["papers"])}
    papers = [by_slug[slug] for slug in sorted(by_slug)]
    return {"schema": SCHEMA, "kinds": tally(row for paper in papers for row in paper["rows"]), "papers": papers}


def read(path: Path) -> dict[str, Any]:
    """Return what a file describes: slug, figure, source and rows, perhaps a note; InputError where one is lacking."""
    try:
        described = tomllib.loads(path.read_text())
        lacking = {"slug", "figure", "source", "rows"} - set(described)
        if lacking:
            raise KeyError(min(lacking))
    except (OSError, tomllib.TOMLDecodeError, KeyError, UnicodeDecodeError) as error:
        remedy = f"compare it with {rows.EXAMPLE}"
        raise InputError(f"cannot be run: {error}", where=str(path), remedy=remedy) from error
    return described


def recorded() -> dict[str, str]:
    """Return per slug how many rows of each kind passed in the last recorded run; empty where none ships."""
    record = files("ringwright_lab") / "papers" / RECORD
    if not record.is_file():
        return {}
    return {paper["slug"]: sentence(paper["rows"]) for paper in json.loads(record.read_text())["papers"]}
