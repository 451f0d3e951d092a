"""Folding by classes: programs through switches that add and copy take exactly as long as unfolded, or do not fold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

import engine_cases as cases
import ringwright
from ringwright.engines import events, flat
from ringwright.engines.choose import simulate
from ringwright.engines.folding.fold import fold
from ringwright.engines.folding.quotient import Folded
from ringwright.engines.machine import ALPHAS, Machine, machine
from ringwright.engines.switch_slots import machines
from ringwright.ground.errors import DeclinedError
from ringwright.model.collective import Collective
from ringwright.model.program import Block, Cost, Layout, Op, Program, Step, explicit
from ringwright.model.registry import algorithm
from ringwright.model.streams import Stream
from ringwright.model.topology import Capability, Fault, Topology

FABRICS = {  # hosts that fold into one, in the mean over all messages
    "dgx-h100:2,sharp=true": 2,
    "dgx-h100:5,per_leaf=2,sharp=true": 4,
    "dgx-h100:16,per_leaf=4,sharp=true": 14,
    "dgx-a100:4,per_leaf=2,sharp=true": 3,
    "leaf-spine:10,per_leaf=4,sharp=true": 6,
}
ALGORITHMS = ("collnet-direct", "collnet-chain:segments=3", "nvls-collnet", "nccl-2-4:algorithm=collnet-direct")


def asked(name: str, topology: Topology, size_bytes: int) -> Program:
    _, make, knobs = algorithm(name)
    return make(Collective("all-reduce", range(topology.n_ranks), size_bytes), topology, **knobs)


def held_to_the_whole(program: Program, made: Machine) -> Folded:
    """Fold, and compare all starts and ends to the picosecond (a branch of a multicast has no start of its own)."""
    folded = fold(program, made)
    laid = flat.flatten(program, made)
    whole = events.run(laid, made.carrying(program))
    found = events.run(folded.flat, folded.machine)
    weight = folded.flat.weight
    assert weight is not None
    assert found.time_ps == whole.time_ps
    assert int(weight.sum()) == len(whole.end_ps)
    assert np.array_equal(np.sort(np.repeat(found.end_ps, weight)), np.sort(whole.end_ps))
    if laid.branches is None:
        assert np.array_equal(np.sort(np.repeat(found.start_ps, weight)), np.sort(whole.start_ps))
    return folded


@pytest.mark.sampled(6, "name", "fabric")
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("fabric", FABRICS)
def test_switches_that_add_and_copy_fold(fabric: str, name: str, alpha: str) -> None:
    top = ringwright.fabric(fabric)
    if name == "nvls-collnet" and not fabric.startswith("dgx-h100"):
        pytest.skip("no NVSwitch adds here")
    for size in (8, 4_000, 3 << 20):  # below an element a chunk, in chunks that differ, in segments
        assert held_to_the_whole(asked(name, top, size), machine(top, alpha)).parts >= FABRICS[fabric]


def adding_at(topology: Topology, nodes: set[int], rate: float) -> Topology:
    slow = {
        node: dataclasses.replace(can, reduce_rate=rate, latency_s=3e-7) if node in nodes else can
        for node, can in topology.aggregators.items()
    }
    return dataclasses.replace(topology, aggregators=slow)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_contributions_that_queue_at_an_adder_are_classes_by_their_turn(alpha: str) -> None:
    top = ringwright.fabric("leaf-spine:12,per_leaf=4,sharp=true")
    whole = held_to_the_whole(asked("collnet-direct", top, 1 << 20), machine(top, alpha)).parts
    slow = adding_at(top, set(top.dst[:12].tolist()), 20e9)  # leaves
    assert 2 <= held_to_the_whole(asked("collnet-direct", slow, 1 << 20), machine(slow, alpha)).parts < whole


def test_a_queue_at_the_root_makes_all_hosts_differ() -> None:
    top = ringwright.fabric("leaf-spine:12,per_leaf=4,sharp=true")
    slow = adding_at(top, set(top.aggregators), 20e9)
    with pytest.raises(DeclinedError, match="messages that are alike queue at adder of"):
        fold(asked("collnet-direct", slow, 1 << 20), machine(slow))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", ["collnet-direct:slots=3", "collnet-chain:slots=1", "nvls-collnet:slots=2"])
def test_what_streams_declare_holds_in_the_quotient(name: str, alpha: str) -> None:
    """Few slots hold results back by a resource in front of them, which all hosts of a leaf share."""
    top = ringwright.fabric("dgx-h100:8,per_leaf=4,sharp=true")
    program = asked(name, top, 3 << 20)
    (paced,), (free,) = (
        machines([program], top, alpha),
        machines([asked(name.partition(":")[0], top, 3 << 20)], top, alpha),
    )
    assert paced.pacers is not None
    assert free.pacers is None
    folded = held_to_the_whole(program, paced)
    assert folded.parts >= 4
    assert folded.machine.n > fold(program, free).machine.n


@pytest.mark.parametrize("field", ["rate_factor", "latency_s"])
def test_a_fault_makes_classes_of_what_it_touches(field: str) -> None:
    top = ringwright.fabric("dgx-h100:8,per_leaf=4,sharp=true")
    healthy = held_to_the_whole(asked("collnet-direct", top, 1 << 20), machine(top))
    nic = int(np.flatnonzero(top.link_class == top.classes.index("nic"))[5])
    value = {"rate_factor": 0.25, "latency_s": 9e-6}[field]
    broken = dataclasses.replace(top, faults=(Fault(2e-5, "link", nic, field, value),))
    folded = held_to_the_whole(asked("collnet-direct", broken, 1 << 20), machine(broken))
    assert len(healthy.flat.src) < len(folded.flat.src) < 0.7 * int(healthy.flat.weight.sum())  # type: ignore[union-attr]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_multicasts_that_share_a_stem_fold(alpha: str) -> None:
    """Only spines add, so that a result crosses the way down to a leaf once, for all hosts below it."""
    top = ringwright.fabric("leaf-spine:12,per_leaf=4,spines=1,sharp=true")
    spine = max(top.aggregators)
    top = dataclasses.replace(top, aggregators={spine: top.aggregators[spine]})
    _, make, knobs = algorithm("collnet-direct")
    far = [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]  # the next rank is under another leaf
    program = make(Collective("all-reduce", far, 1 << 20), top, **knobs)
    folded = held_to_the_whole(program, machine(top, alpha))
    assert flat.flatten(program, machine(top)).branches is not None
    assert folded.parts >= 3


def leaves(rng: np.random.Generator, slots: int) -> Callable[[], tuple[Step, ...]]:
    """Random moves inside each of four leaves, from leaf to leaf, and through switches that add and copy."""
    first = np.arange(4) * 4
    spine, leaf = 20, 16 + np.arange(4)

    def block(channel: int) -> Block:
        chunk, to, n = int(rng.integers(slots)), int(rng.integers(slots)), int(rng.integers(1, 5))
        kind = int(rng.integers(6))
        ranks = rng.integers(4, size=n)
        if kind == 0:
            there = (ranks + rng.integers(1, 4, size=n)) % 4
            together = rng.random() < 0.5
            src, dst = ((each.reshape(-1, 1) + first) for each in (ranks, there))
            src, dst = (each.reshape(-1) if together else each.T.reshape(-1) for each in (src, dst))
            made = explicit(Op(int(rng.integers(2))), src, dst, chunk, to, channel=channel)
        elif kind == 1:
            every = np.arange(16)
            made = explicit(Op.SEND, every, (every + 4 * int(rng.integers(1, 4))) % 16, chunk, to, channel=channel)
        elif kind == 2:
            members = np.unique(ranks)
            src = (members.reshape(-1, 1) + first).reshape(-1)
            made = explicit(Op.CONTRIBUTE, src, leaf[src // 4], chunk, to, channel=channel)
        elif kind == 3:
            made = explicit(Op.COMBINE, leaf, spine, chunk, to, channel=channel)
        else:
            dst = rng.permutation(16) if rng.random() < 0.1 else np.arange(16)
            src = leaf[dst // 4] if kind == 4 else np.full(16, spine)
            made = dataclasses.replace(explicit(Op.EMIT, src, dst, chunk, to, channel=channel), multicast=True)
        return made

    steps = tuple(
        Step(tuple(block(channel) for channel in range(int(rng.integers(1, 4)))))
        for _ in range(int(rng.integers(2, 9)))
    )
    return lambda: steps


@pytest.mark.parametrize("alpha", ALPHAS)
def test_random_moves_through_leaves_and_a_spine(alpha: str) -> None:
    folded = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        slots = int(rng.integers(1, 5))
        able = Capability(reduce_rate=30e9 if rng.random() < 0.2 else np.inf, latency_s=2e-7 * int(rng.integers(2)))
        switches = tuple(range(16, 21))
        top = dataclasses.replace(cases.leaf_spine(4, 4, 1), aggregators=dict.fromkeys(switches, able))
        layout = Layout(slots, rng.integers(0, 200_000, slots), slots, slots)
        collective, steps = Collective("all-reduce", range(16), 4), leaves(rng, slots)
        program = Program(f"seed {seed}", collective, layout, steps, len(steps()), Cost((), 0.0), switches)
        try:
            held_to_the_whole(program, machine(top, alpha))
            folded += 1
        except DeclinedError:
            continue
    assert folded > 30


def declined(program: Program, topology: Topology, why: str) -> None:
    """Check that it does not fold, and that the simulator answers all the same and says why."""
    with pytest.raises(DeclinedError, match=why):
        fold(program, machine(topology))
    run = simulate(program, topology)
    assert (run.folded, run.parts) == (False, 1)
    assert why in run.unfolded_because


def through_one_switch(*blocks: Block, **more: object) -> tuple[Program, Topology]:
    top = dataclasses.replace(cases.switch(8, **more), aggregators={8: Capability()})
    collective, layout = Collective("all-reduce", range(8), 8_000), Layout(8, np.full(8, 1_000), 8, 8)
    nodes, streams = (8,), (Stream(8),)
    return Program("made", collective, layout, lambda: (Step(blocks),), 1, Cost((), 0.0), nodes, streams), top


RANKS = np.arange(8)
COPIES = dataclasses.replace(explicit(Op.EMIT, 8, RANKS, 0), multicast=True)


def test_what_does_not_fold_says_why() -> None:
    declined(*through_one_switch(explicit(Op.CONTRIBUTE, RANKS, 8, RANKS)), "no two ranks move the same slots")
    twice = explicit(Op.CONTRIBUTE, RANKS, 8, 0), explicit(Op.CONTRIBUTE, RANKS, 8, 1)
    declined(*through_one_switch(*twice), "blocks of step 0 share messages")
    sent = dataclasses.replace(explicit(Op.SEND, 0, RANKS[1:], 0), multicast=True)
    declined(
        *through_one_switch(sent, message_s={"link": 1e-6}, occupying=("link",)), "the software of a rank sends to many"
    )
    declined(*through_one_switch(), "it moves nothing")


def test_an_order_that_differs_from_host_to_host_does_not_fold() -> None:
    """Each of four ranks gives one slot to each of two spines over one link; at odd ranks the second spine comes first."""
    top = dataclasses.replace(cases.leaf_spine(1, 4, 2), aggregators=dict.fromkeys((8, 9), Capability()))
    collective = Collective("all-reduce", range(4), 8_000)
    for swapped in (False, True):
        turn = np.where(swapped & (np.arange(4).reshape(-1, 1) % 2 > 0), [1, 0], [0, 1]).reshape(-1)
        steps = (Step((explicit(Op.CONTRIBUTE, np.repeat(np.arange(4), 2), 4 + turn, turn),)),)
        layout = Layout(2, np.array([8_000, 3_000]), 1, 2)
        program = Program(
            "turns", collective, layout, lambda steps=steps: steps, 1, Cost((), 0.0), (8, 9), (Stream(8), Stream(9))
        )
        if swapped:
            declined(program, top, "in an order that differs from rank to rank")
        else:
            assert held_to_the_whole(program, machine(top)).parts == 4


def test_copies_to_all_fold_alone() -> None:
    program, top = through_one_switch(COPIES)
    assert held_to_the_whole(program, machine(top)).parts == 8
    assert simulate(program, top).folded
