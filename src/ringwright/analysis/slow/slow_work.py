"""Ranks whose own work takes longer than that of the ranks that do the same, in nearly every step, be the steps few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.analysis.hangs.hang_mismatch import say_ranks
from ringwright.analysis.slow.own_work import Floats, OwnWork, own_work
from ringwright.ground.units import format_time

if TYPE_CHECKING:
    from ringwright.analysis.document import Culprit
    from ringwright.model.trace import Trace

LONGER = 1.2  # times the peers' own time in a step, and
LEAST = 0.05  # of a step, that it must be more
NOISES = 6.0  # times what peers differ by
STEADY = 0.75  # of the steps in which both hold
MOST_SLOW = 0.5  # of the ranks that do the same: with more of them nothing tells which are the usual ones
SURE = 0.95
LITTLE = 0.05  # of what one rank spends on an operation, that others may
DELAYED = 0.8  # of what is more, from which on it is said to lie before the work or within it


@dataclass(frozen=True)
class SlowRank:
    """A rank (its row), how long it is by itself, how long its peers are, and which part of what is more is no work. Seconds."""

    row: int
    own_s: float
    usual_s: float
    peers: int
    delayed: float


def slow_work(trace: Trace) -> tuple[str, str, list[Culprit]] | None:
    """Return verdict, reason and culprits by the ranks' own time; None where the work of some rank was not recorded."""
    seen = own_work(trace)
    if seen is None or all(len(rows) < 2 for rows in seen.roles):
        return None
    slow = [each for rows in seen.roles for each in _slow(seen, rows)]
    if not slow:
        return "none", "no rank's own work takes longer than that of the ranks that do the same", []
    most = max(each.own_s - each.usual_s for each in slow)
    slow = [
        each
        for each in slow
        if each.own_s - each.usual_s >= LEAST * seen.step_s and 2 * (each.own_s - each.usual_s) > most
    ]
    one = _culprit(seen, slow)
    return "straggler", one["evidence"][0], [one]


def _slow(seen: OwnWork, rows: list[int]) -> list[SlowRank]:
    """Return the slow ones of ranks that do the same."""
    if len(rows) < 2:
        return []
    own = (seen.work + seen.delay)[rows]
    usual = _usual(own)
    over = own - usual
    noise = float(np.median(np.abs(over))) if len(rows) > 2 else 0.0
    least = np.maximum((LONGER - 1) * usual, max(LEAST * seen.step_s, NOISES * noise))
    often = (over >= least).mean(axis=1)
    late = [at for at in range(len(rows)) if often[at] >= STEADY]
    if len(late) > MOST_SLOW * len(rows):
        return []
    gathered = []
    for at in late:
        work, delay = (_more(part[rows], at) for part in (seen.work, seen.delay))
        delayed = delay / (work + delay) if work + delay > 0 else 0.0
        gathered.append(SlowRank(rows[at], float(np.median(own[at])), float(np.median(usual)), len(rows) - 1, delayed))
    return gathered


def _usual(own: Floats) -> Floats:
    """Return the usual own time by step: the median's, of two ranks the shorter one's."""
    return np.median(own, axis=0) if len(own) > 2 else own.min(axis=0)


def _more(part: Floats, at: int) -> float:
    return max(0.0, float(np.median(part[at] - _usual(part))))


def _alone(seen: OwnWork, slow: SlowRank) -> str:
    """Return the operation in which nearly all lies that a rank works more, where its peers spend next to nothing on it."""
    (peers,) = ([row for row in rows if row != slow.row] for rows in seen.roles if slow.row in rows)
    for op, seconds in seen.by_op.items():
        usual = float(np.median(seconds[peers]))
        mine = float(seconds[slow.row]) - usual
        if mine >= DELAYED * (slow.own_s - slow.usual_s) and usual <= LITTLE * mine:
            return op or "work without a name"
    return ""


def _culprit(seen: OwnWork, slow: list[SlowRank]) -> Culprit:
    ranks = sorted(seen.ranks[each.row] for each in slow)
    worst = max(slow, key=lambda each: each.own_s - each.usual_s)
    whose = say_ranks(ranks)
    more = format_time(worst.own_s - worst.usual_s)
    times = f"{format_time(worst.own_s)} of a step by itself, ranks that do the same {format_time(worst.usual_s)}"
    if worst.delayed >= DELAYED:
        said = f"{whose} begins {more} a step later than it could: {times}; no call of its own explains the time"
        why = (
            "idle while all that it waits for is there: its loader, its host, or what else no call and no work tells of"
        )
    elif alone := _alone(seen, worst):
        said = f"{whose} works {more} a step longer, nearly all of it in {alone}, which ranks that do the same have not: {times}"
        why = "what it does before or beside the work of all: its loader, a checkpoint, a sample of its own"
    else:
        said = f"{whose} computes {worst.own_s / worst.usual_s:.3g} times as long as ranks that do the same: {times}"
        why = (
            "its device works longer on the same work: a clock that was lowered, heat, another process, or uneven data"
        )
    each = [
        f"rank {seen.ranks[one.row]}: {format_time(one.own_s)}, {one.peers} others {format_time(one.usual_s)} in the median"
        for one in slow[:4]
    ]
    return {
        "ranks": ranks,
        "hosts": [],
        "kind": "straggler",
        "confidence": SURE,
        "evidence": [said, f"so it is in {len(seen.steps)} recorded steps of {format_time(seen.step_s)}", *each, why],
    }
