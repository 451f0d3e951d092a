"""What was recorded of each system: its runs on real ranks, and its paper's figure beside ours."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from ringwright_lab.papers.figures.kinds import sentence

ALGORITHMS, SCHEDULERS = "systems", "schedulers"  # sections of the record of real ranks


def claim(slug: str) -> dict[str, Any]:
    """Return ``claim``, ``got``, ``kind``, ``claim_of``, ``inside``, ``reproduced`` of a system's paper, None without a record.

    Of its rows in ``papers/reproduced.json`` the headline: what the paper's abstract claims.
    """
    paper = _papers().get(slug)
    if paper is None or not paper["rows"]:
        return dict.fromkeys(("claim", "got", "kind", "claim_of", "inside", "reproduced"))
    row = next(each for each in paper["rows"] if each["headline"])
    return {
        "claim": row["claimed"],
        "got": row["got"],
        "kind": row["kind"],
        "claim_of": row["figure"],
        "inside": row["pass"],
        "reproduced": sentence(paper["rows"]),
    }


def real_runs(slug: str) -> list[dict[str, Any]]:
    """Return a system's recorded runs on real ranks: executor, date, exact, wrong, declined, of a scheduler also rounded.

    Only those whose results were right or, by a policy that changes what travels, rounded as it says.
    """
    record = _real()
    rows = [
        (name, run) for part in (ALGORITHMS, SCHEDULERS) for name, run in record.get(part, {}).get(slug, {}).items()
    ]
    return [{"executor": name, **run} for name, run in rows if run["exact"] + run.get("rounded", 0) > 0 == run["wrong"]]


@cache
def _papers() -> dict[str, dict[str, Any]]:
    record = files("ringwright_lab") / "papers" / "reproduced.json"
    return {paper["slug"]: paper for paper in json.loads(record.read_text())["papers"]} if record.is_file() else {}


@cache
def _real() -> dict[str, Any]:
    record = files("ringwright_lab") / "contracts" / "real_ranks.json"
    return json.loads(record.read_text()) if record.is_file() else {}
