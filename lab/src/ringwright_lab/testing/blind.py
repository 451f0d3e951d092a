"""Blind accuracy of the diagnosis: faults put in on purpose, verdicts counted, the designed mechanisms apart from the held-out.

A verdict is right when it names exactly the ranks concerned; one that names nobody cannot tell. Precision is the right share
of verdicts that name ranks, recall the right share of all faults: silence is a miss. Where nobody in particular is slow, or
who is slow changes, "cannot tell" with the share of steps held up is an answer too, and counted as "told". A healthy job on
which any verdict is given is a false alarm. ``DESIGNED`` mechanisms were in view when the rules were made, ``HELD_OUT`` ones
were not; of ``slow_ranks`` the severity is known, and recall is given by kind and band of it.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringwright.analysis.document import Culprit
from ringwright.analysis.summary import summarise
from ringwright.executors.fan_out import Chosen, FanOut, fan_out
from ringwright.formats.sources import read
from ringwright.model.trace import Trace
from ringwright_lab.testing import slow_ranks
from ringwright_lab.testing.noise import HealthyNoise, ours

SCHEMA = "ringwright.blind/2"
DESIGNED = ("killed", "stopped", "wrong-size", "skipped", "sleep", "slow-card", "flapping-card", "late")
HELD_OUT = (
    "exit",
    "error",
    "lock",
    "gil",
    "wrong-order",
    "wrong-dtype",
    "wrong-op",
    "hog",
    "slow-out",
    "slow-in",
    "lossy-card",
    "delayed-card",
    "late-every-third-step",
    "later-and-later",
    "late-at-times",
    "late-in-one-group",
    "pauses",
)


BANDS = (1.15, 1.5, 2.0, 3.01)  # of severity: times as long a step
SHARE_OFF = 0.1  # by how much a told share of steps may differ


@dataclass(frozen=True)
class BlindCase:
    """One job: the ``mechanism`` (none: healthy), whether it really ran, and its seed; ``slow``: of ``testing.slow_ranks``."""

    mechanism: str
    real: bool
    seed: int
    slow: bool = False


@dataclass(frozen=True)
class BlindTruth:
    """What was put in, ``begin`` and ``share`` by step where they are known, ``severity`` in times of a step."""

    ranks: tuple[int, ...] = ()
    is_healthy: bool = False
    begin: int | None = None
    share: float | None = None
    severity: float | None = None
    steps: int = 0


@dataclass(frozen=True)
class Verdict:
    """What was said of a case: ``outcome`` right, told (cannot tell, with the share of steps), wrong, silent or false-alarm."""

    case: BlindCase
    truth: tuple[int, ...]
    said: tuple[int, ...]
    kind: str
    outcome: str
    severity: float | None = None
    is_begin_right: bool | None = None


def plan(
    faults: int, healthy: int, real: int, real_healthy: int, *, slow: int = 0, first_seed: int = 0
) -> list[BlindCase]:
    """Return as many cases, mechanisms in turn; ``real`` of the faults and ``real_healthy`` of the healthy ones really run.

    ``slow``: so many cases more of each manner in which ranks are slow, and as many healthy jobs of that making.
    """
    from ringwright_lab.testing.faulty_fabric import LINK_FAULTS, RANK_FAULTS
    from ringwright_lab.testing.gloo_job import HANGING, SLOW

    simulated, run = (*LINK_FAULTS, *RANK_FAULTS), (*SLOW, *HANGING)
    cases = [BlindCase(run[number % len(run)], True, first_seed + number) for number in range(real)]
    cases += [
        BlindCase(simulated[number % len(simulated)], False, first_seed + number)
        for number in range(max(0, faults - real))
    ]
    cases += [BlindCase("none", number < real_healthy, first_seed + number) for number in range(healthy)]
    kinds = ("none", *slow_ranks.MECHANISMS)
    return cases + [BlindCase(kind, False, first_seed + number, True) for number in range(slow) for kind in kinds]


def judge(
    cases: Sequence[BlindCase],
    done: Callable[[Verdict], None] | None = None,
    noise: HealthyNoise | None = None,
    executor: Chosen | FanOut = None,
) -> list[Verdict]:
    """Run and diagnose every case; real ones need PyTorch (MissingExtraError), and run here, one at a time.

    ``noise``: that of healthy ranks, else ours; ``executor`` does the simulated ones.
    """
    noise, told = noise or ours(), done or (lambda _: None)
    came: dict[int, Verdict] = {}
    for number in (number for number, case in enumerate(cases) if case.real):
        came[number] = verdict_of(cases[number], noise)
        told(came[number])
    rest = [number for number in range(len(cases)) if number not in came]
    with fan_out(executor) as fan:
        given = [(cases[number], noise if cases[number].slow else None) for number in rest]
        verdicts = fan.map(verdict_of, given, each=lambda _, verdict: told(verdict))
    came |= dict(zip(rest, verdicts, strict=True))
    return [came[number] for number in range(len(cases))]


def verdict_of(case: BlindCase, noise: HealthyNoise | None) -> Verdict:
    """Run and diagnose a case."""
    with tempfile.TemporaryDirectory(prefix="ringwright-") as scratch:
        trace, truth = _made(case, Path(scratch) / "job", noise or ours())
        said = summarise(trace)["verdict"]
    return _answer(case, truth, said)


def _made(case: BlindCase, folder: Path, noise: HealthyNoise) -> tuple[Trace, BlindTruth]:
    if case.real:
        return _real(case, folder)
    if not case.slow:
        return _simulated(case)
    trace, put = slow_ranks.job(case.mechanism, case.seed, noise)
    steps = int(trace.df["iteration"].max()) + 1  # type: ignore[arg-type]
    return trace, BlindTruth(put.ranks, put.is_healthy, put.begin, put.share, put.severity, steps)


def _simulated(case: BlindCase) -> tuple[Trace, BlindTruth]:
    from ringwright_lab.testing.faulty_fabric import job

    trace, truth = job(case.mechanism, case.seed)
    return trace, BlindTruth(truth.ranks, case.mechanism == "none")


def _real(case: BlindCase, folder: Path) -> tuple[Trace, BlindTruth]:
    import random

    from ringwright_lab.testing.gloo_job import COMPUTE_S, HANGING, SLOW, InjectedFault, run

    draw = random.Random(f"{case.mechanism} {case.seed}")  # noqa: S311 - a lottery, not a secret
    hangs, slow = case.mechanism in HANGING, case.mechanism in SLOW
    steps = 14 if hangs else 40
    rank, step = draw.randrange(4), draw.randrange(3, 9) if hangs else draw.randrange(4, 24)
    amount = COMPUTE_S * draw.uniform(0.6, 2.0)
    fault = InjectedFault(case.mechanism, rank, step, amount)
    run(folder, 4, fault, steps=steps, seed=case.seed, profile=not hangs)
    ranks = {one for at in range(step, steps) for one in fault.slow_ranks(at, steps, 4)}
    held = sum(fault.holds_up(at) for at in range(step, steps)) / steps
    truth = (
        BlindTruth(tuple(sorted(ranks)), False, step, held, 1 + amount / COMPUTE_S, steps)
        if slow
        else BlindTruth((rank,))
    )
    trace = _with_clocks_apart(read(str(folder)), draw)
    return trace, BlindTruth(is_healthy=True) if case.mechanism == "none" else truth


def _with_clocks_apart(trace: Trace, draw: Any) -> Trace:
    """Return the trace with each rank's clock off by up to 50 ms, as those of hosts are."""
    import polars as pl

    from ringwright.ground.trace_tables import TABLES

    shifts = {rank: draw.uniform(-0.05, 0.05) for rank in range(64)}
    off = pl.col("rank").replace_strict(shifts, default=0.0, return_dtype=pl.Float64)
    frames = {name: trace.scan(name).collect() for name in TABLES}
    frames["events"] = frames["events"].with_columns(pl.col("start_s") + off, pl.col("enqueue_s") + off)
    return Trace.of(frames, trace.meta)


def _answer(case: BlindCase, truth: BlindTruth, verdict: Culprit | None) -> Verdict:
    said = tuple(sorted(verdict["ranks"])) if verdict else ()
    begin = _begin(case, truth, verdict)
    if truth.is_healthy:
        outcome = "false-alarm" if verdict else "right"
    elif said and said == tuple(sorted(truth.ranks)):
        outcome = "right"
    elif not said and verdict and _is_told(case, truth, verdict):
        outcome = "told"
    else:
        outcome = "wrong" if said else "silent"
    return Verdict(case, truth.ranks, said, verdict["kind"] if verdict else "", outcome, truth.severity, begin)


def _is_told(case: BlindCase, truth: BlindTruth, verdict: Culprit) -> bool:
    """Whether a verdict without ranks says how many of the steps are held up, where that is an answer."""
    share = verdict.get("steps_share")
    if case.mechanism not in slow_ranks.ROUND or share is None or truth.share is None:
        return False
    return abs(float(share) - truth.share) <= max(SHARE_OFF, 0.25 * truth.share)


def _begin(case: BlindCase, truth: BlindTruth, verdict: Culprit | None) -> bool | None:
    """Whether the step is named where a lasting slowness begins, within two steps or a twenty-fifth of the job."""
    if case.mechanism not in slow_ranks.BEGINS or truth.begin is None:
        return None
    said = verdict.get("begin_step") if verdict else None
    return said is not None and abs(said - truth.begin) <= max(2, truth.steps // 25)


def document(answers: list[Verdict]) -> dict[str, Any]:
    """Return the object of schema ``ringwright.blind/2``: precision and recall of the parts, by kind and band, and confusion."""
    well = [answer for answer in answers if answer.case.mechanism == "none"]
    sick = [answer for answer in answers if answer.case.mechanism != "none"]
    parts = {
        "designed": [answer for answer in sick if answer.case.mechanism in DESIGNED],
        "held_out": [answer for answer in sick if answer.case.mechanism in HELD_OUT],
        "slow": [answer for answer in sick if answer.case.slow],
        "real": [answer for answer in sick if answer.case.real],
        "all": sick,
    }
    return {
        "schema": SCHEMA,
        "scores": {name: _score(part) for name, part in parts.items()},
        "kinds": list(_by_kind(sick)),
        "healthy": {"cases": len(well), "false_alarms": sum(answer.outcome == "false-alarm" for answer in well)},
        "confusion": list(_confusion(answers)),
    }


def _by_kind(sick: list[Verdict]) -> Iterator[dict[str, Any]]:
    """Yield scores per mechanism whose severity is known: each band, and all at and above 1.5 (``severity_to`` null)."""
    known = [answer for answer in sick if answer.severity is not None]
    for mechanism, real in sorted({(answer.case.mechanism, answer.case.real) for answer in known}):
        mine = [answer for answer in known if (answer.case.mechanism, answer.case.real) == (mechanism, real)]
        for low, high in [*itertools.pairwise(BANDS), (1.5, None)]:
            part = [each for each in mine if low <= (each.severity or 0.0) < (high or 99.0)]
            if not part:
                continue
            begins = [each.is_begin_right for each in part if each.is_begin_right is not None]
            row = {"mechanism": mechanism, "real": real, "severity_from": low, "severity_to": high, **_score(part)}
            yield row | {"begin_found": sum(begins) / len(begins) if begins else None}


def _score(part: list[Verdict]) -> dict[str, float | int | None]:
    count = Counter(answer.outcome for answer in part)
    named, hit = count["right"] + count["wrong"], count["right"] + count["told"]
    return {
        "cases": len(part),
        "right": count["right"],
        "told": count["told"],
        "wrong": count["wrong"],
        "silent": count["silent"],
        "precision": count["right"] / named if named else None,
        "recall": hit / len(part) if part else None,
        "cannot_tell": (count["silent"] + count["told"]) / len(part) if part else None,
    }


def _confusion(answers: list[Verdict]) -> Iterator[dict[str, Any]]:
    """Yield per mechanism how often each kind of verdict was given, and how often the ranks were right."""
    by: dict[tuple[str, bool], list[Verdict]] = {}
    for answer in answers:
        by.setdefault((answer.case.mechanism, answer.case.real), []).append(answer)
    for (mechanism, real), part in sorted(by.items()):
        kinds = Counter(answer.kind or "no verdict" for answer in part)
        outcomes = Counter(answer.outcome for answer in part)
        row = {"mechanism": mechanism, "real": real, "cases": len(part)}
        yield row | {"outcomes": dict(outcomes), "verdicts": dict(kinds)}


_COUNTED = ("cases", "right", "told", "wrong", "silent")


def write(document: dict[str, Any], out: Any) -> None:
    """Write scores, recall by kind and band, and the confusion table as text."""
    head = " ".join(f"{name:>6}" for name in _COUNTED)
    print(f"{'faults':<36} {head} {'precision':>9} {'recall':>7} {'begin':>7}", file=out)
    for name, row in document["scores"].items():
        _line(name, row, out)
    print(
        f"healthy: {document['healthy']['cases']} jobs, {document['healthy']['false_alarms']} false alarms\n", file=out
    )
    for row in document["kinds"]:
        band = f"{row['severity_from']:g}x" + (f" to {row['severity_to']:.3g}x" if row["severity_to"] else " and above")
        _line(f"{row['mechanism']}{' (real)' if row['real'] else ''} {band}", row, out)
    print(f"\n{'mechanism':<18} {'real':<5} {'cases':>5}  outcomes; verdicts", file=out)
    for row in document["confusion"]:
        told = "; ".join(
            ", ".join(f"{key} {count}" for key, count in row[part].items()) for part in ("outcomes", "verdicts")
        )
        print(f"{row['mechanism']:<18} {'yes' if row['real'] else 'no':<5} {row['cases']:>5}  {told}", file=out)


def _line(name: str, row: dict[str, Any], out: Any) -> None:
    shares = [f"{row[key]:.3f}" if row.get(key) is not None else "-" for key in ("precision", "recall", "begin_found")]
    counts = " ".join(f"{row[key]:>6}" for key in _COUNTED)
    print(f"{name:<36} {counts} {shares[0]:>9} {shares[1]:>7} {shares[2]:>7}", file=out)
