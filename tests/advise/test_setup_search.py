"""The search over setups: how near it comes to the best of all in how few runs, and that it gives the same answer again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import cast

import numpy as np
import pytest

from ringwright.advise.evaluation import Evaluation, Evaluator
from ringwright.advise.ranking import ranked
from ringwright.advise.search import (
    AT_ONCE,
    BY_CLOCK,
    BY_WORK,
    COMPLETE,
    INTERRUPTED,
    AdviceLimits,
    considered_setups,
    searched,
)
from ringwright.advise.settings import Setting, Setup
from ringwright.algorithms.searching import OutOfTimeError

SYSTEMS, KNOBS = 4, 8
Slots = dict[str, tuple[Setting, ...]]


@dataclass
class Measured:
    """Steps by a function of setups, and how many were asked for."""

    step: Callable[[Setup], float]
    tightness: float
    runs: int = 0
    work: int = 0
    known: dict[object, Evaluation] = field(default_factory=dict)

    def run(self, setup: Setup) -> Evaluation:
        if setup.key not in self.known:
            self.runs += 1
            step = self.step(setup)
            refused = "declined" if math.isinf(step) else ""
            self.known[setup.key] = Evaluation(setup, None if refused else step, refused=refused)
        return self.known[setup.key]

    def least_s(self, setup: Setup) -> float:
        return self.tightness * self.step(setup)

    def ahead(self, setups: Sequence[Setup]) -> None:
        for each in setups:
            self.run(each)

    def bounds(self, setups: Sequence[Setup]) -> tuple[list[float], int]:
        return [self.least_s(each) for each in setups], 1

    def each(
        self, _: object, given: Sequence[tuple[Sequence[Setup]]], take: Callable[[int, tuple[list[float], int]], None]
    ) -> None:
        for at, (setups,) in enumerate(given):
            take(at, self.bounds(setups))

    def count_bounds(self, setups: Sequence[Setup], work: int) -> None:
        self.work += len(setups) * work

    planned = staticmethod(Evaluator.planned)


def slots(names: tuple[str, ...] = ("order", "operation all-reduce")) -> Slots:
    """Four systems a slot, each with eight values of a knob."""
    return {
        slot: tuple(
            Setting("policy", slot, f"{slot[0]}{system}:knob={value}", "", "", "", {"knob": float(value)})
            for system, value in product(range(SYSTEMS), range(KNOBS))
        )
        for slot in names
    }


def landscape(seed: int, listed: Slots, *, interacts: bool) -> Callable[[Setup], float]:
    """A step of 1 s that settings shorten or lengthen, each with a best value of its knob; and by pairs of systems."""
    drawn = np.random.default_rng(seed)
    gains = {(slot, system): drawn.uniform(-0.1, 0.1) for slot in listed for system in range(SYSTEMS)}
    best = {(slot, system): drawn.uniform(0, KNOBS - 1) for slot in listed for system in range(SYSTEMS)}
    pairs = drawn.uniform(-0.06, 0.06, (SYSTEMS, SYSTEMS))
    if interacts:  # the best together are no good alone
        a, b = drawn.integers(SYSTEMS, size=2).tolist()
        one, other = listed
        gains[one, a] = gains[other, b] = -0.02
        pairs[a, b] = 0.3

    def step(setup: Setup) -> float:
        total, systems = 0.0, []
        for each in setup:
            system = int(each.spelling[1])
            off = (each.numbers["knob"] - best[each.slot, system]) / KNOBS
            total += gains[each.slot, system] - 0.3 * off**2
            systems.append(system)
        if len(systems) == 2:
            total += pairs[systems[0], systems[1]]
        return math.exp(-total)

    return step


def every(listed: Slots) -> list[Setup]:
    choices = [(None, *each) for each in listed.values()]
    return [Setup.of(one for one in chosen if one is not None) for chosen in product(*choices)]


@pytest.mark.parametrize("seed", range(20))
def test_nearly_all_of_the_gain_in_a_twentieth_of_the_work(seed: int) -> None:
    listed = slots()
    step = landscape(seed, listed, interacts=seed < 5)
    whole = {setup: step(setup) for setup in every(listed)}
    assert len(whole) >= 1000
    best = min(whole, key=lambda setup: whole[setup])
    if seed < 5:
        single = min((setup for setup in whole if len(setup) == 1), key=lambda setup: whole[setup])
        assert not set(single) <= set(best), "the best single change is no part of the best"
    measured = Measured(step, 0.75)
    outcome = searched(cast(Evaluator, measured), listed)
    gain = (1 - step(outcome.best)) / (1 - whole[best])
    assert gain >= 0.95
    assert measured.runs <= 0.05 * len(whole)
    assert outcome.ended == COMPLETE


def test_the_same_question_gets_the_same_answer() -> None:
    listed = slots(("order", "operation all-reduce", "graph"))  # more than are considered, so that some are drawn
    step = landscape(3, listed, interacts=False)
    tried = []
    for seed in (0, 0, 1):
        measured = Measured(step, 0.75)
        once = searched(cast(Evaluator, measured), listed, seed=seed, runs=30)
        tried.append(list(measured.known))
    assert tried[0] == tried[1] != tried[2]
    assert once.considered <= 4096 < len(every(listed))


def test_what_cannot_be_better_is_not_run() -> None:
    listed = slots()
    exact = Measured(lambda setup: 1.0 + 0.1 * len(setup), 1.0)
    outcome = searched(cast(Evaluator, exact), listed)
    assert outcome.best == Setup()
    assert exact.runs == 1


def test_what_is_refused_is_no_answer() -> None:
    listed = slots()
    worst = listed["order"][5]

    def step(setup: Setup) -> float:
        return math.inf if worst in tuple(setup) else 1.0 - 0.01 * len(setup)

    outcome = searched(cast(Evaluator, Measured(step, 0.9)), listed)
    assert worst not in tuple(outcome.best)
    assert len(outcome.best) == 2


def test_no_larger_change_for_hardly_any_gain() -> None:
    listed = slots()

    def step(setup: Setup) -> float:
        return 1.0 if not len(setup) else 0.9 - 0.0005 * (len(setup) - 1)

    measured = cast(Evaluator, Measured(step, 0.5))
    changes = ranked(measured, searched(measured, listed).best)
    assert len(changes) == 1
    assert len(changes[0].after) == 1


def test_two_that_gain_only_together_are_one_change() -> None:
    listed = slots()
    pair = Setup((listed["operation all-reduce"][9], listed["order"][17]))

    def step(setup: Setup) -> float:
        return 0.8 if setup == pair else 1.0 + 0.01 * len(setup)

    measured = cast(Evaluator, Measured(step, 0.5))
    (change,) = ranked(measured, pair)
    assert (change.before, change.after) == (Setup(), pair)
    assert set(change.settings) == set(pair)


def test_changes_come_in_the_order_in_which_they_gain() -> None:
    listed = slots(("order", "graph", "placed"))
    gains = {"order": 0.05, "graph": 0.2, "placed": 0.001}
    whole = Setup.of(each[3] for each in listed.values())
    measured = Measured(lambda setup: 1.0 - sum(gains[each.slot] for each in setup), 0.5)
    changes = ranked(cast(Evaluator, measured), whole)
    assert [each.settings[0].slot for each in changes] == ["graph", "order"], "the third adds too little"
    assert changes[1].before == changes[0].after


def test_seconds_stop_it_and_leave_the_best_so_far() -> None:
    listed = slots()
    measured = Measured(landscape(1, listed, interacts=False), 0.75)
    outcome = searched(cast(Evaluator, measured), listed, limits=AdviceLimits(until_s=0.0))
    assert outcome.ended == BY_CLOCK
    assert outcome.best == Setup()


def test_work_stops_it_at_the_same_setup_every_time() -> None:
    """Half of the work is for bounds, looked at every so many; a run of this job is no work."""
    listed = slots()
    outcomes = [
        searched(
            cast(Evaluator, Measured(landscape(1, listed, interacts=False), 0.75)), listed, limits=AdviceLimits(200)
        )
        for _ in range(2)
    ]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].ended == BY_WORK
    assert 100 <= outcomes[0].bounded < 100 + 2 * AT_ONCE
    assert len(outcomes[0].best)


def test_ctrl_c_leaves_the_best_so_far() -> None:
    listed = {slot: settings[::2] for slot, settings in slots().items()}
    step = landscape(1, listed, interacts=False)
    asked: list[Setup] = []

    def interrupted(setup: Setup) -> float:
        asked.append(setup)
        if len(asked) == len(every(listed)) + 4:  # some runs after all have a bound
            raise KeyboardInterrupt
        return step(setup)

    measured = Measured(interrupted, 0.75)
    outcome = searched(cast(Evaluator, measured), listed)
    assert outcome.ended == INTERRUPTED
    assert step(outcome.best) < 1.0


@pytest.mark.parametrize("ask", ["least_s", "run"])
def test_seconds_that_end_within_an_answer_leave_the_best_so_far(ask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fortieth bound, or the fifth run, comes to no end in time."""
    listed = slots()
    measured = Measured(landscape(1, listed, interacts=False), 0.75)
    whole, asked = getattr(measured, ask), list[Setup]()

    def late(setup: Setup) -> object:
        asked.append(setup)
        if len(asked) == {"least_s": 40, "run": 5}[ask]:
            raise OutOfTimeError
        return whole(setup)

    monkeypatch.setattr(measured, ask, late)
    outcome = searched(cast(Evaluator, measured), listed)
    assert outcome.ended == BY_CLOCK
    assert outcome.bounded < len(every(listed))
    assert measured.step(outcome.best) < 1.0


def test_fewer_setups_than_are_wanted_come_to_an_end() -> None:
    """1,100 triples and too many pairs: more would be drawn than there are."""
    many = tuple(Setting("policy", "order", f"s{at}", "", "") for at in range(1100))
    alone = {slot: (Setting("policy", slot, "one", "", ""),) for slot in ("graph", "placed")}
    listed: Slots = {"order": many, **alone}
    considered = list(considered_setups(listed))
    assert len(set(considered)) == len(considered) <= 4096
    assert sum(len(each) == 3 for each in considered) > 900


def test_every_single_change_has_a_bound_before_any_two_together() -> None:
    listed = slots(("operation all-reduce", "operation all-gather", "order"))
    asked: list[Setup] = []

    def step(setup: Setup) -> float:
        asked.append(setup)
        return 1.0 + 0.1 * len(setup)

    measured = Measured(step, 1.0)
    measured.run(Setup())
    asked.clear()
    searched(cast(Evaluator, measured), {slot: each[:9] for slot, each in listed.items()})
    sizes = [len(each) for each in asked]
    assert sizes[: 1 + 3 * 9] == [0] + [1] * 3 * 9
    assert sizes[28:109] == [2] * 81, "then who does what"
    assert sorted(sizes[109 : 109 + 162 - AT_ONCE]) == [2] * (162 - AT_ONCE), "then what promises most, some at once"
    assert len(sizes) == 109 + 162 + 729


def test_of_many_setups_those_that_only_say_who_does_what_are_all_considered() -> None:
    listed = {**slots(("operation all-reduce", "operation all-gather")), **slots(("order", "graph"))}
    considered = list(considered_setups({slot: each[:20] for slot, each in listed.items()}))
    quick = {each for each in considered if not each.is_planned_anew}
    assert len(considered) == len(set(considered)) <= 4096
    assert len(quick) == 21 * 21
    assert {len(each) for each in considered} == {0, 1, 2, 3, 4}
