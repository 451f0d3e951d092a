"""Stragglers: which ranks hold a job up, in which steps; or that a different rank does so each time.

Four rules over the lateness of ranks (``analysis.lateness``), in this order: ranks that are late for a stretch of steps (to the
end, or one after the other); one that is late now and then; many that are late in turn, of which no one can be named; nobody.
Thresholds are shares of a step, and multiples of what ranks differ by of themselves from step to step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ringwright.analysis.slow.lateness import Lateness

LEAST = 0.05  # of a step that a lasting delay costs
SURE = 8.0  # times what chance would make of the mean of a stretch
SPIKE = 0.06  # of a step, and
SPIKE_NOISES = (5.0, 7.0, 10.0, 14.0)  # times the usual difference: a rank late now and then
TURN = 0.25  # of a step, where nobody in particular is late
TURN_NOISES = 6.0
TURN_GAP = 2.5
LEAST_TURNS = 0.08  # of the steps must be held up before it is said that ranks take turns
FEWEST = 4  # steps
CHANCE = 1e-6
MOST_RANKS = 0.25
NOT_LESS = 0.3  # of what the costliest causes, for another to be accused beside it
EXPLAINED = 0.6  # of what holds the job up that those named must have caused

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Stretch:
    """A rank (its row) late from one step to before another (columns), by ``delay`` of a step on average."""

    row: int
    first: int
    last: int
    delay: float


@dataclass(frozen=True)
class HeldUp:
    """The stragglers. ``kind``: lasting, moving, at-times, in-turn or none; ``rows`` of ranks; ``steps`` held up by them."""

    kind: str
    rows: tuple[int, ...]
    stretches: tuple[Stretch, ...]
    steps: tuple[int, ...]
    delay: float
    chance: float = 0.0


NOBODY = HeldUp("none", (), (), (), 0.0)


def held_up(seen: Lateness) -> HeldUp:
    """Return who holds a job up, and when."""
    late = seen.late
    noise = _noise(late)
    stretches = _stretches(late, noise)
    whole = _explained(late, stretches, noise)
    if stretches and len({one.row for one in stretches}) <= max(1, _most(late)) and whole >= EXPLAINED:
        return _lasting(stretches)
    return _at_times(late, noise) or _in_turn(late, noise) or NOBODY


def _most(late: Floats) -> float:
    return max(MOST_RANKS * len(late), 3 if len(late) >= 6 else 2 if len(late) >= 4 else 1)


def _noise(late: Floats) -> float:
    """Return what a rank usually differs by from one step to the next, of the typical rank."""
    if len(late) < 3:
        late = late[late.sum(axis=1) >= np.median(late.sum(axis=1))]
    by_rank = np.median(np.abs(np.diff(late, axis=1)), axis=1) / (0.6745 * math.sqrt(2))
    return max(float(np.median(by_rank)), 1e-3)


def _stretches(late: Floats, noise: float) -> tuple[Stretch, ...]:
    stretches = []
    for row in range(len(late)):
        own = float(np.median(np.abs(np.diff(late[row])))) / (0.6745 * math.sqrt(2))
        least = max(LEAST, 2.5 * noise)
        first, last = _densest(np.minimum(late[row], 20 * least) - 0.6 * least)
        if last - first >= FEWEST:  # once more, by half of what it is like there: what goes before may be late a little
            level = max(1.2 * least, float(np.quantile(late[row, first:last], 0.75)))
            first, last = _densest(np.minimum(late[row], level) - 0.5 * level)
        part = late[row, first:last]
        steps = last - first
        if steps < FEWEST:
            continue
        delay = float(np.median(part))
        is_sure = delay * math.sqrt(steps) >= SURE * max(noise, own)
        if delay >= least and is_sure and float((part > 0.5 * delay).mean()) >= 0.75:
            stretches.append(Stretch(row, first, last, delay))
    return _apart(late, stretches)


def _apart(late: Floats, stretches: list[Stretch]) -> tuple[Stretch, ...]:
    """Return the stretches in which the job waits for their rank: it is later than all that are not accused, in most steps."""
    strongest = max((_cost(one) for one in stretches), default=0.0)
    kept = sorted((one for one in stretches if _cost(one) >= NOT_LESS * strongest), key=lambda one: -_cost(one))
    accused: list[Stretch] = []
    for one in kept:
        others = np.delete(late, [one.row, *(each.row for each in accused)], axis=0)
        if not len(others):
            break
        part = slice(one.first, one.last)
        if float((late[one.row, part] >= others[:, part].max(axis=0)).mean()) >= EXPLAINED:
            accused.append(one)
    return tuple(accused)


def _cost(one: Stretch) -> float:
    return one.delay * (one.last - one.first)


def _densest(values: Floats) -> tuple[int, int]:
    """Return the stretch with the largest sum."""
    best, total, begin, densest = 0.0, 0.0, 0, (0, 0)
    for index, value in enumerate(values.tolist()):
        if total <= 0:
            total, begin = 0.0, index
        total += value
        if total > best:
            best, densest = total, (begin, index + 1)
    return densest


def _explained(late: Floats, stretches: tuple[Stretch, ...], noise: float) -> float:
    """Return which part of what holds the job up falls to stretches and their ranks."""
    worst = np.where(late.max(axis=0) > max(LEAST, 3 * noise), late.max(axis=0), 0.0)
    theirs = np.zeros(late.shape[1])
    for one in stretches:
        theirs[one.first : one.last] = np.maximum(theirs[one.first : one.last], late[one.row, one.first : one.last])
    total = float(worst.sum())
    return float(np.minimum(theirs, worst).clip(0).sum()) / total if total else 0.0


def _lasting(stretches: tuple[Stretch, ...]) -> HeldUp:
    ordered = tuple(sorted(stretches, key=lambda one: (one.first, one.row)))
    overlap = any(a.first < (b.first + b.last) / 2 < a.last for a in ordered for b in ordered if a.row != b.row)
    steps = sorted({step for one in ordered for step in range(one.first, one.last)})
    rows = tuple(sorted({one.row for one in ordered}))
    delay = float(np.mean([one.delay for one in ordered]))
    return HeldUp("lasting" if overlap or len(rows) == 1 else "moving", rows, ordered, tuple(steps), delay)


def _at_times(late: Floats, noise: float) -> HeldUp | None:
    """Return the one rank that is late in most of the steps in which any is, more often than chance would have it.

    Looked at with rising limits: among many ranks some is late a little in every step.
    """
    least = max(SPIKE, SPIKE_NOISES[0] * noise)
    limits = {max(SPIKE, times * noise) for times in SPIKE_NOISES} | {max(least, _limit(late.max(axis=0))[0])}
    return next((stragglers for limit in sorted(limits) if (stragglers := _above(late, limit)) is not None), None)


def _above(late: Floats, limit: float) -> HeldUp | None:
    worst, last = late.max(axis=0), late.argmax(axis=0)
    held = worst >= limit
    total = int(held.sum())
    if total < FEWEST:
        return None
    counts = np.bincount(last[held], minlength=len(late))
    row = int(counts.argmax())
    mine: Bools = held & (last == row)
    share = float(worst[mine].sum() / worst[held].sum())
    chance = min(1.0, len(late) * at_least(int(counts[row]), total, 1 / len(late)))
    if counts[row] < FEWEST or share < EXPLAINED or chance > CHANCE:
        return None
    return HeldUp("at-times", (row,), (), tuple(np.flatnonzero(mine).tolist()), float(np.median(worst[mine])), chance)


def _in_turn(late: Floats, noise: float) -> HeldUp | None:
    """Return the steps that some rank holds up, another one each time: they stand apart from the other steps, or are all.

    Where it is the same rank each time, that one is late now and then, in fewer steps than ``_above`` asks for.
    """
    worst = late.max(axis=0)
    limit, gap = _limit(worst)
    if float(np.median(worst)) >= max(2 * TURN, TURN_NOISES * noise) and gap < TURN:
        limit = max(2 * TURN, TURN_NOISES * noise)
    elif gap < max(TURN, TURN_GAP * noise):
        return None
    held = worst >= limit
    if held.sum() < max(FEWEST, LEAST_TURNS * late.shape[1]):
        return None
    rows = tuple(sorted(set(late.argmax(axis=0)[held].tolist())))
    if len(rows) == 1:  # nobody takes turns with it
        total = int(held.sum())
        chance = min(1.0, len(late) * at_least(total, total, 1 / len(late)))
        return HeldUp("at-times", rows, (), tuple(np.flatnonzero(held).tolist()), float(np.median(worst[held])), chance)
    return HeldUp("in-turn", rows, (), tuple(np.flatnonzero(held).tolist()), float(np.median(worst[held])))


def _limit(values: Floats) -> tuple[float, float]:
    """Return what parts values best into low and high (Otsu's rule), and how far apart the means of both are."""
    ordered = np.sort(values)
    counts = np.arange(1, len(ordered))
    low = np.cumsum(ordered)[:-1] / counts
    high = (ordered.sum() - np.cumsum(ordered)[:-1]) / (len(ordered) - counts)
    best = int((counts * (len(ordered) - counts) * (high - low) ** 2).argmax())
    return float((ordered[best] + ordered[best + 1]) / 2), float(high[best] - low[best])


def at_least(times: int, trials: int, probability: float) -> float:
    """Return the probability of ``times`` or more hits in ``trials``; beyond 1,000 both are scaled down (cautious)."""
    if trials > 1000:
        times, trials = times * 1000 // trials, 1000
    terms = (
        math.comb(trials, hits) * probability**hits * (1 - probability) ** (trials - hits)
        for hits in range(times, trials + 1)
    )
    return min(1.0, math.fsum(terms))
