"""Camdoop: trees of a torus that share no link, sums on the way, and the times that follow from bytes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from ringwright.algorithms.innetwork.ethernet.camdoop import camdoop
from ringwright.algorithms.innetwork.torus_trees import ROOT, TorusTrees, disjoint_trees, shortest_tree, sides
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import DeclinedError, UsageError
from ringwright.model import registry
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology
from ringwright.model.validity import check
from ringwright_lab.papers.figures.loads import link_bytes
from small_fabrics import wrong

pytestmark = pytest.mark.once

CUBES = [(3, 3, 3), (4, 4, 4), (5, 5, 5)]
OTHERS = [(2, 2, 2), (2, 2, 2, 2), (2,), (3,), (7,), (3, 4, 5), (5, 3), (3, 3, 4, 3)]


def arcs(trees: TorusTrees, root: int = 0) -> list[set[tuple[int, int]]]:
    """Return the directed links of each tree of a root."""
    every = np.arange(trees.parents.shape[1])
    return [
        {
            (int(trees.turned(every, root)[at]), int(trees.turned(parents, root)[at]))
            for at in np.flatnonzero(parents != ROOT)
        }
        for parents in trees.parents
    ]


def links_of(topology: Topology) -> set[tuple[int, int]]:
    return set(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))


@pytest.mark.parametrize("sizes", [*CUBES, *OTHERS], ids=str)
def test_trees_span_and_share_no_link(sizes: tuple[int, ...]) -> None:
    trees, there = disjoint_trees(sizes), links_of(fabric(f"torus:{'x'.join(map(str, sizes))}"))
    n, degree = math.prod(sizes), len(sizes) * (2 if max(sizes) > 2 else 1)
    assert len(trees.parents) == degree
    for root in {0, n - 1, n // 2}:
        mine = arcs(trees, root)
        assert all(len(tree) == n - 1 for tree in mine)
        assert all(tree <= there for tree in mine)
        assert len(set().union(*mine)) == degree * (n - 1), "a link is in two trees"
    reached = trees.depths[:, 1:]
    assert (reached > 0).all()
    assert (trees.depths[:, 0] == 0).all()


@pytest.mark.parametrize("sizes", CUBES, ids=str)
def test_a_cube_uses_all_but_the_links_that_leave_the_root(sizes: tuple[int, ...]) -> None:
    k = sizes[0]
    trees = disjoint_trees(sizes)
    used = set().union(*arcs(trees))
    assert len(used) == 6 * (k**3 - 1) == {3: 156, 4: 378, 5: 744}[k]
    assert {src for src, _ in links_of(fabric(f"torus:{k}x{k}x{k}")) - used} == {0}
    assert trees.height == 3 * (k - 1)


def test_plain_dimension_ordered_trees_are_not_disjoint() -> None:
    """What the explicit ones are for: the same order for both signs of a dimension collides."""
    sizes = (3, 3, 3)
    turned = []
    for first in range(3):
        order = [(first + later) % 3 for later in range(3)]
        tree = shortest_tree(sizes).parents[0]
        # The shortest tree along another first dimension: the same one with its coordinates named anew.
        digits = np.array(np.unravel_index(np.arange(27), sizes, order="F"))
        number = np.ravel_multi_index(tuple(digits[np.argsort(order)]), sizes, order="F")
        turned += [(int(number[v]), int(number[p])) for v, p in enumerate(tree) if p != ROOT]
    assert len(turned) == 78
    assert len(set(turned)) < 78


def test_the_shortest_tree_is_as_low_as_can_be() -> None:
    assert shortest_tree((3, 3, 3)).height == 3
    assert shortest_tree((5, 4)).height == 4
    assert shortest_tree((3, 3, 3)).depths.sum() == 54


def test_a_machine_without_rings_has_no_sides() -> None:
    assert sides(fabric("torus:4x1x3")) == (4, 3)
    assert sides(fabric("ring:5")) == (5,)
    assert sides(fabric("mesh:3x3")) is None
    assert sides(fabric("switch:9")) is None
    assert sides(fabric("dgx-h100:1")) is None


# ------------------------------------------------------------------------------------------------------------ the program
def made(op: str, spec: str, size: int = 4 * 27 * 6 * 8, **knobs: object) -> tuple[Program, Topology]:
    topology = fabric(spec)
    collective = Collective(op, range(topology.n_ranks), size, root=topology.n_ranks // 2 if op == "reduce" else 0)
    return camdoop(collective, topology, **knobs), topology  # type: ignore[arg-type]


def seconds(program: Program, topology: Topology, alpha: str = "pipelined") -> float:
    return simulate(program, topology, engine="events", alpha=alpha).time_ps * 1e-12


@pytest.mark.parametrize("op", ["reduce", "reduce-scatter", "all-reduce"])
@pytest.mark.parametrize("spec", ["torus:3x3x3", "torus:2x2x2", "torus:4x3x3", "ring:5"])
@pytest.mark.parametrize("trees", ["disjoint", "shortest"])
def test_sums_are_whole(op: str, spec: str, trees: str) -> None:
    program, _ = made(op, spec, trees=trees, pieces=2)
    assert check(program) == []
    assert not wrong(program)


def test_all_links_carry_the_same_where_all_are_roots() -> None:
    for spec in ("torus:3x3x3", "torus:2x2x2", "torus:4x4x4", "torus:3x5"):
        topology = fabric(spec)
        p = topology.n_ranks
        for op in ("reduce-scatter", "all-reduce"):
            program, _ = made(op, spec, 4 * p * 6 * 2)
            loads = link_bytes(program, topology)
            assert (loads == loads[0]).all(), (spec, op)
            assert loads[0] > 0


def test_one_root_takes_a_sixth_over_each_of_its_links() -> None:
    program, topology = made("reduce", "torus:3x3x3", 6000, pieces=1)
    loads = link_bytes(program, topology)
    assert sorted(set(loads.tolist())) == [0.0, 1000.0]
    assert int((loads == 0).sum()) == 6
    assert set(topology.src[loads == 0].tolist()) == {13}
    assert program.knobs == {"trees": 6, "height": 6, "pieces": 1}


def test_a_group_in_another_order_is_still_linked_ring_by_ring() -> None:
    topology = fabric("torus:3x3")
    group = (4, 2, 7, 0, 8, 1, 3, 6, 5)
    for op in ("reduce", "all-reduce"):
        program = camdoop(Collective(op, group, 4 * 9 * 8, root=3), topology)
        assert check(program) == []
        ends = [
            (group[s], group[d])
            for step in program.steps()
            for b in step.blocks
            for s, d in zip(*b.arrays()[:2], strict=True)
        ]
        assert set(ends) <= links_of(topology)
        if op == "reduce":
            assert {dst for _, dst in ends if dst == group[3]} == {0}


def test_pieces_are_as_many_as_pay() -> None:
    topology = fabric("torus:3x3x3,rate=1Gb/s,latency_s=5us")
    root = Collective("reduce", range(27), 24_000_000)
    best = camdoop(root, topology)
    pieces = int(best.knobs["pieces"])  # type: ignore[call-overload]
    assert pieces == round(math.sqrt(5 * (4_000_000 / 125e6) / 5e-6))
    taken = seconds(best, topology, "busy")
    for other in (1, pieces // 4, pieces * 3):
        assert seconds(camdoop(root, topology, pieces=other), topology, "busy") > taken
    assert camdoop(Collective("all-reduce", range(27), 24_000_000), topology).knobs["pieces"] == 1
    few = camdoop(Collective("reduce", range(27), 4 * 12), topology, pieces=100)
    assert few.knobs["pieces"] == 2, "no more than a tree's share has elements"


def test_one_low_tree_is_for_small_data_and_six_for_large() -> None:
    for size, low_is_faster in ((24, True), (24_000_000, False)):
        six, topology = made("reduce", "torus:4x4x4", size)
        one, _ = made("reduce", "torus:4x4x4", size, trees="shortest")
        assert (seconds(one, topology) < seconds(six, topology)) is low_is_faster


def test_more_latency_or_less_rate_makes_nothing_faster() -> None:
    for op in ("reduce", "all-reduce"):
        program, topology = made(op, "torus:3x3x3", 600_000, pieces=4)
        before = seconds(program, topology)
        assert seconds(program, dataclasses.replace(topology, latency_s=topology.latency_s * 3)) >= before
        assert seconds(program, dataclasses.replace(topology, rate=topology.rate / 3)) > before


@pytest.mark.parametrize("spec", ["switch:8", "mesh:2x3", "dgx-h100:1"])
def test_what_is_no_torus_is_refused(spec: str) -> None:
    topology = fabric(spec)
    with pytest.raises(UsageError, match="linked in rings"):
        camdoop(Collective("reduce", range(topology.n_ranks), 96), topology)


def test_what_it_does_not_do_it_says() -> None:
    torus = fabric("torus:3x3x3")
    with pytest.raises(UsageError, match="camdoop does no broadcast"):
        camdoop(Collective("broadcast", range(27), 96), torus)
    with pytest.raises(DeclinedError, match="9 of the 27 servers"):
        camdoop(Collective("reduce", range(9), 96), torus)
    with pytest.raises(DeclinedError, match="rings of 2 beside longer ones") as raised:
        camdoop(Collective("reduce", range(12), 96), fabric("torus:3x2x2"))
    assert "trees=shortest" in str(raised.value.remedy)
    assert check(camdoop(Collective("reduce", range(12), 96), fabric("torus:3x2x2"), trees="shortest")) == []
    with pytest.raises(DeclinedError, match="moves are more than are listed"):
        camdoop(Collective("all-reduce", range(1000), 1 << 30), fabric("torus:10x10x10"))
    with pytest.raises(UsageError, match="order of the ranks"):
        camdoop(Collective("reduce", range(27), 96, commutative=False), torus)
    assert camdoop(Collective("reduce", range(1), 96), torus).n_steps == 0


def test_it_is_listed_among_ethernet() -> None:
    system = registry.find("camdoop")
    assert (system.family, system.kind) == ("in-network-aggregation", "ethernet")
    assert set(system.knobs()) == {"trees", "pieces"}
