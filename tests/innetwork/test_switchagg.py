"""SwitchAgg: tables of pairs that evict, switches that add what they have room for."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from ringwright.algorithms.innetwork.ethernet.switchagg import switchagg
from ringwright.algorithms.innetwork.pair_tables import (
    Memory,
    PairSwitch,
    expected_pairs,
    sent_bytes,
    through,
    totals,
)
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model import registry
from ringwright.model.collective import Collective
from ringwright.model.program import Op, Program
from ringwright.model.validity.stream_rules import check_streams
from ringwright_lab.papers.figures import switchagg as figures
from ringwright_lab.papers.figures import word_gradients
from small_fabrics import wrong

pytestmark = pytest.mark.once

SPECS = ["switch:4,sharp=true", "leaf-spine:6,per_leaf=2,sharp=true", "leaf-spine:9,per_leaf=3,sharp=true"]


def made(op: str, spec: str, size: int = 4 * 600, **knobs: object) -> Program:
    topology = fabric(spec)
    collective = Collective(op, range(topology.n_ranks), size, root=2 if op == "reduce" else 0)
    return switchagg(collective, topology, **knobs)  # type: ignore[arg-type]


def seconds(program: Program, spec: str) -> float:
    return simulate(program, fabric(spec), engine="events").time_ps * 1e-12


# --------------------------------------------------------------------------------------------------------------- tables
def drawn(seed: int, pairs: int = 600, longest: int = 40) -> list[tuple[bytes, int]]:
    """Return pairs with keys of all lengths, empty ones and ones that no class takes among them, and large values."""
    draw = random.Random(seed)
    keys = [draw.randbytes(draw.choice((0, 1, 3, 4, 5, 16, 17, longest))) for _ in range(60)]
    return [(draw.choice(keys), draw.randint(-(1 << 80), 1 << 80)) for _ in range(pairs)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("room", [(0, 0), (100, 0), (0, 500), (400, 500), (9000, 9000)], ids=str)
def test_sums_are_those_of_the_pairs_whatever_is_evicted(seed: int, room: tuple[int, int]) -> None:
    children = [drawn(10 * seed + each) for each in range(3)]
    memory = Memory(*room, widths=(4, 16), seed=seed)
    inner = through(memory, children[:2])
    out = through(dataclasses.replace(memory, seed=seed + 7), [inner, children[2]])
    assert totals(out) == totals(pair for child in children for pair in child)
    assert len(out) <= sum(map(len, children))


def test_tables_hold_no_more_than_they_have_room_for() -> None:
    memory = Memory(480, 240, widths=(4, 16), value_bytes=8)
    switch = PairSwitch(memory, 2)
    assert switch.room == 240 // 12 + 240 // 24 + 240 // 24
    for pair in drawn(3, 3000):
        switch.take(pair)
    assert 0 < switch.most_held <= switch.room
    before = len(switch.output)
    switch.end()
    assert len(switch.output) == before, "another child goes on"
    switch.end()
    assert len(switch.output) == before + switch.most_held


def test_a_key_longer_than_all_classes_passes_by() -> None:
    memory = Memory(10_000, 10_000, widths=(4,))
    assert through(memory, [[(b"a long key", 1), (b"a long key", 2)]]) == [(b"a long key", 1), (b"a long key", 2)]
    assert through(memory, [[(b"key", 1)], [(b"key", 2)]]) == [(b"key", 3)]


def test_a_class_of_keys_has_its_own_table() -> None:
    """Many long keys push out no short one."""
    memory = Memory(2400, 0, widths=(4, 16))
    short = [(b"abcd", 1)] * 50
    long = [(number.to_bytes(16, "big"), 1) for number in range(500)]
    out = through(memory, [[pair for both in zip(short, long, strict=False) for pair in both]])
    assert (b"abcd", 50) in out


def test_what_is_evicted_from_the_chip_is_added_behind_it() -> None:
    keys = [(number).to_bytes(8, "big") for number in range(6)]
    pairs = [(key, 1) for _ in range(20) for key in keys]
    chip = Memory(16, 0, (8,), 8, None)  # one bucket
    behind = Memory(16, 16 * 6, (8,), 8, None)
    assert len(through(chip, [pairs])) == 120
    out = through(behind, [pairs])
    assert len(out) == 7  # each of six keys behind, and the last one on the chip too
    assert totals(out) == dict.fromkeys(keys, 20)


def test_rooms_that_are_none_are_refused() -> None:
    for odd in ({"front_bytes": -1}, {"front_bytes": 1, "value_bytes": 0}):
        with pytest.raises(UsageError, match="less than nothing"):
            Memory(**odd)  # type: ignore[arg-type]
    for widths in ((), (16, 4), (0, 4), (4, 4)):
        with pytest.raises(UsageError, match="classes of keys"):
            Memory(8, widths=widths)


def test_the_formula_is_that_of_the_card() -> None:
    assert expected_pairs(20_000, 1000, 1000) == 1000
    assert expected_pairs(20_000, 4000, 1000) == 20_000 * 0.75 + 1000
    assert expected_pairs(500, 4000, 1000) == 500
    assert sent_bytes([(b"ab", 1), (b"", 2)], 8) == 2 + 8 + 2 + 8 + 2


def test_more_room_is_less_traffic_down_to_the_plateau() -> None:
    taken = [figures.ratio(4000, 200, room, hashed=False) for room in (1, 25, 50, 100, 200, 400)]
    assert taken == sorted(taken, reverse=True)
    assert taken[-1] == taken[-2] == 200 / 4000 < taken[-3]
    assert figures.over_formula(20_000, 4000, 2000) == pytest.approx(1, abs=0.05)
    for exponent in (0.0, 1.0):
        assert figures.ratio(4000, 800, 50, 400, exponent) < figures.ratio(4000, 800, 50, 0, exponent)
    assert figures.ratio(4000, 800, 100, 0, 1.0) < figures.ratio(4000, 800, 100)


def test_gradients_of_the_word_model_are_those_of_its_loss_and_the_largest_are_sent() -> None:
    draw = np.random.default_rng(1)
    embedding, out, words = draw.normal(size=(5, 3)), draw.normal(size=(3, 5)), draw.integers(0, 5, 30)

    def loss(first: np.ndarray, last: np.ndarray) -> float:
        scores = first[words[:-1]] @ last
        return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(29), words[1:]]))

    gradients = word_gradients._gradient(embedding, out, words)
    for at, (gradient, shape) in enumerate(zip(gradients, (embedding.shape, out.shape), strict=True)):
        nudge = np.zeros(shape)
        nudge[1, 2] = 1e-6
        more = loss(embedding + nudge, out) if at == 0 else loss(embedding, out + nudge)
        assert gradient[1, 2] == pytest.approx((more - loss(embedding, out)) / 1e-6, rel=1e-3)
    pairs = word_gradients._pairs(np.array([0.5, -3.0, 0.25, 2.0] + [0.1] * 400), 2 / 404)
    assert pairs == [(b"\x01", -3 << 24), (b"\x03", 2 << 24)]
    assert word_gradients._key(300) == b"\x01\x2c"


def test_trained_gradients_meet_more_often_than_drawn_indices() -> None:
    children = word_gradients.largest(4, 0.01)
    assert [len(child) for child in children] == [768] * 4
    assert {len(key) for child in children for key, _ in child} == {1, 2, 3}
    assert figures.trained_overlap(4, 0.01) < 0.8, "drawn ones: (1 - 0.99^4) / 0.04 = 0.985"
    assert figures.trained_bytes(4, 0.01, 1 << 22, 0) < figures.trained_bytes(4, 0.01, 2048, 0) < 1 / 0.55


# -------------------------------------------------------------------------------------------------------------- program
@pytest.mark.parametrize("op", ["reduce", "all-reduce"])
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "knobs", [{}, {"tables": 1000}, {"tables": 0, "segments": 3}, {"tables": 3, "segments": 4}], ids=str
)
def test_each_input_counts_once(op: str, spec: str, knobs: dict[str, object]) -> None:
    program = made(op, spec, **knobs)
    assert not wrong(program)
    assert check_streams(program, fabric(spec)) == []


def test_what_has_no_room_goes_on_to_the_root() -> None:
    for tables, factor in ((0, 1.0), (4 << 20, 1.75), (8 << 20, 7.0)):
        assert figures.fewer_bytes(tables) == pytest.approx(factor, rel=1e-12)
    program = made("reduce", SPECS[0], tables=600)
    ops = {block.op for step in program.steps() for block in step.blocks}
    assert {Op.CONTRIBUTE, Op.EMIT, Op.REDUCE} <= ops
    assert program.knobs["held"] == "25%"
    assert made("reduce", SPECS[0]).knobs["held"] == "100%"


def test_results_of_an_all_reduce_are_copied_by_the_switch() -> None:
    program = made("all-reduce", SPECS[0])
    assert all(block.multicast is (block.op is Op.EMIT) for step in program.steps() for block in step.blocks)


def test_segments_follow_one_another_and_worse_is_not_faster() -> None:
    spec, size = "leaf-spine:8,per_leaf=4,sharp=true", 4 << 20
    one, many = (seconds(made("reduce", spec, size, segments=count), spec) for count in (1, 64))
    assert many < one / 2
    assert made("reduce", spec, size).knobs["segments"] == 64
    program, machine = made("reduce", spec, size), fabric(spec)
    for worse in (
        dataclasses.replace(machine, latency_s=machine.latency_s * 9),
        dataclasses.replace(machine, rate=machine.rate / 2),
    ):
        assert simulate(program, worse, engine="events").time_ps * 1e-12 > many
    assert seconds(made("reduce", spec, size, tables=1 << 20), spec) > many, "less room"


def test_networks_that_add_nothing_and_odd_tables_are_refused() -> None:
    for spec in ("switch:4", "torus:3x3", "dgx-h100:1"):
        with pytest.raises(UsageError, match="no switch of this network adds"):
            made("reduce", spec)
    with pytest.raises(UsageError, match="no switch that adds on the way"):
        made("reduce", "middleboxes:4")
    with pytest.raises(UsageError, match=r"tables of 16,777,217 B in a switch of 16,777,216 B") as raised:
        made("reduce", SPECS[0], tables=(16 << 20) + 1)
    assert "tables=16777216" in str(raised.value.remedy)
    with pytest.raises(UsageError, match="switchagg does no all-gather"):
        made("all-gather", SPECS[0])
    assert registry.find("switchagg").kind == "ethernet"
