"""Ports: what a packet meets on its way. Open ports know at once when a packet leaves; gated ones keep a queue.

An open port (``drop``, and all inside a host) serves in the order of arrival and can never be held up, so that what waits in
front of a packet is the time until the port is free. A gated one (``pause``, ``credit``) may be told to wait.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from ringwright.costs.protocols import CREDIT, DCQCN, PAUSE
from ringwright.engines.packets.network import ENDLESS, GATES, MARK_ALL, MARK_FROM, MARK_SHARE, PAUSE_AT, RESUME_AT
from ringwright.ground.hashing import STEP, mixed_int

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringwright.engines.packets.event import PacketEvent
    from ringwright.engines.packets.network import PacketNetwork

NEVER = 1 << 62
LOST, MARKED, DROPPED = 1, 2, 3  # what is drawn
SHARES = 16  # parts of an octave that a histogram of queues tells apart


def share_of(number: int) -> float:
    """Return a number of 64 bits as a float from 0 to below 1."""
    return (number >> 11) * 2.0**-53


def bar(size_bytes: int) -> int:
    """Return the bar of a histogram that a queue of ``size_bytes`` falls into: exact below 16, sixteenths of octaves above."""
    if size_bytes < SHARES:
        return size_bytes
    octave = size_bytes.bit_length() - 5
    return (octave + 1) * SHARES + (size_bytes >> octave) - SHARES


def least_of(bar_number: int) -> int:
    """Return the smallest queue of a bar, bytes."""
    if bar_number < SHARES:
        return bar_number
    octave = bar_number // SHARES - 1
    return (SHARES + bar_number % SHARES) << octave


BARS = 64 * SHARES


class PortStates:
    """What ports are like at a time, and what they counted."""

    def __init__(self, net: PacketNetwork) -> None:
        ports = net.ports
        n = len(ports.gate)
        self.byte_ps: list[float] = ports.byte_ps.tolist()
        self.base_latency: list[int] = ports.latency.tolist()
        self.holds: list[bool] = ports.holds.tolist()
        self.between: list[bool] = ports.between.tolist()
        self.gate: list[int] = ports.gate.tolist()
        self.whole: list[bool] = net.whole.tolist()
        self.base_buffer: list[int] = ports.buffer.tolist()
        self.rates: dict[int, list[tuple[int, float]]] = _by_port(ports.rates)
        self.delays: dict[int, list[tuple[int, int]]] = _by_port(ports.delays)
        self.losses: dict[int, list[tuple[int, float, float]]] = _by_port(ports.losses)
        self.buffers: dict[int, list[tuple[int, int]]] = _by_port(ports.buffers)
        self.marks = net.protocol.control == DCQCN
        self.burst = net.burst_bytes
        self.free = [0] * n
        self.count = [0] * n
        base = (net.seed * STEP) & (2**64 - 1)
        self.draws = [mixed_int(base + port * STEP) for port in range(n)]
        # Gated ports: a queue for each number, what is in it, and what of each link lies at its far end.
        counts = ports.virtual_queues.tolist()
        self.virtual_queues = counts
        self.queues: list[list[deque[PacketEvent]]] = [
            [deque() for _ in range(counts[port])] if self.gate[port] else [] for port in range(n)
        ]
        self.answers: list[deque[PacketEvent]] = [deque() for _ in range(n)]  # of its own host, which go first
        self.queued = [0] * n
        self.held = [[0] * counts[port] for port in range(n)]
        self.paused = [[False] * counts[port] for port in range(n)]
        self.told = [[False] * counts[port] for port in range(n)]  # whether the far end has asked to wait
        self.blocked = [False] * n
        self.busy = [False] * n
        self.leaving = [-1] * n  # whose packet leaves its own host
        self.last = [0] * n
        self.kicked = [-1] * n
        # Counts by port.
        self.drops, self.lost, self.pauses, self.marked = [0] * n, [0] * n, [0] * n, [0] * n
        self.most, self.bytes = [0] * n, [0] * n
        self.bars = [0] * BARS
        self.bin, self.bin_most = [-1] * n, [0] * n
        self.samples: list[tuple[int, int, int]] = []

    def latency(self, port: int, time: int) -> int:
        """Return the ps that a packet entering now takes over the link."""
        now = self.base_latency[port]
        for since, latency in self.delays.get(port, ()):
            if since <= time:
                now = latency
        return now

    def buffer(self, port: int, time: int) -> int:
        """Return the bytes that a port may queue now."""
        now = self.base_buffer[port]
        for since, size in self.buffers.get(port, ()):
            if since <= time:
                now = size
        return now

    def rate(self, port: int, time: int) -> float:
        """Return the ps that a byte takes now."""
        now = self.byte_ps[port]
        for since, byte_ps in self.rates.get(port, ()):
            if since <= time:
                now = byte_ps
        return now

    def stop(self, port: int, begin: int, size: int) -> int:
        """Return when the last of ``size`` bytes has left; NEVER for a dead port, or one between hosts that dies meanwhile."""
        byte_ps = self.byte_ps[port]
        changes = self.rates.get(port)
        if changes is None:
            return NEVER if math.isinf(byte_ps) else begin + math.ceil(size * byte_ps)
        now = begin
        left = float(size)
        for time, following in changes:
            if time > now:
                if not math.isinf(byte_ps):
                    needed = math.ceil(left * byte_ps)
                    if now + needed <= time:
                        return now + needed
                    left -= (time - now) / byte_ps
                    if self.between[port] and math.isinf(following):
                        return NEVER
                elif self.between[port]:
                    return NEVER
                now = time
            byte_ps = following
        return NEVER if math.isinf(byte_ps) else now + math.ceil(left * byte_ps)

    def begin(self, port: int, time: int) -> int:
        """Return when a packet that comes to an open port begins to leave: when it is free, or a token bucket has enough."""
        return max(time, self.free[port] - self.credit(port, time))

    def credit(self, port: int, time: int) -> int:
        """Return how much earlier than at the link's rate a packet may leave: the time of a full token bucket."""
        if not self.burst or not self.between[port]:
            return 0
        byte_ps = self.rate(port, time)
        return 0 if math.isinf(byte_ps) else int(self.burst * byte_ps)

    def drawn(self, port: int, kind: int) -> float:
        """Return the draw of the packet that a port counts now."""
        return share_of(mixed_int(self.draws[port] + self.count[port] * STEP + kind))

    def is_lost(self, port: int, time: int, *, ack: bool) -> bool:
        """Return whether the link loses the packet that it counts now."""
        rows = self.losses.get(port)
        if rows is None:
            return False
        share = 0.0
        for since, data, acknowledged in rows:
            if since <= time:
                share = acknowledged if ack else data
        if share <= 0.0 or self.drawn(port, LOST) >= share:
            return False
        self.lost[port] += 1
        return True

    def is_dropped(self, port: int, time: int, backlog: int, size: int) -> bool:
        """Return whether a queue of ``backlog`` bytes has no room for a packet.

        Packets do not come as regularly as here: one that would just fit does by lot, or the same connection would find every
        queue full (Floyd and Jacobson, "On traffic phase effects in packet-switched gateways", 1992).
        """
        room = self.buffer(port, time) - backlog - size
        if room < 0 or (backlog and room < size and room < int(self.drawn(port, DROPPED) * size)):
            self.drops[port] += 1
            return True
        return False

    def is_marked(self, port: int, time: int, backlog: int) -> bool:
        """Return whether a queue of ``backlog`` bytes marks the packet that comes."""
        size = self.buffer(port, time)
        if not self.marks or size >= ENDLESS:
            return False
        low, high = size * MARK_FROM, size * MARK_ALL
        if backlog <= low:
            return False
        if backlog < high and self.drawn(port, MARKED) >= (backlog - low) / (high - low) * MARK_SHARE:
            return False
        self.marked[port] += 1
        return True

    def backlog(self, port: int, time: int) -> int:
        """Return the bytes that wait or are being sent at a port now."""
        if self.gate[port] and GATES[self.gate[port]] in (PAUSE, CREDIT):
            return self.queued[port]
        waiting = self.free[port] - self.credit(port, time) - time
        byte_ps = self.rate(port, time)
        return 0 if waiting <= 0 or byte_ps <= 0.0 or math.isinf(byte_ps) else int(waiting / byte_ps)

    def note(self, port: int, time: int, backlog: int, bin_ps: int) -> None:
        """Count what a packet found in front of it in a queue of the network."""
        if self.base_buffer[port] >= ENDLESS:
            return
        self.bars[bar(backlog)] += 1
        self.most[port] = max(self.most[port], backlog)
        number = time // bin_ps
        if number != self.bin[port]:
            self.close_bin(port)
            self.bin[port], self.bin_most[port] = number, 0
        self.bin_most[port] = max(self.bin_most[port], backlog)

    def close_bin(self, port: int) -> None:
        """Keep the longest queue of the bin that ends, where there was one."""
        if self.bin[port] >= 0 and self.bin_most[port]:
            self.samples.append((self.bin[port], port, self.bin_most[port]))

    def pause_at(self, port: int, time: int) -> int:
        """Return from how many bytes of one link on its far end asks it to wait; ``port``: the queue they lie in."""
        size = self.buffer(port, time)
        return ENDLESS if size >= ENDLESS else int(size * PAUSE_AT)

    def resume_at(self, port: int, time: int) -> int:
        """Return at how many bytes of one link it may go on."""
        size = self.buffer(port, time)
        return ENDLESS if size >= ENDLESS else int(size * RESUME_AT)


def _by_port(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[Any]]:
    """Return the rows of each port, without its number."""
    listed: dict[int, list[Any]] = {}
    for port, *row in rows:
        listed.setdefault(int(port), []).append(tuple(row))
    return listed
