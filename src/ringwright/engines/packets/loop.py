"""The packet loop: events in time, each a packet at a port, an answer, a message that begins, or a timer.

Events at one time are served by kind, then by whom they are for, so that the order does not depend on who asked first. This file,
``ports``, ``sender``, ``receiver`` and ``control`` define what ``native`` compiles, to the picosecond.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from ringwright.costs.protocols import CREDIT, PAUSE
from ringwright.engines.packets.connection import Connection, connections
from ringwright.engines.packets.event import ACK, BEHIND, DATA, PORT, START, TIMER, PacketEvent
from ringwright.engines.packets.gates import Gates
from ringwright.engines.packets.network import GATES
from ringwright.engines.packets.ports import NEVER, PortStates
from ringwright.engines.packets.receiver import Receiver
from ringwright.engines.packets.sender import Sender

if TYPE_CHECKING:
    from ringwright.engines.packets.network import PacketNetwork


@dataclass
class PacketRun:
    """What a loop answers: ``start`` and ``end`` ps of messages and joins, counts by port, ``bars`` of queues that packets met.

    ``samples`` (bin, port, bytes): the longest queue of a port in a stretch of ``bin_ps``. ``gave_up``: connection and ps at
    which one was given up, or (-1, NEVER); ``most_pending`` events at once.
    """

    start: list[int]
    end: list[int]
    bin_ps: int
    hops: int = 0
    most_pending: int = 0
    retransmitted_bytes: int = 0
    timeouts: int = 0
    drops: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)
    marked: list[int] = field(default_factory=list)
    most: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    bars: list[int] = field(default_factory=list)
    samples: list[tuple[int, int, int]] = field(default_factory=list)
    gave_up: tuple[int, int] = (-1, NEVER)


class PacketLoop:
    """Runs one network; ``acknowledged``: a message counts as arrived at its sender's last acknowledgement."""

    def __init__(self, net: PacketNetwork, *, acknowledged: bool, trains: bool, bin_ps: int) -> None:
        self.net, self.acknowledged, self.trains, self.bin_ps = net, acknowledged, trains, bin_ps
        self.ports = PortStates(net)
        self.connections: list[Connection] = connections(net)
        n = len(net.waits)
        self.connection: list[int] = net.connection.tolist() + [-1] * (n - len(net.connection))
        self.sizes: list[int] = net.size_bytes.tolist()
        self.delay: list[int] = net.delay.tolist() + [0] * (n - len(net.delay))
        self.next_starts, self.nexts = net.next_starts.tolist(), net.nexts.tolist()
        self.waits: list[int] = net.waits.tolist()
        self.front = _cut(net.front_starts.tolist(), net.front.tolist(), n)
        self.behind = _cut(net.behind_starts.tolist(), net.behind.tolist(), n)
        self.left = [0] * n  # packets of each message that have not arrived
        self.owed = [0] * n  # what a message still needs to be finished: delivery, and the last answer
        self.done_at = [0] * n
        self.ready = [0] * n
        self.start, self.end = [NEVER] * n, [NEVER] * n
        self.queue: list[PacketEvent] = []
        self.done = [message for message, count in enumerate(self.waits) if not count]
        self.most_pending = self.hops = self.timeouts = self.retransmitted = 0
        self.gave_up = (-1, NEVER)
        self.sender, self.receiver, self.gates = Sender(self), Receiver(self), Gates(self)

    def run(self) -> PacketRun:
        """Serve all events; stop where a connection is given up."""
        while (self.done or self.queue) and self.gave_up[0] < 0:
            while self.done:
                self._release(self.done.pop())
            self.most_pending = max(self.most_pending, len(self.queue))
            if self.queue:
                self._serve(heapq.heappop(self.queue))
        for port in range(len(self.ports.gate)):
            self.ports.close_bin(port)
        p = self.ports
        return PacketRun(
            self.start,
            self.end,
            self.bin_ps,
            self.hops,
            self.most_pending,
            self.retransmitted,
            self.timeouts,
            p.drops,
            p.lost,
            p.pauses,
            p.marked,
            p.most,
            p.bytes,
            p.bars,
            sorted(p.samples),
            self.gave_up,
        )

    def push(self, event: PacketEvent) -> None:
        """Put an event into the queue."""
        heapq.heappush(self.queue, event)

    def _serve(self, event: PacketEvent) -> None:
        kind = event.kind
        if kind == DATA:
            self._data(event)
        elif kind == ACK:
            self._answer(event)
        elif kind == PORT:
            self.gates.is_free(event.owner, event.time)
        elif kind == TIMER:
            self.sender.timers.ran_out(self.connections[event.owner], event.time)
        elif kind == START:
            self._in_front(event)
        elif kind == BEHIND:
            self._behind(event)
        else:
            self.gates.pausing(event)

    # Messages.

    def _release(self, message: int) -> None:
        """Begin a message that waits for nothing any more."""
        time = self.ready[message] + self.delay[message]
        self.start[message] = time
        if self.connection[message] < 0 and not self.front[message] and not self.behind[message]:
            self.finish(message, time)
        else:
            self.push(PacketEvent(time, START, message, tail=time))

    def finish(self, message: int, time: int) -> None:
        """End a message; what waits for it alone may begin."""
        self.end[message] = time
        for follower in self.nexts[self.next_starts[message] : self.next_starts[message + 1]]:
            self.ready[follower] = max(self.ready[follower], time)
            self.waits[follower] -= 1
            if not self.waits[follower]:
                self.done.append(follower)

    def _in_front(self, event: PacketEvent) -> None:
        """Let a message through what serves it as a whole, then hand it to its connection."""
        message, stage = event.owner, event.hop
        if stage < len(self.front[message]):
            through = self._through(self.front[message][stage], event.time, event.tail, self.sizes[message])
            if through is not None:
                begin, head, tail = through
                if not stage:
                    self.start[message] = begin
                self.push(PacketEvent(head, START, message, hop=stage + 1, tail=tail))
            return
        if self.connection[message] < 0:
            self.delivered(message, event.tail)
            return
        owner = self.connections[self.connection[message]]
        self.left[message] = owner.add(message, self.sizes[message])
        self.owed[message] = 2 if self.acknowledged and owner.reliable else 1
        self.sender.go_on(owner, event.time)

    def _through(self, resource: int, time: int, tail: int, size: int) -> tuple[int, int, int] | None:
        """Serve a whole message at a resource; return when it begins, and when its first and last byte leave."""
        p = self.ports
        begin = max(tail if p.whole[resource] else time, p.free[resource])
        stop, latency = p.stop(resource, begin, size), p.latency(resource, begin)
        if stop >= NEVER:
            return None
        p.free[resource] = stop + latency if p.holds[resource] else stop
        p.bytes[resource] += size
        return begin, begin + latency, max(stop, tail) + latency

    def delivered(self, message: int, time: int) -> None:
        """The last byte of a message is at its target."""
        if self.behind[message]:
            self.push(PacketEvent(time, BEHIND, message, tail=time))
        else:
            self._owed_less(message, time)

    def _behind(self, event: PacketEvent) -> None:
        message, stage = event.owner, event.hop
        through = self._through(self.behind[message][stage], event.time, event.tail, self.sizes[message])
        if through is None:
            return
        _, _, tail = through
        if stage + 1 < len(self.behind[message]):
            self.push(PacketEvent(tail, BEHIND, message, hop=stage + 1, tail=tail))
        else:
            self._owed_less(message, tail)

    def answered(self, message: int, time: int) -> None:
        """The sender knows that all of a message arrived."""
        if self.acknowledged:
            self._owed_less(message, time)

    def _owed_less(self, message: int, time: int) -> None:
        self.owed[message] -= 1
        self.done_at[message] = max(self.done_at[message], time)
        if self.owed[message] <= 0:
            self.finish(message, self.done_at[message])

    # Packets.

    def path(self, event: PacketEvent) -> tuple[int, ...]:
        """Return the ports on the way of a packet or an answer."""
        owner = self.connections[event.owner]
        return owner.back if event.kind == ACK else owner.paths[event.path]

    def _data(self, event: PacketEvent) -> None:
        """A packet, and those that follow it back to back, as long as nothing else comes between."""
        while True:
            self.arrive(event._replace(more=0))
            if event.more <= 0:
                return
            apart = self.connections[event.owner].apart_ps
            event = event._replace(
                time=event.time + apart,
                number=event.number + 1,
                sent=event.sent + (0 if self.sender.is_tcp else apart),
                more=event.more - 1,
                tail=event.tail + apart,
            )
            if self.done or (self.queue and self.queue[0] < event):
                self.push(event)
                return

    def _answer(self, event: PacketEvent) -> None:
        if event.hop < len(self.path(event)):
            self.arrive(event)
        else:
            self.sender.answer(self.connections[event.owner], event)

    def arrive(self, event: PacketEvent) -> None:
        """A packet is at its next port, or at its target."""
        path = self.path(event)
        if event.hop == len(path):
            self.gates.left(path, event.hop, event.size, event.time)
            self.receiver.data(self.connections[event.owner], event)
        elif GATES[self.ports.gate[path[event.hop]]] in (PAUSE, CREDIT):
            self.gates.enqueue(path, event)
        else:
            self.gates.left(path, event.hop, event.size, event.time)
            self.pass_open(path, event)

    def pass_open(self, path: tuple[int, ...], event: PacketEvent) -> int:
        """Pass an open port; return when the packet begins to leave, -1 where there is no room for it.

        On a NIC answers overtake what waits in their own host, but for the packet that is leaving; what waits is later by their
        bytes. Under TCP they wait behind it, in the kernel's one queue.
        """
        p, port, now = self.ports, path[event.hop], event.time
        p.count[port] += 1
        backlog = p.backlog(port, now)
        p.note(port, now, backlog, self.bin_ps)
        if p.is_dropped(port, now, backlog, event.size):
            return -1
        marked = event.kind == DATA and p.is_marked(port, now, backlog)
        begin = p.begin(port, now)
        if event.kind == ACK and not event.hop and not self.sender.is_tcp:
            begin = min(begin, now + self.connections[event.owner].full_ps)
        self.on_wire(path, event._replace(marked=event.marked | marked), begin)
        return begin

    def on_wire(self, path: tuple[int, ...], event: PacketEvent, begin: int) -> bool:
        """Put a packet on the link behind its port; return whether it arrives."""
        p, port = self.ports, path[event.hop]
        bucket = p.burst and p.between[port]
        since = max(begin, p.free[port]) if bucket else begin
        stop, latency = p.stop(port, since, event.size), p.latency(port, begin)
        if stop >= NEVER:
            p.lost[port] += p.between[port]
            return False
        taken = stop + latency if p.holds[port] else stop
        p.free[port] = max(taken, p.free[port] + (taken - since))
        if bucket:
            stop = begin
        p.bytes[port] += event.size
        self.hops += 1
        if p.is_lost(port, begin, ack=event.kind == ACK):
            return False
        head, tail = begin + latency, max(stop, event.tail) + latency
        last = event.hop + 1 == len(path)
        self.push(event._replace(time=tail if last else head, hop=event.hop + 1, tail=tail))
        return True


def _cut(starts: list[int], values: list[int], n: int) -> list[list[int]]:
    """Return rows of columns that starts cut, and empty ones up to ``n``."""
    rows = [values[begin:end] for begin, end in pairwise(starts)]
    return rows + [[]] * (n - len(rows))


def simulate_packets(net: PacketNetwork, *, acknowledged: bool, trains: bool, bin_ps: int) -> PacketRun:
    """Return the run of a network (see ``PacketLoop``)."""
    return PacketLoop(net, acknowledged=acknowledged, trains=trains, bin_ps=bin_ps).run()
