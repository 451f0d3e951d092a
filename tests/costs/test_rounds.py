"""Bounds on steps and rounds: known values, proofs that stand by themselves, and the cut that they must equal."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ringwright.bounds.cheapest_trees import least_route, least_tree
from ringwright.bounds.lower_bounds import bound
from ringwright.bounds.round_limits import RoundLimit, UnitLinks, wires_of
from ringwright.bounds.rounds import Flow, proven_rounds, rounds_bound, steps_bound
from ringwright.fabrics import fabric
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.model.collective import Collective
from ringwright.model.topology import Topology


def gathering(p: int) -> list[Flow]:
    return [(rank, tuple(end for end in range(p) if end != rank)) for rank in range(p)]


def wires(on: str) -> UnitLinks:
    top = fabric(on)
    return wires_of(top, range(top.n_ranks))


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize(
    ("on", "steps", "rounds"),
    [
        ("dgx-1:1", 2, "7/6"),
        ("ring:8", 4, "7/2"),
        ("hypercube:8", 3, "7/3"),
        ("torus:4x4", 4, "15/4"),
        ("switch:8", 1, "7"),
        ("full:6", 1, "1"),
        ("mesh:3x3", 4, "4"),
        ("dgx-a100:2", 2, "15/13"),
    ],
)
def test_all_gather(on: str, steps: int, rounds: str) -> None:
    machine = wires(on)
    flows = gathering(machine.p)
    assert steps_bound(machine, flows)[0] == steps
    found = rounds_bound(machine, flows)
    assert found.per_chunk == Fraction(rounds)
    assert proven_rounds(machine, flows, found.prices) == found.per_chunk


def test_rooted_and_personal() -> None:
    """DGX-1: a broadcast leaves its root by six links, a gather comes in by them, an all-to-all crosses the middle."""
    machine = wires("dgx-1:1")
    others = range(1, 8)
    assert rounds_bound(machine, [(0, tuple(others))]).per_chunk == Fraction(1, 6)
    assert rounds_bound(machine, [(rank, (0,)) for rank in others]).per_chunk == Fraction(7, 6)
    pairs: list[Flow] = [(a, (b,)) for a, b in itertools.permutations(range(8), 2)]
    assert rounds_bound(machine, pairs).per_chunk == Fraction(8, 3)


def test_prices_prove_what_they_prove() -> None:
    """Any prices are a bound, in proportion; other capacities change it; none and negative ones are refused."""
    machine = wires("ring:8")
    flows, best = gathering(8), Fraction(7, 2)
    draw = random.Random(1)
    for _ in range(20):
        prices = [Fraction(draw.randrange(0, 9)) for _ in machine.limits]
        proven = proven_rounds(machine, flows, prices)
        assert proven <= best
        assert proven == proven_rounds(machine, flows, [3 * price for price in prices])
    assert proven_rounds(machine, flows, [Fraction(1)] * 16) == best
    doubled = UnitLinks(8, machine.edges, tuple(RoundLimit(each.edges, 2) for each in machine.limits))
    assert proven_rounds(doubled, flows, [Fraction(1)] * 16) == best / 2
    for prices in ([Fraction(0)] * 16, [Fraction(-1), *[Fraction(1)] * 15], []):
        with pytest.raises(UsageError, match="prices are 0 or more"):
            proven_rounds(machine, flows, prices)


def test_a_chunk_for_some_ranks_is_refused() -> None:
    with pytest.raises(UsageError, match="to 2 of 4"):
        rounds_bound(wires("ring:4"), [(0, (1, 2))])


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_is_the_tightest_cut(seed: int) -> None:
    """For all-gather and broadcast no bound of this kind is higher than the exact cut, and the best prices reach it."""
    draw = random.Random(seed)
    top = random_machine(draw, draw.randrange(3, 8))
    p = top.n_ranks
    machine = wires_of(top, range(p))
    for op, flows, per in (("all-gather", gathering(p), p), ("broadcast", gathering(p)[:1], 1)):
        size = p * 1_000_000_000
        found = rounds_bound(machine, flows)
        cut = bound(Collective(op, range(p), size), replace(top, latency_s=top.latency_s * 0), exact=True)
        assert float(found.per_chunk) * (size / per) / machine.unit_rate == pytest.approx(cut.time_s, rel=1e-6)


def random_machine(draw: random.Random, p: int) -> Topology:
    """Return a ring one way with chords, rates in whole multiples of 1 GB/s."""
    edges = sorted(
        {(a, (a + 1) % p) for a in range(p)}
        | {(a, b) for a, b in itertools.permutations(range(p), 2) if draw.random() < 0.25}
    )
    rates = [draw.choice((1e9, 2e9, 3e9)) for _ in edges]
    rates[0] = 1e9
    src, dst = np.array(edges).T
    plain = fabric(f"ring:{p}")
    return replace(
        plain, name="chords", src=src, dst=dst, rate=np.array(rates), latency_s=np.full(len(edges), 1e-6),
        link_class=np.zeros(len(edges), int), paths=None, is_symmetric=False, axes=(),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_trees_and_routes_are_the_cheapest(seed: int) -> None:
    """Against all choices of an incoming arc for each node, and all routes."""
    draw = random.Random(seed)
    n = draw.randrange(2, 6)
    arcs = [pair for pair in itertools.permutations(range(n), 2) if draw.random() < 0.7]
    prices = [Fraction(draw.randrange(0, 7), 2) for _ in arcs]
    tree = least_tree(n, 0, arcs, prices)
    into = [[number for number, arc in enumerate(arcs) if arc[1] == node] for node in range(1, n)]
    costs = [
        sum(prices[number] for number in chosen)
        for chosen in itertools.product(*into)
        if _reaches_all(n, [arcs[number] for number in chosen])
    ]
    assert (tree is None) == (not costs)
    if tree is not None:
        assert _reaches_all(n, [arcs[number] for number in tree])
        assert sum(prices[number] for number in tree) == min(costs)
    route = least_route(n, 0, n - 1, arcs, prices)
    far = {0: Fraction(0)}
    for _ in range(n):
        for (here, there), price in zip(arcs, prices, strict=True):
            if here in far:
                far[there] = min(far.get(there, far[here] + price), far[here] + price)
    assert (route is None) == (n - 1 not in far)
    if route is not None:
        assert sum(prices[number] for number in route) == far[n - 1]


def _reaches_all(n: int, arcs: list[tuple[int, int]]) -> bool:
    reached = {0}
    for _ in range(n):
        reached |= {there for here, there in arcs if here in reached}
    return len(reached) == n


# --------------------------------------------------------------------------------------------------- wires of a machine
def test_links_count_in_multiples_of_the_slowest() -> None:
    machine = wires("dgx-1:1")
    assert sorted({limit.chunks for limit in machine.limits}) == [1, 2]
    assert sum(limit.chunks for limit in machine.limits) == 48
    assert machine.unit_rate == 25e9
    assert machine.turned == machine


def test_a_switch_limits_its_ports() -> None:
    machine = wires("switch:5")
    assert len(machine.edges) == 20
    assert sorted(len(limit.edges) for limit in machine.limits) == [4] * 10


def test_a_group_shares_links_with_nobody_else() -> None:
    """GPUs 0 and 5 have no NVLink, and the third one between them is not in the group: they are neighbours here."""
    machine = wires_of(fabric("dgx-1:1"), (0, 5))
    assert machine.edges == ((0, 1), (1, 0))
    with pytest.raises(UsageError, match="no rank 9"):
        wires_of(fabric("dgx-1:1"), (0, 9))


def test_what_cannot_be_reached_is_said() -> None:
    one_way = UnitLinks(3, ((0, 1), (1, 2)), (RoundLimit((0,), 1), RoundLimit((1,), 1)))
    with pytest.raises(InfeasibleError, match="nothing gets from place 1 of the group to place 0"):
        steps_bound(one_way, gathering(3))
    assert steps_bound(one_way, gathering(3)[:1]) == (2, 0, 2)
    with pytest.raises(InfeasibleError, match="nothing gets from"):
        rounds_bound(one_way, gathering(3))
    assert rounds_bound(one_way, gathering(3)[:1]).per_chunk == 1
    assert one_way.turned.edges == ((1, 0), (2, 1))
