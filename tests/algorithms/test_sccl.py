"""SCCL: the published table of (chunks, steps, rounds), answer by answer, and programs that are what they say."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ringwright.algorithms.synthesis.sccl import sccl
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import DeclinedError, InfeasibleError, UsageError
from ringwright.model import validity
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.topology import Topology
from shared_data import needs_shared_data, real
from small_fabrics import wrong

pytestmark = pytest.mark.once  # nothing here is compiled

# As the paper's tool answers them (z3), chunks per block.
TABLE = [
    ("dgx-1:1", "all-gather", [(1, 2, 2), (2, 2, 3), (3, 3, 4), (4, 3, 5), (5, 3, 6), (6, 3, 7)]),
    ("dgx-1:1", "reduce-scatter", [(1, 2, 2), (2, 2, 3), (6, 3, 7)]),
    ("dgx-1:1", "broadcast", [(2, 2, 2), (6, 3, 3), (12, 4, 4), (18, 5, 5), (6, 3, 5)]),
    ("dgx-1:1", "reduce", [(2, 2, 2), (6, 3, 3), (18, 5, 5)]),
    ("dgx-1:1", "gather", [(1, 2, 2), (2, 2, 3)]),
    ("dgx-1:1", "scatter", [(1, 2, 2), (2, 2, 3)]),
    ("dgx-1:1", "all-to-all", [(1, 2, 3), (1, 3, 3), (3, 8, 8)]),  # (24,8,8) in chunks per rank
    ("ring:8", "all-gather", [(1, 4, 4), (2, 4, 7), (2, 7, 7)]),
    ("hypercube:8", "all-gather", [(1, 3, 3), (2, 3, 5), (3, 3, 7)]),
    ("torus:4x4", "all-gather", [(1, 4, 4)]),
]
REFUSED = [
    ("ring:8", "all-gather", (1, 3, 3), "bound on steps: 4 edges"),
    ("hypercube:8", "all-gather", (1, 2, 3), "bound on steps: 3 edges"),
    ("dgx-1:1", "all-gather", (1, 1, 2), "bound on steps: 2 edges"),
    ("dgx-1:1", "all-gather", (6, 3, 6), "bound on rounds: 7/6 per chunk"),
    ("dgx-1:1", "all-gather", (3, 2, 4), "search over all schedules is exhausted"),
    ("dgx-1:1", "all-gather", (6, 2, 7), "search over all schedules is exhausted"),
    ("dgx-1:1", "broadcast", (3, 2, 2), "search over all schedules is exhausted"),
    ("dgx-1:1", "broadcast", (12, 2, 1), "every step lasts a round"),
]
CASES = [(on, op, asked) for on, op, rows in TABLE for asked in rows]


def of(op: str, top: Topology, size: int = 1 << 20, root: int = 0) -> Collective:
    return Collective(op, range(top.n_ranks), size, root=root)


def chunks_a_step(program: Program) -> list[Counter[tuple[int, int]]]:
    """Count the chunks between each two ranks, step by step."""
    counted = []
    for step in program.steps():
        pairs = Counter[tuple[int, int]]()
        for block in step.blocks:
            src, dst = block.arrays()[:2]
            pairs.update(zip(src.tolist(), dst.tolist(), strict=True))
        counted.append(pairs)
    return counted


def rounds_of(program: Program, top: Topology, unit: float) -> int:
    """Return the rounds that a program takes where each pair has its own link, from the rates of the machine alone."""
    total = 0
    for pairs in chunks_a_step(program):
        links = top.link_ids(*np.array(sorted(pairs)).T) if pairs else np.zeros(0, int)
        assert (links >= 0).all()
        carried = [pairs[pair] / round(top.rate[link] / unit) for pair, link in zip(sorted(pairs), links, strict=True)]
        total += max(1, math.ceil(max(carried, default=0)))
    return total


def check(program: Program, top: Topology, asked: tuple[int, int, int], unit: float) -> None:
    """Steps and rounds as asked, counted from the moves; legal and right."""
    chunks, steps, rounds = asked
    assert (program.knobs["chunks"], program.n_steps, program.knobs["rounds"]) == (chunks, steps, rounds)
    assert rounds_of(program, top, unit) <= rounds
    assert validity.check(program, topology=top) == []
    assert wrong(program) == ""


@pytest.mark.sampled(10, "*")
@pytest.mark.parametrize(("on", "op", "asked"), CASES, ids=str)
def test_what_the_paper_finds_is_there(on: str, op: str, asked: tuple[int, int, int]) -> None:
    top = fabric(on)
    chunks, steps, rounds = asked
    program = sccl(of(op, top, 8 * 64 * 9 * 4), top, chunks=chunks, steps=steps, rounds=rounds)
    check(program, top, asked, 25e9 if on.startswith("dgx") else float(top.rate.min()))


@pytest.mark.parametrize(("on", "op", "asked", "proof"), REFUSED, ids=str)
def test_what_does_not_exist_is_refused_with_its_proof(
    on: str, op: str, asked: tuple[int, int, int], proof: str
) -> None:
    top = fabric(on)
    chunks, steps, rounds = asked
    with pytest.raises(InfeasibleError, match=proof):
        sccl(of(op, top), top, chunks=chunks, steps=steps, rounds=rounds)


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize(
    ("on", "op", "frontier", "bound"),
    [
        ("dgx-1:1", "all-gather", "(2,2,3) (6,3,7)", "7/6"),
        ("dgx-1:1", "all-reduce", "(2,4,6) (6,6,14)", "7/6 + 7/6"),
        ("dgx-1:1", "gather", "(6,2,7)", "7/6"),
        ("ring:8", "all-gather", "(2,4,7)", "7/2"),
        ("hypercube:8", "reduce-scatter", "(3,3,7)", "7/3"),
        ("torus:4x4", "all-gather", "(4,4,15)", "15/4"),
        ("switch:8", "all-gather", "(1,1,7)", "7"),
        ("dgx-1:1", "all-to-all", "(3,2,8)", "8/3"),
    ],
)
def test_frontier(on: str, op: str, frontier: str, bound: str) -> None:
    top = fabric(on)
    program = sccl(of(op, top), top)
    assert (program.knobs["frontier"], program.knobs["bound"], program.knobs["stopped"]) == (frontier, bound, False)
    assert wrong(program) == ""


def test_size_chooses_from_the_frontier() -> None:
    """Two steps for little, fewest rounds for much; and much takes what the rounds say, 171 GB/s of algorithm bandwidth."""
    top = fabric("dgx-1:1")
    small, large = (sccl(of("all-gather", top, size), top) for size in (1 << 16, 1 << 30))
    assert [program.knobs["steps"] for program in (small, large)] == [2, 3]
    taken_s = simulate(large, top, engine="events").time_s
    assert taken_s == pytest.approx(7 / 6 * 2**30 / 8 / 25e9, rel=1e-3)


def test_an_all_reduce_takes_both_halves_and_no_more() -> None:
    """RoundsMoves that wait for data alone let later steps overtake earlier ones (15.2 ms); in step it is 14/6 blocks over an NVLink."""
    top = fabric("dgx-1:1")
    program = sccl(of("all-reduce", top, 1 << 30), top)
    assert program.knobs["in_step"]
    assert (program.knobs["chunks"], program.n_steps, program.knobs["rounds"]) == (6, 6, 14)
    assert simulate(program, top, engine="events").time_s == pytest.approx(14 / 6 * 2**30 / 8 / 25e9, rel=1e-3)


def test_broadcast_comes_near_its_bound_in_batches() -> None:
    """The bound of 1/6 is only approached, so batches of 6 chunks follow each other."""
    top = fabric("dgx-1:1")
    program = sccl(of("broadcast", top, 1 << 28), top)
    assert Fraction(program.knobs["rounds"], program.knobs["chunks"]) < Fraction(105, 600)  # type: ignore[call-overload]
    assert wrong(sccl(of("broadcast", top, 4 * 20), top, chunks=20)) == ""  # three batches, and a part of one
    assert simulate(program, top, engine="events").time_s < 1.05 * 2**28 / 6 / 25e9


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "op", "asked"),
    [
        ("dgx1", "all-gather", (6, 3, 7)),
        ("dgx1", "broadcast", (18, 5, 5)),
        ("dgx1", "all-to-all", (3, 8, 8)),
        ("ring8", "all-gather", (2, 4, 7)),
        ("hypercube8", "all-gather", (3, 3, 7)),
        ("torus4x4", "all-gather", (1, 4, 4)),
    ],
)
def test_recorded_topologies(name: str, op: str, asked: tuple[int, int, int]) -> None:
    from ringwright.formats.sources.topology import read_topology

    top = read_topology(real(f"bench-topologies/{name}.json"))
    chunks, steps, rounds = asked
    program = sccl(of(op, top), top, chunks=chunks, steps=steps, rounds=rounds)
    check(program, top, asked, float(top.rate.min()))


def test_some_knobs_leave_the_rest_to_the_search() -> None:
    top = fabric("dgx-1:1")
    gather = of("all-gather", top)
    assert sccl(gather, top, steps=2, chunks=2).knobs["frontier"] == "(2,2,3)"
    assert sccl(gather, top, chunks=4).knobs["frontier"] == "(4,2,6) (4,3,5)"
    assert sccl(gather, top, rounds=2).knobs["frontier"] == "(1,2,2)"
    with pytest.raises(InfeasibleError, match="bound on steps: 2"):
        sccl(gather, top, steps=1)
    with pytest.raises(InfeasibleError, match="every step lasts"):
        sccl(gather, top, steps=4, rounds=3)


def test_refusals() -> None:
    top = fabric("ring:4")
    with pytest.raises(UsageError, match="counts make them unequal"):
        sccl(Collective("all-gather", range(4), 10, counts=(1, 2, 3, 4)), top)
    with pytest.raises(UsageError, match="order of the ranks"):
        sccl(Collective("reduce", range(4), 10, commutative=False), top)
    with pytest.raises(UsageError, match="no barrier"):
        sccl(Collective("barrier", range(4), 0), top)
    with pytest.raises(UsageError, match="has no rank 5"):
        sccl(Collective("all-gather", range(2, 6), 64), top)
    with pytest.raises(DeclinedError, match="up to 32 ranks"):
        sccl(Collective("all-gather", range(33), 64))


def test_machines_of_one_way_and_dead_links() -> None:
    """A ring that turns one way alone still gathers, in 3 steps; where a link is dead nothing gets through."""
    ring = fabric("ring:4")
    forward = (ring.dst - ring.src) % 4 == 1
    one_way = replace(
        ring, **{name: getattr(ring, name)[forward] for name in ("src", "dst", "rate", "latency_s", "link_class")},
        paths=None, is_symmetric=False,
    )  # fmt: skip
    program = sccl(of("all-reduce", one_way), one_way)
    assert (program.n_steps, program.knobs["rounds"]) == (6, 6)
    assert wrong(program) == ""
    dead = replace(one_way, rate=np.array([*one_way.rate[:-1], 0.0]))
    with pytest.raises(InfeasibleError, match="nothing gets from place"):
        sccl(of("all-gather", dead), dead)
    onward = sccl(of("broadcast", dead, root=int(dead.dst[-1])), dead, chunks=1)
    assert wrong(onward) == ""


def test_part_of_a_machine_and_no_machine() -> None:
    """A group of any ranks in any order; without a machine every pair has a link."""
    top = fabric("dgx-1:1")
    program = sccl(Collective("all-reduce", (7, 2, 5, 4, 0), 960), top)
    assert validity.check(program, topology=top) == []
    assert wrong(program) == ""
    alone = sccl(Collective("all-gather", range(6), 960))
    assert (alone.n_steps, alone.knobs["rounds"]) == (1, 1)
