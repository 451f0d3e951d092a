"""NetAgg: servers beside switches that add, their trees, their rate, and one that dies."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ringwright.algorithms.innetwork.ethernet.netagg import netagg
from ringwright.algorithms.innetwork.keyed import KeyedPairs, best, joined, left_bytes, summed
from ringwright.algorithms.innetwork.middlebox_trees import DIRECT, middlebox_tree, switches_with_middleboxes
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.model import registry
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.validity import check
from ringwright.model.validity.stream_rules import check_streams
from ringwright_lab.judges.redirected_sums import collected
from ringwright_lab.papers.figures import netagg as figures
from small_fabrics import wrong

pytestmark = pytest.mark.once

SPECS = [
    "middleboxes:5",
    "middleboxes:4x3",
    "middleboxes:3x2x2",
    "middleboxes:3x2x2,at=core",
    "middleboxes:3x2x2,at=pod",
    "middleboxes:3x2x2,at=rack",
    "middleboxes:2x2x2,per_switch=2",
]


def made(op: str, spec: str, size: int = 4 * 12 * 40, root: int = 1, **knobs: object) -> Program:
    topology = fabric(spec)
    collective = Collective(op, range(topology.n_ranks), size, root=root if op == "reduce" else 0)
    return netagg(collective, topology, **knobs)  # type: ignore[arg-type]


def seconds(program: Program, spec: str) -> float:
    return simulate(program, fabric(spec), engine="events").time_ps * 1e-12


@pytest.mark.parametrize("op", ["reduce", "all-reduce"])
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("knobs", [{}, {"trees": 3, "segments": 4}, {"failed": 0, "segments": 2}], ids=str)
def test_each_input_counts_once(op: str, spec: str, knobs: dict[str, object]) -> None:
    if "failed" in knobs and len(fabric(spec).aggregators) == 1:
        with pytest.raises(UsageError, match="no server beside a switch adds"):
            made(op, spec, **knobs)
        return
    program = made(op, spec, **knobs)
    assert not wrong(program)
    assert check_streams(program, fabric(spec)) == []


def test_members_send_to_the_first_box_and_boxes_to_the_next() -> None:
    machine = fabric("middleboxes:2x2x2")
    names = {name: machine.find(name) for name in ("box0", "box1", "box2", "box3", "box4", "box5", "box6")}
    tree = middlebox_tree(machine, switches_with_middleboxes(machine), range(1, 8), 0)
    above = {
        box: DIRECT if parent == DIRECT else tree.nodes[parent]
        for box, parent in zip(tree.nodes, tree.parents, strict=True)
    }
    assert [tree.nodes[each] for each in tree.first_of] == [names[f"box{rack}"] for rack in (0, 1, 1, 2, 2, 3, 3)]
    assert above == {
        names["box0"]: DIRECT,
        names["box1"]: names["box4"],
        names["box2"]: names["box5"],
        names["box3"]: names["box5"],
        names["box5"]: names["box6"],
        names["box6"]: names["box4"],
        names["box4"]: names["box0"],
    }
    assert tree.height == 4
    assert max(tree.fan_in) == 2


def test_a_box_that_died_is_passed_over() -> None:
    whole, without = made("reduce", "middleboxes:2x2x2"), made("reduce", "middleboxes:2x2x2", failed=6)
    gone = fabric("middleboxes:2x2x2").find("box6")
    assert gone in whole.aggregators
    assert set(without.aggregators) == set(whole.aggregators) - {gone}
    spec = "middleboxes:4"
    assert len(made("reduce", f"{spec},per_switch=2", failed=0).aggregators) == 1
    with pytest.raises(UsageError, match="failed=7 of 7 boxes") as raised:
        made("reduce", "middleboxes:2x2x2", failed=7)
    assert "failed=0 to 6" in str(raised.value.remedy)


def test_trees_share_the_boxes_of_a_switch() -> None:
    spec, size = "middleboxes:9,per_switch=2,middlebox_rate=4Gb/s", 8 << 20
    assert seconds(made("reduce", spec, size, trees=2), spec) == pytest.approx(
        seconds(made("reduce", spec, size), spec) / 2, rel=0.05
    )
    one = "middleboxes:9,middlebox_rate=4Gb/s"
    assert seconds(made("reduce", one, size, trees=2), one) == pytest.approx(
        seconds(made("reduce", one, size), one), rel=0.05
    )


def test_segments_follow_one_another() -> None:
    spec, size = "middleboxes:4x2x2", 4 << 20
    one, many = (seconds(made("reduce", spec, size, segments=count), spec) for count in (1, 64))
    assert many < one / 2
    assert made("reduce", spec, size).knobs["segments"] == 64
    assert made("reduce", spec, 1 << 30).knobs["segments"] == 128


def test_results_come_back_as_copies_over_the_link_of_the_box() -> None:
    spec, size = "middleboxes:8,middlebox_rate=4Gb/s", 4 << 20
    back = seconds(made("all-reduce", spec, size, segments=64), spec)
    assert back == pytest.approx(8 * size / 5e8, rel=0.06), "a box's link carries each way what its servers have"
    assert not any(block.multicast for step in made("all-reduce", spec).steps() for block in step.blocks)


def test_more_latency_less_rate_or_a_box_less_makes_nothing_faster() -> None:
    spec, size = "middleboxes:4x2x2", 1 << 20
    machine, program = fabric(spec), made("reduce", spec, size)
    before = seconds(program, spec)
    for worse in (
        dataclasses.replace(machine, latency_s=machine.latency_s * 4),
        dataclasses.replace(machine, rate=machine.rate / 2),
    ):
        assert simulate(program, worse, engine="events").time_ps * 1e-12 > before
    assert seconds(made("reduce", spec, size, failed=0), spec) > before


def test_networks_without_boxes_and_other_work_are_refused() -> None:
    for spec in ("switch:4", "switch:4,sharp=true", "middleboxes:4,at=none", "middleboxes:4,at=core"):
        with pytest.raises(UsageError, match="no server beside a switch adds"):
            made("reduce", spec, root=0)
    with pytest.raises(UsageError, match="netagg does no broadcast"):
        made("broadcast", "middleboxes:4")
    with pytest.raises(UsageError, match="boxes are those of a machine"):
        netagg(Collective("reduce", range(4), 64))
    with pytest.raises(UsageError, match="do not exist"):
        fabric("middleboxes:2x2x2x2")
    assert check(netagg(Collective("reduce", (5, 0, 3), 64, root=1), fabric("middleboxes:2x3"))) == []
    assert registry.find("netagg").kind == "ethernet"


# ------------------------------------------------------------------------------------------------------------ keyed data
def drawn(seed: int, records: int = 40, keys: int = 25) -> KeyedPairs:
    draw = np.random.default_rng(seed)
    return KeyedPairs(draw.integers(0, keys, records), draw.integers(-50, 50, records))


def folded(parts: list[KeyedPairs], merge: object, seed: int) -> KeyedPairs:
    """Merge two parts at a time, drawn anew each time."""
    draw = np.random.default_rng(seed)
    parts = list(parts)
    while len(parts) > 1:
        first, second = sorted(draw.choice(len(parts), 2, replace=False).tolist())
        parts[first] = merge(joined((parts[first], parts.pop(second))))  # type: ignore[operator]
    return parts[0]


@pytest.mark.parametrize("seed", range(8))
def test_any_tree_of_boxes_merges_to_what_the_master_would(seed: int) -> None:
    workers = [drawn(seed * 100 + each) for each in range(7)]
    for merge, whole in ((summed, summed(joined(workers))),):
        merged = folded(workers, merge, seed)
        assert np.array_equal(merged.keys, whole.keys)
        assert np.array_equal(merged.values, whole.values)
    unique = [
        KeyedPairs(np.arange(9) * 7 + each, drawn(seed + each, 9).values) for each in range(7)
    ]  # as documents: each of one worker
    for k in (1, 5, 100):
        merged, whole = folded(unique, lambda pairs: best(pairs, k), seed), best(joined(unique), k)  # noqa: B023
        assert np.array_equal(merged.keys, whole.keys)
        assert np.array_equal(merged.values, whole.values)
    assert len(best(joined(unique), 5)) == 5
    assert best(KeyedPairs(np.array([3, 1, 2]), np.array([7, 7, 9])), 2).keys.tolist() == [2, 1]


def test_sums_of_keys_are_exact() -> None:
    pairs = KeyedPairs(np.array([4, 2, 4]), np.array([1 << 60, 3, (1 << 60) + 1]))
    assert summed(pairs).keys.tolist() == [2, 4]
    assert summed(pairs).values.tolist() == [3, (1 << 61) + 1]
    assert len(summed(joined(()))) == 0


def test_what_is_left_of_records_that_met() -> None:
    assert [left_bytes(met, 10, 8, 0.1) for met in (1, 5, 10)] == [8, 8, 8]  # a sum of vectors
    assert [left_bytes(met, 10, 8, 1.0) for met in (1, 5, 10)] == [8, 40, 80]
    assert [left_bytes(met, 10, 8, 0.3) for met in (1, 2, 5, 10)] == [8, 16, 24, 24]
    for ratio in (0.05, 1.1):
        with pytest.raises(UsageError, match="a ratio of"):
            left_bytes(1, 10, 8, ratio)


@pytest.mark.parametrize("seed", range(20))
def test_a_box_that_dies_loses_and_doubles_nothing(seed: int) -> None:
    draw = np.random.default_rng(seed)
    items = draw.integers(-99, 99, (5, 12))
    delivered = int(draw.integers(0, 13))
    known = draw.integers(0, delivered + 1, 5)
    found = collected(items, delivered=delivered, known=known, seed=seed)
    assert np.array_equal(found.sums, items.sum(axis=0))
    again = int((delivered - known).sum())
    assert (found.dropped > 0) is (again > 0)
    if np.all(known == delivered):
        assert found.dropped == 0


# -------------------------------------------------------------------------------------------------------------- figures
def test_gains_fall_with_the_ratio_and_grow_with_the_tiers() -> None:
    assert figures.growing("all") == 0
    for at in ("core", "pod", "rack", "all"):
        assert figures.completion(1.0, at) == 1
    assert 1 < figures.largest("core") < figures.largest("pod") < figures.largest("all")
    assert figures.completion(0.05, "all") < figures.completion(0.5, "all") < 1


def test_a_slow_box_is_the_knee() -> None:
    assert [figures.knee_gbit(workers) for workers in (4, 9)] == [4, 9]
