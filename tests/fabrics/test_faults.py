"""Faults: lines become rows, rows become lines and JSON again, seeds repeat, and engines feel them."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.algorithms.blocks.ring import ring
from ringwright.engines.events import run
from ringwright.engines.flat import flatten
from ringwright.engines.machine import machine
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply, describe, dumps, effects, loads
from ringwright.ground.errors import InfeasibleError, InputError, RingwrightError, UsageError
from ringwright.model.collective import Collective
from ringwright.model.topology import Fault, Topology

BOX = fabric("dgx-h100:4")


def link(top: Topology, src: str, dst: str) -> int:
    return int(top.link_ids(np.array([top.find(src)]), np.array([top.find(dst)]))[0])


def rows(*lines: str, top: Topology = BOX, seed: int = 0, horizon_s: float = 10.0) -> tuple[Fault, ...]:
    return apply(top, lines, seed=seed, horizon_s=horizon_s).faults


def test_one_direction_for_a_while() -> None:
    target = link(BOX, "node0/gpu0", "node0/nvswitch")
    assert rows("link node0/gpu0>node0/nvswitch rate 50% from 1ms to 3ms") == (
        Fault(1e-3, "link", target, "rate_factor", 0.5),
        Fault(3e-3, "link", target, "rate_factor", 1.0),
    )
    back = link(BOX, "node0/nvswitch", "node0/gpu0")
    assert {row.target for row in rows("link node0/nvswitch--node0/gpu0 rate 50%")} == {target, back}


def test_one_node_means_all_its_links() -> None:
    nic = BOX.find("node3/nic2")
    at = set(np.flatnonzero((BOX.src == nic) | (BOX.dst == nic)).tolist())
    assert len(at) == 4
    for line in ("link node3/nic2 dead at 5ms", "nic node3/nic2 dead at 5ms"):
        found = rows(line)
        assert {row.target for row in found} == at
        assert {(row.time_s, row.value) for row in found} == {(5e-3, 0.0)}
    assert {row.target for row in rows("rank node3/gpu2 dead")} == {row.target for row in rows("rank 26 dead")}
    assert len({row.target for row in rows("link node*/nic0 dead")}) == 16
    assert len({row.target for row in rows("nic node[01]/* dead")}) == 64


def test_flapping() -> None:
    found = rows("link node3/nic2 flap 100ms every 2s from 1s until 6s")
    times = sorted({(round(row.time_s, 9), row.value) for row in found})
    assert times == [(1.0, 0.0), (1.1, 1.0), (3.0, 0.0), (3.1, 1.0), (5.0, 0.0), (5.1, 1.0)]
    seeded = rows("link node3/nic2 flap 100ms every 2s", seed=7)
    assert seeded == rows("link node3/nic2 flap 100ms every 2s", seed=7)
    assert seeded != rows("link node3/nic2 flap 100ms every 2s", seed=8)
    down = sorted({row.time_s for row in seeded if row.value == 0})
    assert len(down) == 5
    assert 0 <= down[0] <= 1.9
    assert np.diff(down) == pytest.approx([2.0] * 4)


def test_slow_ranks_loss_and_latency() -> None:
    assert rows("rank 7 slow 2x") == (Fault(0.0, "rank", 7, "compute_factor", 0.5),)
    assert rows("rank node0/gpu7 slow 2x at 1s for 500ms")[-1] == Fault(1.5, "rank", 7, "compute_factor", 1.0)
    target = link(BOX, "leaf0", "spine1")
    assert rows("link leaf0>spine1 loss 0.1%") == (Fault(0.0, "link", target, "loss", pytest.approx(0.001)),)
    assert rows("link leaf0>spine1 latency 5us")[0].value == 5e-6
    assert rows("link leaf0>spine1 latency +5us")[0].value == pytest.approx(5.2e-6)


def test_what_overlaps_adds_up() -> None:
    found = rows(
        "link leaf0>spine1 rate 50% from 1s to 4s",
        "link leaf0>spine1 rate 20% from 2s to 3s",
        "link leaf0>spine1 loss 10% from 1s",
        "link leaf0>spine1 loss 10% from 2s",
    )
    rates = [(row.time_s, row.value) for row in found if row.field == "rate_factor"]
    assert rates == [(1.0, 0.5), (2.0, 0.1), (3.0, 0.5), (4.0, 1.0)]
    losses = [(row.time_s, row.value) for row in found if row.field == "loss"]
    assert losses == [(1.0, pytest.approx(0.1)), (2.0, pytest.approx(0.19))]


def test_everywhere_and_always_needs_no_rows() -> None:
    lossy = apply(BOX, ["link * loss 0.01%", "link * rate 50%", "link * latency +1us"])
    assert not lossy.faults
    assert lossy.loss is not None
    assert lossy.loss == pytest.approx(1e-4)
    assert (lossy.rate == BOX.rate / 2).all()
    assert lossy.latency_s == pytest.approx(BOX.latency_s + 1e-6)
    assert BOX.loss is None
    worse = apply(BOX, ["link * loss 10%", "link leaf0>spine1 loss 10% from 1s to 2s"])
    assert [row.value for row in worse.faults] == pytest.approx([0.19, 0.1])
    assert len(rows("link * loss 1% at 1s")) == BOX.n_links


def test_by_lot() -> None:
    found = rows("link random:3 dead at 10ms", seed=3)
    assert len(found) == 6
    ends = {frozenset((int(BOX.src[row.target]), int(BOX.dst[row.target]))) for row in found}
    assert len(ends) == 3
    assert found == rows("link random:3 dead at 10ms", seed=3)
    assert found != rows("link random:3 dead at 10ms", seed=4)
    assert len(rows("rank random:2 slow 1.5x")) == 2
    assert len({row.target for row in rows("nic random:2 dead")}) == 8


def test_rows_are_sorted_comments_are_skipped_and_times_derive() -> None:
    found = rows("# nothing", "", "link leaf1>spine1 dead at 2s  # later", "link leaf0>spine1 dead at 1s")
    assert [row.time_s for row in found] == [1.0, 2.0]
    broken = apply(BOX, ["link leaf0>spine1 dead from 1s to 2s"])
    target = link(BOX, "leaf0", "spine1")
    assert [broken.at(time_s).rate[target] > 0 for time_s in (0.0, 1.5, 2.5)] == [True, False, True]
    twice = apply(broken, ["link leaf1>spine1 dead at 1.5s"])
    assert [row.time_s for row in twice.faults] == [1.0, 1.5, 2.0]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("link node3/nic9 dead", "node3/nic"),
        ("nic node3/gpu1 dead", "is no nic"),
        ("rank 99 slow 2x", "0 to 31"),
        ("cable a dead", "no target"),
        ("link", "a name is missing"),
        ("link leaf0", "an effect is missing"),
        ("link leaf0 tired", "no effect"),
        ("link leaf0 rate 50", "no number with %"),
        ("link leaf0 rate -5%", "not possible"),
        ("link leaf0 loss 101%", "not possible"),
        ("link leaf0 rate nan%", "no number"),
        ("link leaf0 slow 2x", "only a rank"),
        ("rank 1 slow 0x", "slower than"),
        ("rank 1 slow 2", "no number with x"),
        ("link leaf0 dead from 2s to 1s", "before it begins"),
        ("link leaf0 dead at soon", "not a time"),
        ("link leaf0 flap 2s every 1s", "shorter than its period"),
        ("link leaf0 flap 1s", "'every' is missing"),
        ("link leaf0 flap 1s each 2s", "'every' is missing"),
        ("link leaf0 dead at 1s please", "'please' is not understood"),
        ("link leaf0>node0/gpu0 dead", "it has links to"),
        ("link random:0 dead", "not random:K"),
        ("link random:99999 dead", "only"),
        ("rank random:99 slow 2x", "only 32"),
        ("link nobody* dead", "has no 'nobody*'"),
        ("link leaf0 latency", "a time is missing"),
        ("link leaf0 flap 1ns every 2ns", "too many"),
        ("link leaf0>spine99 dead", "spine"),
        ("rank 1 slow 2x at 1s to 1s", "before it begins"),
        ("link > dead", "has no ''"),
    ],
)
def test_a_wrong_line_says_what_and_what_instead(line: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        rows(line)
    assert says in str(caught.value)
    assert line in caught.value.where
    assert caught.value.remedy


WORDS = [
    "link",
    "rank",
    "nic",
    "switch",
    "node0/nic1",
    "leaf0>spine1",
    "leaf0--spine1",
    "*",
    "random:2",
    "7",
    "dead",
    "rate",
    "50%",
    "loss",
    "1%",
    "latency",
    "5us",
    "+1us",
    "slow",
    "2x",
    "flap",
    "every",
    "at",
    "from",
    "to",
    "until",
    "for",
    "1s",
    "2s",
    "10ms",
    "#",
    "node?/gpu*",
    "",
    "%",
    "x",
    "-1s",
    "1e400s",
    "[",
    ">",
    "--",
    "\u0663s",
    "..",
    "random:",
]


def test_no_line_breaks_the_reader() -> None:
    draw = random.Random(0)
    good = 0
    for _ in range(3000):
        start = draw.choice(("link leaf0>spine1 ", "rank 7 ", "link random:2 ", "nic node0/nic1 ", ""))
        line = start + " ".join(draw.choices(WORDS, k=draw.randrange(8)))
        try:
            found = rows(line)
        except RingwrightError:
            continue
        good += 1
        assert all(row.value >= 0 and 0 <= row.time_s < math.inf for row in found), line
    assert good > 50


MOMENTS = st.integers(0, 50).map(lambda number: f"{number}ms")
LINES = st.one_of(
    st.builds(
        "link {} {} from {} for {}".format,
        st.sampled_from(["leaf0>spine1", "leaf0--spine1", "node3/nic2", "random:2"]),
        st.sampled_from(["dead", "rate 50%", "rate 12.5%", "loss 0.1%", "loss 3%", "latency 5us", "latency +2us"]),
        MOMENTS,
        st.integers(1, 9).map(lambda number: f"{number}ms"),
    ),
    st.builds("rank {} slow {}x at {}".format, st.integers(0, 31), st.sampled_from([1.5, 2, 7]), MOMENTS),
    st.just("link leaf1--spine0 flap 3ms every 10ms"),
)


@given(st.lists(LINES, max_size=5), st.integers(0, 3))
def test_lines_to_rows_to_lines_and_json(lines: list[str], seed: int) -> None:
    broken = apply(BOX, lines, horizon_s=0.1, seed=seed)
    again = apply(BOX, describe(BOX, broken.faults)).faults
    assert [(row.time_s, row.kind, row.target, row.field) for row in again] == [
        (row.time_s, row.kind, row.target, row.field) for row in broken.faults
    ]
    assert [row.value for row in again] == pytest.approx([row.value for row in broken.faults], rel=1e-12)
    assert loads(BOX, dumps(BOX, broken.faults)) == broken.faults
    assert list(broken.faults) == sorted(broken.faults, key=lambda row: (row.time_s, row.kind, row.target, row.field))


def test_lines_read_well() -> None:
    found = rows(
        "link leaf0>spine1 rate 50% from 1ms to 3ms", "rank 7 slow 2x", "link leaf0>spine1 loss 0.1% at 1500us"
    )
    assert describe(BOX, found) == [
        "rank node0/gpu7 slow 2x",
        "link leaf0>spine1 rate 50% from 1ms to 3ms",
        "link leaf0>spine1 loss 0.1% from 1.5ms",
    ]


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{}",
        "[]",
        "nonsense",
        '{"schema": "other", "faults": []}',
        "[" * 100_000,
        '{"schema": 1, "faults": 2}',
        '{"schema": "ringwright.faults/1", "faults": [3]}',
        '{"schema": "ringwright.faults/1", "faults": [{}]}',
    ],
)
def test_a_damaged_table_is_an_input_error(damage: str) -> None:
    with pytest.raises(InputError):
        loads(BOX, damage)


def test_a_row_of_another_machine_is_an_input_error() -> None:
    text = dumps(BOX, rows("link leaf0>spine1 dead"))
    with pytest.raises(InputError, match="another machine"):
        loads(fabric("dgx-h100:5"), text)
    table = json.loads(text)
    for key, value in (
        ("target", 10**9),
        ("target", "x"),
        ("time_s", -1),
        ("value", math.nan),
        ("field", "colour"),
        ("kind", []),
    ):
        wrong = {**table, "faults": [{**table["faults"][0], key: value}]}
        with pytest.raises(InputError):
            loads(BOX, json.dumps(wrong))


def took_s(top: Topology) -> float:
    mach = machine(top)
    return run(flatten(ring(Collective("all-gather", range(4), 4_000_000)), mach), mach, native=False).time_ps * 1e-12


def test_engines_feel_faults() -> None:
    top = fabric("ring:4,rate=1GB/s,latency_s=0")
    assert took_s(top) == pytest.approx(3e-3)
    assert took_s(apply(top, ["link rank0>rank1 rate 50%"])) == pytest.approx(6e-3, rel=0.2)
    assert took_s(apply(top, ["link rank0>rank1 dead from 1ms to 11ms"])) == pytest.approx(13e-3)
    assert took_s(apply(top, ["link * loss 50%"])) == pytest.approx(6e-3)
    with pytest.raises(InfeasibleError):
        took_s(apply(top, ["link rank0>rank1 dead at 1ms"]))


def test_effects_tell_what_a_line_means() -> None:
    (found,) = effects(BOX, ["link leaf0>spine1 loss 1% from 1s to 2s"])
    assert (found.kind, found.field, found.value, found.start_s, found.end_s) == ("link", "loss", 0.01, 1.0, 2.0)


def test_a_large_machine() -> None:
    top = fabric("dgx-h100:16384")
    assert len(rows("nic node9999/nic2 dead at 5ms", top=top)) == 4
    assert len(rows("link node16383/nic2 flap 100ms every 2s", top=top)) == 40
    with pytest.raises(UsageError, match="has no"):
        rows("link node16384/nic2 dead", top=top)
