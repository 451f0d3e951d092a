"""Ranks that share memory: who receives reads straight from where the sender's data lie, and adds without a copy.

Every node's arena is a file in memory that all map. For each pair of nodes two counters say how many messages are ready and
how many were taken; each is written by one side only and lies on a cache line of its own.
"""

from __future__ import annotations

import mmap
import os
import platform
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ringwright.execute.arena import Action, Arena, local_moves, together
from ringwright.execute.plan import Do

if TYPE_CHECKING:
    from ringwright.execute.plan import Message, NodePlan
    from ringwright.model.collective import Collective

LINE = 8  # int64 in a cache line
SPINS = 300  # tries that only offer the core to others; after that a waiting rank sleeps
_STRONG = platform.machine() in ("x86_64", "AMD64", "i686")  # stores become visible in order
_fence = threading.Lock()


def wait_until(cells: memoryview, index: int, wanted: int) -> None:
    """Return when the counter has reached ``wanted``: offer the core at first, then sleep, longer and longer."""
    if cells[index] >= wanted:
        return
    offer = os.sched_yield
    for _ in range(SPINS):
        offer()
        if cells[index] >= wanted:
            return
    pause_s = 20e-6
    while cells[index] < wanted:
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 1e-3)


def fence() -> None:
    """Order memory on machines that would not do so by themselves; taking a lock is what Python offers."""
    if not _STRONG:
        with _fence:
            pass


def make_file(path: Path, size_bytes: int) -> None:
    """Make a file of zeros, for several processes to map."""
    with path.open("wb") as file:
        file.truncate(max(size_bytes, 1))


def make_counters(path: Path, count: int) -> None:
    """Make the file of a table of counters."""
    make_file(path, count * LINE * 8)


def make_memory(folder: Path, plan: NodePlan) -> None:
    """Make what the nodes of a plan will map: an arena each, and their counters."""
    folder.mkdir()
    for node, size in enumerate(plan.arenas):
        make_file(folder / f"arena-{node}", size)
    make_counters(folder / "counters", 2 * plan.nodes * plan.nodes)


class SharedFile:
    """A file in memory that several processes map; somebody has made it."""

    def __init__(self, path: Path) -> None:
        handle = os.open(path, os.O_RDWR)
        try:
            self.map = mmap.mmap(handle, 0)
        finally:
            os.close(handle)

    def bytes(self) -> np.ndarray:
        """Return all of it as uint8. Of shape (bytes,)."""
        return np.frombuffer(self.map, np.uint8)


class Counters:
    """A table of counters in shared memory, one cache line each."""

    def __init__(self, path: Path) -> None:
        self._file = SharedFile(path)
        self.cells = memoryview(self._file.map).cast("q")

    @staticmethod
    def at(number: int) -> int:
        """Return the index of a counter in ``cells``."""
        return number * LINE


class SharedBarrier:
    """A barrier over shared counters, one a process: ``pass_()`` returns when all have come."""

    def __init__(self, path: Path, me: int, n: int) -> None:
        self._counters = Counters(path)
        self._me, self._n, self._turn = me, n, 0

    def pass_(self) -> None:
        """Wait for all."""
        self._turn += 1
        cells = self._counters.cells
        cells[Counters.at(self._me)] = self._turn
        for each in range(self._n):
            wait_until(cells, Counters.at(each), self._turn)
        fence()


class Pulled:
    """A plan made ready to run over shared memory; ``code`` is what to call, in order."""

    def __init__(self, plan: NodePlan, collective: Collective, folder: Path) -> None:
        self.plan, n = plan, plan.nodes
        self.arenas = [SharedFile(folder / f"arena-{node}") for node in range(n)]
        self.arena = Arena(self.arenas[plan.node].bytes(), collective)
        self.counters = Counters(folder / "counters")
        self.round = 0
        self._ready = [Counters.at(number) for number in range(n * n)]
        self._taken = [Counters.at(n * n + number) for number in range(n * n)]
        self._per_pair: dict[tuple[int, int], int] = {}
        for message in plan.sends:
            self._count(plan.node, message.peer, message.turn)
        for message in plan.receives:
            self._count(message.peer, plan.node, message.turn)
        self._kept = {which for what, which in plan.order if what == Do.KEEP}
        self._scratch: dict[int, np.ndarray] = {}
        self._local = [
            local_moves(self.arena, each.runs, kept=which in self._kept) for which, each in enumerate(plan.local)
        ]
        self.code = [self._action(Do(what), which) for what, which in plan.order]

    def _count(self, src: int, dst: int, turn: int) -> None:
        self._per_pair[src, dst] = max(self._per_pair.get((src, dst), 0), turn + 1)

    def begin(self) -> None:
        """Start another round; counters go on from the last one."""

    def finish(self) -> None:
        """End a round."""
        self.round += 1

    def _action(self, what: Do, which: int) -> Action:
        if what is Do.KEEP:
            return self._local[which][0]
        if what is Do.LOCAL:
            return self._local[which][1]
        if what is Do.RECV:
            return _posted
        if what is Do.SEND:
            return self._send(self.plan.sends[which])
        if what is Do.SENT:
            return self._sent(self.plan.sends[which])
        message = self.plan.receives[which]
        theirs = self.arenas[message.peer].bytes()
        if what is Do.TAKE:
            return self._taking(message, together(self.arena.put_runs(message.runs, theirs, there=True) or [_posted]))
        if what is Do.GRAB:
            scratch = self._scratch[which] = np.empty(message.size, np.uint8)
            return self._taking(
                message, together(self.arena.gather(message.runs, scratch, theirs, there=True) or [_posted])
            )
        return together(self.arena.put_runs(message.runs, self._scratch[which], there=False) or [_posted])

    def _send(self, message: Message) -> Action:
        me, cells = self.plan.node, self.counters.cells
        index, turn, per_pair = (
            self._ready[me * self.plan.nodes + message.peer],
            message.turn,
            self._per_pair[me, message.peer],
        )

        def send() -> None:
            fence()
            cells[index] = self.round * per_pair + turn + 1

        return send

    def _sent(self, message: Message) -> Action:
        me, cells = self.plan.node, self.counters.cells
        index, turn, per_pair = (
            self._taken[me * self.plan.nodes + message.peer],
            message.turn,
            self._per_pair[me, message.peer],
        )

        def sent() -> None:
            wait_until(cells, index, self.round * per_pair + turn + 1)

        return sent

    def _taking(self, message: Message, put: Action) -> Action:
        me, cells, n = self.plan.node, self.counters.cells, self.plan.nodes
        ready, taken = self._ready[message.peer * n + me], self._taken[message.peer * n + me]
        turn, per_pair = message.turn, self._per_pair[message.peer, me]

        def take() -> None:
            wanted = self.round * per_pair + turn + 1
            if cells[ready] < wanted:
                wait_until(cells, ready, wanted)
            fence()
            put()
            fence()
            cells[taken] = wanted

        return take

    def close(self) -> None:
        """Nothing to give back: the files go with their folder."""


def _posted() -> None:
    """Receives need no posting here: what is ready waits in the sender's own memory."""
