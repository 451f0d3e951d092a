"""Blink: packings that hold and are near the cut, few trees, the right results on any part of a machine, clear refusals."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from ringwright import Collective
from ringwright.algorithms.searching import Deadline
from ringwright.algorithms.synthesis.blink import blink
from ringwright.algorithms.synthesis.blink._data import tuned_bytes
from ringwright.algorithms.synthesis.blink._fewest import fewest_trees
from ringwright.algorithms.synthesis.blink._packing import PackingQuestion, TreePacking, packed_trees
from ringwright.algorithms.synthesis.blink._plans import Effort, Planner, beside_pcie
from ringwright.algorithms.synthesis.blink._wiring import job_wiring
from ringwright.bounds.maxflow import FlowNetwork
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.fabrics._cube import NVLINKS, NVLINKS_P100
from ringwright.fabrics._parts import connected_parts, part
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import DeclinedError, InfeasibleError, UsageError
from ringwright.model import interpreter, validity
from ringwright.model.topology import Topology
from ringwright_lab.papers.figures import blink as figures

pytestmark = pytest.mark.once

GIB, MIB = 1 << 30, 1 << 20
OPS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "gather", "scatter")


def digraph(n: int, draw: np.random.Generator) -> tuple[tuple[tuple[int, int], ...], list[int]]:
    """Arcs of a random strongly connected digraph with whole capacities: a cycle, and others."""
    order = draw.permutation(n).tolist()
    arcs = set(zip(order, [*order[1:], order[0]], strict=True))
    arcs |= {(a, b) for a in range(n) for b in range(n) if a != b and draw.random() < 0.35}
    ends = tuple(sorted(arcs))
    return ends, draw.integers(1, 7, len(ends)).tolist()


def asked(
    n: int, ends: tuple[tuple[int, int], ...], capacities: list[int], roots: tuple[int, ...] = (0,)
) -> PackingQuestion:
    numbers = tuple(range(len(ends)))
    uses = tuple(((number, 1),) for number in numbers)
    rates = {number: float(capacity) for number, capacity in enumerate(capacities)}
    return PackingQuestion(tuple(range(n)), numbers, ends, uses, rates, roots, (1.0,) * len(roots))


def packing_of(question: PackingQuestion, epsilon: float = 0.05) -> TreePacking:
    return packed_trees(question, epsilon=epsilon, must_stop=lambda: False)


def is_arborescence(question: PackingQuestion, root: int, arcs: tuple[int, ...]) -> bool:
    """One arc into every rank but the root, and the root above all."""
    above = {question.ends[arc][1]: question.ends[arc][0] for arc in arcs}
    if len(arcs) != len(question.ranks) - 1 or sorted([*above, root]) != list(question.ranks):
        return False
    for end in above:
        here, far = end, 0
        while here != root and far <= len(arcs):
            here, far = above[here], far + 1
        if here != root:
            return False
    return True


def most_loaded(question: PackingQuestion, weighted: dict[tuple[int, tuple[int, ...]], float]) -> float:
    load = dict.fromkeys(question.rates, 0.0)
    for (_, arcs), weight in weighted.items():
        for arc in arcs:
            for resource, times in question.uses[arc]:
                load[resource] += weight * times
    return max(each / question.rates[resource] for resource, each in load.items())


def tightest_cut(n: int, ends: tuple[tuple[int, int], ...], capacities: list[int], root: int = 0) -> int:
    pairs = dict(zip(ends, capacities, strict=True))
    return min(FlowNetwork(n, pairs).push(root, other, sum(capacities)) for other in range(n) if other != root)


# ------------------------------------------------------------------------------------------------------------------- the packing
@pytest.mark.parametrize("seed", range(12))
def test_packings_of_random_digraphs_hold_and_are_near_the_cut(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n = int(draw.integers(3, 9))
    ends, capacities = digraph(n, draw)
    question = asked(n, ends, capacities)
    packing, cut = packing_of(question), tightest_cut(n, ends, capacities)
    assert all(is_arborescence(question, root, arcs) for root, arcs in packing.trees)
    assert most_loaded(question, packing.trees) <= 1 + 1e-9
    assert 0.95 * cut <= packing.rate <= cut * (1 + 1e-9) <= packing.most * (1 + 2e-9)
    assert sum(packing.trees.values()) == pytest.approx(packing.rate)


@pytest.mark.parametrize("seed", range(6))
def test_few_trees_hold_and_lose_little(seed: int) -> None:
    draw = np.random.default_rng(100 + seed)
    n = int(draw.integers(3, 8))
    ends, capacities = digraph(n, draw)
    question = asked(n, ends, capacities)
    packing = packing_of(question)
    chosen = fewest_trees(packing, within=0.05, seed=0, deadline=Deadline(None))
    assert most_loaded(question, dict(zip(chosen.trees, chosen.weights, strict=True))) <= 1 + 1e-9
    assert chosen.rate >= 0.95 * packing.rate * (1 - 1e-9)
    assert len(chosen.trees) <= len(packing.trees)
    assert all(is_arborescence(question, root, arcs) for root, arcs in chosen.trees)


def test_many_roots_share_the_links() -> None:
    """Six roots on a ring of six, 2 each way: 5 parts of each root's block pass each cut of 4 into a rank."""
    ends = tuple((a, (a + step) % 6) for a in range(6) for step in (1, -1))
    question = asked(6, ends, [2] * 12, tuple(range(6)))
    packing = packing_of(question)
    assert 0.95 * 0.8 <= packing.rate <= 0.8 * (1 + 1e-9)
    assert most_loaded(question, packing.trees) <= 1 + 1e-9


def test_a_smaller_epsilon_gives_and_proves_more() -> None:
    ends, capacities = digraph(7, np.random.default_rng(3))
    rough, fine = (packing_of(asked(7, ends, capacities), epsilon) for epsilon in (0.3, 0.03))
    cut = tightest_cut(7, ends, capacities)
    assert rough.rate >= 0.7 * cut
    assert fine.rate >= 0.97 * cut
    assert fine.most <= rough.most


def test_what_no_tree_reaches_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="no tree leads from rank 0"):
        packing_of(asked(3, ((0, 1), (2, 0), (2, 1)), [1, 1, 1]))


# ------------------------------------------------------------------------------------------------------------------ parts of DGX-1
def test_parts_are_counted_up_to_isomorphism() -> None:
    for links, counts in ((NVLINKS, [5, 14, 14, 10, 2, 1]), (NVLINKS_P100, [2, 4, 3, 3, 1, 1])):
        parts = connected_parts(links)
        assert [sum(len(each) == size for each in parts) for size in range(3, 9)] == counts


@pytest.mark.parametrize("gpu", ["v100", "p100"])
def test_every_part_is_packed_near_its_cut(gpu: str) -> None:
    for chosen in figures.connected_parts(figures.MACHINES[gpu][0]):
        assert 0.95 <= figures.share_of_cut(gpu, chosen, 0) <= 1 + 1e-9, chosen


def test_a_whole_box_takes_at_most_six_trees_of_six_links() -> None:
    whole = fabric("dgx-1:1")
    program = blink(Collective("broadcast", range(8), 64 * MIB), whole, chunk=128 << 10)
    assert program.knobs["trees"] <= 6  # type: ignore[operator]
    assert program.knobs["packed"] > 6  # type: ignore[operator]
    assert program.knobs["rate_gbs"] == pytest.approx(150)
    assert simulate(program, whole).time_s < 1.1 * 64 * MIB / 150e9


def test_rings_without_a_common_link() -> None:
    assert len(figures.disjoint_rings(figures.between(NVLINKS, range(8)), 8)) == 3
    assert figures.disjoint_rings(figures.between(NVLINKS, (0, 1, 4)), 3) == []


def test_trees_gain_where_rings_have_to_go_over_pcie() -> None:
    gained, even = (figures.outcome("all-reduce", "v100", gpus) for gpus in ((0, 1, 4), (0, 1, 2, 3)))
    assert (gained.rings, even.rings) == (0, 2)
    assert gained.gain > 3
    assert even.gain == pytest.approx(1, abs=0.1)


# ----------------------------------------------------------------------------------------------------------------- collectives
@pytest.mark.sampled(4, "*")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["dgx-1:1", "switch:5", "torus:2x3", "ndv2:2"])
def test_results_are_right_and_links_hold(op: str, name: str) -> None:
    topology = fabric(name)
    group = [0, 1, 2, 8, 9] if name == "ndv2:2" else range(topology.n_ranks)  # of two servers, three ranks and two
    collective = Collective(op, group, 4 * 1021, root=1 if op in ("broadcast", "gather") else 0)
    check(blink(collective, topology), topology)


def check(program: object, topology: Topology) -> None:
    from ringwright.model.program import Program

    assert isinstance(program, Program)
    assert not validity.check(program, topology=topology)
    given = interpreter.inputs(program.collective, seed=1)
    results = zip(interpreter.run(program, given), interpreter.expected(program.collective, given), strict=True)
    for have, want in results:
        assert have.keys() == want.keys()
        assert all(np.array_equal(have[block], want[block]) for block in want)


@pytest.mark.parametrize(("op", "least"), [("broadcast", 1.0), ("reduce", 1.0), ("all-reduce", 24 / 7 / 6)])
def test_large_data_have_the_rate_of_the_trees(op: str, least: float) -> None:
    """Six links of 25 GB/s out of the root; up and down at once 24 links over trees of 7."""
    topology = fabric("dgx-1:1")
    program = blink(Collective(op, range(8), 128 * MIB), topology, chunk=128 << 10)
    assert simulate(program, topology).time_s < 1.12 * 128 * MIB / (150e9 * least)


def test_uneven_blocks_weigh_as_they_are() -> None:
    topology, counts = fabric("ring:4"), (MIB, 0, 3 * MIB, 4)
    program = blink(Collective("all-gather", range(4), sum(counts), counts=counts), topology)
    assert not validity.check(program, topology=topology)
    assert simulate(program, topology).time_s < 1.2 * (3 * MIB + 4) / 100e9 + 20e-6


def test_a_group_uses_no_gpu_that_it_was_not_given() -> None:
    """0, 1 and 4 are a path; 5, which joins 1 and 4, belongs to somebody else."""
    topology = fabric("dgx-1:1")
    wiring = job_wiring(topology, [0, 1, 4])
    assert sorted(zip(wiring.arcs.src.tolist(), wiring.arcs.dst.tolist(), strict=True)) == [
        (0, 1),
        (0, 2),
        (1, 0),
        (2, 0),
    ]
    check(blink(Collective("all-reduce", [0, 1, 4], 4096), topology), topology)
    check(blink(Collective("all-reduce", [0, 5], 4096), topology), topology)  # joined through others alone


def test_servers_meet_by_gates_in_three_phases() -> None:
    topology = fabric("dgx-1:2")
    wiring = job_wiring(topology, range(16))
    assert wiring.gates == (tuple(range(8)), tuple(range(8, 16)))
    collective = Collective("all-reduce", range(16), MIB)
    plan = Planner(collective, topology, Effort(0.1, 0.1, 0, Deadline(None), 0.0)).packed()[0]
    assert plan.method == "three phases"
    arcs = plan.data.forests[1].arcs
    for parents in plan.data.forests[1].parents:
        used = parents[parents >= 0]
        assert ((arcs.src[used] < 8) != (arcs.dst[used] < 8)).sum() == 1
    uneven = [0, 1, 2, 13, 14, 15, 9, 8]
    program = blink(Collective("all-reduce", uneven, 4096), topology)
    assert program.knobs["algorithm"] == "three phases"
    check(program, topology)


def test_one_hop_serves_a_switch() -> None:
    topology = fabric("dgx-2:1")
    program = blink(Collective("all-reduce", range(16), MIB), topology)
    assert (program.knobs["algorithm"], program.knobs["height"], program.knobs["trees"]) == ("one-hop", 1, 16)
    with pytest.raises(DeclinedError, match="not any two ranks"):
        blink(Collective("all-reduce", range(8), MIB), fabric("dgx-1:1"), trees="one-hop")
    packed = blink(Collective("broadcast", range(5), MIB), fabric("switch:5"), trees="packed")
    assert packed.knobs["algorithm"] == "packed"


# ---------------------------------------------------------------------------------------------------------- hybrid links, chunks
def test_pcie_gets_the_part_that_ends_with_nvlink() -> None:
    size, quick, slow = 1e9, 150e9, 5e9
    share = beside_pcie(size, quick, slow, 0.0)
    assert share * size / slow == pytest.approx((1 - share) * size / quick)
    later = beside_pcie(size, quick, slow, 1e-3)
    assert later * size / slow + 1e-3 == pytest.approx((1 - later) * size / quick)
    assert beside_pcie(1e6, quick, slow, 1e-3) == 0


def test_trees_over_pcie_help_a_large_broadcast() -> None:
    machine = part("v100", range(8))
    collective = Collective("broadcast", range(8), 128 * MIB)
    both, alone = (blink(collective, machine, pcie=pcie, chunk=256 << 10) for pcie in ("beside", "never"))  # type: ignore[arg-type]
    assert both.knobs["algorithm"] == "packed, PCIe beside"
    assert alone.knobs["algorithm"] == "packed"
    assert simulate(both, machine).time_s < simulate(alone, machine).time_s
    small = blink(Collective("broadcast", range(8), 4096), machine)
    check(small, machine)
    late = blink(collective, machine, peer_off=1.0, chunk=256 << 10)
    assert late.knobs["algorithm"] == "packed"


def test_chunks_are_doubled_and_taken_back() -> None:
    tried: list[int] = []

    def time(size: int) -> int:
        tried.append(size)
        return abs(size - 88)

    assert tuned_bytes(time, 8, 1000) == 96
    assert tried == [8, 16, 32, 64, 128, 112, 96, 80]
    assert tuned_bytes(lambda size: -size, 8, 100) == 100


def test_chunks_may_be_set() -> None:
    topology = fabric("ring:4")
    programs = [blink(Collective("broadcast", range(4), MIB), topology, chunk=chunk) for chunk in (MIB, 64 << 10)]
    assert [program.knobs["chunk_bytes"] for program in programs] == [MIB // 2, 64 << 10]
    assert simulate(programs[1], topology).time_s < simulate(programs[0], topology).time_s


# -------------------------------------------------------------------------------------------------------- faults and bad input
def test_a_slow_link_gets_less() -> None:
    healthy = fabric("dgx-1:1")
    slow = apply(healthy, ["link node0/gpu0>node0/gpu1 rate 50%"])
    collective = Collective("broadcast", range(8), 64 * MIB)
    before, anew = (blink(collective, machine, chunk=256 << 10) for machine in (healthy, slow))
    assert simulate(anew, slow).time_s < 0.75 * simulate(before, slow).time_s
    assert anew.knobs["rate_gbs"] == pytest.approx(125, rel=0.05)


def test_a_dead_link_is_left_out() -> None:
    dead = apply(fabric("dgx-1:1"), ["link node0/gpu0>node0/gpu1 rate 0%"])
    program = blink(Collective("broadcast", range(8), MIB), dead)
    assert not validity.check(program, topology=dead)
    assert np.isfinite(simulate(program, dead).time_s)


def one_way() -> Topology:
    ring = fabric("ring:4")
    forward = (ring.dst - ring.src) % 4 == 1
    return dataclasses.replace(ring, rate=np.where(forward, ring.rate, 0.0), paths=None)


def test_links_that_lead_one_way_spread_but_do_not_reduce_on_the_same_trees() -> None:
    circle = one_way()
    assert blink(Collective("broadcast", range(4), MIB), circle).knobs["trees"] == 1
    with pytest.raises(InfeasibleError, match="no tree leads"):
        blink(Collective("all-reduce", range(4), MIB), circle)


def test_unreachable_ranks_are_named() -> None:
    ring = fabric("ring:4")
    line = dataclasses.replace(ring, rate=np.where(ring.src < ring.dst, ring.rate, 0.0), paths=None)
    with pytest.raises(InfeasibleError):
        blink(Collective("broadcast", range(4), MIB, root=2), line)


def test_what_has_no_trees_is_refused() -> None:
    with pytest.raises(UsageError, match="blink does no all-to-all"):
        blink(Collective("all-to-all", range(4), 64), fabric("ring:4"))
    with pytest.raises(DeclinedError, match="more than is packed"):
        blink(Collective("all-gather", range(512), MIB), fabric("switch:512"))


def test_a_budget_stops_with_the_best_so_far() -> None:
    topology = fabric("torus:3x4")
    program = blink(Collective("all-gather", range(12), 4 * 12 * 7), topology, budget=0.001)
    assert program.knobs["stopped"] is True
    check(program, topology)


def test_the_same_question_gets_the_same_program() -> None:
    topology = fabric("dgx-1:1")
    one, other = (blink(Collective("all-reduce", range(8), MIB), topology) for _ in range(2))
    for first, second in itertools.zip_longest(one.steps(), other.steps()):
        for here, there in zip(first.blocks, second.blocks, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(here.arrays(), there.arrays(), strict=True))
