"""Which setup makes the shortest step? Bounds first, then runs where most is to be gained, then the neighbours of the best.

Every setup that is considered has a bound; none is run whose bound is above the best step known. What is run next is what a
surrogate, which begins from the bounds and learns from the runs, expects to gain most. Work is counted in runs, so the same
question and seed get the same answer; seconds only stop it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np

from ringwright.advise.second_process import BoundsBeside
from ringwright.advise.settings import OPERATION, Setup
from ringwright.advise.surrogate import Likeness, guessed
from ringwright.algorithms.searching import OutOfTimeError, limited
from ringwright.jobs.auto import SURE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringwright.advise.evaluation import Evaluation, Evaluator
    from ringwright.advise.settings import Setting
    from ringwright.ground.stepwise import Advance

MOST_SETUPS = 4096  # that are considered; of more, all single settings, then pairs, then drawn ones
FEWEST_RUNS, MOST_RUNS, SHARE = 24, 72, 0.04  # runs: a share of the setups that are considered, within these
WORTH = 2e-4  # of a step: a run is worth it that is expected to gain so much
TRIES = 4  # draws for each setup that is wanted of three settings or more
NEIGHBOURS = 2  # of the best, a slot
MOST_WAIT_S = 3600.0  # for one answer of the process beside
# Of the seconds: until when setups are bounded, and run; what is left is for the intervals.
BOUNDING, RUNNING = 0.5, 0.85
ENOUGH = 0.95  # of the gain: for the rest no larger change is made


@dataclass
class SearchedSetups:
    """The outcome: the best setup, what was run, how many setups were considered; ``stopped``: seconds ran out, or Ctrl-C."""

    best: Setup
    considered: int
    bounded: int
    runs: int
    stopped: bool


@dataclass
class _Search:
    evaluator: Evaluator
    slots: Mapping[str, tuple[Setting, ...]]
    until: float
    advance: Advance | None
    bounds: dict[Setup, float] = field(default_factory=dict)
    stopped: bool = False

    def bound(self, setup: Setup) -> float:
        if setup not in self.bounds:
            self.bounds[setup] = self.evaluator.least_s(setup)
        return self.bounds[setup]

    @property
    def is_over(self) -> bool:
        late = time.monotonic() > self.until
        self.stopped = self.stopped or late
        return late

    def tell(self, until: int, setup: Setup) -> None:
        """Tell whoever watches that a setup was run."""
        if self.advance is not None:
            self.advance(self.evaluator.runs, until, ", ".join(each.spelling for each in setup))

    def best(self) -> Evaluation:
        done = [each for each in self.evaluator.known.values() if each.step_s is not None]
        return min(done, key=lambda each: (each.step_s or math.inf, len(each.setup)))


def easiest(evaluator: Evaluator, without: Collection[Setting] = ()) -> Setup:
    """Return, of the setups with nearly all of the gain, the one that is least of a change; none with certain settings."""
    open_ = [
        (each.step_s, each.setup)
        for each in evaluator.known.values()
        if each.step_s is not None and not any(setting in without for setting in each.setup)
    ]
    base, best = evaluator.run(Setup()).step_s or math.inf, min((step_s for step_s, _ in open_), default=math.inf)
    as_good = [(setup.effort, step_s, setup) for step_s, setup in open_ if step_s <= base - ENOUGH * (base - best)]
    return min(as_good, key=lambda each: each[:2], default=(0, base, Setup()))[2]


def searched(
    evaluator: Evaluator,
    slots: Mapping[str, tuple[Setting, ...]],
    *,
    runs: int | None = None,
    seconds: float = math.inf,
    seed: int = 0,
    advance: Advance | None = None,
) -> SearchedSetups:
    """Return the outcome of ``runs`` runs at the most (None: by how many setups there are), within ``seconds``.

    The job as it is today must not be refused.
    """
    search = _Search(evaluator, slots, time.monotonic() + RUNNING * seconds, advance)
    considered = considered_setups(slots, seed)
    wanted = runs or min(MOST_RUNS, max(FEWEST_RUNS, round(SHARE * len(considered))))
    begun = evaluator.runs
    try:
        evaluator.run(Setup())
        _bound(search, considered, time.monotonic() + BOUNDING * seconds, begun + wanted // 2)
        with limited(search.until):
            _begin(search, begun + wanted // 2)
            _learn(search, considered, begun + wanted)
            _neighbours(search, begun + wanted + len(slots) * NEIGHBOURS)
    except (KeyboardInterrupt, OutOfTimeError):
        search.stopped = True
    return SearchedSetups(
        easiest(evaluator), len(considered), len(search.bounds), evaluator.runs - begun, search.stopped
    )


def considered_setups(slots: Mapping[str, tuple[Setting, ...]], seed: int = 0) -> list[Setup]:
    """Return the setups that a search considers, fewest settings first: all of them, or so many."""
    return list(_considered(slots, seed))


def _bound(search: _Search, considered: Sequence[Setup], until: float, runs: int) -> None:
    """Bound setups; those that seconds leave no time for are not looked at, and the search says that it was stopped.

    Until so many ``runs`` are done, single settings are run before what they promise together is asked.
    """
    evaluator = search.evaluator
    planned = _systems_first(each for each in considered if len(each) == 1 and each.is_planned_anew)
    beside = BoundsBeside(evaluator, planned, alone=not evaluator.is_large)
    try:
        with limited(until):
            for each in _in_order(search, considered, beside, until, runs):
                search.bounds.update(beside.answered())
                if time.monotonic() > until:
                    search.stopped = True
                    return
                search.bound(each)
    except OutOfTimeError:
        search.stopped = True
    finally:
        beside.close()


def _in_order(
    search: _Search, considered: Sequence[Setup], beside: BoundsBeside, until: float, runs: int
) -> Iterator[Setup]:
    """Yield what is bounded here: every single setting first, of each system one before a second, those that need a new plan in
    turns with a process beside; then who does what, which needs no new plan; then what the single settings promise, best first.
    """
    quick = [each for each in considered if not each.is_planned_anew]
    yield Setup()
    yield from _systems_first(each for each in quick if len(each) == 1)
    yield from beside.taken()
    yield from (each for each in quick if len(each) > 1)
    while beside.is_working and time.monotonic() < until:
        search.bounds.update(beside.answered(wait_s=min(MOST_WAIT_S, max(0.0, until - time.monotonic()))))
    yield from beside.left
    _begin(search, runs)
    promise = _promises(search)
    yield from sorted((each for each in considered if each not in search.bounds), key=promise)


def _systems_first(singles: Iterable[Setup]) -> list[Setup]:
    """Return single settings, of each system of a slot one before any system has a second."""
    seen: set[tuple[str, str]] = set()
    first, more = list[Setup](), list[Setup]()
    for each in singles:
        of = each.settings[0].slot, each.settings[0].system
        (more if of in seen else first).append(each)
        seen.add(of)
    return [*first, *more]


def _promises(search: _Search) -> Callable[[Setup], float]:
    """Return what tells how good a setup may be, the less the better: what its settings do if each does what it does alone.

    That is what its run says, else its bound.
    """
    base, known = Setup(), search.evaluator.known
    base_s, least_s = known[base.key].step_s or math.inf, search.bound(base)
    alone: dict[Setting, float] = {}
    for each in (setting for listed in search.slots.values() for setting in listed):
        setup = Setup((each,))
        ran = known.get(setup.key)
        mine, of = (search.bounds.get(setup), least_s) if ran is None else (ran.step_s, base_s)
        # What was refused, and what has no bound, promises nothing.
        alone[each] = math.log(mine / of) if mine and of and math.isfinite(mine) else math.inf
    return lambda setup: sum(alone[each] for each in setup)


def _considered(slots: Mapping[str, tuple[Setting, ...]], seed: int) -> Iterator[Setup]:
    """Yield setups, fewest settings first: all of them, or so many."""
    if math.prod(1 + len(listed) for listed in slots.values()) <= MOST_SETUPS:
        yield from _every(slots.values())
        return
    yield Setup()
    singles = [setting for listed in slots.values() for setting in listed]
    yield from (Setup((each,)) for each in singles)
    quick = [listed for slot, listed in slots.items() if slot.startswith(OPERATION)]
    together = [each for each in _every(quick) if len(each) > 1] if _are_few(quick) else []
    yield from together
    seen = set(together)
    pairs = [Setup.of(pair) for pair in combinations(singles, 2) if pair[0].slot != pair[1].slot]
    pairs = [each for each in pairs if each not in seen]
    drawn = np.random.default_rng(seed)
    left = max(0, MOST_SETUPS - 1 - len(singles) - len(together))
    kept = (
        pairs
        if len(pairs) <= left // 2
        else [pairs[at] for at in sorted(drawn.choice(len(pairs), left // 2, False).tolist())]
    )
    yield from kept
    for _ in range(TRIES * left):  # there may be fewer of them than are wanted
        if len(seen) - len(together) >= left - len(kept):
            return
        chosen = Setup.of(
            listed[int(drawn.integers(len(listed)))] for listed in slots.values() if drawn.random() < 0.75
        )
        if len(chosen) > 2 and chosen not in seen:
            seen.add(chosen)
            yield chosen


def _every(slots: Collection[tuple[Setting, ...]]) -> list[Setup]:
    """Return all setups of some slots, fewest settings first."""
    choices = [(None, *listed) for listed in slots]
    whole = [Setup.of(each for each in chosen if each is not None) for chosen in product(*choices)]
    return sorted(whole, key=len)


def _are_few(slots: Collection[tuple[Setting, ...]]) -> bool:
    return math.prod(1 + len(listed) for listed in slots) <= MOST_SETUPS // 4


def _begin(search: _Search, until: int) -> None:
    """Run each system of each slot alone, the one of its settings that has the least bound; the least of all first."""
    evaluator = search.evaluator
    least: dict[tuple[str, str], tuple[float, int, Setup]] = {}
    for at, each in enumerate(setting for listed in search.slots.values() for setting in listed):
        alone = Setup((each,))
        mine = (search.bounds.get(alone, math.inf), at, alone)
        least[each.slot, each.system] = min(least.get((each.slot, each.system), mine), mine, key=lambda one: one[:2])
    for bound, _, setup in sorted(least.values(), key=lambda one: one[:2]):
        if SURE * bound >= (search.best().step_s or math.inf) or evaluator.runs >= until or search.is_over:
            return
        if setup.key not in evaluator.known:
            evaluator.run(setup)
            search.tell(until, setup)


def _learn(search: _Search, considered: Sequence[Setup], until: int) -> None:
    """Run what promises most, until so many runs are done or nothing promises anything."""
    evaluator = search.evaluator
    likeness = Likeness.of(dict(search.slots))
    considered = [each for each in considered if math.isfinite(search.bounds.get(each, math.inf))]
    rows, begin = likeness.rows(considered), np.log([max(search.bounds[each], 1e-12) for each in considered])
    left = np.array([each.key not in evaluator.known for each in considered], bool)
    known = [(each.setup, each.step_s) for each in evaluator.known.values() if each.step_s is not None]
    while evaluator.runs < until and not search.is_over:
        best = math.log(search.best().step_s or math.inf)
        open_ = np.flatnonzero(left & (begin + math.log(SURE) < best))
        if not len(open_):
            return
        guess = guessed(
            likeness,
            likeness.rows([setup for setup, _ in known]),
            np.log([step for _, step in known]),
            np.log([max(search.bound(setup), 1e-12) for setup, _ in known]),
            rows[open_],
            begin[open_],
        )
        gains = guess.improvement(best)
        at = int(np.argmax(gains))
        if gains[at] < WORTH and len(known) > len(search.slots) + 2:
            return
        chosen = considered[int(open_[at])]
        left[open_[at]] = False
        done = evaluator.run(chosen)
        search.tell(until, chosen)
        if done.step_s is not None:
            known.append((chosen, done.step_s))


def _neighbours(search: _Search, until: int) -> None:
    """Run, slot by slot, what lies beside the best and promises most, until none of them is better."""
    evaluator, better, promise = search.evaluator, True, _promises(search)
    while better and evaluator.runs < until and not search.is_over:
        best, better = search.best(), False
        for slot, listed in search.slots.items():
            beside = [best.setup.without(slot), *(best.setup.and_(each) for each in listed)]
            fresh = [each for each in dict.fromkeys(beside) if each.key not in evaluator.known]
            for each in sorted(fresh, key=promise)[:NEIGHBOURS]:
                if evaluator.runs >= until or search.is_over:
                    return
                if SURE * search.bound(each) >= (best.step_s or math.inf):
                    continue
                done = evaluator.run(each)
                better = better or (done.step_s or math.inf) < (best.step_s or math.inf)
