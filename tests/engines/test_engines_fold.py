"""Folding: the quotient takes exactly as long as the whole, or is not made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine_cases as cases
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.published.blueconnect import blueconnect
from ringwright.engines import events, flat, flows
from ringwright.engines.folding.fold import evened, fold
from ringwright.engines.folding.patterns import recognise
from ringwright.engines.machine import ALPHAS, machine
from ringwright.ground.errors import DeclinedError
from ringwright.model.collective import Collective
from ringwright.model.program import Affine, Block, Cost, Op, Program, Step, cut, explicit
from ringwright.model.topology import Fault, Topology

FABRICS: dict[str, Callable[[], Topology]] = {
    "switch": lambda: cases.switch(16),
    "switch that adds slowly": lambda: dataclasses.replace(cases.switch(16), reduce_rate=20e9),
    "ring": lambda: cases.circle(16),
    "torus": lambda: cases.torus(4, 4),
    "nodes": lambda: cases.nodes_of(4, 4),
    "nodes with a plane": lambda: cases.nodes_of(4, 4, plane=True),
    "leaf and spine": lambda: cases.leaf_spine(4, 4, 2),
    "costly messages": lambda: dataclasses.replace(cases.nodes_of(4, 4), message_s={"nic": 3e-6, "nvlink": 1e-6}),
    "busy senders": lambda: dataclasses.replace(
        cases.nodes_of(4, 4), message_s={"nic": 3e-6, "nvlink": 1e-6}, occupying=("nic",)
    ),
    "switch with busy senders": lambda: cases.switch(16, message_s={"link": 1e-6}, occupying=("link",)),
    "slow from 5 us on": lambda: dataclasses.replace(
        cases.switch(16), faults=tuple(Fault(5e-6, "link", link, "rate_factor", 0.25) for link in range(32))
    ),
}


def recursive_doubling(p: int, size_bytes: int) -> Program:
    """Exchange all data with the partner at each bit of the rank, in affine blocks over the bits."""
    bits = p.bit_length() - 1
    collective = Collective("all-reduce", range(p), size_bytes)

    def step(bit: int) -> Step:
        def rank(flip: int) -> Affine:
            return Affine(tuple((1, int(each == flip), 2, 1 << each) for each in range(bits)))

        return Step((Block(Op.REDUCE, (2,) * bits, rank(-1), rank(bit), Affine(())),))

    return Program(
        "doubling",
        collective,
        cut(collective),
        lambda: (step(bit) for bit in range(bits)),
        bits,
        Cost((), float(p * bits * size_bytes)),
    )


def recursive_halving(p: int, size_bytes: int) -> Program:
    """Reduce-scatter by halves: at each bit, from the highest on, give away the half that the partner keeps."""
    bits = p.bit_length() - 1
    collective = Collective("reduce-scatter", range(p), size_bytes)

    def step(bit: int) -> Step:
        def rank(flip: int, lowest: int = 0) -> Affine:
            return Affine(tuple((1, int(each == flip), 2, (1 << each) * (each >= lowest)) for each in range(bits)))

        return Step((Block(Op.REDUCE, (2,) * bits, rank(-1), rank(bit), rank(bit, bit), span=1 << bit),))

    return Program(
        "halving",
        collective,
        cut(collective),
        lambda: (step(bit) for bit in reversed(range(bits))),
        bits,
        Cost((), float((p - 1) * size_bytes)),
    )


FAMILIES: dict[str, Callable[[int, int], Topology]] = {
    "switch": lambda a, b: cases.switch(a * b),
    "ring": lambda a, b: cases.circle(a * b),
    "torus": cases.torus,
    "nodes": cases.nodes_of,
    "nodes with a plane": lambda a, b: cases.nodes_of(a, b, plane=True),
    "leaf and spine": lambda a, b: cases.leaf_spine(a, b, 2),
}
PROGRAMS: dict[str, Callable[[], Program]] = {
    "ring": lambda: ring(Collective("all-reduce", range(16), 16_000)),
    "ring all-gather": lambda: ring(Collective("all-gather", range(16), 16_000)),
    "ring in two channels": lambda: ring(Collective("all-reduce", range(16), 64_000), channels=2),
    "ring of half of the ranks": lambda: ring(Collective("all-reduce", range(0, 16, 2), 16_000)),
    "ring in reverse": lambda: ring(Collective("all-reduce", range(15, -1, -1), 16_000)),
    "4 x 4": lambda: blueconnect(Collective("all-reduce", range(16), 16_000), factors=(4, 4)),
    "2 x 4 x 2": lambda: blueconnect(Collective("reduce-scatter", range(16), 16_000), factors=(2, 4, 2)),
    "doubling": lambda: recursive_doubling(16, 16_000),
    "halving": lambda: recursive_halving(16, 16_000),
    "all-to-all": lambda: cases.direct_all_to_all(16, 16_000),
    "empty": lambda: ring(Collective("all-reduce", range(16), 0)),
}
FOLDS = {
    ("switch", name): 16 for name in ("ring", "ring all-gather", "4 x 4", "doubling", "halving", "all-to-all", "empty")
} | {
    ("ring", "ring"): 16,
    ("torus", "4 x 4"): 16,
    ("nodes", "4 x 4"): 16,
    ("nodes", "ring"): 4,
    ("busy senders", "ring"): 4,
    ("switch with busy senders", "all-to-all"): 16,
    ("slow from 5 us on", "ring"): 16,
}


@pytest.mark.sampled(90)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("fabric", FABRICS)
def test_folded_equals_whole(fabric: str, program: str, alpha: str) -> None:
    made, asked = machine(FABRICS[fabric](), alpha), PROGRAMS[program]()
    try:
        folded = fold(asked, made)
    except DeclinedError:
        assert (fabric, program) not in FOLDS
        return
    assert folded.parts >= FOLDS.get((fabric, program), 2)
    whole = events.run(flat.flatten(asked, made), made)
    found = events.run(folded.flat, folded.machine)
    assert found.time_ps == whole.time_ps
    assert found.events * folded.parts == whole.events
    assert sorted(np.repeat(found.end_ps, folded.parts)) == sorted(whole.end_ps)


def test_a_fault_on_one_link_breaks_the_symmetry() -> None:
    top = dataclasses.replace(cases.switch(8), faults=(Fault(1e-6, "link", 3, "rate_factor", 0.5),))
    with pytest.raises(DeclinedError, match="a fault breaks the symmetry at rank3"):
        fold(ring(Collective("all-reduce", range(8), 8000)), machine(top))


def test_a_fault_where_nothing_passes_breaks_nothing() -> None:
    top = dataclasses.replace(cases.circle(8), faults=(Fault(1e-6, "link", 11, "rate_factor", 0.5),))
    assert fold(ring(Collective("all-reduce", range(8), 8000)), machine(top)).parts == 8


def test_uneven_chunks_do_not_fold() -> None:
    with pytest.raises(DeclinedError, match="differ in size"):
        fold(ring(Collective("all-reduce", range(8), 8012)), machine(cases.switch(8)))


def test_rounding_up_lets_uneven_chunks_fold() -> None:
    program = ring(Collective("all-reduce", range(8), 8012))
    made = machine(cases.switch(8))
    folded = fold(evened(program), made)
    exact = events.run(flat.flatten(program, made), made)
    assert exact.time_ps <= events.run(folded.flat, folded.machine).time_ps <= exact.time_ps + 14 * 80
    with pytest.raises(DeclinedError, match="more than one element"):
        evened(dataclasses.replace(program, layout=cut(program.collective, 2, shares=np.array([8000, 12]))))


def test_a_ring_inside_and_an_exchange_outside_fold_together() -> None:
    program = blueconnect(
        Collective("all-reduce", range(32), 64_000), factors=(4, 8), inner=[ring, recursive_doubling_of]
    )
    made = machine(cases.nodes_of(4, 8))
    folded = fold(program, made)
    assert folded.parts == 32
    assert events.run(folded.flat, folded.machine).time_ps == events.run(flat.flatten(program, made), made).time_ps


def recursive_doubling_of(collective: Collective) -> Program:
    return recursive_doubling(collective.p, collective.size_bytes)


@given(
    st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3),
    st.sampled_from(["all-reduce", "reduce-scatter", "all-gather"]),
    st.sampled_from(sorted(FAMILIES)),
    st.sampled_from(ALPHAS),
    st.integers(0, 200),
)
def test_any_mesh_on_any_fabric(factors: list[int], op: str, family: str, alpha: str, words: int) -> None:
    p = math.prod(factors)
    program = blueconnect(Collective(op, range(p), 4 * p * words), factors=factors)
    made = machine(FAMILIES[family](factors[0], p // factors[0]), alpha)
    try:
        folded = fold(program, made)
    except DeclinedError:
        return
    assert events.run(folded.flat, folded.machine).time_ps == events.run(flat.flatten(program, made), made).time_ps
    fluid, whole = flows.run(folded.flat, folded.machine), flows.run(flat.flatten(program, made), made)
    assert fluid.time_ps == pytest.approx(whole.time_ps, rel=1e-9, abs=len(fluid.end_ps))


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(1, 50), st.integers(0, 60)), max_size=3), st.integers(0, 9))
def test_a_listed_pattern_is_recognised(n: int, digits: list[tuple[int, int]], base: int) -> None:
    rank = np.arange(n)
    values = base + sum((weight * ((rank + offset) % n) for weight, offset in digits), start=rank * 0)
    found = recognise(values)
    assert found is None or np.array_equal(found.at(rank[:, None]), values)
    if n > 8:
        assert found is not None


def test_an_all_to_all_listed_by_pairs_folds() -> None:
    """Rank r sends chunk r p + t to rank t: two digits of the chunk turn with the rank."""
    p = 12
    collective = Collective("all-to-all", range(p), p * 600)
    rank = np.arange(p)

    def step(by: int) -> Step:
        target = (rank + by) % p
        return Step((explicit(Op.SEND, rank, target, rank * p + target),))

    program = Program("pairs", collective, cut(collective), lambda: map(step, range(1, p)), p - 1, Cost((), 0.0))
    made = machine(cases.switch(p))
    folded = fold(program, made)
    assert folded.parts == p
    assert events.run(folded.flat, folded.machine).time_ps == events.run(flat.flatten(program, made), made).time_ps


@pytest.mark.sampled(60)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("fabric", FABRICS)
def test_folded_flows_equal_whole_ones(fabric: str, program: str) -> None:
    made, asked = machine(FABRICS[fabric]()), PROGRAMS[program]()
    try:
        folded = fold(asked, made, fluid=True)
    except DeclinedError:
        return
    whole = flows.run(flat.flatten(asked, made), made)
    assert flows.run(folded.flat, folded.machine).time_ps == pytest.approx(whole.time_ps, rel=1e-9, abs=30)


def test_listed_moves_do_not_fold() -> None:
    program = ring(Collective("all-reduce", range(8), 8000))
    steps = [Step((explicit(Op.SEND, [0, 2, 3, 7], [1, 4, 5, 6], [0, 1, 2, 3]),))]
    listed = dataclasses.replace(program, make_steps=lambda: steps, n_steps=1)
    with pytest.raises(DeclinedError, match="one by one"):
        fold(listed, machine(cases.switch(8)))


def test_one_slow_link_does_not_fold() -> None:
    top = cases.circle(8)
    rate = top.rate.copy()
    rate[5] /= 2
    with pytest.raises(DeclinedError, match="not like its images"):
        fold(ring(Collective("all-reduce", range(8), 8000)), machine(dataclasses.replace(top, rate=rate)))


def test_chunks_that_do_not_turn_along_do_not_fold() -> None:
    """All ranks send the same chunk: each step alone is symmetric, and both together are."""
    program = ring(Collective("all-reduce", range(8), 8000))

    def steps() -> list[Step]:
        still = Block(Op.SEND, (8,), Affine(((1, 0, 8, 1),)), Affine(((1, 1, 8, 1),)), Affine((), 3))
        return [*program.steps(), Step((still,))]

    with pytest.raises(DeclinedError, match="part of what turns"):
        fold(dataclasses.replace(program, make_steps=steps, n_steps=15), machine(cases.switch(8)))


def test_the_first_page_says_what_is_so() -> None:
    """The example of ``ringwright.engines.folding``: eight ranks, 112 messages, 14 of them laid out."""
    from ringwright.engines.folding.families import collect

    program = ring(Collective("all-reduce", range(8), 8 * 4096))
    assert (program.n_steps, sum(step.count for step in program.steps())) == (14, 112)
    assert len(collect(program)) == 2
    folded = fold(program, machine(cases.circle(8)))
    assert (folded.parts, len(folded.flat.src)) == (8, 14)
    assert 2 * (131_072 - 1) * 131_072 > 34e9
