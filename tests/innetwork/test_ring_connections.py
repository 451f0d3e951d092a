"""NetReduce's device on the way of a ring: sums in place of payloads, and losses that the connections mend themselves."""

from __future__ import annotations

import numpy as np
import pytest

from ringwright.algorithms.innetwork import ring_connections
from ringwright.algorithms.innetwork.in_path_sums import InPathDevice, RingPacket
from ringwright.algorithms.innetwork.ring_connections import LINK_TICKS, RingHost, RingRun, ring_through_device
from ringwright.ground.errors import UsageError

pytestmark = pytest.mark.once

FIRST = np.array([100, 7, 50])


def packet(connection: int, at: int, value: int) -> RingPacket:
    return RingPacket(connection, int(FIRST[connection]) + at, np.array([value], np.int64))


def passed(out: list[RingPacket]) -> list[tuple[int, int, int]]:
    return [(each.connection, each.number, int(each.payload[0])) for each in out]


def ran(hosts: int = 4, packets: int = 96, seed: int = 0, **more: object) -> tuple[np.ndarray, RingRun]:
    data = np.random.default_rng(seed).integers(-(1 << 40), 1 << 40, (hosts, packets, 3))
    return data, ring_through_device(data, seed=seed, **more)  # type: ignore[arg-type]


def test_the_last_one_sends_all_on_with_the_sum_and_their_own_numbers() -> None:
    device = InPathDevice(3, 4, FIRST)
    assert device.take(packet(1, 0, 20)) == []
    assert device.take(packet(0, 0, 3)) == []
    assert passed(device.take(packet(2, 0, 100))) == [(0, 100, 123), (1, 7, 123), (2, 50, 123)]


def test_what_was_counted_is_not_added_again_and_takes_the_sum_once_it_is_whole() -> None:
    device = InPathDevice(3, 4, FIRST)
    for _ in range(3):
        assert device.take(packet(0, 0, 3)) == []
    device.take(packet(1, 0, 20))
    assert len(device.take(packet(2, 0, 100))) == 3
    assert passed(device.take(packet(1, 0, 20))) == [(1, 7, 123)]
    assert device.again == 3


def test_a_packet_ahead_of_its_connection_goes_on_as_it_is_and_does_not_count() -> None:
    device = InPathDevice(3, 4, FIRST)
    assert passed(device.take(packet(0, 1, 9))) == [(0, 101, 9)]
    for host in range(3):
        out = device.take(packet(host, 0, 1))
    assert passed(out) == [(0, 100, 3), (1, 7, 3), (2, 50, 3)]
    assert device.take(packet(0, 1, 9)) == []


def test_room_is_free_when_every_receiver_has_acknowledged_and_not_before() -> None:
    device = InPathDevice(3, 1, FIRST)
    for host in range(3):
        device.take(packet(host, 0, 1))
    device.acknowledge(0, 101)
    device.acknowledge(1, 8)
    assert device.take(packet(0, 1, 5)) == []
    assert device.refused == 1, "sent on as it is it would be taken: its receiver has all before it"
    assert passed(device.take(packet(2, 0, 1))) == [(2, 50, 3)], "the sum is still there for who lost it"
    device.acknowledge(2, 51)
    device.acknowledge(2, 50)
    for host in range(3):
        out = device.take(packet(host, 1, 5))
    assert [number for _, number, _ in passed(out)] == [101, 8, 51]
    assert passed(device.take(packet(2, 0, 1))) == [(2, 50, 1)], "every receiver has it and throws it away"
    assert device.most_sums == 1


def test_without_losses_one_pass_whatever_the_hosts() -> None:
    for hosts in (2, 5, 9):
        data, run = ran(hosts, window=8)
        assert np.array_equal(run.results, np.broadcast_to(data.sum(axis=0), data.shape))
        assert (run.ticks, run.sent, run.lost) == (96 + 2 * LINK_TICKS, hosts * 96, 0)
        assert (run.again, run.refused) == (0, 0)


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.1])
def test_sums_are_exact_whatever_is_lost_or_comes_twice(loss: float) -> None:
    lost = again = refused = 0
    for seed in range(12):
        hosts, window = 2 + seed % 4, 1 + seed % 3
        data, run = ran(hosts, seed=seed, loss=loss, twice=loss, window=window, timer_ticks=60)
        assert np.array_equal(run.results, np.broadcast_to(data.sum(axis=0), data.shape)), seed
        assert (np.diff(run.numbers, axis=1) == 1).all(), seed
        assert run.most_messages <= window
        assert run.most_sums <= window * 8
        lost, again, refused = lost + run.lost, again + run.again, refused + run.refused
    assert lost > 0
    assert again > 0
    assert refused > 0 or loss < 0.01


def test_a_host_sends_again_from_what_its_receiver_asks_for_and_not_what_it_has() -> None:
    host = RingHost(0, np.arange(8, dtype=np.int64).reshape(8, 1), 100, 8, 50)
    assert [host.send(tick, 4).number for tick in range(5)] == [100, 101, 102, 103, 104]  # type: ignore[union-attr]
    host.hear(5, 102, is_asking=True)
    host.hear(6, 101, is_asking=False)
    assert [host.send(tick, 4).number for tick in (6, 7)] == [102, 103]  # type: ignore[union-attr]
    host.go_back(8)
    host.hear(9, 104, is_asking=False)
    assert host.send(9, 4).number == 104  # type: ignore[union-attr]


def test_a_receiver_asks_once_for_what_is_missing_and_throws_away_what_it_has() -> None:
    host = RingHost(2, np.zeros((8, 1), np.int64), 50, 8, 50)
    answers = [host.receive(packet(1, at, 9 + at), 7) for at in (0, 2, 3, 0, 1, 3)]
    assert answers == [(8, False), (8, True), None, (8, False), (9, False), (9, True)]
    assert host.numbers == [7, 8]
    assert host.results[:3, 0].tolist() == [9, 10, 0]


def test_packets_that_come_twice_are_told() -> None:
    data, run = ran(twice=0.2)
    assert np.array_equal(run.results, np.broadcast_to(data.sum(axis=0), data.shape))
    assert run.again > 0
    assert run.sent == 4 * 96


def test_a_window_smaller_than_the_round_trip_is_slower() -> None:
    taken = [ran(packets=64, message_packets=2, window=window)[1].ticks for window in (1, 2, 8)]
    assert taken[0] > 1.8 * taken[1]
    assert taken[1] > 1.8 * taken[2]
    assert taken[2] == 64 + 2 * LINK_TICKS


def test_rings_that_are_none_or_do_not_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for odd in ({"hosts": 1}, {"packets": 9}, {"loss": 1.0}, {"twice": -0.1}):
        with pytest.raises(UsageError, match="a ring of"):
            ran(**odd)  # type: ignore[arg-type]
    monkeypatch.setattr(ring_connections, "MOST_TICKS", 50)
    with pytest.raises(UsageError, match="did not end in 50 packet times") as refused:
        ran()
    assert refused.value.remedy
