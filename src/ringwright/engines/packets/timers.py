"""Timers of senders: when to ask again for want of an answer, and when to give up."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from ringwright.engines.packets import control
from ringwright.engines.packets.connection import MISSING, OUT, Connection
from ringwright.engines.packets.event import TIMER, PacketEvent
from ringwright.engines.packets.ports import NEVER
from ringwright.ground.units import PS

if TYPE_CHECKING:
    from ringwright.engines.packets.loop import PacketLoop
    from ringwright.engines.packets.sender import Sender

PROBE_PS = 2_000_000_000  # of a tail loss probe beyond two round trips (Linux, TCP_TIMEOUT_MIN_US)
LONE_PS = 200_000_000_000  # beyond that where one packet alone is under way (its answer may be delayed)


class Timers:
    """One timer a connection: for its next time-out, and for its rate."""

    def __init__(self, loop: PacketLoop, sender: Sender) -> None:
        self.loop, self.sender = loop, sender
        used = loop.net.protocol
        self.rto_ps, self.most_rto_ps = round(used.rto_s * PS), round(used.most_rto_s * PS)
        self.buffer_bytes = used.buffer_bytes

    def set(self, c: Connection, now: int) -> None:
        """Set the timer of a connection to what comes first."""
        if c.una == c.nxt:
            c.retry_at = NEVER
        elif c.retry_at == NEVER:
            self._set_retry(c, now)
        target = min(c.retry_at, c.doubt_at, c.send_at if c.waits_to_send else NEVER)
        if target < c.timer_at:
            c.timer_at = target
            self.loop.push(PacketEvent(target, TIMER, c.number))

    def _set_retry(self, c: Connection, now: int) -> None:
        """Set when to ask again: a tail loss probe first, where the protocol has one, else a time-out."""
        begin = now if self.sender.is_tcp else max(now, c.local_until)
        c.probing = self.sender.is_tcp and not (c.recovering or c.missing or c.backoff or c.probed) and c.srtt > 0.0
        if c.probing:
            lone = LONE_PS if c.pipe() == 1 else PROBE_PS
            c.retry_at = begin + min(int(2.0 * c.srtt) + lone, self.rto(c))
        else:
            c.retry_at = begin + self.rto(c)

    def rto(self, c: Connection) -> int:
        """Return the ps to a time-out. Of RDMA it is set beyond what a full queue of the path delays an answer."""
        base = self.rto_ps
        if self.sender.is_tcp:
            base = int(c.srtt) + max(self.rto_ps, int(4.0 * c.rttvar)) if c.srtt else 5 * self.rto_ps
        else:
            base = max(base, int(4.0 * c.srtt), int(4.0 * (c.trip_ps + self.buffer_bytes * c.line_ps)))
        return max(base, min(base << min(c.backoff, 30), self.most_rto_ps))

    def ran_out(self, c: Connection, now: int) -> None:
        """A timer has run out; one that was put off asks again."""
        if now != c.timer_at:
            return
        c.timer_at = NEVER
        if c.waits_to_send and c.send_at <= now:
            c.waits_to_send = False
            self.sender.go_on(c, now)
        if c.doubt_at <= now:
            if self.sender.find_missing(c, now, now + c.doubt_from):
                control.doubted(c)
            self.sender.go_on(c, now)
        if c.retry_at <= now and c.una < c.nxt:
            self._ask_again(c, now)
        elif c.retry_at <= now:
            c.retry_at = NEVER
        self.set(c, now)

    def _ask_again(self, c: Connection, now: int) -> None:
        if c.probing:
            self._probe(c, now)
            return
        self.loop.timeouts += 1
        control.timed_out(c, now)
        c.retries += 1
        c.backoff += 1
        if c.retries > self.loop.net.protocol.retries:
            self.loop.gave_up = (c.number, now)
            return
        if self.sender.goes_back:
            c.nxt = c.una
        else:
            for number in range(c.una, c.nxt):
                record = c.records[number]
                if record.state == OUT:
                    record.state = MISSING
                    insort(c.missing, number)
            c.recovering, c.restarting, c.recover = True, True, c.nxt
        c.retry_at = NEVER
        self.sender.go_on(c, now)

    def _probe(self, c: Connection, now: int) -> None:
        """Send the last packet once more, so that its answer tells what is missing."""
        c.probed = True
        c.retry_at = NEVER
        number = c.nxt - 1
        record = c.records.get(number)
        if record is None or record.state != OUT:
            return
        self.sender.submit(c, number, now)
        self._set_retry(c, now)
