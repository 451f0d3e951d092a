"""The events of a pool of slots: packets that leave, arrive or are lost, and workers that wake. Times are whole picoseconds.

Readable and slow, some 3 us an event. Links pass packets in order and queue what comes too fast; switches add in no time.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ringwright.engines.pools.senders import TimedWorkers
from ringwright.engines.pools.switches import COMPLETE, HELD, PoolSlots
from ringwright.engines.pools.transport import ConnectedWorkers
from ringwright.ground.errors import InfeasibleError

if TYPE_CHECKING:
    from ringwright.engines.pools.pool_machine import PoolLink, SlotPool

MOST_TIMES, LEAST_HOPS = 50, 10_000  # as many packets again, after which nothing will end
_UP, _DOWN, _WAKE, _ASKED = range(4)


@dataclass(frozen=True)
class PoolRun:
    """What packets through a pool of slots took and met.

    ``time_ps``: when the last worker has its last result. ``hops``: packets that left a port; ``lost`` on links; ``timeouts``
    of workers; ``again``: packets that they sent another time; ``queued``: how many packets of switches met so many before them.
    """

    time_ps: int
    hops: int
    lost: int
    timeouts: int
    again: int
    queued: Mapping[int, int]


def simulate_pool(pool: SlotPool, seed: int = 0) -> PoolRun:
    """Return the run of all packets of a pool; ``seed`` draws what is lost. InfeasibleError where it does not end."""
    return _PoolLoop(pool, seed).run()


class _PoolLoop:
    def __init__(self, pool: SlotPool, seed: int) -> None:
        self.pool, self.slots, self.draw = pool, PoolSlots(pool), Random(seed)  # noqa: S311 - a lottery, not a secret
        self.root = len(pool.parents) - 1
        self.events: list[tuple[int, int, int, int, int]] = []  # time, turn, kind, node, chunk
        self.turn = self.hops = self.lost = 0
        self.queued: Counter[int] = Counter()
        self.free_ps = [[0] * self.root, [0] * self.root]  # when the link above a node is free, up and down
        self.woken_ps = [-1] * pool.workers  # the next waking of each: an earlier one takes its turn
        self.in_ring = pool.mending.goes_back
        self.workers: TimedWorkers | ConnectedWorkers = (
            ConnectedWorkers(pool, self._up, self._wake, self._ask)
            if self.in_ring
            else TimedWorkers(pool, self._up, self._wake)
        )

    def run(self) -> PoolRun:
        """Follow all events until every worker has all of its results."""
        for worker, start in enumerate(self.pool.starts_ps or [0] * self.pool.workers):
            self._put(start, _WAKE, worker, -1)
        now, waiting = 0, sum(self.workers.left)
        most = MOST_TIMES * self.pool.hops + LEAST_HOPS
        while waiting:
            if self.hops > most:
                raise InfeasibleError(
                    f"after {self.hops:,} packets {waiting:,} of {self.pool.packets * self.pool.workers:,} results are missing",
                    where=f"a pool of {self.pool.slots} slots",
                    remedy="links that lose less, a longer timeout_s, or fewer slots",
                )
            now, _, kind, node, chunk = heapq.heappop(self.events)
            if kind == _UP:
                self._given(node, self.pool.parents[node], chunk, now)
            elif kind == _WAKE:
                self._woken(node, chunk, now)
            elif kind == _ASKED:
                self._asked(node, chunk, now)
            elif node < self.pool.workers:
                before = self.workers.left[node]
                self.workers.result(node, chunk, now)
                waiting += self.workers.left[node] - before
            elif self.slots.result(node, chunk):
                self._to_all(node, chunk, now)
        return PoolRun(now, self.hops, self.lost, self.workers.expired, self.workers.again, self.queued)

    # ------------------------------------------------------------------------------------------------------- at nodes
    def _given(self, node: int, switch: int, chunk: int, now: int) -> None:
        state = self.slots.given(node, switch, chunk)
        if state == HELD:
            to = (node + 1) % self.pool.workers if self.in_ring and node < self.pool.workers else node
            self._cross(1, to, self.pool.down[to], chunk, now)
        elif state == COMPLETE and switch != self.root:
            self._up(switch, chunk, now)
        elif state == COMPLETE and self.slots.result(switch, chunk):
            self._to_all(switch, chunk, now)

    def _to_all(self, switch: int, chunk: int, now: int) -> None:
        for node in self.slots.children[switch - self.pool.workers]:
            self._cross(1, node, self.pool.down[node], chunk, now)

    def _woken(self, worker: int, first: int, now: int) -> None:
        if first < 0:
            self.workers.begin(worker, now)
        elif self.woken_ps[worker] == now:
            self.woken_ps[worker] = -1
            self.workers.woken(worker, now)

    def _asked(self, worker: int, chunk: int, now: int) -> None:
        if isinstance(self.workers, ConnectedWorkers):
            self.workers.asked(worker, chunk, now)

    # ------------------------------------------------------------------------------------------------------- on links
    def _up(self, node: int, chunk: int, now: int) -> int:
        """Send upwards; return when the link is free again."""
        self._cross(0, node, self.pool.up[node], chunk, now)
        return self.free_ps[0][node]

    def _ask(self, receiver: int, sender: int, chunk: int, now: int) -> None:
        """Carry a request to go back, which is short: it takes the latencies of both links, and may be lost like a packet."""
        up, down = self.pool.up[receiver], self.pool.down[sender]
        if self.draw.random() < 1 - (1 - up.lost(now)) * (1 - down.lost(now)):
            self.lost += 1
        else:
            self._put(now + up.latency_ps + down.latency_ps, _ASKED, sender, chunk)

    def _cross(self, downward: int, node: int, leg: PoolLink, chunk: int, now: int) -> None:
        free = self.free_ps[downward]
        if downward or node >= self.pool.workers:
            self.queued[max(0, free[node] - now) // max(leg.packet_ps, 1)] += 1
        sent = max(now, free[node]) + leg.packet_ps
        free[node] = sent
        self.hops += 1
        if leg.loss and self.draw.random() < leg.lost(sent):
            self.lost += 1
            return
        self._put(sent + leg.latency_ps, _DOWN if downward else _UP, node, chunk)

    def _wake(self, worker: int, at_ps: int) -> None:
        if self.woken_ps[worker] < 0 or at_ps < self.woken_ps[worker]:
            self.woken_ps[worker] = at_ps
            self._put(at_ps, _WAKE, worker, 0)

    def _put(self, at_ps: int, kind: int, node: int, chunk: int) -> None:
        self.turn += 1
        heapq.heappush(self.events, (at_ps, self.turn, kind, node, chunk))
