"""The experiment: recorded runs of real models in every parallel form, at full size, and on a disturbed network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypedDict

from ringwright.ground import drafts
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.ground.stepwise import Advance
from ringwright_lab.papers.figures.kinds import tally
from ringwright_lab.papers.poster import SLUG, conclusion_rows, conclusions, figures, plan, published_cases
from ringwright_lab.papers.poster.effects import effects
from ringwright_lab.sweep import resumed
from ringwright_lab.sweep.grid import Grid, legal
from ringwright_lab.sweep.patterns import provisions
from ringwright_lab.sweep.run import sweep, versions
from ringwright_lab.sweep.table import finished, gather

SCHEMA = "ringwright.reproduce/1"
RECORDED = ("agreement", "served", "shapes", "scale", "disturbed")
CONCLUSIONS = "conclusions"
PARTS = (*RECORDED, CONCLUSIONS)
RESULT = "experiment.json"


def grid(part: str, *, short: bool) -> Grid:
    """Return the grid points of one part of the experiment."""
    if part == "served":
        return legal(plan.served())
    made: Grid = getattr(plan, part)(short=short)
    return made


def experiment(
    out: Path, *, short: bool, fresh: bool = False, parts: tuple[str, ...] = PARTS, progress: Advance | None = None
) -> dict[str, Any]:
    """Run what is not there yet and return the object of schema ``ringwright.reproduce/1`` with all that the report shows.

    Goes on where it was cut short, and says in ``resumed`` what it took over from when (None: nothing); ``fresh`` runs all
    again. A part that this machine does not allow (namespaces) is named in ``not_run``, and
    its rows fail.
    """
    not_run: dict[str, str] = {}
    by_part: dict[str, Any] = {}
    kept, points = [], 0
    for part in parts:
        if part == CONCLUSIONS:
            continue
        wanted = grid(part, short=short).points
        points += len(wanted)
        kept += [] if fresh else resumed.resumed(out / part, wanted)
        try:
            by_part[part] = _part(out / part, part, short=short, fresh=fresh, progress=progress)
        except InfeasibleError as error:
            not_run[part] = error.what
    rows = _rows(by_part)
    simulated = _concluded(out / CONCLUSIONS, short=short, fresh=fresh, progress=progress, wanted=CONCLUSIONS in parts)
    rows += simulated["rows"]
    rows += [
        figures.row(f"{part}: not run", "run", why, "", "this machine", good=False) for part, why in not_run.items()
    ]
    seen = [row for each in by_part.values() for row in each["patterns"]]
    document = {
        "schema": SCHEMA,
        "slug": SLUG,
        "form": "short" if short else "full",
        "kinds": tally(rows),
        "rows": rows,
        "out": str(out),
        "versions": versions(),
        "not_run": not_run,
        "conclusions": simulated,
        "resumed": resumed.told(kept, points),
        "patterns": seen,
        "provisions": provisions(seen),
        "effects": by_part.get("disturbed", {}).get("effects", []),
        "agreement": [check for each in by_part.values() for check in each["checks"]],
        "cells": [point for each in by_part.values() for point in each["cells"]],
    }
    drafts.write(out / RESULT, json.dumps(document, indent=1, default=str) + "\n")
    return document


def parts_of(text: str | None) -> tuple[str, ...]:
    """Return the parts that are named, comma separated, all without a name; UsageError for one that is none."""
    if text is None:
        return PARTS
    named = tuple(dict.fromkeys(text.split(",")))
    for each in named:
        if each not in PARTS:
            raise UsageError(f"'{each}' is no part of the experiment", remedy=f"--part {','.join(PARTS)}")
    return named


class Concluded(TypedDict):
    """What was simulated for the paper's conclusions: rows, steps, those run again as packets, and what no engine plays."""

    rows: list[figures.ExperimentRow]
    answers: list[conclusions.ConclusionAnswer]
    packets: list[conclusions.PacketCheck]
    unanswered: dict[str, str]


def _concluded(out: Path, *, short: bool, fresh: bool, progress: Advance | None, wanted: bool) -> Concluded:
    if not wanted:
        return {"rows": [], "answers": [], "packets": [], "unanswered": {}}

    def told(done: int, of: int, name: str) -> None:
        if progress is not None:
            progress(done, of, f"{CONCLUSIONS} {name}")

    answers, checks = conclusions.conclusions(out, short=short, fresh=fresh, progress=told)
    rows = conclusion_rows.rows(answers, checks, published_cases.link_down(), published_cases.lossy_throughput())
    return {"rows": rows, "answers": answers, "packets": checks, "unanswered": conclusions.UNANSWERED}


def _part(out: Path, part: str, *, short: bool, fresh: bool, progress: Advance | None) -> dict[str, Any]:
    """Run one part and gather what it gave."""

    def told(done: int, of: int, key: str) -> None:
        if progress is not None:
            progress(done, of, f"{part} {key}")

    wanted = grid(part, short=short)
    timeout_s = 1200.0 if part in ("scale", "served", "shapes") else 240.0
    sweep(wanted, out, timeout_s=timeout_s, fresh=fresh, progress=told)
    keys = {point.key for point in wanted.points}
    whole = gather(out)
    mine = [each for each in finished(out) if each[0].key in keys]
    done = [each for each in mine if each[2]["outcome"] == "done"]
    return {
        "checks": [check for check in whole["agreement"] if check["cell"] in keys],
        "cells": [point for point in whole["cells"] if point["cell"] in keys],
        "failed": len(mine) - len(done),
        "patterns": [row for row in whole["patterns"] if row["cell"] in keys],
        "effects": effects(done) if part == "disturbed" else [],
    }


def _rows(by_part: dict[str, Any]) -> list[figures.ExperimentRow]:
    rows: list[figures.ExperimentRow] = []
    if "served" in by_part:
        by_turn = {row["turn"]: row for row in by_part["served"]["patterns"]}
        rows += figures.served(by_turn.get("prompt"), by_turn.get("token"))
    if "agreement" in by_part:
        checks = [check for each in by_part.values() for check in each["checks"]]
        rows += figures.agreed(checks, sum(each["failed"] for each in by_part.values()))
    if "shapes" in by_part:
        rows += figures.separated(by_part["shapes"]["patterns"])
    return [*rows, *figures.disturbed(by_part.get("disturbed", {}).get("effects", []))]
