"""What TCP does as Linux does it: doubts, recovery, silence, windows; each by a case that fails without it."""

from __future__ import annotations

import pytest

from engines.packets.packet_cases import PacketCase
from ringwright.engines.choose import simulate
from ringwright.engines.packets import control, local
from ringwright.engines.packets.connection import MISSING, OUT, SentPacket
from ringwright.engines.packets.event import DATA, PacketEvent
from ringwright.engines.packets.loop import PacketLoop
from ringwright.engines.packets.ports import NEVER
from ringwright.fabrics import fabric, faults
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm
from ringwright.model.topology import Topology

SECOND = 10**12
SLOW = fabric("switch:2,rate=20Mb/s,transport=tcp-reno,latency_s=50us")


def loop(top: Topology = SLOW, size_bytes: int = 1 << 20, seed: int = 0) -> PacketLoop:
    _, build, knobs = algorithm("binomial")
    program = build(Collective("broadcast", range(top.n_ranks), size_bytes), top, **knobs)
    net = PacketCase(program, top, "pipelined", seed, acknowledged=False).network()
    return PacketLoop(net, acknowledged=False, trains=False, bin_ps=SECOND)


def test_one_outage_is_one_time_out() -> None:
    """The window grows again from one packet, and the first packets after the silence are answered at once."""
    _, build, knobs = algorithm("binomial")
    program = build(Collective("broadcast", range(2), 1 << 20), SLOW, **knobs)
    calm = simulate(program, SLOW, "packets")
    dead = simulate(program, faults.apply(SLOW, ["link rank1 dead from 100ms to 200ms"]), "packets")
    assert dead.packets is not None
    assert dead.packets.timeouts == 1
    assert 0.1 < dead.time_s - calm.time_s < 0.25


def test_windows_of_tcp_are_not_a_few_round_trips() -> None:
    """Answers that wait behind data of the other direction hold nothing up once windows have grown."""
    top = faults.apply(fabric("switch:4,rate=20Mb/s,transport=tcp-reno,latency_s=50us"), ["link rank3 rate 50%"])
    _, build, knobs = algorithm("ring")
    run = simulate(build(Collective("all-reduce", range(4), 1 << 20), top, **knobs), top, "packets")
    payload_s = 1.5 * (1 << 20) * 8 / 10e6 * 1514 / 1448
    assert run.time_s < 1.035 * payload_s  # 2.2 % are answers


def test_a_packet_that_a_later_one_has_passed_is_missing_in_a_moment() -> None:
    run = loop()
    (c, *_) = run.connections
    c.nxt, c.una, c.high, c.newest, c.arrived, c.srtt = 3, 0, 2, (1_000_000, 2), 1, 8e9
    c.records = {0: SentPacket(900_000), 1: SentPacket(950_000), 2: SentPacket(1_000_000, state=1)}
    slack = min(c.trip_ps // 4, int(c.srtt / 8))
    now = 5_000_000
    assert not run.sender.find_missing(c, now, c.newest[0])
    assert c.doubt_at == now + 900_000 + slack + 1 - 1_000_000
    later = c.doubt_at + 50_000
    assert run.sender.find_missing(c, later, later + c.doubt_from)
    assert [c.records[0].state, c.records[1].state] == [MISSING, MISSING]
    assert c.recovering


def test_what_was_sent_after_all_that_arrived_is_not_in_doubt() -> None:
    run = loop()
    (c, *_) = run.connections
    c.nxt, c.high, c.newest, c.arrived, c.srtt = 2, 1, (1_000_000, 1), 1, 8e9
    c.records = {0: SentPacket(2_000_000, again=True), 1: SentPacket(1_000_000, state=1)}
    assert not run.sender.find_missing(c, 9_000_000, c.newest[0])
    assert c.doubt_at == NEVER
    assert c.records[0].state == OUT


def test_of_packets_handed_over_at_once_an_earlier_number_is_older() -> None:
    """Round trips and doubts count from when TCP hands a packet over, and it hands over several at one time."""
    run = loop()
    (c, *_) = run.connections
    c.nxt, c.una, c.high, c.newest, c.arrived, c.srtt = 3, 0, 1, (1_000_000, 1), 1, 8e9
    c.records = {0: SentPacket(1_000_000), 1: SentPacket(1_000_000, state=1), 2: SentPacket(1_000_000)}
    assert not run.sender.find_missing(c, 9_000_000, c.newest[0])
    assert run.sender.find_missing(c, c.doubt_at, c.doubt_at + c.doubt_from)
    assert [c.records[0].state, c.records[2].state] == [MISSING, OUT]


def test_small_queues_are_a_millisecond_of_the_pacing_rate() -> None:
    """At 20 Mb/s (1.65 packets a ms) a window of twice what is under way is paced at 6.6 packets a ms; a packet counts 2,280 bytes."""
    (c, *_) = loop().connections
    c.control, c.cwnd, c.ssthresh, c.srtt = control.RENO, 40.0, 1e18, 20 / 1.65 * 1e9
    assert local.most(c, again=False) == 5  # 6.6 a ms * 1000 / 1024 ms * 1448 / 2280 = 4.09
    assert local.most(c, again=True) == 9
    c.ssthresh = 40.0
    assert local.most(c, again=False) == 3
    c.srtt *= 10
    assert local.most(c, again=False) == 2
    c.srtt = 1.0
    assert local.most(c, again=False) == 1840  # 4 MiB


def test_no_more_packets_than_that_wait_in_front_of_a_nic() -> None:
    run = loop(size_bytes=1 << 20)
    (c, *_) = run.connections
    serve, most = run._serve, []

    def watched(event: PacketEvent) -> None:
        serve(event)
        most.append((local.waiting(c, event.time), local.most(c, again=False)))

    run._serve = watched  # type: ignore[method-assign]
    run.run()
    assert max(waiting for waiting, _ in most) > 4
    late = most[len(most) // 2 :]
    assert all(waiting <= allowed + 1 for waiting, allowed in late)


def test_an_answer_counts_as_use_of_a_window() -> None:
    """A connection that a queue holds up keeps its window; after a silence it loses half of what it did not use."""
    (c, *_) = loop().connections
    rto = SECOND // 5
    c.control, c.cwnd, c.ssthresh, c.nxt, c.una, c.usage_end = control.RENO, 54.0, 1e18, 12, 0, 12
    for tenth in range(1, 20):
        control.acked(c, 1, tenth * SECOND // 10, 10**10, None, clean=True)
        control.sent(c, tenth * SECOND // 10, rto, limited=False)
    assert c.cwnd == 54.0
    control.sent(c, 3 * SECOND, rto, limited=False)
    assert c.cwnd == (54.0 + 12.0) / 2.0


def test_a_window_shrinks_by_as_much_as_arrives() -> None:
    """RFC 6937: of ten packets, one lost, the nine that arrive let five go, not five at once."""
    (c, *_) = loop().connections
    c.control, c.cwnd, c.nxt, c.una = control.RENO, 10.0, 10, 0
    c.recovering, c.missing, c.arrived = True, [0], 3
    control.lost(c, 0)
    assert (c.cwnd, c.ssthresh) == (10.0, 5.0)
    sent = []
    for _ in range(6):
        control.reduced(c, 1, clean=False)
        free = int(c.cwnd) - c.pipe()
        sent.append(free)
        c.went += free
        c.nxt += free
        c.arrived += 1
    assert max(sent) == 1
    assert 3 <= sum(sent) <= 4
    c.restarting = False
    control.recovered(c)
    assert c.cwnd == 5.0


def test_the_first_packets_after_a_silence_are_answered_one_by_one() -> None:
    def unanswered(at: int) -> int:
        run = loop()
        (c, *_) = run.connections
        c.add(0, 1 << 20)
        run.left[0] = 1 << 20
        c.heard_at = SECOND
        run.receiver.data(c, PacketEvent(at, DATA, c.number, number=0, sent=at, size=1514))
        return c.unanswered

    assert unanswered(SECOND + SECOND // 10) == 1
    assert unanswered(SECOND + SECOND // 2) == 0


@pytest.mark.parametrize(("room", "low", "high"), [(1514, 0.0, 0.0), (757, 0.4, 0.6), (0, 0.9, 1.0), (-1, 1.0, 1.0)])
def test_a_packet_that_would_just_fit_is_dropped_by_lot(room: int, low: float, high: float) -> None:
    ports = loop(faults.apply(SLOW, ["switch * buffer 16KiB"])).ports
    port = next(port for port, rows in ports.buffers.items() if rows)
    dropped = 0
    for count in range(400):
        ports.count[port] = count
        dropped += ports.is_dropped(port, 0, 16_384 - 1514 - room, 1514)
    assert low <= dropped / 400 <= high
    assert ports.drops[port] == dropped
    assert not ports.is_dropped(port, 0, 0, 16_384)  # an empty queue takes what its size allows
