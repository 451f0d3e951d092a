"""Rounds on the same connections, both directions of a pair as one connection, links as token buckets."""

from __future__ import annotations

import numpy as np
import pytest

from engines.packets.packet_cases import case
from ringwright.calls.run_trace import trace
from ringwright.costs.protocols import RENO
from ringwright.engines.choose import simulate
from ringwright.engines.packets import control
from ringwright.engines.packets.connection import connections
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.packets.rounds import round_times_s
from ringwright.fabrics import fabric, faults
from ringwright.ground.errors import DeclinedError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.registry import algorithm
from ringwright.model.topology import Topology


def made(op: str, slug: str, top: Topology, size_bytes: int) -> Program:
    _, build, knobs = algorithm(slug)
    program: Program = build(Collective(op, range(top.n_ranks), size_bytes), top, **knobs)
    return program


@pytest.mark.parametrize(("op", "slug"), [("all-reduce", "ring"), ("gather", "linear"), ("all-to-all", "direct")])
def test_rounds_without_trouble_take_what_one_takes(op: str, slug: str) -> None:
    top = fabric("switch:4,rate=100Gb/s,transport=roce")
    program = made(op, slug, top, 1 << 20)
    once = simulate(program, top, "packets").time_s
    times = round_times_s(program, top, PacketOptions(), 5)
    assert times.shape == (5,)
    assert times[0] == once
    np.testing.assert_allclose(times, once, rtol=0.01)  # answers of a round may still be under way in the next


def test_a_round_begins_when_the_one_before_has_ended() -> None:
    top = faults.apply(fabric("switch:3,rate=1Gb/s,transport=roce"), ["link rank2 rate 10% from 2ms to 100s"])
    times = round_times_s(made("gather", "linear", top, 3 << 17), top, PacketOptions(), 3)
    assert times[2] > 2.4 * times[0]


def test_windows_are_kept_from_round_to_round() -> None:
    """What one round loses, the next begins with: a window of half the size."""
    top = faults.apply(fabric("switch:2,rate=1Gb/s,transport=tcp-reno,latency_s=5ms"), ["link * loss 5% for 60ms"])
    times = round_times_s(made("broadcast", "binomial", top, 1 << 20), top, PacketOptions(seed=1), 2)
    calm = round_times_s(made("broadcast", "binomial", top, 1 << 20), top.starting_at(1.0), PacketOptions(), 2)
    assert times[0] > calm[0]
    assert times[1] > 1.1 * calm[1]


def test_data_of_both_directions_carry_the_answers() -> None:
    top = fabric("switch:4,rate=20Mb/s,transport=tcp-reno,latency_s=50us")
    program = made("all-reduce", "halving-doubling", top, 1 << 20)
    apart = simulate(program, top, "packets")
    joined = simulate(program, top, "packets", packets=PacketOptions(duplex=True))
    assert joined.events < 0.75 * apart.events  # a third of the packets were answers alone
    assert 0.97 < joined.time_s / apart.time_s < 0.985  # 66 B for each 2 packets of 1,514 B are 2.2 %


def test_answers_of_one_direction_alone_have_nothing_to_ride_on() -> None:
    top = fabric("switch:4,rate=20Mb/s,transport=tcp-reno")
    program = made("all-reduce", "ring", top, 1 << 18)
    joined = simulate(program, top, "packets", packets=PacketOptions(duplex=True))
    assert joined.events == simulate(program, top, "packets").events


def test_a_token_bucket_lets_its_size_pass_at_once() -> None:
    top = fabric("switch:2,rate=100Mb/s,transport=tcp-reno,latency_s=50us")
    program = made("broadcast", "binomial", top, 100 * 1448)
    plain, full = (simulate(program, top, "packets", packets=PacketOptions(burst_bytes=size)) for size in (0, 16_384))
    saved = 16_384 * 8 / 100e6  # of the first link; the second fills its own from what comes
    assert plain.time_s - full.time_s == pytest.approx(saved, rel=0.15)


def test_a_silent_connection_halves_its_window_for_each_time_out() -> None:
    second = 10**12
    (c, *_) = connections(case(0).network())
    c.control, c.cwnd, c.ssthresh, c.sent_at = RENO, 80.0, 1e18, 0
    control.woken(c, second // 10, second // 5)
    assert c.cwnd == 80.0
    control.woken(c, second // 2, second // 5)
    assert c.cwnd == 20.0
    control.woken(c, 30 * second, second // 5)
    assert c.cwnd == control.FIRST_WINDOW


def test_a_window_that_is_not_used_shrinks_towards_what_is() -> None:
    second = 10**12
    (c, *_) = connections(case(0).network())
    c.control, c.cwnd, c.ssthresh, c.nxt, c.una, c.usage_end = RENO, 100.0, 50.0, 20, 0, 30
    control.sent(c, second // 10, second // 5, limited=False)
    assert c.cwnd == 100.0
    control.sent(c, second // 4, second // 5, limited=False)
    assert c.cwnd == 60.0
    control.sent(c, second, second // 5, limited=True)
    assert c.cwnd == 60.0


def test_queues_over_time_are_rows_of_the_trace() -> None:
    top = faults.apply(fabric("switch:5,rate=1Gb/s,transport=tcp-reno"), ["switch * buffer 64KiB"])
    program = made("gather", "linear", top, 5 << 18)
    run = simulate(program, top, "packets")
    assert run.packets is not None
    links = trace(program, top, run).table("links")
    queued = links.filter(links["queue_bytes"].is_not_null())
    assert queued["queue_bytes"].max() == run.packets.queue_bytes_most
    assert set(queued["link"]) == {"switch > rank0"}
    assert queued["bytes"].null_count() == queued.height
    steps = queued["bin_start_s"].diff().drop_nulls()
    assert (steps >= queued["bin_s"][0] * 0.999).all()  # no stretch twice
    assert links.filter(links["queue_bytes"].is_null())["bytes"].sum() > 5 << 18
    calm = trace(program, top, simulate(program, top, "events")).table("links")
    assert calm["queue_bytes"].null_count() == calm.height


@pytest.mark.once
def test_rounds_beside_a_flow_share_its_ports_and_no_connection() -> None:
    top = fabric("switch:4,rate=100Mb/s,transport=tcp-reno")
    program = made("all-reduce", "ring", top, 1 << 20)
    _, send, knobs = algorithm("linear")
    alone = round_times_s(program, top, PacketOptions(), 3)
    for ends in ((1, 3), (0, 1)):  # between ranks that the ring has no message between, and between two that it has
        flow = send(Collective("broadcast", ends, 32 << 20), top, **knobs)
        beside = round_times_s(program, top, PacketOptions(), 3, [flow])
        assert (beside > 1.3 * alone).all(), ends
        assert (beside < 3.0 * alone).all(), ends


def test_what_runs_beside_must_last() -> None:
    top = fabric("switch:4,rate=100Mb/s,transport=tcp-reno")
    _, send, _ = algorithm("nccl-2-4")
    short = send(Collective("send-recv", (1, 3), 1 << 16), top)
    with pytest.raises(DeclinedError, match="ends before"):
        round_times_s(made("all-reduce", "ring", top, 1 << 20), top, PacketOptions(), 3, [short])
