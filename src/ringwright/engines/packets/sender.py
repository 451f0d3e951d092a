"""The sender of a connection: what may go now, what is missing, when it asks again, and when it gives up."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from ringwright.costs.protocols import ADAPTIVE, BBR, DCQCN, GO_BACK_N, SPRAY
from ringwright.engines.packets import control, local
from ringwright.engines.packets.connection import ARRIVED, MISSING, OUT, Connection, SentPacket
from ringwright.engines.packets.event import ACK, DATA, NOTICE, REFUSAL, PacketEvent
from ringwright.engines.packets.network import ENDLESS
from ringwright.engines.packets.ports import NEVER
from ringwright.engines.packets.timers import Timers

if TYPE_CHECKING:
    from ringwright.engines.packets.loop import PacketLoop

REORDERED = 3  # packets behind one that say it is missing (RFC 5681)
LOCAL_PACKETS = 2  # that may always wait in their own NIC


class Sender:
    """Acts for the sources of all connections."""

    def __init__(self, loop: PacketLoop) -> None:
        self.loop = loop
        used = loop.net.protocol
        self.used, self.goes_back = used, used.recovery == GO_BACK_N
        self.is_tcp = used.transport == "tcp"
        self.timers = Timers(loop, self)

    def go_on(self, c: Connection, now: int) -> None:
        """Send what may go."""
        if not c.reliable:
            self._whole(c, now)
            return
        if self.is_tcp and c.una == c.nxt and c.nxt < c.end:
            control.woken(c, now, self.timers.rto(c))
        before, limited = c.nxt, False
        while True:
            again = bool(c.missing)
            if not again and c.nxt >= c.end:
                break
            if c.pipe() >= control.window(c):
                limited = True
                break
            wait = self._held_until(c, now, again=again)
            if wait > now:
                c.waits_to_send, c.send_at = True, wait
                break
            if c.local >= LOCAL_PACKETS and self.queues(c):
                break  # the NIC takes the next when one has left
            if again:
                number = c.missing.pop(0)
                self.submit(c, number, now)
            else:
                self._new(c, now)
        self._went(c, now, before, limited=limited)

    def _went(self, c: Connection, now: int, before: int, *, limited: bool) -> None:
        if not self.is_tcp:
            c.limited = limited
        else:
            limited = limited or c.pipe() >= control.window(c)
            if c.nxt > before or limited:
                control.sent(c, now, self.timers.rto(c), limited=limited)
        self.timers.set(c, now)

    def _whole(self, c: Connection, now: int) -> None:
        """Send messages inside a host, each as one."""
        while c.nxt < c.end:
            part = c.part_of(c.nxt)
            size = c.sizes[part]
            event = PacketEvent(now, DATA, c.number, number=c.nxt, sent=now, tail=now, size=size)
            c.nxt += 1
            self.loop.push(event)

    def _held_until(self, c: Connection, now: int, *, again: bool) -> int:
        """Return when the next packet may go: by its rate, and by what still waits in front of its own NIC."""
        until = c.send_at if control.spaced(c, now) > 0.0 else 0
        if self.is_tcp and c.local_until > now:
            most = local.most(c, again=again)
            if local.waiting(c, now) >= most:
                until = max(until, c.leaving[-most])
        return until

    def _new(self, c: Connection, now: int) -> None:
        """Send a packet for the first time, with those that follow it back to back where nothing can hold them up."""
        count = self._train(c, now) if self.loop.trains else 1
        if count > 1:
            self._submit_train(c, count, now)
        else:
            c.nxt += 1
            self.submit(c, c.nxt - 1, now)

    def _train(self, c: Connection, now: int) -> int:
        """Return how many full packets may leave back to back from now."""
        p, port = self.loop.ports, c.paths[0][0]
        plain = not p.gate[port] and len(c.paths) == 1 and port not in p.rates and port not in p.delays
        plain = (
            plain
            and port not in p.losses
            and port not in p.buffers
            and not p.holds[port]
            and p.buffer(port, now) >= ENDLESS
        )
        if not plain or p.burst or c.partner >= 0 or c.control in (DCQCN, BBR) or self.goes_back:
            return 1
        part = c.part_of(c.nxt)
        whole = c.firsts[part] + c.sizes[part] // c.payload_bytes - c.nxt
        room = control.window(c) - c.pipe()
        if self.is_tcp:
            leaves_at_once = p.free[port] <= now
            room = min(room, local.most(c, again=False) - local.waiting(c, now) + leaves_at_once)
        return max(1, min(whole, room))

    def _submit_train(self, c: Connection, count: int, now: int) -> None:
        p, path = self.loop.ports, c.paths[0]
        port, apart = path[0], c.apart_ps
        begin = max(now, p.free[port])
        for number in range(count):
            p.count[port] += 1
            at = begin + number * apart
            p.note(port, now, p.backlog(port, now), self.loop.bin_ps)
            p.free[port] = at + apart
            p.bytes[port] += c.wire_bytes
            self._record(c, c.nxt + number, now if self.is_tcp else at)
            if self.is_tcp:
                local.add(c, at, now)
        self.loop.hops += count
        latency = p.latency(port, begin)
        tail = max(begin + apart, now) + latency
        time = tail if len(path) == 1 else begin + latency
        sent = now if self.is_tcp else begin
        event = PacketEvent(time, DATA, c.number, c.nxt, 1, sent, count - 1, tail, c.wire_bytes)
        c.nxt += count
        c.went += count * c.recovering
        c.sent_at = now
        c.ever = max(c.ever, c.nxt)
        c.local_until = begin + (count - 1) * apart
        self.loop.push(event)

    def submit(self, c: Connection, number: int, now: int) -> None:
        """Put one packet into its first port."""
        p, part = self.loop.ports, c.part_of(number)
        size = c.bytes_of(number, part) + self.used.header_bytes
        chosen = self._path(c, number, now)
        path = c.paths[chosen]
        gap = control.spaced(c, now)
        if gap > 0.0:
            c.send_at = max(now, c.send_at) + int(size * gap)
        c.went += c.recovering
        if number < c.ever:
            self.loop.retransmitted += size
        c.ever = max(c.ever, number + 1)
        c.sent_at = now
        event = PacketEvent(now, DATA, c.number, number=number, sent=now, tail=now, size=size, path=chosen)
        at = now
        if not self.queues(c):
            leaves = p.begin(path[0], now)
            if self.is_tcp:
                local.add(c, leaves, now)
            else:
                at = leaves
            self.loop.pass_open(path, event._replace(sent=at))
            c.local_until = leaves
        else:
            c.local += 1
            self.loop.gates.enqueue(path, event)
        self._record(c, number, at)
        if c.partner >= 0:
            self._carry(c, number)

    def _carry(self, c: Connection, number: int) -> None:
        """Let a packet carry what its host has not answered yet of the other direction."""
        other = self.loop.connections[c.partner]
        if other.unanswered:
            c.carried[number] = (other.expected, other.heard_sent, other.heard_number)
            other.unanswered = 0
        else:
            c.carried.pop(number, None)

    def carried(self, c: Connection, event: PacketEvent) -> None:
        """Take in the answer that a packet of ``c`` carries, if it does."""
        answer = c.carried.get(event.number) if c.partner >= 0 else None
        if answer is not None:
            number, sent, more = answer
            other = self.loop.connections[c.partner]
            self.answer(other, PacketEvent(event.time, ACK, other.number, number, 0, sent, more, event.time))

    def _record(self, c: Connection, number: int, at: int) -> None:
        if self.goes_back:
            return
        known = c.records.get(number)
        if known is None:
            c.records[number] = SentPacket(at, delivered=c.delivered, delivered_at=c.delivered_at or at)
        else:
            known.at, known.state, known.again = at, OUT, True
            known.delivered, known.delivered_at = c.delivered, c.delivered_at or at

    def queues(self, c: Connection) -> bool:
        """Return whether packets wait in the NIC of the source one connection after the other: its port is gated."""
        return bool(self.loop.ports.gate[c.paths[0][0]])

    def left_host(self, c: Connection, now: int) -> None:
        """A packet has left the NIC of its source: it takes the next one."""
        c.local -= 1
        self.go_on(c, now)

    def _path(self, c: Connection, number: int, now: int) -> int:
        """Return which path a packet takes."""
        n = len(c.paths)
        if n == 1:
            return 0
        if self.used.routing == SPRAY:
            return (c.number + number) % n
        if self.used.routing == ADAPTIVE:
            ports = self.loop.ports
            first = (c.number + number) % n
            order = [(first + step) % n for step in range(n)]
            return min(order, key=lambda path: ports.backlog(c.paths[path][c.fork], now))
        return 0

    # What comes back.

    def answer(self, c: Connection, event: PacketEvent) -> None:
        """An answer has come."""
        if event.says == NOTICE:
            control.noticed(c, event.time)
            return
        if self.goes_back:
            self._answer_in_order(c, event)
        else:
            self._answer_selective(c, event)
        while c.told_part < len(c.messages) and c.una > c.last_of(c.told_part):
            self.loop.answered(c.messages[c.told_part], event.time)
            c.told_part += 1
        self.go_on(c, event.time)

    def _answer_in_order(self, c: Connection, event: PacketEvent) -> None:
        if event.number > c.una:
            c.una = event.number
            c.nxt = max(c.nxt, c.una)
            self._progress(c, event.time, event.time - event.sent)
        if event.says == REFUSAL and event.number >= c.una:
            c.nxt = event.number

    def _answer_selective(self, c: Connection, event: PacketEvent) -> None:
        """Take in what arrived, up to ``event.number`` and the packet answered itself; find what must be missing."""
        new, latest, advanced = 0, None, event.number > c.una
        for number in range(c.una, event.number):
            record = c.records.pop(number)
            c.carried.pop(number, None)
            if record.state == ARRIVED:
                c.arrived -= 1
            else:
                new += 1
                latest = record
                if record.state == MISSING:
                    _discard(c.missing, number)
        c.una = max(c.una, event.number)
        one = c.records.get(event.more) if event.more >= c.una else None
        if one is not None and one.state != ARRIVED:
            if one.state == MISSING:
                _discard(c.missing, event.more)
            one.state = ARRIVED
            c.arrived += 1
            c.high = max(c.high, event.more)
            new += 1
            latest = one
        if not new:
            return
        c.newest = max(c.newest, (event.sent, event.more))
        trip = event.time - event.sent
        self._progress(c, event.time, trip)
        c.doubt_at = NEVER
        clean = not (c.arrived and self.find_missing(c, event.time, c.newest[0])) and advanced
        if c.recovering and c.una >= c.recover:
            control.recovered(c)
            c.recovering = c.restarting = False
        control.acked(c, new, event.time, trip, latest, clean=clean)

    def find_missing(self, c: Connection, now: int, newest: int) -> bool:
        """Return whether more packets are missing: those that three later ones have passed, or that are well older.

        Well older than ``newest`` (RACK, RFC 8985). What one sent later has passed, but that is not as old yet, is missing in a
        moment, unless it is answered.
        """
        slack = min(c.trip_ps // 4, int(c.srtt / 8)) if self.is_tcp else int(c.srtt)
        some, doubt = False, NEVER
        for number in range(c.una, c.high):
            record = c.records[number]
            if record.state != OUT:
                continue
            passed = self.is_tcp and not record.again and c.high - number >= REORDERED
            older = (record.at, number) < c.newest
            if passed or (older and record.at + slack < newest):
                record.state = MISSING
                insort(c.missing, number)
                some = True
            elif self.is_tcp and older:
                doubt = min(doubt, now + record.at + slack + 1 - newest)
        c.doubt_at, c.doubt_from = doubt, newest - now
        if some and not c.recovering:
            c.recovering, c.recover = True, c.nxt
            control.lost(c, now)
        return some

    def _progress(self, c: Connection, now: int, trip: int) -> None:
        """Something new arrived: round trips are known better, time-outs begin anew."""
        if c.srtt == 0.0:
            c.srtt, c.rttvar = float(trip), trip / 2.0
        else:
            c.rttvar = 0.75 * c.rttvar + 0.25 * abs(c.srtt - trip)
            c.srtt = 0.875 * c.srtt + 0.125 * trip
        c.backoff = c.retries = 0
        c.probed = False
        c.retry_at = NEVER


def _discard(numbers: list[int], number: int) -> None:
    at = bisect_left(numbers, number)
    if at < len(numbers) and numbers[at] == number:
        del numbers[at]
