"""The receiver of a connection: what has come, which messages are whole, and what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.costs.protocols import DCQCN, GO_BACK_N
from ringwright.engines.packets import control
from ringwright.engines.packets.event import ACK, NOTICE, PLAIN, REFUSAL, PacketEvent
from ringwright.ground.units import PS

if TYPE_CHECKING:
    from ringwright.engines.packets.connection import Connection
    from ringwright.engines.packets.loop import PacketLoop

AT_ONCE = 16  # packets that are answered one by one after a silence: the sender has lost its clock (Linux, quick ACKs)


class Receiver:
    """Acts for the targets of all connections."""

    def __init__(self, loop: PacketLoop) -> None:
        self.loop = loop
        used = loop.net.protocol
        self.goes_back, self.ordered = used.recovery == GO_BACK_N, used.ordered
        self.every, self.ack_bytes, self.marks = used.acks_every, used.ack_bytes, used.control == DCQCN
        self.silent_ps = round(used.rto_s * PS)

    def data(self, c: Connection, event: PacketEvent) -> None:
        """A packet has come whole."""
        if not c.reliable:
            self._arrived(c, c.part_of(event.number), event.time)
            return
        if event.marked and self.marks and event.time >= c.notice_at:
            c.notice_at = event.time + control.NOTICE_PS
            self._say(c, event, NOTICE)
        if event.time - c.heard_at > self.silent_ps:
            c.at_once = AT_ONCE
        c.heard_at, c.heard_sent, c.heard_number = event.time, event.sent, event.number
        if self.goes_back:
            self._in_order(c, event)
        else:
            self._selective(c, event)

    def _in_order(self, c: Connection, event: PacketEvent) -> None:
        if event.number > c.expected:
            if not c.refused:
                c.refused = True
                self._say(c, event, REFUSAL)
            return
        if event.number < c.expected:
            self._say(c, event, PLAIN)
            return
        c.refused = False
        self._advance(c, event.time)
        self._answer_some(c, event)

    def _selective(self, c: Connection, event: PacketEvent) -> None:
        number = event.number
        if number < c.expected or number in c.early:
            self.loop.sender.carried(c, event)
            self._say(c, event, PLAIN)
            return
        gap = bool(c.early) or number > c.expected
        if not self.ordered:
            self._arrived(c, c.part_of(number), event.time)
        if number > c.expected:
            c.early.add(number)
        else:
            self._advance(c, event.time, count=self.ordered)
            while c.expected in c.early:
                c.early.remove(c.expected)
                self._advance(c, event.time, count=self.ordered)
        self.loop.sender.carried(c, event)  # what this makes its host send may carry the answer
        if gap:
            self._say(c, event, PLAIN)
        else:
            self._answer_some(c, event)

    def _advance(self, c: Connection, time: int, *, count: bool = True) -> None:
        """The packet that was expected is here."""
        if c.expected > c.last_of(c.part):
            c.part += 1
        if count:
            self._arrived(c, c.part, time)
        c.expected += 1
        c.unanswered += 1

    def _arrived(self, c: Connection, part: int, time: int) -> None:
        message = c.messages[part]
        self.loop.left[message] -= 1
        if not self.loop.left[message]:
            self.loop.delivered(message, time)

    def _answer_some(self, c: Connection, event: PacketEvent) -> None:
        """Answer every so many packets; at once the last of a message, and the first ones after a silence."""
        if c.at_once:
            c.at_once -= 1
            self._say(c, event, PLAIN)
        elif c.unanswered >= self.every or (c.unanswered and c.expected > c.last_of(c.part)):
            self._say(c, event, PLAIN)

    def _say(self, c: Connection, event: PacketEvent, says: int) -> None:
        if says != NOTICE:
            c.unanswered = 0
        answer = PacketEvent(
            event.time,
            ACK,
            c.number,
            number=c.expected,
            sent=event.sent,
            more=event.number,
            tail=event.time,
            size=self.ack_bytes,
            says=says,
        )
        self.loop.arrive(answer)
