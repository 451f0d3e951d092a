"""Workers whose transport mends losses: connections in a ring, each of which goes back to the first packet that is missing.

Worker i sends to worker i + 1 and the switch puts the sum into each packet (NetReduce). A receiver takes packets in their order
alone; at the first gap it asks its sender once for all from there on (RoCE, go-back-N), and a sender that makes no progress for
a time-out goes back by itself. A worker posts no packet further ahead of its own last result than there are slots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.engines.pools.pool_machine import SlotPool
    from ringwright.engines.pools.senders import Send, Wake


class ConnectedWorkers:
    """Workers as ends of a ring's connections. ``ask(receiver, sender, chunk, now_ps)`` carries a request to go back."""

    def __init__(self, pool: SlotPool, send: Send, wake: Wake, ask: Callable[[int, int, int, int], None]) -> None:
        self.pool, self.send, self.wake, self.ask = pool, send, wake, ask
        count = pool.workers
        self.following = [0] * count  # the packet that each sends next
        self.most = [0] * count  # sent so far, copies not counted
        self.expected = [0] * count  # the result that each takes next
        self.has_asked = [False] * count
        self.free_ps = [0] * count
        self.moved_ps = [0] * count  # when the receiver of each last took a packet
        self.left = [pool.packets] * count
        self.expired = self.again = 0

    def begin(self, worker: int, now_ps: int) -> None:
        """Send the first packet; others follow as the link is free."""
        self.moved_ps[worker] = now_ps
        self.woken(worker, now_ps)

    def result(self, worker: int, chunk: int, now_ps: int) -> None:
        """Take a packet with a sum, of the worker before this one in the ring."""
        sender = (worker - 1) % self.pool.workers
        if chunk == self.expected[worker]:
            self.expected[worker] += 1
            self.left[worker] -= 1
            self.has_asked[worker] = False
            self.moved_ps[sender] = now_ps
            self.woken(worker, now_ps)
        elif chunk > self.expected[worker] and not self.has_asked[worker]:
            self.has_asked[worker] = True
            self.ask(worker, sender, self.expected[worker], now_ps)

    def asked(self, worker: int, chunk: int, now_ps: int) -> None:
        """Go back to a packet that the receiver misses."""
        self.following[worker] = min(self.following[worker], chunk)
        self.moved_ps[worker] = now_ps
        self.woken(worker, now_ps)

    def woken(self, worker: int, now_ps: int) -> None:
        """Send a packet if the link is free and there is a slot; go back where nothing has moved for too long."""
        acknowledged = self.expected[(worker + 1) % self.pool.workers]
        due_ps = self.moved_ps[worker] + self.pool.mending.timeout_ps
        if due_ps <= now_ps and acknowledged < self.most[worker]:
            self.expired += 1
            self.following[worker] = acknowledged
            self.moved_ps[worker], due_ps = now_ps, now_ps + self.pool.mending.timeout_ps
        chunk = self.following[worker]
        if chunk < min(self.pool.packets, self.expected[worker] + self.pool.slots):
            if self.free_ps[worker] <= now_ps:
                self.again += chunk < self.most[worker]
                self.free_ps[worker] = self.send(worker, chunk, now_ps)
                self.following[worker] = chunk + 1
                self.most[worker] = max(self.most[worker], chunk + 1)
            due_ps = self.free_ps[worker]
        if due_ps > now_ps:
            self.wake(worker, due_ps)
