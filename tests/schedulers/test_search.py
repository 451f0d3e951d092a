"""Choosers: right where the answer is known, the same for the same seed, and never more than the budget."""

from __future__ import annotations

import math
import random
from itertools import permutations, product

import pytest

from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.schedulers.search import Constraints, annealed, enumerated, integer_program, list_scheduled, threshold


def test_a_threshold_stops_at_the_first_that_is_enough() -> None:
    assert threshold([1, 2, 4, 8], lambda size: size >= 3) == 4
    assert threshold([1, 2], lambda size: size >= 3) == 2
    with pytest.raises(UsageError):
        threshold([], bool)


def test_all_are_tried_and_bounds_leave_out() -> None:
    asked: list[int] = []

    def cost(x: int) -> float:
        asked.append(x)
        return (x - 3) ** 2 + 1

    chosen = enumerated(range(8), cost, bound=lambda x: (x - 3) ** 2)
    assert (chosen.candidate, chosen.cost, chosen.is_best) == (3, 1.0, True)
    assert asked == [0, 1, 2, 3]
    short = enumerated(range(8), cost, budget=2)
    assert (short.candidate, short.evaluated, short.is_best) == (1, 2, False)
    with pytest.raises(InfeasibleError):
        enumerated(range(3), lambda x: math.inf)
    with pytest.raises(UsageError):
        enumerated(range(3), lambda x: math.nan)


def test_a_walk_finds_the_best_order_within_its_budget() -> None:
    draw = random.Random(1)
    weights = [draw.random() for _ in range(7)]

    def cost(order: tuple[int, ...]) -> float:
        return sum(at * weights[each] for at, each in enumerate(order))

    def swapped(order: tuple[int, ...], chance: random.Random) -> tuple[int, ...]:
        i, j = chance.sample(range(len(order)), 2)
        listed = list(order)
        listed[i], listed[j] = listed[j], listed[i]
        return tuple(listed)

    best = min(permutations(range(7)), key=cost)
    one, other = (annealed(tuple(range(7)), swapped, cost, budget=800, seed=5) for _ in range(2))
    assert one == other
    assert one.evaluated <= 800
    assert one.cost == pytest.approx(cost(best))
    assert annealed(tuple(range(7)), swapped, cost, budget=20, seed=1).evaluated <= 20


def test_list_scheduling_takes_the_longest_way_first() -> None:
    """Source of the bound: Graham 1969, at most 2 - 1/m of the best; here two resources and a chain."""
    seconds = {"long": 1.0, "tail": 5.0, "short": 2.0, "send": 1.0}
    listed = list_scheduled(seconds, {"tail": ["long"], "send": ["short"]}, dict.fromkeys(seconds, "a") | {"send": "b"})
    assert listed.order == ("long", "tail", "short", "send")
    assert listed.makespan == 9.0
    hurried = list_scheduled(
        seconds,
        {"tail": ["long"], "send": ["short"]},
        dict.fromkeys(seconds, "a") | {"send": "b"},
        lambda name: float(name == "short"),
    )
    assert hurried.order[0] == "short"
    assert hurried.makespan == 8.0
    with pytest.raises(UsageError):
        list_scheduled({"a": 1, "b": 1}, {"a": ["b"], "b": ["a"]}, {"a": "x", "b": "x"})


@pytest.mark.parametrize("seed", range(6))
def test_an_integer_program_is_as_good_as_trying_all(seed: int) -> None:
    draw = random.Random(seed)
    worth = [draw.randint(1, 20) for _ in range(8)]
    weight = [draw.randint(1, 9) for _ in range(8)]
    most = sum(weight) // 2
    best = max(
        sum(w for w, x in zip(worth, chosen, strict=True) if x)
        for chosen in product((0, 1), repeat=8)
        if sum(w for w, x in zip(weight, chosen, strict=True) if x) <= most
    )
    names = [f"x{at}" for at in range(8)]
    rows = Constraints((dict(zip(names, map(float, weight), strict=True)),), (-math.inf,), (float(most),))
    solved = integer_program(
        {name: -float(each) for name, each in zip(names, worth, strict=True)},
        rows,
        whole=names,
        bounds=dict.fromkeys(names, (0.0, 1.0)),
    )
    assert -solved.cost == pytest.approx(best)
    assert all(value in (0.0, 1.0) for value in solved.values.values())
    assert solved.gap <= 1e-4


def test_an_integer_program_without_a_solution_says_so() -> None:
    with pytest.raises(InfeasibleError, match="no solution"):
        integer_program({"x": 1.0}, Constraints(({"x": 1.0},), (2.0,), (3.0,)), bounds={"x": (0.0, 1.0)})
    with pytest.raises(UsageError, match="'y'"):
        integer_program({"x": 1.0}, Constraints(({"y": 1.0},), (0.0,), (1.0,)))
