"""A setup taken apart into changes, in the order in which they gain most: each with those before it, never added up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from ringwright.advise.settings import EFFORT, REPAIRS, Setting, Setup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ringwright.advise.evaluation import Evaluator

MOST = 5
WORTH = 0.003  # of the step: what a change must add to be told
PART = 0.5  # of the gain of a large change, from which on a small one in its place is told before it


@dataclass(frozen=True)
class RankedChange:
    """Settings that are changed together (one, or two that gain only with each other), on top of those before."""

    settings: tuple[Setting, ...]
    before: Setup
    after: Setup


def ranked(
    evaluator: Evaluator,
    best: Setup,
    repairs: Sequence[Setting] = (),
    slots: Mapping[str, Sequence[Setting]] | None = None,
) -> list[RankedChange]:
    """Return repairs, then the changes that lead to a setup, the one that gains most first; what adds nothing is left out.

    Before a large change stands the small one, of ``slots``, that gains half as much or more in its place.
    """
    base = _step(evaluator, Setup())
    now, left = Setup(), [each for each in best if each.slot not in REPAIRS]
    changes: list[RankedChange] = []
    for each in repairs:  # what is broken is mended first, though the step that is searched with may not show it
        changes.append(RankedChange((each,), now, now.and_(each)))
        now = now.and_(each)
    while left and len(changes) < MOST:
        chosen, step = _quickest(evaluator, now, [(each,) for each in left])
        if _step(evaluator, now) - step < WORTH * base:
            chosen, step = _quickest(evaluator, now, combinations(left, 2))
        if _step(evaluator, now) - step < WORTH * base:
            break
        after = _with(now, chosen)
        smaller = _smaller(evaluator, now, chosen, slots or {}, worth=WORTH * base)
        if smaller is not None and len(changes) + 1 < MOST:
            changes.append(RankedChange((smaller,), now, now.and_(smaller)))
            now = now.and_(smaller)
        changes.append(RankedChange(chosen, now, after))
        now, left = after, [each for each in left if each not in chosen]
    return changes


def _smaller(
    evaluator: Evaluator,
    now: Setup,
    chosen: tuple[Setting, ...],
    slots: Mapping[str, Sequence[Setting]],
    *,
    worth: float,
) -> Setting | None:
    """Return the setting that is less of a change than a chosen one, in its slot, and gains a good part of what that does."""
    if len(chosen) > 1:
        return None
    (setting,) = chosen
    easier = [each for each in slots.get(setting.slot, ()) if EFFORT[each.layer] < EFFORT[setting.layer]]
    group, step = _quickest(evaluator, now, [(each,) for each in easier])
    gain, whole = _step(evaluator, now) - step, _step(evaluator, now) - _step(evaluator, _with(now, chosen))
    return group[0] if group and gain >= max(worth, PART * whole) else None


def _quickest(
    evaluator: Evaluator, now: Setup, groups: Iterable[tuple[Setting, ...]]
) -> tuple[tuple[Setting, ...], float]:
    """Return which settings shorten a setup's step most, and that step in s."""
    groups = list(groups)
    evaluator.ahead(_with(now, group) for group in groups)
    steps = [(group, _step(evaluator, _with(now, group))) for group in groups]
    return min(steps, key=lambda each: each[1], default=((), math.inf))


def _with(setup: Setup, settings: Iterable[Setting]) -> Setup:
    return Setup.of((*setup, *settings))


def _step(evaluator: Evaluator, setup: Setup) -> float:
    step_s = evaluator.run(setup).step_s
    return math.inf if step_s is None else step_s
