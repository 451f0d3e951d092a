"""A connection: what its sender and its receiver know. Packets are numbered from 0 over all of its messages."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.engines.packets import control
from ringwright.engines.packets.ports import NEVER

if TYPE_CHECKING:
    from ringwright.engines.packets.network import PacketNetwork

OUT, ARRIVED, MISSING = range(3)  # what the sender thinks of a packet


@dataclass(slots=True)
class SentPacket:
    """A packet under way: when it was sent last, and what was delivered by then (BBR)."""

    at: int
    state: int = OUT
    again: bool = False
    delivered: int = 0
    delivered_at: int = 0


@dataclass(slots=True)
class Connection:
    """State of one connection; ``number`` is its own, ``paths`` tuples of ports, ``back`` the ports of acknowledgements.

    ``apart_ps``: between two full packets that leave back to back; ``full_ps``: of one on the first port of ``back``; ``fork``:
    the first hop at which its paths differ.
    """

    number: int
    paths: list[tuple[int, ...]]
    back: tuple[int, ...]
    reliable: bool
    most_window: int
    trip_ps: int
    line_ps: float
    apart_ps: int
    full_ps: int
    fork: int
    control: str
    payload_bytes: int
    wire_bytes: int
    partner: int = -1  # connection of the other direction, where its data carry the answers of this one
    # The messages that it carries, in the order in which they came: first packet, message, bytes.
    firsts: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    # Sender: packets below ``una`` are acknowledged, below ``nxt`` sent, below ``end`` there to send.
    una: int = 0
    nxt: int = 0
    end: int = 0
    ever: int = 0  # packets that were sent at least once
    records: dict[int, SentPacket] = field(default_factory=dict)
    carried: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # by packet: the answer it carries
    arrived: int = 0  # of those under way: known to have arrived
    missing: list[int] = field(default_factory=list)  # packets to send again, sorted
    high: int = -1  # highest packet known to have arrived
    newest: tuple[int, int] = (-1, -1)  # when the latest of those that arrived was sent, and which it is
    recovering: bool = False
    recover: int = 0
    restarting: bool = False  # it recovers from a time-out: its window grows meanwhile (RFC 5681, 3.1)
    limited: bool = False  # its window held it up
    sent_at: int = 0  # when it sent last
    doubt_at: int = NEVER  # when packets that later ones have passed count as missing
    doubt_from: int = 0  # how long before now those must have been sent
    told_part: int = 0  # messages that the sender knows to have arrived
    local: int = 0  # packets that wait in its own NIC
    local_until: int = 0  # when the last packet begins to leave
    leaving: deque[int] = field(default_factory=deque)  # when packets of TCP that wait in front of their NIC leave
    send_at: int = 0
    waits_to_send: bool = False
    retry_at: int = NEVER
    probing: bool = False  # the next time-out is a tail loss probe
    probed: bool = False  # one has been sent since something new arrived
    timer_at: int = NEVER
    backoff: int = 0
    retries: int = 0
    srtt: float = 0.0
    rttvar: float = 0.0
    # Control.
    cwnd: float = 0.0
    ssthresh: float = 0.0
    most_cwnd: float = 0.0
    epoch: int = 0
    origin: float = 0.0
    turn_s: float = 0.0
    friendly: float = 0.0
    cut_at: int = 0
    # Of TCP's recovery: the window before it, packets that arrived and were sent since.
    prior: float = 0.0
    came: int = 0
    went: int = 0
    # Of TCP's window, how much of it is used: the most packets under way, up to which packet that holds, and since when less is.
    most_out: int = 0
    usage_end: int = 0
    used: int = 0
    used_at: int = 0
    slowed: bool = False
    gap_ps: float = 0.0
    target_ps: float = 0.0
    alpha: float = 1.0
    steps: int = 0
    alpha_at: int = 0
    faster_at: int = 0
    phase: int = 0
    cycle: int = 0
    cycle_at: int = 0
    round: int = 0
    round_end: int = 0
    least_trip: int = 0
    bandwidth: float = 0.0
    bandwidths: list[tuple[int, float]] = field(default_factory=list)
    full_bandwidth: float = 0.0
    full_rounds: int = 0
    delivered: int = 0
    delivered_at: int = 0
    # Receiver: packets below ``expected`` have come.
    expected: int = 0
    early: set[int] = field(default_factory=set)  # packets beyond ``expected`` that have come
    part: int = 0  # message that ``expected`` belongs to
    unanswered: int = 0
    heard_at: int = 0  # when the last packet came
    heard_sent: int = 0  # when it was sent
    heard_number: int = 0
    at_once: int = 0  # packets that are yet to be answered one by one
    refused: bool = False  # a gap has been reported, and nothing has filled it
    notice_at: int = 0

    def add(self, message: int, size_bytes: int) -> int:
        """Queue a message behind those that are there; return its packets."""
        packets = max(1, -(-size_bytes // self.payload_bytes)) if self.reliable else 1
        self.firsts.append(self.end)
        self.messages.append(message)
        self.sizes.append(size_bytes)
        self.end += packets
        return packets

    def part_of(self, packet: int) -> int:
        """Return which of its messages a packet belongs to."""
        return bisect_right(self.firsts, packet) - 1

    def last_of(self, part: int) -> int:
        """Return the last packet of a message."""
        return (self.firsts[part + 1] if part + 1 < len(self.firsts) else self.end) - 1

    def bytes_of(self, packet: int, part: int) -> int:
        """Return the data in a packet."""
        if not self.reliable:
            return self.sizes[part]
        return min(self.payload_bytes, self.sizes[part] - (packet - self.firsts[part]) * self.payload_bytes)

    def pipe(self) -> int:
        """Return the packets that are under way as far as the sender knows."""
        return self.nxt - self.una - self.arrived - len(self.missing)


def connections(net: PacketNetwork) -> list[Connection]:
    """Return the connections of a network at their start."""
    made, used = net.connections, net.protocol
    byte_ps = net.ports.byte_ps.tolist()
    wire = used.payload_bytes + used.header_bytes
    starts, ports = made.path_starts.tolist(), made.path_ports.tolist()
    back_starts, back = made.back_starts.tolist(), made.back_ports.tolist()
    first = made.first_path.tolist()
    listed = []
    columns = (
        made.reliable.tolist(),
        made.window.tolist(),
        made.trip_ps.tolist(),
        made.line_ps.tolist(),
        net.partner.tolist(),
    )
    for number, (reliable, most, trip, line, partner) in enumerate(zip(*columns, strict=True)):
        paths = [tuple(ports[starts[path] : starts[path + 1]]) for path in range(first[number], first[number + 1])]
        answer = tuple(back[back_starts[number] : back_starts[number + 1]])
        first_ps = byte_ps[paths[0][0]]
        apart, full = (
            0 if math.isinf(each) else math.ceil(wire * each)
            for each in (first_ps, byte_ps[answer[0]] if answer else 0.0)
        )
        each = Connection(
            number,
            paths,
            answer,
            reliable,
            most,
            trip,
            line,
            apart,
            full,
            _fork(paths),
            used.control,
            used.payload_bytes,
            wire,
            partner,
        )
        control.start(each)
        listed.append(each)
    return listed


def _fork(paths: list[tuple[int, ...]]) -> int:
    """Return the first hop at which paths of one length differ, 0 where there is one path."""
    differ = (hop for hop in range(len(paths[0])) if len({path[hop] for path in paths}) > 1)
    return next(differ, 0)
