"""Blind accuracy of the diagnosis: faults put in on purpose, verdicts counted, the designed mechanisms apart from the held-out.

A verdict is right when it names exactly the ranks concerned; one that names nobody cannot tell. Precision is the right share
of verdicts that name ranks, recall the right share of faults on which the diagnosis did not say that it cannot tell.
``DESIGNED`` mechanisms were in view when the rules were made, ``HELD_OUT`` ones were not.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringwright.analysis.summary import summarise
from ringwright.sources import read
from ringwright.trace import Trace

SCHEMA = "ringwright.blind/1"
DESIGNED = ("killed", "stopped", "wrong-size", "skipped", "sleep", "slow-card", "flapping-card", "late")
HELD_OUT = (
    "exit", "error", "lock", "gil", "wrong-order", "wrong-dtype", "wrong-op", "hog", "slow-out", "slow-in", "lossy-card",
    "delayed-card", "late-every-third-step", "later-and-later", "late-at-times", "late-in-one-group", "pauses",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One job: the ``mechanism`` (none: healthy), whether it really ran, and its seed."""

    mechanism: str
    real: bool
    seed: int


@dataclass(frozen=True)
class Answer:
    """What was said of a case: ``outcome`` right, wrong, silent (cannot tell, or no verdict) or false-alarm."""

    case: Case
    truth: tuple[int, ...]
    said: tuple[int, ...]
    kind: str
    outcome: str


def plan(faults: int, healthy: int, real: int, real_healthy: int) -> list[Case]:
    """Return as many cases, mechanisms in turn; ``real`` of the faults and ``real_healthy`` of the healthy ones really run."""
    from ringwright.testing.faulty_fabric import LINK_FAULTS, RANK_FAULTS
    from ringwright.testing.gloo_job import HANGING, SLOW

    simulated, run = (*LINK_FAULTS, *RANK_FAULTS), (*HANGING, *SLOW)
    cases = [Case(run[number % len(run)], True, number) for number in range(real)]
    cases += [Case(simulated[number % len(simulated)], False, number) for number in range(faults - real)]
    cases += [Case("none", number < real_healthy, number) for number in range(healthy)]
    return cases


def judge(cases: Iterable[Case], done: Callable[[Answer], None] | None = None) -> list[Answer]:
    """Run and diagnose every case; real ones need PyTorch (MissingExtraError)."""
    found = []
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="ringwright-") as scratch:
            trace, truth = _real(case, Path(scratch) / "job") if case.real else _simulated(case)
            said = summarise(trace)["verdict"]
        answer = _answer(case, truth, said)
        found.append(answer)
        if done is not None:
            done(answer)
    return found


def _simulated(case: Case) -> tuple[Trace, tuple[int, ...]]:
    from ringwright.testing.faulty_fabric import job

    trace, truth = job(case.mechanism, case.seed)
    return trace, truth.ranks


def _real(case: Case, folder: Path) -> tuple[Trace, tuple[int, ...]]:
    import random

    from ringwright.testing.gloo_job import HANGING, Fault, run

    draw = random.Random(f"{case.mechanism} {case.seed}")  # noqa: S311 - a lottery, not a secret
    rank, step = draw.randrange(4), draw.randrange(3, 9)
    hangs = case.mechanism in HANGING
    fault = Fault(case.mechanism, rank, step, draw.uniform(0.03, 0.08))
    run(folder, 4, fault, steps=14 if hangs else 30, seed=case.seed, profile=not hangs)
    return read(str(folder)), () if case.mechanism == "none" else (rank,)


def _answer(case: Case, truth: tuple[int, ...], verdict: dict[str, Any] | None) -> Answer:
    said = tuple(sorted(verdict["ranks"])) if verdict else ()
    if not truth:
        outcome = "false-alarm" if said else "right"
    else:
        outcome = "right" if said == tuple(sorted(truth)) else "wrong" if said else "silent"
    return Answer(case, truth, said, verdict["kind"] if verdict else "", outcome)


def document(answers: list[Answer]) -> dict[str, Any]:
    """Return the object of schema ``ringwright.blind/1``: precision and recall of both halves, and the confusion table."""
    sick = [answer for answer in answers if answer.truth]
    parts = {
        "designed": [answer for answer in sick if answer.case.mechanism in DESIGNED],
        "held_out": [answer for answer in sick if answer.case.mechanism in HELD_OUT],
        "real": [answer for answer in sick if answer.case.real],
        "all": sick,
    }
    well = [answer for answer in answers if not answer.truth]
    return {
        "schema": SCHEMA,
        "scores": {name: _score(part) for name, part in parts.items()},
        "healthy": {"cases": len(well), "false_alarms": sum(answer.outcome == "false-alarm" for answer in well)},
        "confusion": list(_confusion(answers)),
    }


def _score(part: list[Answer]) -> dict[str, float | int | None]:
    count = Counter(answer.outcome for answer in part)
    named, told = count["right"] + count["wrong"], len(part) - count["silent"]
    return {
        "cases": len(part), "right": count["right"], "wrong": count["wrong"], "silent": count["silent"],
        "precision": count["right"] / named if named else None, "recall": count["right"] / told if told else None,
        "cannot_tell": count["silent"] / len(part) if part else None,
    }  # fmt: skip


def _confusion(answers: list[Answer]) -> Iterator[dict[str, Any]]:
    """Yield per mechanism how often each kind of verdict was given, and how often the ranks were right."""
    by: dict[tuple[str, bool], list[Answer]] = {}
    for answer in answers:
        by.setdefault((answer.case.mechanism, answer.case.real), []).append(answer)
    for (mechanism, real), part in sorted(by.items()):
        kinds = Counter(answer.kind or "no verdict" for answer in part)
        outcomes = Counter(answer.outcome for answer in part)
        yield {
            "mechanism": mechanism,
            "real": real,
            "cases": len(part),
            "outcomes": dict(outcomes),
            "verdicts": dict(kinds),
        }


def write(found: dict[str, Any], out: Any) -> None:
    """Write scores and the confusion table as text."""
    print(
        f"{'faults':<10} {'cases':>5} {'right':>5} {'wrong':>5} {'silent':>6} {'precision':>9} {'recall':>7}", file=out
    )
    for name, row in found["scores"].items():
        shown = [f"{row[key]:.3f}" if row[key] is not None else "-" for key in ("precision", "recall")]
        counts = f"{row['cases']:>5} {row['right']:>5} {row['wrong']:>5} {row['silent']:>6}"
        print(f"{name:<10} {counts} {shown[0]:>9} {shown[1]:>7}", file=out)
    print(f"healthy: {found['healthy']['cases']} jobs, {found['healthy']['false_alarms']} false alarms", file=out)
    print(f"\n{'mechanism':<18} {'real':<5} {'cases':>5}  outcomes; verdicts", file=out)
    for row in found["confusion"]:
        outcomes = ", ".join(f"{key} {count}" for key, count in row["outcomes"].items())
        verdicts = ", ".join(f"{key} {count}" for key, count in row["verdicts"].items())
        print(
            f"{row['mechanism']:<18} {'yes' if row['real'] else 'no':<5} {row['cases']:>5}  {outcomes}; {verdicts}",
            file=out,
        )
