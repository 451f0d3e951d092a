"""Hosts in a ring of reliable connections through one device: windows of messages, losses, and all again from the lost packet on.

Time is in packets: a line carries one packet in a tick each way, and a link takes ``LINK_TICKS`` more. A host sends messages of
equal length to its successor. Message m + w is posted when the result of m has come from its predecessor, w being the window. A
receiver takes packets in order alone, acknowledges up to where it has them, and asks once where one is missing; a sender that is
asked, or has heard nothing for its timer, sends all again from there on (go-back-N, as RoCE's reliable connections do).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from ringwright.algorithms.innetwork.in_path_sums import InPathDevice, RingPacket
from ringwright.ground.errors import UsageError

LINK_TICKS = 4
MOST_TICKS = 2_000_000  # no run of a sane size takes as long


@dataclass(frozen=True)
class RingRun:
    """What hosts of a ring ended with.

    Parameters
    ----------
    results
        What each host received, int64 of shape (hosts, packets, elements).
    ticks
        Packet times until the last host had all.
    sent
        Packets that hosts sent, again or not.
    lost
        Packets and acknowledgements that links lost.
    numbers
        Numbers of the packets that each host took, in order, int64 of shape (hosts, packets).
    most_messages
        Messages that a host had posted and had no result of, at the most.
    most_sums
        Packets whose sums the device held at a time, at the most.
    again, refused
        Packets that the device had counted before, and that found no room.
    """

    results: np.ndarray
    ticks: int
    sent: int
    lost: int
    numbers: np.ndarray
    most_messages: int
    most_sums: int
    again: int
    refused: int


class RingHost:
    """One host: sender to its successor, receiver from its predecessor."""

    def __init__(self, at: int, data: np.ndarray, first: int, window_packets: int, timer_ticks: int) -> None:
        self.at, self.data, self.first = at, data, first
        self.window, self.timer = window_packets, timer_ticks
        self.results = np.zeros_like(data)
        self.numbers: list[int] = []
        self.next = self.acknowledged = self.sent = self.heard_at = self.most_messages = 0
        self.has_asked = False

    @property
    def received(self) -> int:
        """Packets of results that it has."""
        return len(self.numbers)

    def send(self, tick: int, message_packets: int) -> RingPacket | None:
        """Return the next packet, or None where the window is full or all is sent."""
        if self.acknowledged < self.next and tick - self.heard_at > self.timer:
            self.go_back(tick)
        whole = self.received // message_packets * message_packets
        if self.next >= min(len(self.data), whole + self.window):
            return None
        if self.next == self.acknowledged:
            self.heard_at = tick
        packet = RingPacket(self.at, self.first + self.next, self.data[self.next])
        self.next, self.sent = self.next + 1, self.sent + 1
        self.most_messages = max(self.most_messages, -(-(self.next - whole) // message_packets))
        return packet

    def go_back(self, tick: int) -> None:
        """Send all again from the first packet that was not acknowledged."""
        self.next, self.heard_at = self.acknowledged, tick

    def hear(self, tick: int, number: int, *, is_asking: bool) -> None:
        """Take an acknowledgement of all before ``number``; one that asks wants that packet."""
        if number - self.first > self.acknowledged:
            self.acknowledged, self.heard_at = number - self.first, tick
            self.next = max(self.next, self.acknowledged)
        if is_asking and self.next > self.acknowledged:
            self.go_back(tick)

    def receive(self, packet: RingPacket, first: int) -> tuple[int, bool] | None:
        """Take a packet of the predecessor, whose first is ``first``; return what to answer: a number, and whether it asks."""
        at = packet.number - first
        if at > self.received:
            asked, self.has_asked = self.has_asked, True
            return None if asked else (first + self.received, True)
        if at == self.received:
            self.results[at] = packet.payload
            self.numbers.append(packet.number)
            self.has_asked = False
        return first + self.received, False


def ring_through_device(
    data: np.ndarray,
    *,
    message_packets: int = 8,
    window: int = 4,
    loss: float = 0.0,
    twice: float = 0.0,
    timer_ticks: int = 400,
    seed: int = 0,
) -> RingRun:
    """Return what hosts end with whose packets an in-path device adds.

    Parameters
    ----------
    data
        What each host sends, int64 of shape (hosts, packets, elements); packets a multiple of ``message_packets``.
    window
        Messages outstanding, which the device has room for.
    loss, twice
        Shares of packets and acknowledgements that each link loses, and of packets that come twice.
    timer_ticks
        Packet times without an answer after which a host sends again.
    seed
        Draws losses and the connections' first numbers.
    """
    hosts, packets, _ = data.shape
    if hosts < 2 or packets % message_packets or not 0 <= loss < 1 or not 0 <= twice < 1:
        raise UsageError(
            f"a ring of {hosts} hosts, {packets} packets in messages of {message_packets}, losses of {loss:g}",
            remedy="two hosts or more, whole messages, losses below 1",
        )
    wires = RingWires(data, message_packets, window, loss, twice, timer_ticks, seed)
    for tick in range(MOST_TICKS):
        if wires.is_done:
            return wires.run(tick)
        wires.pass_tick(tick)
    raise UsageError(
        f"a ring that loses {loss:g} of its packets did not end in {MOST_TICKS:,} packet times",
        remedy="fewer losses, or a longer timer_ticks",
    )


class RingWires:
    """The links between hosts and device: what is on its way, by the tick in which it arrives."""

    def __init__(
        self,
        data: np.ndarray,
        message_packets: int,
        window: int,
        loss: float,
        twice: float,
        timer_ticks: int,
        seed: int,
    ) -> None:
        self.draw = np.random.default_rng(seed)
        count = len(data)
        first = self.draw.integers(0, 1 << 24, count)
        room = window * message_packets
        self.hosts = [RingHost(at, data[at], int(first[at]), room, timer_ticks) for at in range(count)]
        self.device = InPathDevice(count, room, first)
        self.message_packets, self.loss, self.twice, self.lost = message_packets, loss, twice, 0
        self.up: deque[tuple[int, RingPacket]] = deque()
        self.down: deque[tuple[int, RingPacket]] = deque()
        self.answers: deque[tuple[int, int, int, bool]] = deque()
        self.waiting: list[deque[RingPacket]] = [deque() for _ in range(count)]

    @property
    def is_done(self) -> bool:
        """Whether every host has all results."""
        return all(host.received == len(host.data) for host in self.hosts)

    def run(self, ticks: int) -> RingRun:
        """Return what has become of it."""
        return RingRun(
            np.array([host.results for host in self.hosts]),
            ticks,
            sum(host.sent for host in self.hosts),
            self.lost,
            np.array([host.numbers for host in self.hosts], np.int64),
            max(host.most_messages for host in self.hosts),
            self.device.most_sums,
            self.device.again,
            self.device.refused,
        )

    def pass_tick(self, tick: int) -> None:
        """Let everything that arrives arrive, and every line carry one packet more."""
        self._answered(tick)
        while self.up and self.up[0][0] <= tick:
            for packet in self.device.take(self.up.popleft()[1]):
                self.waiting[packet.connection].append(packet)
        while self.down and self.down[0][0] <= tick:
            packet = self.down.popleft()[1]
            sender = self.hosts[packet.connection]
            answer = self.hosts[(packet.connection + 1) % len(self.hosts)].receive(packet, sender.first)
            if answer is not None and self._arrives():
                self.answers.append((tick + LINK_TICKS, packet.connection, *answer))
        for host, queue in zip(self.hosts, self.waiting, strict=True):
            self._carry(tick, self.up, host.send(tick, self.message_packets))
            self._carry(tick, self.down, queue.popleft() if queue else None)

    def _answered(self, tick: int) -> None:
        """Let acknowledgements arrive: they pass the device half way, which reads them, and may be lost behind it."""
        while self.answers and self.answers[0][0] <= tick:
            _, connection, number, is_asking = self.answers.popleft()
            self.device.acknowledge(connection, number)
            if self._arrives():
                self.hosts[connection].hear(tick, number, is_asking=is_asking)

    def _carry(self, tick: int, line: deque[tuple[int, RingPacket]], packet: RingPacket | None) -> None:
        if packet is None:
            return
        for _ in range(1 + (self.twice > 0 and self.draw.random() < self.twice)):
            if self._arrives():
                line.append((tick + LINK_TICKS, packet))

    def _arrives(self) -> bool:
        is_lost = self.loss > 0 and self.draw.random() < self.loss
        self.lost += is_lost
        return not is_lost
