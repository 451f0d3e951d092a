"""A switch's adder cycle by cycle: what stops a line, what waits for a slot, and which bits come out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ringwright.algorithms.innetwork.summing_pipeline import SummingPipeline, SummingRun, aggregated, cascaded, summed
from ringwright.ground.errors import UsageError

pytestmark = pytest.mark.once

DRAWN = [
    SummingPipeline(ports=3, depth=5, queue_words=4),
    SummingPipeline(ports=8, depth=1, queue_words=1),
    SummingPipeline(ports=5, depth=12, queue_words=3, width_bits=256),
    SummingPipeline(ports=8, depth=8, queue_words=7),
    SummingPipeline(ports=1, depth=4, queue_words=2, port_bits_s=80_000_000_000),
]


def run_of(device: SummingPipeline, words: int = 40, seed: int = 0) -> tuple[np.ndarray, SummingRun]:
    arrivals = device.arrivals(words, np.random.default_rng(seed).integers(0, 30, device.ports))
    return arrivals, aggregated(device, arrivals)


@pytest.mark.parametrize("device", DRAWN, ids=str)
def test_one_word_a_cycle_in_the_order_of_its_port_and_no_slot_before_it_is_written(device: SummingPipeline) -> None:
    arrivals, run = run_of(device)
    assert len(np.unique(run.entered)) == run.entered.size
    assert (np.diff(run.entered, axis=1) > 0).all()
    assert (run.entered >= arrivals).all()
    assert (np.diff(np.sort(run.entered, axis=0), axis=0) >= device.depth).all()
    assert run.longest_queue <= device.queue_words
    assert (run.done == run.entered.max(axis=0) + device.depth).all()


def test_no_line_stands_still_before_an_adder_as_wide_as_the_ports_and_all_do_before_a_narrower_one() -> None:
    device = SummingPipeline()
    assert device.is_wide
    run = aggregated(device, device.arrivals(600))
    assert run.stalled.tolist() == [0] * 8
    assert run.held_back > 0
    assert run.done[-1] <= 600 * 8 + 8 * (device.depth + 1), "drift, and a turn of the ports"
    narrow = dataclasses.replace(device, width_bits=480)
    assert not narrow.is_wide
    slow = aggregated(narrow, narrow.arrivals(600))
    assert (slow.stalled > 0).all()
    assert slow.done[-1] >= 8 * 600, "one word a cycle"


def test_a_queue_holds_what_ports_drift_apart() -> None:
    for depth in (4, 8, 16):
        enough = (7 * depth + 7) // 8 + 1
        for queue, stands in ((enough, False), (enough - 2, True)):
            device = SummingPipeline(depth=depth, queue_words=queue)
            assert bool(aggregated(device, device.arrivals(40 * depth)).stalled.any()) is stands, (depth, queue)


@pytest.mark.parametrize("device", DRAWN, ids=str)
def test_sums_are_whole_where_words_wait_for_their_slot(device: SummingPipeline) -> None:
    values = np.random.default_rng(3).integers(-99, 99, (device.ports, 40, 4)).astype(np.float32)
    _, run = run_of(device)
    for order in ("arrival", "fixed"):
        assert np.array_equal(summed(device, run, values, order), values.sum(axis=0))  # type: ignore[arg-type]


def test_without_waiting_a_slot_loses_what_was_in_the_pipeline() -> None:
    device = SummingPipeline(ports=2, depth=3, waits=False)
    values = np.array([[[1.0]], [[2.0]]], np.float32)
    for late, left in ((0, 2.0), (1, 2.0), (2, 2.0), (3, 3.0), (4, 3.0)):
        run = aggregated(device, np.array([[5], [5 + late]]))
        assert summed(device, run, values)[0, 0] == (left if late else 2.0), late


def test_a_fixed_tree_gives_the_same_bits_in_any_order_and_adders_in_order_of_arrival_do_not() -> None:
    device, draw = SummingPipeline(), np.random.default_rng(4)
    values = draw.normal(size=(8, 10, 16)).astype(np.float32)
    sums: dict[str, set[bytes]] = {"fixed": set(), "arrival": set()}
    for _ in range(6):
        run = aggregated(device, device.arrivals(10, draw.permutation(8) * 20))
        for order, have in sums.items():
            have.add(summed(device, run, values, order).tobytes())  # type: ignore[arg-type]
    assert len(sums["fixed"]) == 1
    assert len(sums["arrival"]) == 6
    pairs = values[0::2] + values[1::2]
    assert np.array_equal(summed(device, run, values, "fixed"), (pairs[0] + pairs[1]) + (pairs[2] + pairs[3]))


def test_a_cascade_is_one_hop_later_and_not_slower() -> None:
    device, words, hop = SummingPipeline(), 200, 200
    one = aggregated(device, device.arrivals(words))
    runs = cascaded(device, np.broadcast_to(device.arrivals(words), (8, 8, words)), hop)
    assert len(runs) == 9
    last = runs[-1]
    assert not last.stalled.any()
    assert hop <= last.done[-1] - one.done[-1] <= hop + 8 * device.depth


def test_devices_that_are_none_are_refused() -> None:
    for odd in ({"ports": 0}, {"width_bits": 100}, {"depth": 0}, {"queue_words": 0}, {"clock_hz": 0}):
        with pytest.raises(UsageError, match="an adder of") as refused:
            SummingPipeline(**odd)
        assert refused.value.remedy
