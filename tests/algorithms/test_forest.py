"""Forests: at the cut bound on fabrics of every kind, legal, right, the same twice, and clear about what they cannot do."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ringwright import Collective
from ringwright.algorithms.searching import Deadline
from ringwright.algorithms.synthesis.forest import ForestQuestion, forest
from ringwright.algorithms.synthesis.forest._choice import PiecedForest
from ringwright.bounds.arcs import arcs
from ringwright.bounds.automorphisms import closure, free_group
from ringwright.bounds.cheapest_trees import arborescence
from ringwright.bounds.forests import whole_shares
from ringwright.bounds.lower_bounds import bound
from ringwright.bounds.symmetry import turns
from ringwright.bounds.tree_search import forest as packed
from ringwright.engines import loops
from ringwright.engines.choose import simulate
from ringwright.engines.flat import gather
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.model import interpreter, validity

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

pytestmark = pytest.mark.once

GIB = 1 << 30


def gathered(topology: Topology, size: int = GIB) -> Collective:
    return Collective("all-gather", range(topology.n_ranks), size)


def gap(collective: Collective, topology: Topology, link_model: str) -> float:
    program = forest(collective, topology, link_model=link_model)  # type: ignore[arg-type]
    assert not validity.check(program, topology=topology)
    alpha = {"blocking": "busy"}.get(link_model, link_model)
    return simulate(program, topology, alpha=alpha).time_s / bound(collective, topology, alpha=alpha).time_s - 1


@pytest.mark.parametrize(
    "name", ["ring:8", "hypercube:8", "mesh:3x3", "torus:4x4", "mesh:4x4", "dgx-a100:1", "dgx-a100:2"]
)
def test_all_gather_is_near_its_cut(name: str) -> None:
    topology = fabric(name)
    assert gap(gathered(topology), topology, "pipelined") < 0.01


@pytest.mark.parametrize("name", ["ring:8", "hypercube:8", "mesh:3x3", "torus:4x4", "dgx-a100:1"])
def test_links_that_block_cost_little_more(name: str) -> None:
    topology = fabric(name)
    assert gap(gathered(topology), topology, "blocking") < 0.01


@pytest.mark.parametrize("op", ["reduce-scatter", "all-reduce"])
def test_collecting_is_as_good_as_spreading(op: str) -> None:
    topology = fabric("torus:3x3")
    assert gap(Collective(op, range(9), GIB), topology, "pipelined") < 0.01


@pytest.mark.parametrize(
    ("name", "size", "most_us"),
    [
        ("torus:8x8", 1 << 20, 9.0),
        ("torus:8x8", 1 << 16, 4.4),
        ("mesh:4x4", 1 << 20, 13.76),
        ("torus:4x4", 1 << 16, 2.305),
    ],
)
def test_small_sizes_beat_matched_chunks(name: str, size: int, most_us: float) -> None:
    """Links that block; the limits are those of a greedy matching with one chunk a message, or lower."""
    topology = fabric(name)
    program = forest(gathered(topology, size), topology, link_model="blocking")
    assert simulate(program, topology, alpha="busy").time_s * 1e6 <= most_us


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("op", ["all-gather", "reduce-scatter", "all-reduce", "broadcast", "reduce"])
@pytest.mark.parametrize(("name", "size"), [("dgx-1:1", 4 * 8 * 13), ("mesh:2x3", 4 * 1021), ("torus:2x2", 3001)])
def test_results_are_right(op: str, name: str, size: int) -> None:
    topology = fabric(name)
    collective = Collective(op, range(topology.n_ranks), size, root=1 if op in ("broadcast", "reduce") else 0)
    program = forest(collective, topology)
    given = interpreter.inputs(collective, seed=1)
    for have, want in zip(interpreter.run(program, given), interpreter.expected(collective, given), strict=True):
        assert have.keys() == want.keys()
        assert all(np.array_equal(have[block], want[block]) for block in want)


def test_uneven_blocks_weigh_as_they_are() -> None:
    topology = fabric("mesh:2x2")
    counts = (1 << 20, 0, 3 << 20, 4)
    collective = Collective("all-gather", range(4), sum(counts), counts=counts)
    program = forest(collective, topology)
    assert not validity.check(program, topology=topology)
    assert simulate(program, topology).time_s < 1.15 * bound(collective, topology).time_s


def test_a_slow_link_is_avoided() -> None:
    healthy = fabric("torus:3x3")
    slow = apply(healthy, ["link rank0>rank1 rate 50%"])
    collective = gathered(healthy)
    anew = simulate(forest(collective, slow), slow).time_s
    assert anew < 1.02 * bound(collective, slow, exact=True).time_s
    assert anew < 0.75 * simulate(forest(collective, healthy), slow).time_s


def test_a_group_passes_through_those_outside() -> None:
    topology = fabric("ring:8")
    collective = Collective("all-gather", [0, 2, 4, 6], GIB)
    program = forest(collective, topology)
    assert not validity.check(program, topology=topology)
    assert simulate(program, topology).time_s < 1.01 * bound(collective, topology, exact=True).time_s


def test_the_same_question_gets_the_same_program() -> None:
    topology = fabric("dgx-1:1")
    one, other = (forest(gathered(topology, 1 << 20), topology) for _ in range(2))
    for first, second in zip(one.steps(), other.steps(), strict=True):
        for here, there in zip(first.blocks, second.blocks, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(here.arrays(), there.arrays(), strict=True))


def test_a_budget_stops_with_the_best_so_far() -> None:
    topology = fabric("mesh:4x4,rate=49e9")
    program = forest(gathered(topology), topology, budget=0.001)
    assert program.knobs["stopped"] is True
    assert not validity.check(program, topology=topology)


def test_what_has_no_forest_is_refused() -> None:
    with pytest.raises(UsageError, match="forest does no all-to-all"):
        forest(Collective("all-to-all", range(4), 64), fabric("ring:4"))


def test_a_one_way_line_has_no_tree_back() -> None:
    ring = fabric("ring:4")
    one_way = dataclasses.replace(ring, rate=np.where(ring.src < ring.dst, ring.rate, 0.0), paths=None)
    with pytest.raises(InfeasibleError):
        forest(gathered(ring, 64), one_way)


# --------------------------------------------------------------------------------------------------- the parts it is made of
def cheapest(costs: np.ndarray, root: int) -> float:
    """The least sum over all choices of parents that reach everything."""
    import itertools

    n, best = len(costs), np.inf
    others = [node for node in range(n) if node != root]
    for choice in itertools.product(range(n), repeat=n - 1):
        parents = dict(zip(others, choice, strict=True))
        if any(node == parent for node, parent in parents.items()):
            continue
        total = sum(costs[parent, node] for node, parent in parents.items())
        if total >= best:
            continue
        reached = {root}
        for _ in range(n):
            reached |= {node for node, parent in parents.items() if parent in reached}
        best = total if len(reached) == n else best
    return best


def test_arborescences_are_the_cheapest() -> None:
    draw = np.random.default_rng(7)
    for _ in range(60):
        n = int(draw.integers(2, 6))
        costs = draw.integers(1, 9, (n, n)).astype(float)
        root = int(draw.integers(n))
        parents = arborescence(costs, root)
        total = sum(costs[parent, node] for node, parent in enumerate(parents.tolist()) if node != root)
        assert total == cheapest(costs, root)


def test_no_forest_is_faster_than_its_proof() -> None:
    for name in ("dgx-1:1", "mesh:3x3", "mi250:1", "dgx-a100:2", "torus:2x3"):
        topology = fabric(name)
        made = packed(arcs(topology, range(topology.n_ranks)), np.full(topology.n_ranks, 1e6))
        assert made.least_s <= made.time_s * (1 + 1e-9)
        assert made.time_s < made.least_s * 1.001
        assert all(shares == made.of for shares in np.bincount(made.roots, weights=made.shares) if shares)


def test_turns_are_those_of_the_machine() -> None:
    torus, mesh = fabric("torus:3x4"), fabric("mesh:3x3")
    assert (turns(torus) or torus).order == 12  # type: ignore[union-attr]
    assert turns(mesh) is None
    assert turns(apply(torus, ["link rank0>rank1 rate 50%"]).at(0.0)) is None


def test_symmetry_is_sought_where_none_is_declared() -> None:
    torus = dataclasses.replace(fabric("torus:4x4"), axes=(), paths=None)
    group = closure(free_group(torus), 16)
    assert group is not None
    assert len(group) == 16
    assert not (group[1:] == np.arange(16)).any()
    mesh = dataclasses.replace(fabric("mesh:4x4"), axes=())
    mirrors = closure(free_group(mesh), 16)
    assert mirrors is not None
    assert len(mirrors) == 4


def test_shares_add_up() -> None:
    weights = np.array([1 / 3, 2 / 3, 0.2, 0.5, 0.3])
    owner = np.array([0, 0, 1, 1, 1])
    shares, of = whole_shares(weights, owner, lambda parts: bool(np.abs(parts - weights).max() < 1e-9))
    assert (of, shares.tolist()) == (30, [10, 20, 6, 15, 9])


def test_a_window_lets_what_is_collected_be_spread_meanwhile() -> None:
    topology = fabric("mesh:4x4")
    collective = Collective("all-reduce", range(16), GIB)
    question = ForestQuestion(collective, topology, "throughput", 0, Deadline(None))
    (forests,) = question.sets()
    free, held = (PiecedForest(forests, (1,) * 8, 1, False, 0.0, window) for window in (0, 3))
    programs = [question.program(each) for each in (free, held)]
    assert not any(validity.check(each, topology=topology) for each in programs)
    times = [simulate(each, topology).time_s for each in programs]
    assert times[1] < 0.9 * times[0]
    natural = {tuple(pair) for pair in np.stack(loops.order(gather(programs[0])).edges()).T.tolist()}
    order = programs[1].schedule
    assert order is not None
    assert natural < {(a, b) for a, b in zip(*(each.tolist() for each in order.edges()[:2]), strict=True)}


def test_pieces_apart_wait_for_no_other_piece() -> None:
    """What two ranks have for each other at one time are messages of their own: none waits for the data of another."""
    topology = fabric("dgx-a100:2")
    question = ForestQuestion(gathered(topology), topology, "throughput", 0, Deadline(None))
    (forests,) = question.sets()
    program = question.program(PiecedForest(forests, (1,) * 4, 1, False, 0.0))
    moved = gather(program)
    chunk = moved.reads % program.layout.n_slots
    assert len(chunk) == len(moved.src)  # one chunk a message
