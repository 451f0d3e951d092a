"""P2 as an algorithm: the published sequences are found, every sequence moves real data, placements are all of them."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

import ringwright
from ringwright.algorithms.blocks.pipeline import pipeline
from ringwright.algorithms.blocks.rabenseifner import rabenseifner
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.published.blueconnect import blueconnect
from ringwright.algorithms.ring_steps import Rings
from ringwright.algorithms.synthesis import p2 as package
from ringwright.algorithms.synthesis.p2 import OPS, p2
from ringwright.algorithms.synthesis.p2.chosen import SequencePrices, ranked, told_sequence
from ringwright.algorithms.synthesis.p2.composed import Composed
from ringwright.algorithms.synthesis.p2.language import Hierarchy
from ringwright.algorithms.synthesis.p2.machine import given_levels, levels_of
from ringwright.algorithms.synthesis.p2.matrices import devices, groups, matrices, reduced_levels
from ringwright.algorithms.synthesis.p2.parts import SmallPrograms
from ringwright.algorithms.synthesis.p2.search import Sequences
from ringwright.ground.errors import DeclinedError, InfeasibleError, UsageError
from ringwright.model import interpreter, validity
from ringwright.model.collective import Collective

RINGS = SmallPrograms((ring,), (pipeline,), Rings(1e-6, 1e-9))
MIB = 1 << 20


def two_boxes() -> ringwright.Topology:
    return ringwright.fabric("dgx-a100:2")


# ------------------------------------------------------------------------------------------------------------ placements
@pytest.mark.parametrize(
    ("axes", "levels"),
    [
        ((32, 2), (4, 16)),
        ((16, 4), (4, 16)),
        ((4, 4, 4), (4, 16)),
        ((6, 4), (2, 3, 4)),
        ((5,), (5,)),
        ((2, 1, 6), (3, 4)),
        ((64,), (4, 16)),
    ],
    ids=str,
)
def test_as_many_matrices_as_by_brute_force(axes: tuple[int, ...], levels: tuple[int, ...]) -> None:
    """Every table of divisors of the levels whose rows and columns multiply to the sizes, tried one by one."""
    columns = [
        [column for column in itertools.product(*(range(1, size + 1),) * len(axes)) if math.prod(column) == size]
        for size in levels
    ]
    wanted = {
        tuple(zip(*table, strict=True))
        for table in itertools.product(*columns)
        if tuple(map(math.prod, zip(*table, strict=True))) == axes
    }
    made = list(matrices(axes, levels))
    assert set(made) == wanted
    assert len(made) == len(wanted) > 0


def test_axes_that_do_not_fill_the_machine_are_refused() -> None:
    with pytest.raises(UsageError, match="axes of 3x2 do not fill levels of 4x2"):
        list(matrices((3, 2), (4, 2)))
    with pytest.raises(UsageError, match="nothing"):
        list(matrices((), (4, 2)))


def test_the_groups_of_an_axis_are_its_lines_in_the_grid() -> None:
    for matrix in matrices((4, 3, 2), (4, 6)):
        grid = devices(matrix)
        assert grid.shape == (4, 3, 2)
        assert sorted(grid.reshape(-1).tolist()) == list(range(24))
        for over in ((0,), (1,), (0, 2), (0, 1, 2)):
            lines = np.moveaxis(grid, over, range(-len(over), 0)).reshape(-1, math.prod(grid.shape[at] for at in over))
            mine = groups(matrix, over)
            assert {frozenset(row) for row in mine.tolist()} == {frozenset(row) for row in lines.tolist()}
            assert math.prod(size for size, _ in reduced_levels(matrix, over)) == mine.shape[1]


def test_members_of_a_group_are_in_the_order_of_its_levels() -> None:
    """Along each level of a reduction's hierarchy, the next member is always as many devices further."""
    for matrix in matrices((4, 2, 9), (12, 6)):
        for over in ((0,), (0, 1), (1, 2), (2, 0)):
            sizes = [size for size, _ in reduced_levels(matrix, over)]
            grid = groups(matrix, over).reshape(-1, *sizes)
            assert all(len(np.unique(np.diff(grid, axis=axis))) == 1 for axis in range(1, grid.ndim))
            node = grid // 6
            across = [level == 0 for _, level in reduced_levels(matrix, over)]
            assert [bool(np.diff(node, axis=axis).any()) for axis in range(1, grid.ndim)] == across


def test_a_host_is_filled_by_the_part_at_its_level() -> None:
    grid = devices(((2, 4), (2, 2)))  # 4 GPUs of each host along the first axis, 2 along the second
    assert grid.tolist() == [
        *([[0, 1, 16 // 2, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]]),
        *([[16, 17, 24, 25], [18, 19, 26, 27], [20, 21, 28, 29], [22, 23, 30, 31]]),
    ]


# ------------------------------------------------------------------------------------------------------------- sequences
def spelled(sizes: tuple[int, ...], length: int = 5, op: str = "all-reduce") -> set[str]:
    names = [f"l{at}" for at in range(len(sizes))]
    return {told_sequence(each, names) for each in Sequences(Hierarchy(sizes), op, length).every()}


def test_the_published_sequences_are_found() -> None:
    every = spelled((4, 16))
    assert "AR(l0*l1)" in every
    assert "RS(l1) AR(l0) AG(l1)" in every  # BlueConnect
    assert "R(l1) AR(l0) B(l1)" in every  # hierarchical
    assert "RS(l2) RS(l1) AR(l0) AG(l1) AG(l2)" in spelled((2, 4, 8))
    assert "RS(l1) AG(l1) AG(l1)" not in every
    assert "AR(l1) AR(l0*l1)" not in every  # would add twice


@pytest.mark.parametrize("sizes", [(64,), (4, 16), (8, 8), (2, 32), (4, 4, 4), (2, 2, 8, 2)], ids=str)
def test_sequences_up_to_five_of_64_devices_are_few_states(sizes: tuple[int, ...]) -> None:
    """What takes the time, counted: 30 states of two levels, some hundred of three (benchmarks/synthesis_p2.py has seconds)."""
    made = Sequences(Hierarchy(sizes), "all-reduce", 5)
    assert made.count() >= 3
    assert len(made.successors) <= 1300


def test_the_cheapest_are_those_of_all_that_cost_least() -> None:
    hierarchy, topology = Hierarchy((2, 8)), two_boxes()
    prices = SequencePrices(hierarchy, topology, np.arange(16)[None], 64 * MIB)

    def price(sequence: tuple[package.language.Instruction, ...]) -> float:
        state, total = hierarchy.before("all-reduce"), 0.0
        for each in sequence:
            after = hierarchy.after(each, state)
            assert after is not None
            total += prices(each, state, after)
            state = after
        return total

    every = sorted(price(each) for each in Sequences(hierarchy, "all-reduce", 5).every())
    kept = ranked(prices, "all-reduce", 5, 12)
    assert [seconds for seconds, _ in kept[:12]] == pytest.approx(every[:12])
    assert all(price(sequence) == pytest.approx(seconds) for seconds, sequence in kept)
    assert any(told_sequence(sequence, ("node", "gpu")) == "AR(node*gpu)" for _, sequence in kept)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("sizes", [(2, 3), (3, 2, 2), (2, 2, 2)], ids=str)
def test_every_sequence_moves_real_data_to_where_it_belongs(sizes: tuple[int, ...], op: str) -> None:
    draw, p = random.Random(f"{sizes} {op}"), math.prod(sizes)
    every = list(Sequences(Hierarchy(sizes), op, 4).every())
    for sequence in draw.sample(every, min(len(every), 14)):
        order = np.random.default_rng(draw.randrange(99)).permutation(p) if draw.random() < 0.5 else np.arange(p)
        root = int(order[0]) if op in ("reduce", "broadcast") else 0
        collective = Collective(op, range(p), draw.choice([0, 4, 4 * 1021, 4 * 24 * p]), root=root)
        names = [f"l{at}" for at in range(len(sizes))]
        program = Composed(collective, Hierarchy(sizes), names, order, sequence, RINGS).program("p2")
        told = told_sequence(sequence, names)
        assert not validity.check(program), told
        given = interpreter.inputs(collective, seed=3)
        for have, want in zip(interpreter.run(program, given), interpreter.expected(collective, given), strict=True):
            assert all(np.array_equal(have[block], want[block]) for block in want), told


# ----------------------------------------------------------------------------------------------------------- the program
def test_blueconnect_is_what_it_finds_on_two_boxes() -> None:
    collective, topology = Collective("all-reduce", range(16), 64 * MIB), two_boxes()
    made = p2(collective, topology)
    assert made.knobs["sequence"] == "RS(gpu) AR(node) AG(gpu)"
    assert made.knobs["levels"] == "node 2 x gpu 8"
    assert (
        ringwright.simulate(made, topology).time_s
        == ringwright.simulate(blueconnect(collective, topology), topology).time_s
    )
    single = ringwright.simulate(p2(collective, topology, length=1), topology).time_s
    assert ringwright.simulate(made, topology).time_s < single == ringwright.simulate(ring(collective), topology).time_s


def test_it_is_never_slower_than_one_collective() -> None:
    for fabric, p in (("ndv2:2", 16), ("torus:2x4", 8), ("switch:6", 6)):
        topology = ringwright.fabric(fabric)
        for size in (1 << 10, 4 * MIB):
            collective = Collective("all-reduce", range(p), size)
            best, single = (ringwright.simulate(p2(collective, topology, length=n), topology).time_s for n in (5, 1))
            assert best <= single


def test_the_same_program_again_and_another_inner() -> None:
    collective, topology = Collective("all-reduce", range(16), MIB), two_boxes()
    one, two = p2(collective, topology), p2(collective, topology)
    for left, right in zip(one.steps(), two.steps(), strict=True):
        for mine, other in zip(left.blocks, right.blocks, strict=True):
            assert all(map(np.array_equal, mine.arrays(), other.arrays()))
    assert dict(one.knobs) == dict(two.knobs)
    other = p2(collective, topology, inner=rabenseifner, length=3)
    assert not validity.check(other, topology=topology)


def test_a_budget_and_an_interrupt_give_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    collective, topology = Collective("all-reduce", range(16), MIB), two_boxes()
    assert p2(collective, topology, budget=0.001).knobs["stopped"] is True
    assert p2(collective, topology).knobs["stopped"] is False
    real, calls = package.simulate, []

    def interrupted(*given: object, **knobs: object) -> object:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*given, **knobs)  # type: ignore[arg-type]

    monkeypatch.setattr(package, "simulate", interrupted)
    made = p2(collective, topology)
    assert made.knobs["stopped"] is True
    assert made.knobs["simulated"] == 2
    calls[:] = [(), ()]
    with pytest.raises(InfeasibleError, match="found no sequence"):
        p2(collective, topology)


def test_what_it_refuses() -> None:
    topology = two_boxes()
    with pytest.raises(UsageError, match="does no all-to-all"):
        p2(Collective("all-to-all", range(4), 64), topology)
    with pytest.raises(UsageError, match="keep the order"):
        p2(Collective("all-reduce", range(4), 64, commutative=False), topology)
    with pytest.raises(UsageError, match="product of the factors 3x5 is not 16"):
        p2(Collective("all-reduce", range(16), 64), topology, factors=(3, 5))
    with pytest.raises(UsageError, match="no algorithm does the broadcast"):
        p2(Collective("broadcast", range(16), 64), topology, rooted=ring)
    with pytest.raises(DeclinedError, match="4,096 ranks and 6 levels"):
        p2(Collective("all-reduce", range(128), 64), factors=(2,) * 7)


def test_without_a_machine_it_takes_the_fewest_bytes() -> None:
    made = p2(Collective("all-reduce", range(8), MIB), factors=(4, 2))
    assert made.knobs["simulated"] == 0
    assert not validity.check(made)


# --------------------------------------------------------------------------------------------------------------- levels
def test_the_levels_that_a_group_sees() -> None:
    topology = ringwright.fabric("dgx-h100:4")
    assert levels_of(topology, range(32)).sizes == (4, 8)
    assert levels_of(topology, range(8, 16)).names == ("gpu",)
    assert levels_of(topology, range(0, 32, 8)).names == ("node",)
    assert levels_of(topology, (9, 1, 8, 0)).order.tolist() == [3, 1, 2, 0]
    assert levels_of(topology, range(12)).sizes == (12,)  # a host and a half
    assert levels_of(None, range(6)).sizes == (6,)
    bare = replace(topology, axes=())
    assert levels_of(bare, range(32)).sizes == (4, 8)
    assert levels_of(bare, range(32)).names == ("host", "rank")
    assert given_levels((8, 1, 4), 32).sizes == (4, 8)


def test_hosts_that_are_interleaved_are_still_hosts() -> None:
    topology, group = two_boxes(), tuple(rank for pair in zip(range(8), range(8, 16), strict=True) for rank in pair)
    collective = Collective("all-reduce", group, 64 * MIB)
    made = p2(collective, topology)
    assert made.knobs["sequence"] == "RS(gpu) AR(node) AG(gpu)"
    straight = p2(Collective("all-reduce", range(16), 64 * MIB), topology)
    assert ringwright.simulate(made, topology).time_s == pytest.approx(ringwright.simulate(straight, topology).time_s)
    small = replace(collective, size_bytes=4 * 1021)
    given = interpreter.inputs(small, seed=1)
    for have, want in zip(interpreter.run(p2(small, topology), given), interpreter.expected(small, given), strict=True):
        assert all(np.array_equal(have[block], want[block]) for block in want)
