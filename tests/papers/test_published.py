"""The published systems: legal, right on real data, exact in steps and bytes; and what each paper promises of itself."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from ringwright.algorithms.published.accl import accl
from ringwright.algorithms.published.accl.mapping import seat
from ringwright.algorithms.published.blueconnect import blueconnect
from ringwright.algorithms.published.imagenet_4_minutes import (
    fuse,
    groups_of,
    imagenet_4_minutes,
    predicted_s,
    prices,
)
from ringwright.algorithms.published.plink import Monitor, adapted, infer_groups, plan_time_s, plink, probe, rounds
from ringwright.algorithms.published.ring_allreduce import ring_allreduce, ring_order
from ringwright.algorithms.published.torus_2d_allreduce import torus_2d_allreduce
from ringwright.ground.errors import UsageError
from ringwright.ground.plugins import HOUSE
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.registry import find, systems
from ringwright.model.validity import check
from small_fabrics import bigraph, boxes, busiest_link, closed_form_error, racks, star, time_s, tree, wrong

pytestmark = pytest.mark.once

RANKS = [*range(1, 18), 32]
SLUGS = [system.slug for system in systems() if system.kind == "published" and system.origin == HOUSE]


def all_reduce(p: int, size_bytes: int) -> Collective:
    return Collective("all-reduce", range(p), size_bytes)


def sizes(p: int) -> list[int]:
    return [0, 4, 4 * (p - 1), 4 * p, 4 * (p + 1), 4 * 1021, 3001, 4 * 24 * p * p]


# ------------------------------------------------------------------------------------------------------------ all of them
@pytest.mark.sampled(45)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("slug", SLUGS)
def test_legal_and_right(slug: str, p: int) -> None:
    system = find(slug)
    for op, size_bytes in itertools.product(system.ops, sizes(p)):
        program = system.load()(Collective(op, range(p), size_bytes))
        assert not wrong(program), (op, size_bytes)


@pytest.mark.parametrize("slug", SLUGS)
def test_declared_costs_are_the_time_on_ideal_links(slug: str) -> None:
    system = find(slug)
    for op, p in itertools.product(system.ops, (2, 3, 4, 7, 8, 12, 16)):
        program = system.load()(Collective(op, range(p), 4 * 2520 * p * p))
        assert (closed_form_error(program) or 0.0) < 1e-6, (op, p)


@pytest.mark.parametrize("slug", SLUGS)
def test_refuses_what_it_does_not_do(slug: str) -> None:
    with pytest.raises(UsageError):
        find(slug).load()(Collective("gather", range(4), 64))
    with pytest.raises(UsageError):
        find(slug).load()(dataclasses.replace(all_reduce(4, 64), commutative=False))


# ------------------------------------------------------------------------------------------------------ ring-allreduce
def test_no_link_has_two_messages_on_any_tree() -> None:
    """300 random trees of switches with ranks anywhere."""
    generator = np.random.default_rng(0)
    for number in range(300):
        p, switches = int(generator.integers(2, 14)), int(generator.integers(1, 10))
        parents = [-1, *(int(generator.integers(0, child)) for child in range(1, switches))]
        topology = tree(p, parents, generator.integers(0, switches, p).tolist())
        collective = Collective("all-gather", range(p), 4 * p)
        program = ring_allreduce(collective, topology)
        first = dataclasses.replace(program, make_steps=lambda program=program: [next(program.steps())])
        assert busiest_link(first, topology) == 1, number
    assert busiest_link(ring_allreduce(collective, topology, order="random-1"), topology) >= 1


@pytest.mark.parametrize("op", ["all-reduce", "reduce-scatter", "all-gather"])
@pytest.mark.parametrize("knobs", [{}, {"channels": 2}, {"loops": 3}, {"channels": 2, "loops": 2}])
def test_any_order_gives_the_same_result(op: str, knobs: dict[str, int]) -> None:
    for p, seed in itertools.product((2, 3, 5, 8), range(3)):
        program = ring_allreduce(Collective(op, range(p), 4 * 103), order=f"random-{seed}", **knobs)
        assert not wrong(program)
    counts = (0, 12, 400, 4, 0)
    if op != "all-reduce":
        uneven = Collective(op, range(5), sum(counts), counts=counts)
        assert not wrong(ring_allreduce(uneven, order="random-1"))


def test_ranks_of_a_host_are_neighbours_in_any_group() -> None:
    topology = boxes(4, 4, nvlink=1e11, nic=1e10)
    mixed = np.random.default_rng(5).permutation(16).tolist()
    order = ring_order(Collective("all-reduce", mixed, 64), topology)
    hosts = [mixed[place] // 4 for place in order]
    assert sum(one != two for one, two in itertools.pairwise([*hosts, hosts[0]])) == 4
    assert order[0] == 0


def test_the_ring_of_a_regular_machine_stays_a_pattern() -> None:
    program = ring_allreduce(all_reduce(16, 1024), racks(4, 4))
    assert all(block.is_affine for step in program.steps() for block in step.blocks)


def test_each_rank_sends_the_least() -> None:
    collective = all_reduce(7, 4 * 1003)
    program = ring_allreduce(collective, order="random-2")
    sent = np.zeros(7, np.int64)
    for step in program.steps():
        for block in step.blocks:
            src, _, chunk, _ = block.arrays()
            np.add.at(sent, src, program.layout.bytes_of(chunk))
    assert sent.sum() == 2 * 6 * collective.size_bytes
    assert np.abs(sent - 2 * 6 / 7 * collective.size_bytes).max() <= 8


# --------------------------------------------------------------------------------------------------- levels and grids
def factorisations(p: int) -> Iterator[tuple[int, ...]]:
    yield (p,)
    for first in range(2, p):
        if p % first == 0:
            yield from ((first, *rest) for rest in factorisations(p // first))


@pytest.mark.sampled(10, "p")
@pytest.mark.parametrize("p", [*range(2, 25), *(pytest.param(p, marks=pytest.mark.slow) for p in range(25, 65))])
def test_blueconnect_over_all_factors(p: int) -> None:
    for factors in factorisations(p):
        program = blueconnect(all_reduce(p, 4 * p * p), factors=(*factors, 1))
        assert program.cost.sent_bytes == 2 * (p - 1) * 4 * p * p
        assert program.n_steps == 2 * sum(factor - 1 for factor in factors)
        assert not wrong(program), factors


def test_no_rank_idles_in_a_phase_of_blueconnect() -> None:
    for step in blueconnect(all_reduce(24, 96), factors=(4, 3, 2)).steps():
        senders = np.concatenate([block.arrays()[0] for block in step.blocks])
        assert set(senders.tolist()) == set(range(24))


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("factors", [(2, 3), (4, 2, 2), (5,)])
def test_blueconnect_in_pieces(factors: tuple[int, ...], pieces: int) -> None:
    p = math.prod(factors)
    for size_bytes in sizes(p):
        assert not wrong(blueconnect(all_reduce(p, size_bytes), factors=factors, pieces=pieces))


GRIDS = [(1, 1), (1, 7), (7, 1), (2, 3), (4, 4), (5, 3), (3, 16), (16, 2), (9, 5)]
REST = sorted(set(itertools.product(range(1, 17), repeat=2)) - set(GRIDS))


@pytest.mark.sampled(40, "x", "y")
@pytest.mark.parametrize(("x", "y"), GRIDS + [pytest.param(*grid, marks=pytest.mark.slow) for grid in REST])
def test_torus_steps_and_bytes(x: int, y: int) -> None:
    n = 4 * x * y * 10
    program = torus_2d_allreduce(all_reduce(x * y, n), x=x)
    assert program.n_steps == 2 * (x - 1) + 2 * (y - 1)
    per_rank = 2 * (x - 1) / x * n + 2 * (y - 1) / y * n / x
    assert program.cost.sent_bytes == pytest.approx(per_rank * x * y)
    assert not (wrong(program) if x * y <= 64 else check(program))


# -------------------------------------------------------------------------------------------------- imagenet-4-minutes
def hierarchy(p: int, size_bytes: int, group: int, **knobs: int) -> Program:
    return imagenet_4_minutes(all_reduce(p, size_bytes), group=group, eta=math.inf, **knobs)


@pytest.mark.sampled(4, "p")
@pytest.mark.parametrize("p", [2, 3, 6, 8, 12, 17])
def test_hierarchy_for_all_groups(p: int) -> None:
    for group, size_bytes in itertools.product(range(1, p + 1), sizes(p)):
        program = hierarchy(p, size_bytes, group)
        assert not wrong(program), (group, size_bytes)
        if p % group == 0:
            assert program.n_steps == 4 * (group - 1) + 2 * (p // group - 1)
            assert group == p or (closed_form_error(program) or 0.0) < 1e-6, (group, size_bytes)


def test_hierarchy_of_1024_takes_186_steps() -> None:
    assert hierarchy(1024, 1 << 20, 16).n_steps == 186
    assert imagenet_4_minutes(all_reduce(1024, 1 << 20), eta=0).n_steps == 2046


@pytest.mark.parametrize("segments", [1, 2, 7])
def test_hierarchy_in_any_segments_on_unequal_hosts(segments: int) -> None:
    topology = dataclasses.replace(star(9), hosts=np.array([0, 0, 1, 2, 2, 2, 0, 1, 3]))
    program = imagenet_4_minutes(all_reduce(9, 4 * 101), topology, eta=math.inf, segments=segments)
    assert not wrong(program)
    assert groups_of(all_reduce(9, 8), topology) == [[0, 1, 6], [2, 7], [3, 4, 5], [8]]


def test_hybrid_takes_the_cheaper_for_every_size() -> None:
    topology = boxes(16, 8, nvlink=50e9, nic=12.5e9, nics=1, network=10e-6)
    chosen = []
    for bits in range(2, 32):
        collective = all_reduce(128, 1 << bits)
        price = prices(topology, collective, groups_of(collective, topology))
        both = [predicted_s(imagenet_4_minutes(collective, topology, eta=eta), price) for eta in (0, math.inf)]
        program = imagenet_4_minutes(collective, topology)
        assert predicted_s(program, price) == min(both)
        chosen.append(program.knobs["choice"])
    assert chosen == sorted(chosen)
    assert set(chosen) == {"hierarchical", "ring"}


def test_inner_and_outer_are_any_algorithm() -> None:
    load = {slug: find(slug).load() for slug in ("binomial", "rabenseifner")}
    program = imagenet_4_minutes(
        all_reduce(12, 4 * 1001), group=4, eta=math.inf, inner=load["binomial"], outer=load["rabenseifner"]
    )
    assert not wrong(program)


def test_fusion() -> None:
    assert fuse([], 10) == []
    assert fuse([4, 4, 4, 4], 0) == [(0,), (1,), (2,), (3,)]
    assert fuse([4, 4, 4, 4, 100, 2], 8) == [(0, 1, 2), (3, 4), (5,)]
    generator = np.random.default_rng(1)
    for _ in range(50):
        tensors, threshold = generator.integers(0, 100, 40).tolist(), int(generator.integers(1, 500))
        pools = fuse(tensors, threshold)
        assert [number for pool in pools for number in pool] == list(range(40))
        assert all(sum(tensors[i] for i in pool) > threshold for pool in pools[:-1])
        assert all(sum(tensors[i] for i in pool[:-1]) <= threshold for pool in pools)


# --------------------------------------------------------------------------------------------------------------- plink
@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 8, 13, 64, 101])
def test_every_pair_is_probed_once_with_one_partner_at_a_time(p: int) -> None:
    schedule = rounds(p)
    assert len(schedule) == (0 if p == 1 else p - 1 if p % 2 == 0 else p)
    assert all(len(set(turn.reshape(-1).tolist())) == turn.size for turn in schedule)
    pairs = [tuple(pair) for turn in schedule for pair in turn.tolist()]
    assert sorted(pairs) == list(itertools.combinations(range(p), 2))


def rand_index(one: np.ndarray, two: np.ndarray) -> float:
    """Return the adjusted Rand index of two labellings."""
    table = np.array([[((one == i) & (two == j)).sum() for j in np.unique(two)] for i in np.unique(one)])
    both, left, right = ((x * (x - 1) / 2).sum() for x in (table, table.sum(1), table.sum(0)))
    chance = left * right / math.comb(len(one), 2)
    return float((both - chance) / ((left + right) / 2 - chance))


@pytest.mark.parametrize("seed", range(4))
def test_hidden_racks_are_found_through_noise(seed: int) -> None:
    """8 racks x 8 hosts, 20 % noise."""
    order = np.random.default_rng(seed).permutation(64)
    topology = racks(8, 8, order=order)
    groups = infer_groups(probe(topology, range(64), noise=0.2, seed=seed), 100 << 20, seed)
    label = np.zeros(64, int)
    for number, group in enumerate(groups):
        label[group] = number
    assert rand_index(order // 8, label) >= 0.95


@pytest.mark.parametrize(
    "groups", [[[0, 1, 2, 3, 4], [5, 6], [7]], [[7, 0], [3, 1, 2, 4, 6, 5]], [[i] for i in range(8)], 3, 1]
)
def test_plans_for_unequal_groups(groups: list[list[int]] | int) -> None:
    slow = star(8)
    slow.rate[3] = slow.rate[3 + 8] = 2e9
    for size_bytes, topology in itertools.product(sizes(8), (None, slow)):
        program = plink(all_reduce(8, size_bytes), topology, groups=groups)
        assert not wrong(program)
        assert program.cost.sent_bytes == 2 * 7 * size_bytes


def test_a_slow_host_owns_fewer_shards() -> None:
    from ringwright.algorithms.published.plink import ShardPlan

    slow = star(4)
    slow.rate[0] = slow.rate[4] = 2.5e9
    plan = ShardPlan(all_reduce(4, 1 << 20), [[0, 1, 2, 3]], probe(slow, range(4)))
    count = np.bincount(plan.owner[0], minlength=4)
    assert count[0] < count[1:].min()
    assert count.sum() == plan.shards


def test_groups_must_be_a_partition() -> None:
    with pytest.raises(UsageError):
        plink(all_reduce(4, 64), groups=[[0, 1], [1, 2, 3]])
    with pytest.raises(UsageError):
        plink(all_reduce(4, 64), groups=9)


def slowed(topology, rank: int, factor: float):  # type: ignore[no-untyped-def]
    rate = np.where((topology.src == rank) | (topology.dst == rank), topology.rate * factor, topology.rate)
    return dataclasses.replace(topology, rate=rate)


@pytest.mark.parametrize("seed", range(3))
def test_adaptation_notices_a_slow_link_within_a_window_and_ignores_noise(seed: int) -> None:
    topology, collective, generator = racks(4, 4), all_reduce(16, 16 << 20), np.random.default_rng(seed)
    groups = infer_groups(probe(topology, range(16)), collective.size_bytes)
    program = plink(collective, topology, groups=groups)
    healthy, ill = time_s(program, topology), time_s(program, slowed(topology, 5, 0.5))
    monitor = Monitor(plan_time_s(groups, probe(topology, range(16)), collective.size_bytes), window=5)
    noise = iter(1 + 0.05 * generator.standard_normal(1000))
    assert not any(monitor.observe(healthy * next(noise)) for _ in range(300))
    told = [monitor.observe(ill * next(noise)) for _ in range(5)]
    assert told[-1]


def test_adaptation_swaps_hosts_that_have_moved() -> None:
    before = np.arange(16)
    after = before.copy()
    after[[1, 6]] = after[[6, 1]]
    old, new = racks(4, 4, order=before), racks(4, 4, order=after)
    collective = all_reduce(16, 16 << 20)
    probes = probe(old, range(16))
    groups = infer_groups(probes, collective.size_bytes)
    stale = time_s(plink(collective, new, groups=groups), new)
    found, _ = adapted(groups, probes, new, range(16), collective.size_bytes, noise=0.05, seed=1)
    racks_of = sorted(sorted(int(after[host]) // 4 for host in group) for group in found)
    assert racks_of == [[rack] * 4 for rack in range(4)]
    fresh = time_s(plink(collective, new, groups=found), new)
    assert fresh < 0.9 * stale


# ---------------------------------------------------------------------------------------------------------------- accl
@pytest.mark.parametrize("side", [1, 2, 4, 8, 16, 32])
def test_mapped_flows_never_share_a_link(side: int) -> None:
    """BiGraphs of 2 to 64 switches; in order of the ranks they do share."""
    for ports in {1, max(1, side // 2), min(side, 8)}:
        topology = bigraph(side, ports)
        collective = all_reduce(topology.n_ranks, 4096)
        assert busiest_link(accl(collective, topology), topology) == 1
        if side > 1:
            assert busiest_link(accl(collective, topology, mapping="rank"), topology) > 1


@pytest.mark.parametrize(("switch_bits", "port_bits"), [(0, 0), (2, 2), (3, 1), (5, 5), (1, 3)])
def test_seats_are_taken_once(switch_bits: int, port_bits: int) -> None:
    seats = {seat(rank, switch_bits, port_bits) for rank in range(2 << switch_bits + port_bits)}
    assert seats == set(itertools.product((0, 1), range(1 << switch_bits), range(1 << port_bits)))


@pytest.mark.sampled(3, "g")
@pytest.mark.parametrize("g", range(1, 9))
def test_hybrid_for_all_nodes(g: int) -> None:
    _hybrid(g, range(1, min(17, 32 // g) + 1))


@pytest.mark.sampled(0, "*")  # test_hybrid_for_all_nodes holds the same on fewer
@pytest.mark.slow
@pytest.mark.parametrize("g", range(1, 9))
def test_hybrid_for_many_nodes(g: int) -> None:
    _hybrid(g, [min(17, 136 // g)])


def _hybrid(g: int, every: Iterable[int]) -> None:
    for nodes in every:
        topology, p = boxes(nodes, g, nvlink=150e9, nic=12.5e9), g * nodes
        for size_bytes, knobs in (
            (0, {}),
            (4 * (p + 1), {"pieces": 3}),
            (3001, {"pieces": 2, "paths": (150e9, 12.5e9)}),
        ):
            if p <= 64 or size_bytes == 3001:
                assert not wrong(accl(all_reduce(p, size_bytes), topology, **knobs)), (nodes, size_bytes)


def test_nodes_of_unequal_size_are_taken_rank_by_rank() -> None:
    topology = dataclasses.replace(star(5), hosts=np.array([0, 0, 1, 1, 1]))
    program = accl(all_reduce(5, 400), topology)
    assert program.knobs["nodes"] == 5
    assert not wrong(program)
