"""Pools of slots by packets: what a loss costs whom, and the closed form beside the packets that it stands for."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import numpy as np
import pytest

from ringwright.engines.choose import simulate
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.pools.expected_losses import PoolTimes, late_ps
from ringwright.engines.pools.loop import simulate_pool
from ringwright.engines.pools.of_program import slot_pool
from ringwright.engines.pools.pool_machine import Mending, PoolLink, SlotPool
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import DeclinedError, InfeasibleError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.registry import algorithm
from ringwright.model.topology import Topology

pytestmark = pytest.mark.once
PACKET, LATENCY = 1_000_000, 5_000_000
TIMER = 400_000_000
FIXED, ADAPTS = Mending(TIMER), Mending(TIMER, adapts=True, first_ps=10 * TIMER)
BACK = Mending(TIMER, goes_back=True)


def star(workers: int, packets: int, slots: int, mending: Mending = FIXED, share: float = 0.0) -> SlotPool:
    legs = (PoolLink(PACKET, LATENCY, ((0, share),) if share else ()),) * workers
    return SlotPool((workers,) * workers + (-1,), legs, legs, packets, slots, mending)


def losing(pool: SlotPool, node: int, since: int, until: int, *, down: bool = False) -> SlotPool:
    """Lose all that ends on one link in a time."""
    legs = list(pool.down if down else pool.up)
    legs[node] = replace(legs[node], loss=((since, 1.0), (until, 0.0)))
    return replace(pool, down=tuple(legs)) if down else replace(pool, up=tuple(legs))


@pytest.mark.parametrize("mending", [FIXED, ADAPTS, BACK])
@pytest.mark.parametrize("workers", [1, 3])
def test_without_loss_the_line_or_the_slots_decide(workers: int, mending: Mending) -> None:
    trip = 2 * (PACKET + LATENCY)
    assert simulate_pool(star(workers, 100, 16, mending)).time_ps == 99 * PACKET + trip
    assert simulate_pool(star(workers, 100, 4, mending)).time_ps == 24 * trip + 3 * PACKET + trip
    two = replace(star(4, 100, 64, mending), parents=(4, 4, 5, 5, 6, 6, -1))
    legs = (two.up[0],) * 6
    assert simulate_pool(replace(two, up=legs, down=legs)).time_ps == 99 * PACKET + 2 * trip


@pytest.mark.parametrize("down", [False, True], ids=["contribution", "result"])
def test_a_lost_packet_of_the_last_turn_costs_a_timer_and_one_before_hides(*, down: bool) -> None:
    calm = simulate_pool(star(3, 40, 10)).time_ps
    last = losing(star(3, 40, 10), 1, calm - 6 * PACKET - LATENCY, calm - 5 * PACKET - LATENCY, down=down)
    told = simulate_pool(last)
    assert told.lost == 1
    assert 0.9 * TIMER < told.time_ps - calm < 1.1 * TIMER
    assert told.again >= 1
    early = simulate_pool(losing(star(3, 1500, 300), 1, 50 * PACKET, 51 * PACKET, down=down))
    assert early.lost == 1
    assert early.time_ps - simulate_pool(star(3, 1500, 300)).time_ps < 0.1 * TIMER


def test_a_timer_doubles_where_it_adapts_alone() -> None:
    """All is lost for three timers: fixed ones go off at 1, 2, 3 and mend at 4, adaptive ones at 1 and 3 and mend at 7."""
    for mending, timers in ((FIXED, 4), (replace(ADAPTS, first_ps=TIMER), 7)):
        pool = losing(star(1, 1, 1, mending), 0, 0, round(3.5 * TIMER))
        assert simulate_pool(pool).time_ps == pytest.approx(timers * TIMER + 2 * (PACKET + LATENCY), rel=0.01)


def test_a_fixed_timer_below_the_queue_feeds_it_and_an_adaptive_one_does_not() -> None:
    short = PACKET * 30  # of 64 packets in the queue
    fixed, adaptive = (
        simulate_pool(star(2, 200, 64, mending)) for mending in (Mending(short), Mending(short, True, 20 * short))
    )
    assert fixed.again > 200
    assert adaptive.again == 0
    assert fixed.time_ps > 1.5 * adaptive.time_ps


def test_a_connection_goes_back_to_the_missing_packet_at_once() -> None:
    pool = star(3, 200, 50, BACK)
    calm, told = simulate_pool(pool).time_ps, simulate_pool(losing(pool, 1, 60 * PACKET, 61 * PACKET))
    assert told.lost == 1
    assert told.timeouts == 0
    # A round trip until all see the gap, the request, and what was sent meanwhile another time.
    assert told.time_ps - calm == pytest.approx(2 * (PACKET + LATENCY) + 2 * LATENCY, abs=3 * PACKET)
    assert 3 * 10 < told.again < 3 * 30
    last = simulate_pool(losing(pool, 1, 199 * PACKET, 201 * PACKET))
    assert last.timeouts >= 1  # no packet after it shows the gap


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("adapts", [False, True], ids=["fixed", "adaptive"])
@pytest.mark.parametrize(("workers", "slots", "share"), [(2, 16, 0.01), (4, 16, 0.003), (4, 64, 0.01)])
def test_the_closed_form_is_within_a_tenth_of_the_mean_of_packets(
    workers: int, slots: int, share: float, *, adapts: bool
) -> None:
    mending = replace(ADAPTS if adapts else FIXED, timeout_ps=100_000_000, first_ps=300_000_000)
    pool = star(workers, 1000, slots, mending, share)
    calm = simulate_pool(pool.without_losses()).time_ps
    told = mean(simulate_pool(pool, seed).time_ps for seed in range(8))
    times = PoolTimes(1000, slots, PACKET, 2 * (PACKET + LATENCY), 2 * workers, 1, mending.timeout_ps, adapts)
    assert calm + late_ps(times, 1 - (1 - share) ** (2 * workers)) == pytest.approx(told, rel=0.1)
    assert told > 1.1 * calm


def test_more_loss_latency_or_patience_is_never_faster_by_the_closed_form() -> None:
    rng = np.random.default_rng(31)
    for _ in range(300):
        packets, slots = int(rng.integers(1, 10_000)), int(rng.integers(1, 600))
        packet, trip = float(rng.uniform(1e5, 1e8)), float(rng.uniform(1e6, 1e9))
        workers, timeout = int(rng.integers(1, 40)), float(rng.uniform(1e8, 1e10))
        adapts, back = bool(rng.random() < 0.4), bool(rng.random() < 0.3)
        lost = float(10 ** rng.uniform(-6, -0.3))
        times = PoolTimes(packets, slots, packet, trip, 2 * workers, 1, timeout, adapts, back)

        def total(one: PoolTimes, share: float) -> float:
            return max(one.packets * one.packet_ps, one.packets / one.slots * one.trip_ps) + late_ps(one, share)

        now = total(times, lost) * (1 - 1e-9)
        assert now <= total(times, min(1.0, 1.3 * lost)), times
        assert now <= total(replace(times, trip_ps=1.4 * trip), lost), times
        assert now <= total(replace(times, timeout_ps=1.4 * timeout), lost), times
        assert now <= total(replace(times, packet_ps=1.4 * packet), lost), times
        assert total(times, 0.0) < now


@pytest.mark.parametrize("mending", [FIXED, ADAPTS, BACK])
def test_a_dead_link_ends_the_question(mending: Mending) -> None:
    with pytest.raises(InfeasibleError, match="results are missing"):
        simulate_pool(losing(star(2, 20, 10, mending), 0, 0, 1 << 62))


# -------------------------------------------------------------------------------------------------------- of a program
def made(spelling: str, top: Topology, size_bytes: int = 1 << 19) -> Program:
    _, make, knobs = algorithm(spelling)
    return make(Collective("all-reduce", range(top.n_ranks), size_bytes), top, **knobs)


def test_a_program_of_leaves_and_a_spine_is_a_tree_of_their_slots() -> None:
    top = apply(fabric("leaf-spine:8,per_leaf=4,rate=1Gb/s,switches=tofino"), ["link rank5 loss 1% at 1ms"])
    pool = slot_pool(made("switchml:slots=32:timer=adaptive", top), top, "pipelined")
    assert pool.parents == (8, 8, 8, 8, 9, 9, 9, 9, 10, 10, -1)
    assert (pool.packets, pool.slots, pool.mending.adapts) == (512, 32, True)
    assert [node for node, leg in enumerate(pool.up) if leg.loss] == [5]
    assert pool.down[5].lost(10**9) == pytest.approx(0.01)
    assert pool.down[5].lost(10**9 - 1) == 0.0
    assert pool.up[0].packet_ps == pytest.approx(1024 * 8e3, rel=1e-6)


@pytest.mark.parametrize("spelling", ["switchml:slots=32", "switchml:slots=32:timer=adaptive", "netreduce:window=1"])
def test_losses_of_a_pool_are_followed_by_its_own_rule(spelling: str) -> None:
    top = fabric(f"switch:4,rate=1Gb/s,switches={'fpga' if 'net' in spelling else 'tofino'}")
    program, lossy = made(spelling, top), apply(top, ["link * loss 0.5%"])
    calm = simulate(program, top, "packets")
    events = simulate(program, top, "events")
    assert calm.time_ps == events.time_ps
    assert calm.packets is not None
    assert (calm.engine, calm.packets.lost, calm.packets.retransmitted_bytes) == ("packets", 0, 0)
    run = simulate(program, lossy, "packets", packets=PacketOptions(seed=1))
    assert run.packets is not None
    assert run.packets.lost > 5
    assert run.packets.retransmitted_bytes > 5 * 1024
    assert program.streams[0].loss in run.path()
    assert run.time_ps > 1.01 * calm.time_ps
    assert simulate(program, lossy, "packets", packets=PacketOptions(seed=1)).time_ps == run.time_ps
    assert simulate(program, lossy, "events").time_ps > calm.time_ps


def test_what_is_no_pool_alone_is_left_to_the_closed_form() -> None:
    top = fabric("dgx-a100:2,switches=tofino")
    with pytest.raises(DeclinedError, match="pools of slots alone"):
        simulate(made("switchml", top), top, "packets")
    star_of = fabric("switch:4,switches=tofino")
    with pytest.raises(DeclinedError, match="followed one by one") as refused:
        simulate(made("switchml", star_of, 1 << 30), star_of, "packets")
    assert "closed form" in str(refused.value.remedy)
