"""The pieces of one rank on the wire: handed to the process group in the order that was agreed, finished in the same order.

With an emulated link a piece ends when its time on the link is over: the rank sleeps first and takes part in the real
collective at the end, which keeps the ranks together as a real wire would. The link is serial and its clock goes on from the
end of the piece before, so waking up late costs nothing twice.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from statistics import median
from threading import Thread
from typing import TYPE_CHECKING, Any

from ringwright_lab.live.half_sums import HalfSums
from ringwright_lab.live.halved import GATHER, SCATTER

if TYPE_CHECKING:
    from ringwright.model.stages import Costs
    from ringwright_lab.live.plan import LivePlan
    from ringwright_lab.live.through_switch import SwitchSums

KEPT = 50_000
LATE_S = 5e-4  # what waking up takes is not the link's
Order = tuple[int, int, int]  # step, operation, piece


@dataclass(frozen=True)
class SentPiece:
    """A piece as it went, times on this rank's steady clock: released, begun (on the emulated link, if any), ended."""

    step: int
    operation: str
    piece: int
    size_bytes: int
    released_s: float
    start_s: float
    end_s: float
    op: str = "all-reduce"


class EmulatedLink:
    """An emulated serial link: when a piece that was released just now may end."""

    def __init__(self, costs: Costs, ranks: tuple[int, ...]) -> None:
        self._costs, self._ranks = costs, ranks
        self.free_s = 0.0
        self._recent: deque[float] = deque(maxlen=8)  # seconds in the last collectives

    def begins(self, released_s: float, *, queued: bool) -> float:
        """Return when a piece begins: at once where it waited for the link, else when it was released."""
        return self.free_s if queued else max(self.free_s, released_s)

    def takes(self, op: str, size_bytes: int) -> float:
        """Return how long a piece is on the link."""
        stages = self._costs.stages(op, size_bytes, self._ranks, "dp")
        return sum(stage.latency_s + stage.wire_s for stage in stages)

    def carry(self, begin_s: float, op: str, size_bytes: int, collective: Callable[[], object]) -> float:
        """Have a piece carried from ``begin_s`` on, with its real collective as late as it may be; return the end."""
        takes_s = self.takes(op, size_bytes)
        until_s = begin_s + takes_s
        _sleep_until(until_s - min(2 * median(self._recent or [0.0]), 0.7 * takes_s))
        entered_s = time.perf_counter()
        collective()
        self._recent.append(time.perf_counter() - entered_s)
        _sleep_until(until_s)
        now_s = time.perf_counter()
        self.free_s = now_s if now_s - until_s > LATE_S else until_s
        return self.free_s


def _sleep_until(when_s: float) -> None:
    left_s = when_s - time.perf_counter()
    if left_s > 0:
        time.sleep(left_s)


class PieceTraffic:
    """Two threads: one hands pieces to the process group, the other waits for them, in the order of the first.

    With ``sums`` the second one has each piece summed by a switch, and the group sees none of them.
    """

    def __init__(
        self,
        torch: Any,
        group: Any,
        world: int,
        link: EmulatedLink | None,
        sums: SwitchSums | None = None,
        *,
        average: bool,
        issued: Callable[[int, int, int], None],
        done: Callable[[int, int, int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._torch, self._group, self._world, self._link, self._average = torch, group, world, link, average
        self._issued, self._done, self._failed = issued, done, failed
        self._sums = sums
        self._plan: LivePlan
        self._buffers: list[Any] = []
        self.halves = HalfSums(torch.distributed, group)
        self._asked: SimpleQueue[tuple[Order, float, bool] | None] = SimpleQueue()
        self._flying: SimpleQueue[tuple[Order, float, bool, Any, Any] | None] = SimpleQueue()
        self.sent: deque[SentPiece] = deque(maxlen=KEPT)
        self._threads = [Thread(target=target, daemon=True) for target in (self._issue, self._finish)]
        for thread in self._threads:
            thread.start()

    def adopt(self, plan: LivePlan, buffers: list[Any]) -> None:
        """Send the pieces of a plan from these buffers; nothing may be under way."""
        self._plan, self._buffers = plan, buffers
        if self._sums is not None:
            self._sums.adopt(plan, buffers)

    def go(self, order: Order, *, queued: bool) -> None:
        """Start a piece, after those before it."""
        self._asked.put((order, time.perf_counter(), queued))

    def close(self) -> None:
        """End the threads, once what was started has ended."""
        self._asked.put(None)
        for thread in self._threads:
            thread.join(2.0)
        if self._sums is not None:
            self._sums.close()

    def _issue(self) -> None:
        while (asked := self._asked.get()) is not None:
            order, released_s, queued = asked
            try:
                begin, end = self._plan.span(order[1], order[2])
                part = self._buffers[order[1]][begin:end]
                self._issued(*order)
                work = self._start(order[1], part) if self._link is None and self._sums is None else None
            except Exception as error:  # noqa: BLE001 - whatever it is, the training thread has to hear of it
                self._failed(error)
                return
            self._flying.put((order, released_s, queued, work, part))
        self._flying.put(None)

    def _start(self, operation: int, part: Any) -> Any:
        op = self._plan.operations[operation].op
        if op == SCATTER:
            return self.halves.scatter(part, operation)
        if op == GATHER:
            return self.halves.gather(part, operation)
        return self._torch.distributed.all_reduce(part, group=self._group, async_op=True)

    def _through(self, operation: int, part: Any) -> None:
        self._start(operation, part).wait()

    def _summed(self, op: str, part: Any) -> Any:
        """Return what holds a sum since an operation is done: all of it, this rank's block, nothing more."""
        if op == GATHER:
            return part[:0]
        return self.halves.own(part) if op == SCATTER else part

    def _finish(self) -> None:
        while (flying := self._flying.get()) is not None:
            order, released_s, queued, work, part = flying
            step, operation, piece = order
            size_bytes, sent = self._plan.piece_bytes(operation, piece), self._plan.operations[operation]
            try:
                if self._sums is not None:
                    start_s = time.perf_counter()
                    self._sums.add(order, part)
                    end_s = time.perf_counter()
                elif self._link is None:
                    work.wait()
                    start_s, end_s = released_s, time.perf_counter()
                else:
                    start_s = self._link.begins(released_s, queued=queued)
                    end_s = self._link.carry(start_s, sent.op, size_bytes, partial(self._through, operation, part))
                if self._average:
                    self._summed(sent.op, part).div_(self._world)
            except Exception as error:  # noqa: BLE001 - the same
                self._failed(error)
                return
            self.sent.append(SentPiece(step, sent.name, piece, size_bytes, released_s, start_s, end_s, sent.op))
            self._done(*order)
