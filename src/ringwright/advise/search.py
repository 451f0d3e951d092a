"""Which setup makes the shortest step? Bounds first, then runs where most is to be gained, then the neighbours of the best.

Every setup that is considered has a bound; none is run whose bound is above the best step known. What is run next is what a
surrogate, which begins from the bounds and learns from the runs, expects to gain most. What is asked together is chosen before
any of it is answered, and as much whoever works: the same question and seed get the same answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np

from ringwright.advise.evaluation import plan_bounds
from ringwright.advise.settings import OPERATION, Setup
from ringwright.advise.surrogate import Likeness, guessed
from ringwright.algorithms.searching import OutOfTimeError, limited
from ringwright.jobs.auto import SURE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringwright.advise.evaluation import Evaluation, Evaluator
    from ringwright.advise.settings import Setting
    from ringwright.ground.stepwise import Advance

COMPLETE, BY_WORK, BY_CLOCK, INTERRUPTED = "complete", "work", "clock", "interrupted"
ENDS = {
    COMPLETE: "nothing that is left promises more",
    BY_WORK: "its work ended it: more with --work",
    BY_CLOCK: "the clock ended it: more with a longer --budget",
    INTERRUPTED: "interrupted before its end",
}
# Instances of tasks and operations: about a minute of a quiet machine of two cores.
WORK = 6_000_000
MOST_SETUPS = 4096  # that are considered; of more, all single settings, then pairs, then drawn ones
FEWEST_RUNS, MOST_RUNS, SHARE = 24, 72, 0.04  # runs: a share of the setups that are considered, within these
WORTH = 2e-4  # of a step: a run is worth it that is expected to gain so much
TRIES = 4  # draws for each setup that is wanted of three settings or more
NEIGHBOURS = 2  # of the best, a slot
TOGETHER, AT_ONCE = 4, 32  # setups that are run, and bounded, before work is looked at
# Of the work, and of seconds: until when setups are bounded, and run; what is left is for the intervals.
BOUNDING, RUNNING = 0.5, 0.85
ENOUGH = 0.95  # of the gain: for the rest no larger change is made


def ended(*by: str) -> str:
    """Return the one of several ends that says most."""
    return max(by, key=list(ENDS).index, default=COMPLETE)


@dataclass(frozen=True)
class AdviceLimits:
    """How much work an evaluator may have done, and until which moment of the monotonic clock."""

    work: float = math.inf
    until_s: float = math.inf

    def share(self, part: float, done: int) -> AdviceLimits:
        """Return the limits of a part of what is left, from now on and after so much work was ``done``."""
        now_s = time.monotonic()
        return AdviceLimits(done + part * (self.work - done), now_s + part * (self.until_s - now_s))

    def by(self, done: int) -> str:
        """Return which of both ends it after so much work; ``complete`` where none does."""
        late = time.monotonic() > self.until_s
        return BY_CLOCK if late else BY_WORK if done >= self.work else COMPLETE


NO_LIMITS = AdviceLimits()


@dataclass
class SearchedSetups:
    """The outcome: the best setup, how many setups were considered, have a bound and were run, and what ended it."""

    best: Setup
    considered: int
    bounded: int
    runs: int
    ended: str


@dataclass
class _Search:
    evaluator: Evaluator
    slots: Mapping[str, tuple[Setting, ...]]
    limits: AdviceLimits
    advance: Advance | None
    bounds: dict[Setup, float] = field(default_factory=dict)
    ended: str = COMPLETE

    def bound(self, setup: Setup) -> float:
        self.bound_all([setup], NO_LIMITS)
        return self.bounds[setup]

    def bound_all(self, setups: Iterable[Setup], limits: AdviceLimits) -> None:
        """Bound setups in this order, as far as work goes; those of one plan one by one, by whoever works."""
        fresh = [each for each in dict.fromkeys(setups) if each not in self.bounds]
        for at in range(0, len(fresh), AT_ONCE):
            if self.evaluator.work >= limits.work:
                self.ended = ended(self.ended, BY_WORK)
                return
            self._bound_some(fresh[at : at + AT_ONCE])

    def _bound_some(self, setups: Sequence[Setup]) -> None:
        evaluator, done = self.evaluator, dict[int, int]()
        alike: dict[object, list[Setup]] = {}
        for each in setups:
            alike.setdefault(evaluator.planned(each), []).append(each)
        # Who does what in the plan of today is asked about here: to plan is what takes long, and that is made.
        here, given = alike.pop(evaluator.planned(Setup()), []), list(alike.values())

        def take(at: int, bounds: tuple[list[float], int]) -> None:
            least, done[at] = bounds
            self.bounds |= dict(zip(given[at], least, strict=True))

        evaluator.each(plan_bounds, [(tuple(each),) for each in given], take)
        if here:
            given.append(here)
            take(len(given) - 1, evaluator.bounds(here))
        for at in sorted(done):
            evaluator.count_bounds(given[at], done[at])

    @property
    def is_over(self) -> bool:
        by = self.limits.by(self.evaluator.work)
        self.ended = ended(self.ended, by)
        return by != COMPLETE

    def run(self, setups: Sequence[Setup], until: int) -> None:
        """Run setups at once, and tell whoever watches."""
        if self.advance is not None and setups:
            self.advance(self.evaluator.runs, until, ", ".join(each.spelling for each in setups[0]))
        self.evaluator.ahead(setups)

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
    limits: AdviceLimits = NO_LIMITS,
    seed: int = 0,
    advance: Advance | None = None,
) -> SearchedSetups:
    """Return the outcome of ``runs`` runs at the most (None: by how many setups there are), within limits.

    The job as it is today must not be refused.
    """
    search = _Search(evaluator, slots, limits.share(RUNNING, evaluator.work), advance)
    considered = list(considered_setups(slots, seed))
    wanted = runs or min(MOST_RUNS, max(FEWEST_RUNS, round(SHARE * len(considered))))
    begun = evaluator.runs
    try:
        evaluator.run(Setup())
        _bound(search, considered, limits.share(BOUNDING, evaluator.work), begun + wanted // 2)
        with limited(search.limits.until_s):
            _begin(search, begun + wanted // 2)
            _learn(search, considered, begun + wanted)
            _neighbours(search, begun + wanted + len(slots) * NEIGHBOURS)
    except (KeyboardInterrupt, OutOfTimeError) as error:
        search.ended = ended(search.ended, BY_CLOCK if isinstance(error, OutOfTimeError) else INTERRUPTED)
    return SearchedSetups(easiest(evaluator), len(considered), len(search.bounds), evaluator.runs - begun, search.ended)


def _bound(search: _Search, considered: Sequence[Setup], limits: AdviceLimits, runs: int) -> None:
    """Bound every single setting, of each system one before a second; who does what together; then what promises most.

    What those promise together shows where so many ``runs`` are done. What limits leave out the search says.
    """
    quick = [each for each in considered if not each.is_planned_anew]
    anew = [each for each in considered if each.is_planned_anew and len(each) == 1]
    try:
        with limited(limits.until_s):
            search.bound_all([Setup(), *_systems_first(each for each in quick if len(each) == 1)], limits)
            search.bound_all(_systems_first(anew), limits)
            search.bound_all(quick, limits)
            _begin(search, runs)
            promise = _promises(search)
            search.bound_all(sorted((each for each in considered if each not in search.bounds), key=promise), limits)
    except OutOfTimeError:
        search.ended = ended(search.ended, BY_CLOCK)


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


def considered_setups(slots: Mapping[str, tuple[Setting, ...]], seed: int = 0) -> Iterator[Setup]:
    """Yield the setups that a search considers, fewest settings first: all of them, or so many."""
    if math.prod(1 + len(listed) for listed in slots.values()) <= MOST_SETUPS:
        yield from _every(slots.values())
        return
    yield Setup()
    singles = [setting for listed in slots.values() for setting in listed]
    yield from (Setup((each,)) for each in singles)
    quick = [listed for slot, listed in slots.items() if slot.startswith(OPERATION)]
    are_few = math.prod(1 + len(listed) for listed in quick) <= MOST_SETUPS // 4
    together = [each for each in _every(quick) if len(each) > 1] if are_few else []
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


def _begin(search: _Search, until: int) -> None:
    """Run each system of each slot alone, the one of its settings that has the least bound; the least of all first."""
    evaluator = search.evaluator
    least: dict[tuple[str, str], tuple[float, int, Setup]] = {}
    for at, each in enumerate(setting for listed in search.slots.values() for setting in listed):
        alone = Setup((each,))
        mine = (search.bounds.get(alone, math.inf), at, alone)
        least[each.slot, each.system] = min(least.get((each.slot, each.system), mine), mine, key=lambda one: one[:2])
    queue = [(bound, setup) for bound, _, setup in sorted(least.values(), key=lambda one: one[:2])]
    for at in range(0, len(queue), TOGETHER):
        best = search.best().step_s or math.inf
        within = [setup for bound, setup in queue[at : at + TOGETHER] if SURE * bound < best]
        if not within or evaluator.runs >= until or search.is_over:
            return
        search.run([each for each in within if each.key not in evaluator.known][: until - evaluator.runs], until)


def _learn(search: _Search, considered: Sequence[Setup], until: int) -> None:
    """Run what promises most, until so many runs are done or nothing promises anything."""
    evaluator = search.evaluator
    likeness = Likeness.of(dict(search.slots))
    considered = [each for each in considered if math.isfinite(search.bounds.get(each, math.inf))]
    rows, begin = likeness.rows(considered), np.log([max(search.bounds[each], 1e-12) for each in considered])
    left = np.array([each.key not in evaluator.known for each in considered], bool)
    while evaluator.runs < until and not search.is_over:
        known = [(each.setup, each.step_s) for each in evaluator.known.values() if each.step_s is not None]
        known_rows = likeness.rows([setup for setup, _ in known])
        steps = np.log([step for _, step in known])
        begins = np.log([max(search.bound(setup), 1e-12) for setup, _ in known])
        best, chosen = float(steps.min()), list[int]()
        open_ = np.flatnonzero(left & (begin + math.log(SURE) < best))
        while len(open_) and len(chosen) < min(TOGETHER, until - evaluator.runs):
            guess = guessed(likeness, known_rows, steps, begins, rows[open_], begin[open_])
            gains = guess.improvement(best)
            at = int(np.argmax(gains))
            if gains[at] < WORTH and len(known) + len(chosen) > len(search.slots) + 2:
                break
            # The next is chosen as if this one took what it probably takes.
            mine = int(open_[at])
            known_rows, steps = np.vstack([known_rows, rows[mine]]), np.append(steps, guess.mean[at])
            begins, open_ = np.append(begins, begin[mine]), np.delete(open_, at)
            chosen.append(mine)
        if not chosen:
            return
        left[chosen] = False
        search.run([considered[each] for each in chosen], until)


def _neighbours(search: _Search, until: int) -> None:
    """Run what lies beside the best, in each slot what promises most, until none of it is better."""
    evaluator, promise = search.evaluator, _promises(search)
    while evaluator.runs < until and not search.is_over:
        best, tried = search.best(), list[Setup]()
        for slot, listed in search.slots.items():
            beside = [best.setup.without(slot), *(best.setup.and_(each) for each in listed)]
            fresh = [each for each in dict.fromkeys(beside) if each.key not in evaluator.known]
            tried += sorted(fresh, key=promise)[:NEIGHBOURS]
        search.bound_all(tried, NO_LIMITS)
        better = [each for each in dict.fromkeys(tried) if SURE * search.bounds[each] < (best.step_s or math.inf)]
        search.run(better[: until - evaluator.runs], until)
        if search.best() is best:
            return
