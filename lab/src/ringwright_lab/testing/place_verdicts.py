"""Whether the summary of a planted job's recording is right, and the table of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ringwright.analysis.summary import summarise
from ringwright_lab.testing.identified import Identified, identified
from ringwright_lab.testing.planted_places import KINDS, PlantedJob, disguised, planted

# named: exactly what the columns identify. wide: that and more. narrow, wrong: less, or another place. silent: nobody, of what
# must be named. alarm: somebody in a healthy job. unproven: somebody where nothing is identified, though the place is among them.
OUTCOMES = ("named", "silent", "wide", "narrow", "wrong", "unproven", "alarm", "quiet")
WRONG = ("narrow", "wrong", "alarm", "wide", "unproven")


@dataclass(frozen=True)
class PlantedVerdict:
    """The outcome of one job; ``counts`` where it must be named; ``why`` nothing is identified."""

    seed: int
    kind: str
    outcome: str
    counts: bool
    why: str
    said: str


def judged(seed: int, kind: str = "", *, small: bool = False) -> PlantedVerdict | None:
    """Return the verdict on the job of a seed; None where the draw makes no job."""
    job = planted(seed, kind, small=small)
    return None if job is None else verdict(job)


def verdict(job: PlantedJob) -> PlantedVerdict:
    """Return whether the summary of the disguised recording names what is identified."""
    told = identified(job)
    hidden, now = disguised(job.trace, job.seed)
    answer = summarise(hidden)["answer"]
    was = {new: old for old, new in now.items()}
    named = (
        frozenset(was[rank] for rank in answer.get("ranks", [])) if answer and answer["kind"] == "slow" else frozenset()
    )
    outcome = _outcome(job, told, named)
    may = told.why or sorted(map(sorted, told.ranks))
    said = f"{job.kind}, step {job.times:.2f}x, {job.said}; may say {may}, says {sorted(named)}"
    sentence = answer["sentence"] if answer else ""
    return PlantedVerdict(job.seed, job.kind, outcome, told.must, told.why, f"{said}: {sentence}")


def _outcome(job: PlantedJob, told: Identified, named: frozenset[int]) -> str:
    if job.kind == "healthy":
        return "alarm" if named else "quiet"
    if not named:
        return "silent" if told.must else "quiet"
    if not told.ranks:
        return "unproven" if named & job.ranks else "wrong"
    if named in told.ranks:
        return "named"
    if all(named < ranks for ranks in told.ranks):
        return "narrow"
    return "wide" if any(named > ranks for ranks in told.ranks) else "wrong"


def table(gathered: Iterable[PlantedVerdict]) -> dict[str, Any]:
    """Return rows by kind of fault (drawn, must be named, and each outcome), precision, recall, and why others do not count."""
    gathered = list(gathered)
    rows: list[list[object]] = [["kind", "drawn", "counted", *OUTCOMES]]
    for kind in KINDS:
        mine = [each for each in gathered if each.kind == kind]
        of = Counter(each.outcome for each in mine)
        rows.append([kind, len(mine), sum(each.counts for each in mine), *(of[each] for each in OUTCOMES)])
    right = sum(each.outcome == "named" for each in gathered)
    wrong = sum(each.outcome in WRONG for each in gathered)
    must = [each for each in gathered if each.counts]
    return {
        "rows": rows,
        "precision": right / max(1, right + wrong),
        "recall": sum(each.outcome == "named" for each in must) / max(1, len(must)),
        "excluded": dict(Counter(each.why for each in gathered if each.why and each.kind != "healthy")),
    }
