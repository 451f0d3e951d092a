"""Gated ports: queues whose packets may be told to wait, by pauses (PFC) or for want of credits."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ringwright.costs.protocols import CREDIT, PAUSE
from ringwright.engines.packets.event import ACK, DATA, PAUSING, PORT, PacketEvent
from ringwright.engines.packets.network import GATES

if TYPE_CHECKING:
    from ringwright.engines.packets.loop import PacketLoop


class Gates:
    """Acts for the gated ports of a loop."""

    def __init__(self, loop: PacketLoop) -> None:
        self.loop, self.ports = loop, loop.ports

    def _queue_of(self, port: int, hop: int) -> int:
        count: int = self.ports.virtual_queues[port]
        return min(hop, count - 1)

    def enqueue(self, path: tuple[int, ...], event: PacketEvent) -> None:
        """A packet waits at a gated port; the link that brought it may be told to wait too."""
        p, port, now = self.ports, path[event.hop], event.time
        p.count[port] += 1
        p.note(port, now, p.queued[port], self.loop.bin_ps)
        marked = event.kind == DATA and p.is_marked(port, now, p.queued[port])
        if event.hop and GATES[p.gate[path[event.hop - 1]]] == PAUSE and not self._hold(path, event):
            return
        p.queued[port] += event.size
        if event.kind == ACK and not event.hop:
            p.answers[port].append(event)
        else:
            p.queues[port][self._queue_of(port, event.hop)].append(event._replace(marked=event.marked | marked))
        self.send_on(port, now)

    def _hold(self, path: tuple[int, ...], event: PacketEvent) -> bool:
        """Count a packet against the link it came by; return False where there is no room left for what that link brings."""
        p, port, before, now = self.ports, path[event.hop], path[event.hop - 1], event.time
        number = self._queue_of(before, event.hop - 1)
        if p.held[before][number] + event.size > p.buffer(port, now):
            p.drops[port] += 1
            return False
        p.held[before][number] += event.size
        if not p.told[before][number] and p.held[before][number] > p.pause_at(port, now):
            p.told[before][number] = True
            p.pauses[before] += 1
            self.loop.push(PacketEvent(now + p.latency(before, now), PAUSING, before, hop=number, more=1))
        return True

    def left(self, path: tuple[int, ...], hop: int, size: int, now: int) -> None:
        """A packet leaves the node that the link before ``hop`` leads to: that link may bring more."""
        if not hop:
            return
        p, before = self.ports, path[hop - 1]
        gate = GATES[p.gate[before]]
        if gate not in (PAUSE, CREDIT):
            return
        queued_here = hop < len(path) and GATES[p.gate[path[hop]]] in (PAUSE, CREDIT)
        if gate == PAUSE and not queued_here:
            return
        number = self._queue_of(before, hop - 1)
        p.held[before][number] -= size
        if gate == CREDIT:
            if p.blocked[before]:
                p.blocked[before] = False
                self.loop.push(PacketEvent(now, PORT, before))
        elif p.told[before][number] and p.held[before][number] <= p.resume_at(path[hop], now):
            p.told[before][number] = False
            self.loop.push(PacketEvent(now + p.latency(before, now), PAUSING, before, hop=number, more=0))

    def pausing(self, event: PacketEvent) -> None:
        """A link is told to wait, or to go on."""
        self.ports.paused[event.owner][event.hop] = bool(event.more)
        if not event.more:
            self.send_on(event.owner, event.time)

    def send_on(self, port: int, now: int) -> None:
        """Let a gated port send the next packet that may go, queue after queue."""
        p = self.ports
        while not p.busy[port]:
            queue = p.answers[port]
            if not self._may_go(port, queue, now):
                number = self._next_queue(port, now)
                if number < 0:
                    return
                p.last[port] = number
                queue = p.queues[port][number]
            event = queue.popleft()
            p.queued[port] -= event.size
            path = self.loop.path(event)
            self.left(path, event.hop, event.size, now)
            begin = max(now, p.free[port])
            sent = event._replace(time=begin)
            arrives = self.loop.on_wire(path, sent, begin)
            if arrives and GATES[p.gate[port]] == CREDIT:
                p.held[port][self._queue_of(port, event.hop)] += event.size
            own = event.kind == DATA and not event.hop
            if own:
                p.leaving[port] = event.owner
            if own or p.free[port] > now:
                p.busy[port] = True
                self.loop.push(PacketEvent(max(now, p.free[port]), PORT, port))

    def is_free(self, port: int, now: int) -> None:
        """A port may be free again: the source of what has left may give it another, and what waits goes on."""
        p = self.ports
        p.busy[port] = p.busy[port] and now < p.free[port]
        if not p.busy[port] and p.leaving[port] >= 0:
            owner, p.leaving[port] = self.loop.connections[p.leaving[port]], -1
            self.loop.sender.left_host(owner, now)
        self.send_on(port, now)

    def _next_queue(self, port: int, now: int) -> int:
        """Return the next queue whose first packet may go, -1 for none."""
        p = self.ports
        count: int = p.virtual_queues[port]
        for step in range(count):
            number: int = (p.last[port] + 1 + step) % count
            if self._may_go(port, p.queues[port][number], now):
                return number
        return -1

    def _may_go(self, port: int, queue: deque[PacketEvent], now: int) -> bool:
        """Return whether the first packet of a queue is there, may go on, and has room at the far end."""
        if not queue:
            return False
        p, event = self.ports, queue[0]
        number = self._queue_of(port, event.hop)
        if p.paused[port][number]:
            return False
        path = self.loop.path(event)
        if event.hop + 1 < len(path) and GATES[p.gate[port]] == CREDIT:
            room = p.buffer(path[event.hop + 1], now)
            if p.held[port][number] and p.held[port][number] + event.size > room:
                p.blocked[port] = True
                return False
        return True
