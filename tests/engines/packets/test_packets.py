"""What packets do: closed forms without trouble, and each kind of trouble by itself."""

from __future__ import annotations

import dataclasses
import math

import pytest

from engines.test_engines_events import multicast
from ringwright.costs.corruption import lost_share, lost_words
from ringwright.costs.protocols import PROTOCOLS, protocol
from ringwright.engines.choose import simulate
from ringwright.engines.packets.carriage import carriers, spoken
from ringwright.engines.packets.options import PacketOptions
from ringwright.engines.result import Run
from ringwright.fabrics import fabric, faults
from ringwright.ground.errors import DeclinedError, InfeasibleError, UsageError
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm
from ringwright.model.topology import Topology

EVERY = tuple(PROTOCOLS)


def answer(top: Topology, size: int, slug: str = "ring", op: str = "all-reduce", **options: object) -> Run:
    """Return a program's run by packets."""
    _, build, knobs = algorithm(slug)
    program = build(Collective(op, range(top.n_ranks), size), top, **knobs)
    return simulate(program, top, "packets", packets=PacketOptions(**options))  # type: ignore[arg-type]


def one_message(top: Topology, size: int, **options: object) -> Run:
    """Return the run of one message from rank 0 to rank 1: a broadcast of two ranks."""
    return answer(top, size, "binomial", "broadcast", **options)


def exchange(top: Topology, table: list[list[int]]) -> Run:
    """Return the run in which all ranks send at once what a table of bytes says."""
    _, build, _ = algorithm("direct")
    counts = tuple(map(tuple, table))
    return simulate(build(Collective("all-to-all", range(len(table)), 0, counts=counts), top), top, "packets")


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("packets", [1, 2, 7])
def test_an_idle_path_takes_its_packets_one_behind_the_other(name: str, packets: int) -> None:
    used = PROTOCOLS[name]
    size = used.payload_bytes * packets
    run = one_message(fabric(f"switch:2,rate=1GB/s,latency_s=3us,transport={name}"), size)
    wire_ns = packets * (used.payload_bytes + used.header_bytes)
    assert run.time_ps == 1000 * wire_ns + 2 * 3_000_000
    assert run.packets is not None
    assert (run.packets.drops, run.packets.lost, run.packets.retransmitted_bytes, run.packets.timeouts) == (0, 0, 0, 0)


def test_a_step_that_starts_at_the_last_acknowledgement_waits_for_its_way_back() -> None:
    top = fabric("switch:2,rate=1GB/s,latency_s=3us,transport=roce")
    delivered = one_message(top, 4096)
    known = one_message(top, 4096, start="acknowledged")
    assert known.time_ps - delivered.time_ps == 1000 * PROTOCOLS["roce"].ack_bytes + 2 * 3_000_000


@pytest.mark.once  # millions of packets
def test_without_trouble_packets_take_what_events_take_with_headers() -> None:
    top = fabric("leaf-spine:64,per_leaf=8,header_bytes=64,transport=roce")
    _, build, knobs = algorithm("ring")
    program = build(Collective("all-reduce", range(64), 64 << 20), top, **knobs)
    by_events, by_packets = (simulate(program, top, engine).time_s for engine in ("events", "packets"))
    assert by_events <= by_packets <= 1.01 * by_events


@pytest.mark.once  # millions of packets
def test_a_roce_ring_takes_as_long_as_htsim_says() -> None:
    """Published by htsim: 64 ranks, 64 MiB, 400 Gb/s leaf-spine, 4,096 B a packet: 3,027.3 us; within 3 %."""
    top = fabric("leaf-spine:64,per_leaf=8,spine_latency_s=0.5us,transport=roce")
    told = answer(top, 64 << 20, start="acknowledged").time_s * 1e6
    assert told == pytest.approx(3027.3, rel=0.03)


@pytest.mark.once
@pytest.mark.parametrize("name", EVERY)
def test_losses_are_made_good_and_cost_time(name: str) -> None:
    top = fabric(f"switch:4,rate=1Gb/s,transport={name}")
    well = answer(top, 4 << 20)
    ill = answer(faults.apply(top, ["link rank3 loss 1%"]), 4 << 20)
    assert ill.packets is not None
    assert ill.packets.lost > 0
    assert ill.packets.retransmitted_bytes > 0
    assert ill.time_ps > well.time_ps


@pytest.mark.once
def test_another_seed_loses_other_packets() -> None:
    top = faults.apply(fabric("switch:4,rate=1Gb/s,transport=tcp-reno"), ["link * loss 1%"])
    times = {answer(top, 1 << 20, seed=seed).time_ps for seed in range(4)}
    assert len(times) == 4
    assert answer(top, 1 << 20, seed=2).time_ps in times


def test_go_back_n_sends_more_again_than_what_was_lost() -> None:
    lossy = [
        faults.apply(fabric(f"switch:2,rate=10Gb/s,transport={name}"), ["link * loss 0.5%"]) for name in ("roce", "ib")
    ]
    back, selective = (one_message(top, 16 << 20).packets for top in lossy)
    assert back is not None
    assert selective is not None
    assert back.retransmitted_bytes > 1.5 * back.lost * 4178
    assert selective.retransmitted_bytes <= 1.5 * selective.lost * 4178


def test_a_full_queue_drops_pauses_or_waits_by_the_transport() -> None:
    met = {}
    for name in ("tcp-reno", "roce", "ib"):
        top = faults.apply(fabric(f"switch:9,rate=10Gb/s,transport={name}"), ["switch * buffer 64KiB"])
        met[name] = answer(top, 8 << 20, "linear", "gather").packets
    tcp, roce, ib = (met[name] for name in ("tcp-reno", "roce", "ib"))
    assert tcp is not None
    assert roce is not None
    assert ib is not None
    assert tcp.drops > 0
    assert tcp.pauses == 0
    assert roce.drops == 0
    assert roce.pauses > 0
    assert roce.marked > 0
    assert (ib.drops, ib.pauses, ib.timeouts) == (0, 0, 0)
    assert tcp.queue_bytes_most <= 64 << 10


def test_pauses_hold_up_a_victim_that_shares_no_slow_link() -> None:
    """Eight senders to one rank pause the link from the other leaf; a message across it to another rank waits (PFC)."""
    top = fabric("leaf-spine:8,per_leaf=4,spines=1,rate=10Gb/s,transport=roce")
    top = dataclasses.replace(top, faults=faults.apply(top, ["switch * buffer 64KiB"]).faults)
    size = 1 << 20
    counts = [[0] * 8 for _ in range(8)]
    for sender in range(1, 7):
        counts[sender][0] = size
    counts[7][1] = size  # the victim
    alone = [[0] * 8 for _ in range(8)]
    alone[7][1] = size
    ends = []
    for table in (counts, alone):
        run = exchange(top, table)
        assert run.packets is not None
        assert run.flat is not None
        ends.append((int(run.end_ps[(run.flat.src == 7) & (run.flat.dst == 1)].max()), run.packets.pauses))
    (late, pauses), (soon, none) = ends
    assert pauses > 0
    assert none == 0
    assert late > 3 * soon


def test_what_a_switch_may_hold_is_obeyed_over_time() -> None:
    top = fabric("switch:9,rate=10Gb/s,transport=tcp-reno")
    small, large = (
        answer(faults.apply(top, [f"switch * buffer {size}"]), 4 << 20, "linear", "gather").packets
        for size in ("32KiB", "512KiB")
    )
    assert small is not None
    assert large is not None
    assert small.queue_bytes_most <= 32 << 10 < large.queue_bytes_most <= 512 << 10
    assert small.drops
    assert large.drops  # windows grow until they lose something
    assert len(large.queues)
    assert large.queues[:, 2].max() == large.queue_bytes_most


def test_a_short_outage_is_survived_and_a_long_one_ends_the_job_in_the_library_s_words() -> None:
    top = fabric("switch:2,rate=1Gb/s,transport=roce")
    short = one_message(faults.apply(top, ["link rank0 dead from 10us to 2ms"]), 1 << 20)
    assert short.packets is not None
    assert short.packets.timeouts > 0
    with pytest.raises(InfeasibleError, match="the job ends: roce gives up after 7 retries") as ended:
        one_message(faults.apply(top, ["link rank0 dead from 10us to 60s"], horizon_s=100), 1 << 20)
    assert "IBV_WC_RETRY_EXC_ERR" in str(ended.value.where)
    assert "rank0 to rank1" in str(ended.value.where)


@pytest.mark.parametrize("name", EVERY)
def test_a_latency_from_the_start_is_known_to_the_transport(name: str) -> None:
    """Windows and targets of delay go by the path as it is, whether a line names its links or a pattern of all."""
    top = fabric(f"switch:3,rate=10Gb/s,transport={name}")
    named = [f"link {each} latency +20us" for each in ("rank0", "rank1", "rank2")]
    assert (
        answer(faults.apply(top, named), 1 << 20).time_ps
        == answer(faults.apply(top, ["link * latency +20us"]), 1 << 20).time_ps
    )


def test_correction_mends_bit_errors_up_to_its_limit() -> None:
    assert lost_share(1e-5, 4178) < 1e-30
    assert lost_words(2.4e-4) < 1e-11  # what 400 Gb/s Ethernet is specified for
    assert 1e-4 < lost_words(1e-3) < 1e-3
    assert lost_share(0.0, 4178) == 0.0
    top = fabric("switch:2,rate=10Gb/s,transport=ib")
    runs = [one_message(faults.apply(top, [f"link * ber {ber}"]), 8 << 20).packets for ber in ("1e-5", "1.3e-3")]
    assert runs[0] is not None
    assert runs[1] is not None
    assert runs[0].lost == 0 < runs[1].lost


def test_a_failing_optic_loses_packets_and_then_lanes() -> None:
    rows = faults.apply(fabric("dgx-h100:2"), ["nic node0/nic0 optics degrade from 1ms for 10ms"]).faults
    steps = sorted({(round(row.time_s * 1e3, 6), row.field, row.value) for row in rows})
    assert steps == [
        (1.0, "ber", 1e-4),
        (3.0, "ber", 5e-4),
        (5.0, "ber", 1e-3),
        (7.0, "ber", 0.0),  # the lane is shut, with its errors
        (7.0, "rate_factor", 0.75),
        (9.0, "rate_factor", 0.5),
    ]


def test_a_port_is_a_nic_or_a_rank_without_one() -> None:
    for spec, one, other in (("dgx-h100:2", "port node0/nic0", "nic node0/nic0"), ("switch:4", "port rank3", "rank 3")):
        top = fabric(spec)
        assert faults.apply(top, [f"{one} dead"]).faults == faults.apply(top, [f"{other} dead"]).faults


@pytest.mark.once
def test_sprayed_and_adaptive_packets_take_all_spines() -> None:
    """Each of eight ranks sends to one below the other leaf; hashed to one spine of eight each, some meet."""
    size = 16 << 20
    table = [[size if other == rank + 8 else 0 for other in range(16)] for rank in range(16)]
    times = {}
    for name in ("roce", "ib", "srd"):
        top = fabric(f"leaf-spine:16,per_leaf=8,spines=8,routing=ecmp,seed=3,rate=10Gb/s,transport={name}")
        times[name] = exchange(top, table).time_s
    alone_s = size / 1.25e9
    assert times["roce"] > 1.9 * alone_s
    assert max(times["ib"], times["srd"]) < 1.3 * alone_s


@pytest.mark.once
def test_waits_on_a_torus_close_no_circle() -> None:
    for name in ("roce", "ib"):
        top = faults.apply(fabric(f"torus:4x4,transport={name}"), ["link * buffer 16KiB"])
        run = answer(top, 4 << 20, "direct", "all-to-all")
        assert math.isfinite(run.time_s)


def test_multicast_in_the_network_is_declined() -> None:
    with pytest.raises(DeclinedError, match="multicast"):
        simulate(multicast([1, 2, 3]), fabric("switch:16"), "packets")


def test_more_packets_than_can_be_followed_are_declined_with_a_way_out() -> None:
    with pytest.raises(DeclinedError, match="followed one by one") as told:
        answer(fabric("switch:4"), 1 << 20, most_hops=100)
    assert "--engine events" in told.value.remedy


def test_a_start_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="no start of a step"):
        answer(fabric("switch:4"), 1 << 20, start="yesterday")


def test_a_fabric_says_its_transport_and_protocol() -> None:
    top = fabric("torus:2x2,transport=tcp-bbr")
    assert (top.transport, top.protocol, spoken(top).name) == ("tcp", "tcp-bbr", "tcp-bbr")
    assert spoken(fabric("p4d:2")).name == "srd"
    assert protocol("slingshot").name == "ib"
    assert carriers(fabric("dgx-h100:2")) == {"nvlink": "nvlink", "pcie": "pcie", "nic": "ib", "spine": "ib"}
    with pytest.raises(UsageError, match="transport is infiniband, roce"):
        fabric("switch:4,transport=pigeon")


def test_frames_of_the_fabric_are_those_of_its_packets() -> None:
    top = fabric("leaf-spine:4,packet_bytes=1024,header_bytes=100")
    assert (spoken(top).payload_bytes, spoken(top).header_bytes) == (1024, 100)
    plain = fabric("leaf-spine:4")
    assert (plain.packet_bytes, plain.header_bytes) == (0, 0)


def test_every_protocol_says_its_source_and_its_laboratory() -> None:
    for each in PROTOCOLS.values():
        assert each.source
        assert each.ends
        assert each.lab
        assert each.payload_bytes > each.header_bytes > 0
