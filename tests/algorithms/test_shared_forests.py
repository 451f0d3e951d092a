"""Forests that share links: free blocks of all-reduce, groups planned as one, and groups that are part of a machine."""

from __future__ import annotations

import numpy as np
import pytest

from ringwright import Collective
from ringwright.algorithms.compose import Algorithm
from ringwright.algorithms.synthesis.expand import expand
from ringwright.algorithms.synthesis.flow_all_to_all import flow_all_to_all
from ringwright.algorithms.synthesis.forest import forest
from ringwright.algorithms.synthesis.forest.joint_forests import together
from ringwright.bounds.arcs import arcs
from ringwright.bounds.arcs import together as on_same_resources
from ringwright.bounds.joint_bounds import joint_bound
from ringwright.bounds.lower_bounds import bound
from ringwright.bounds.routed_bounds import routed_s
from ringwright.bounds.shared_trees import forests
from ringwright.bounds.tree_demands import TreeDemand
from ringwright.engines.choose import simulate
from ringwright.engines.concurrent_programs import simulate_together
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.model import interpreter, validity
from ringwright.model.program import Op, Program
from ringwright.model.topology import Topology
from ringwright.search.proof import is_right

pytestmark = pytest.mark.once

MIB = 1 << 20
SLOW_RANK = "link rank0 rate 50%"


def faulty(name: str, *lines: str) -> Topology:
    return apply(fabric(name), lines) if lines else fabric(name)


def summed(program: Program) -> np.ndarray:
    """Return the bytes whose sum each rank is the first to hold: it adds them up and gives no part of them on before."""
    into: dict[int, set[int]] = {}
    away: dict[int, set[int]] = {}
    for step in program.steps():
        for block in step.blocks:
            if block.op is Op.REDUCE:
                src, dst, chunk, _ = block.arrays()
                for here, there, what in zip(src.tolist(), dst.tolist(), chunk.tolist(), strict=True):
                    into.setdefault(what, set()).add(there)
                    away.setdefault(what, set()).add(here)
    at = np.zeros(program.p)
    for what, ranks in into.items():
        (root,) = ranks - away[what]
        at[root] += program.layout.bytes_of(np.array([what]))[0]
    return at


# ------------------------------------------------------------------------------------------------- blocks that are free
@pytest.mark.sampled(1, "name", "line", "most")
@pytest.mark.parametrize(
    ("name", "line", "most"),
    [("torus:3x3", SLOW_RANK, 1.05), ("mesh:3x3", "", 1.05), ("dgx-1:1", "link node0/gpu0>node0/gpu1 rate 10%", 1.16)],
)
def test_all_reduce_is_near_its_bound_where_ranks_differ(name: str, line: str, most: float) -> None:
    topology = faulty(name, *([line] if line else []))
    collective = Collective("all-reduce", range(topology.n_ranks), 64 * MIB)
    program = forest(collective, topology, variant="throughput")
    assert not validity.check(program, topology=topology)
    assert simulate(program, topology).time_s < most * bound(collective, topology).time_s


def test_a_slow_rank_adds_up_nothing() -> None:
    topology = faulty("torus:3x3", SLOW_RANK)
    at = summed(forest(Collective("all-reduce", range(9), 9 * MIB), topology, variant="throughput"))
    assert at.sum() == 9 * MIB
    assert at[0] == 0
    assert at.max() > 1.5 * at.mean()


def test_where_all_ranks_are_alike_blocks_are_equal() -> None:
    at = summed(forest(Collective("all-reduce", range(9), 9 * MIB), fabric("torus:3x3"), variant="throughput"))
    assert (at == MIB).all()


@pytest.mark.parametrize("size", [4 * 1021, 3001, 4 * 5, 0])
def test_unequal_blocks_are_right_to_the_element(size: int) -> None:
    topology = faulty("mesh:2x3", "link rank1 rate 30%")
    collective = Collective("all-reduce", range(6), size)
    for variant in ("throughput", "best"):
        program = forest(collective, topology, variant=variant)  # type: ignore[arg-type]
        assert program.layout.bytes_of(np.arange(program.layout.n_chunks)).sum() == size
        given = interpreter.inputs(collective, seed=3)
        for have, want in zip(interpreter.run(program, given), interpreter.expected(collective, given), strict=True):
            assert all(np.array_equal(have[block], want[block]) for block in want)


def test_free_blocks_are_never_slower_than_equal_ones() -> None:
    for name, line in (("mesh:2x3", "link rank1 rate 30%"), ("ring:5", "link rank0>rank1 rate 40%")):
        made = arcs(faulty(name, line).at(0.0), range(fabric(name).n_ranks), turning=False)
        blocks = np.full(made.p, 1e6)
        phases = made.turned_round(), made
        (equal,), (free,) = (forests([TreeDemand(phases, blocks, is_free)]) for is_free in (False, True))
        times = [sum(each.time_s for each in two) for two in (equal, free)]
        assert times[1] <= times[0] * (1 + 1e-3)
        assert sum(each.least_s for each in free) == pytest.approx(times[1], rel=1e-3)
        assert sum(each.block_bytes.sum() for each in free) == pytest.approx(2e6 * made.p)
        loads = sum(each.rounds.seconds.sum(axis=0) for each in free)
        assert loads.max() == pytest.approx(times[1], rel=1e-6)


# ------------------------------------------------------------------------------------------------- groups planned as one
def halves(op: str, size: int) -> list[Collective]:
    return [Collective(op, range(first, 16, 2), size) for first in (0, 1)]


def test_groups_that_know_of_each_other_are_done_sooner() -> None:
    topology = fabric("torus:4x4")
    both = halves("all-gather", 4 * MIB)
    apart_s = simulate_together([forest(each, topology) for each in both], topology).ends_ps.max() / 1e12
    planned = together(both, topology)
    assert planned.time_s < 0.75 * apart_s
    assert planned.time_s == simulate_together(planned.programs, topology).ends_ps.max() / 1e12
    assert planned.time_s > planned.least_s >= joint_bound(both, topology).time_s
    assert [each.collective.group for each in planned.programs] == [each.group for each in both]
    assert all(is_right(each, topology) for each in planned.programs)


def test_the_most_loaded_link_counts_all_groups() -> None:
    topology = fabric("mesh:2x4")
    groups = [(0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (3, 7)]
    several = on_same_resources([arcs(topology, group, turning=False) for group in groups])
    demands = [TreeDemand((each,), np.full(each.p, 1e6)) for each in several]
    packed = forests(demands)
    loads = sum(each.rounds.seconds.sum(axis=0) for (each,) in packed)
    assert loads.max() == pytest.approx(packed[0][0].time_s, rel=1e-6)
    assert packed[0][0].least_s <= packed[0][0].time_s
    assert packed[0][0].time_s > 1.2 * max(forests([each])[0][0].time_s for each in demands)


def test_a_joint_bound_adds_up_what_crosses_a_cut() -> None:
    topology = fabric("torus:4x4")
    one = Collective("all-gather", range(16), 64 * MIB)
    alone = bound(one, topology, exact=False).time_s
    assert joint_bound([one], topology).time_s == pytest.approx(alone)
    assert joint_bound([one, one], topology).time_s == pytest.approx(2 * alone)
    assert joint_bound([Collective("all-gather", [3], 64)], topology).time_s == 0
    crossing = [Collective("broadcast", group, 64 * MIB) for group in ([0, 1, 2], [0, 4, 8])]
    both = joint_bound(crossing, topology)
    assert both.sets == ((0,),)
    assert both.time_s == pytest.approx(2 * bound(crossing[0], topology, exact=False).time_s)
    program = forest(one, topology)
    assert simulate_together([program, program], topology).ends_ps.max() / 1e12 > 2 * alone


def test_groups_of_one_rank_and_operations_without_trees() -> None:
    topology = fabric("ring:4")
    planned = together([Collective("all-gather", [2], 64), Collective("broadcast", [0, 1], 64)], topology)
    assert planned.programs[0].n_steps == 0
    with pytest.raises(UsageError, match="no trees for all-to-all"):
        together([Collective("all-to-all", range(4), 64)], topology)


# ------------------------------------------------------------------------------------------- groups that are part of a machine
@pytest.mark.sampled(6, "name")
@pytest.mark.parametrize(
    ("name", "lines", "group"),
    [
        ("dgx-a100:2", (), [0, 3, 5, 9]),
        ("dgx-a100:2", (), [5]),
        ("dgx-a100:2", ("nic node0/nic3 dead",), [0, 3, 5, 9]),
        ("dgx-a100:2", ("link node0/nic3 rate 30%",), [9, 3, 0, 5]),
        ("dgx-a100:2", (), [0, 1, 2, 3, 4, 9]),
        ("dgx-h100:3", ("nic node0/nic0 dead", "nic node0/nic1 dead"), [0, 1, 2, 10, 18]),
        ("torus:4x4", (), [0, 1, 2, 5, 11]),
    ],
)
@pytest.mark.parametrize("op", ["all-gather", "all-reduce"])
def test_irregular_groups_are_right(op: str, name: str, lines: tuple[str, ...], group: list[int]) -> None:
    topology = faulty(name, *lines)
    collective = Collective(op, group, MIB)
    program = forest(collective, topology)
    assert is_right(program, topology)
    assert simulate(program, topology).time_s >= bound(collective, topology).time_s


@pytest.mark.parametrize(
    ("algorithm", "op"), [(expand, "all-gather"), (expand, "all-to-all"), (flow_all_to_all, "all-to-all")]
)
def test_searches_follow_the_links_of_the_group(algorithm: Algorithm, op: str) -> None:
    """Every other rank of a ring: the same as a ring of half as many, each link twice as long."""
    times = []
    for topology, group in ((fabric("ring:8"), (0, 2, 4, 6)), (fabric("ring:4"), range(4))):
        times.append(simulate(algorithm(Collective(op, group, 64 * MIB), topology), topology).time_s)
    assert times[0] == pytest.approx(times[1], rel=0.01)


@pytest.mark.sampled(2, "name", "op", "most")
@pytest.mark.parametrize(
    ("name", "group", "op", "most"),
    [
        ("dgx-a100:2", [0, 3, 5, 9], "all-gather", 1.01),
        ("dgx-a100:2", [0, 3, 5, 9], "all-reduce", 1.02),
        ("torus:4x4", [0, 1, 2, 5, 11], "reduce-scatter", 1.02),
        ("dgx-a100:2", range(10), "reduce-scatter", 1.4),
    ],
)
def test_irregular_groups_are_near_what_their_routes_allow(name: str, group: list[int], op: str, most: float) -> None:
    topology = fabric(name)
    collective = Collective(op, group, 64 * MIB)
    least = routed_s(collective, topology) or 0.0
    assert least <= simulate(forest(collective, topology), topology).time_s <= most * least


def test_a_bound_along_routes_counts_shared_links() -> None:
    ring, gather = fabric("ring:4"), Collective("all-gather", range(4), 64 * MIB)
    assert routed_s(gather, ring) == pytest.approx(bound(gather, ring).time_s)
    pair = Collective("all-gather", [3, 11], MIB)
    assert routed_s(pair, faulty("dgx-a100:2", "nic node0/nic3 dead")) == np.inf
    assert routed_s(Collective("all-gather", [1], MIB), ring) is None
    assert routed_s(Collective("all-gather", range(64), MIB), fabric("torus:8x8")) is None
    # Both routes from rank 0 of a line pass the one link that it has.
    line = Collective("broadcast", [0, 1, 2], MIB)
    assert routed_s(line, fabric("mesh:1x3")) == pytest.approx(MIB / float(fabric("mesh:1x3").rate[0]))


def test_who_cannot_be_reached_is_named() -> None:
    topology = faulty("dgx-a100:2", "nic node0/nic3 dead")
    for op, algorithm in (("all-to-all", flow_all_to_all), ("all-reduce", forest)):
        with pytest.raises(InfeasibleError, match="no data get from rank"):
            algorithm(Collective(op, [3, 11], MIB), topology)  # type: ignore[operator]


def test_a_dead_link_that_nothing_passes_is_no_matter() -> None:
    topology = faulty("torus:2x3", "link rank0--rank1 dead")
    program = expand(Collective("all-gather", range(6), MIB), topology)
    assert is_right(program, topology)
    assert simulate(program, topology).time_s < 1.5 * bound(Collective("all-gather", range(6), MIB), topology).time_s


@pytest.mark.parametrize("op", ["all-gather", "all-reduce"])
def test_rates_too_far_apart_for_the_solver_are_told_with_what_to_do(op: str) -> None:
    topology = faulty(
        "ring:3", "link rank1>rank2 rate 1e-13%", "link rank2>rank1 rate 1e-13%", "link rank0>rank2 rate 1e-7%"
    )
    with pytest.raises(InfeasibleError, match="as fast as the slowest") as error:
        forest(Collective(op, range(3), MIB), topology)
    assert "--method expand" in error.value.remedy
