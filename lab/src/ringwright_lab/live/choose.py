"""Which ready piece goes next: the queue of a policy, as the engine of jobs serves it."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.model.rewrites.random_order import drawn

if TYPE_CHECKING:
    from ringwright_lab.live.plan import LivePlan, Unit


@dataclass(frozen=True, order=True)
class Waiting:
    """A piece in the queue: urgency, then arrival."""

    key: int
    arrival: int
    step: int
    operation: int
    piece: int


class Chooser:
    """One queue: urgencies small first, a window of what is started and not yet done, a head that blocks or does not."""

    def __init__(self, plan: LivePlan, role: str = "dp") -> None:
        self._plan, queue = plan, plan.queue
        self._window, self._unit = queue.windows.get(role, (1, "operations"))
        self._blocking, self._random = queue.blocking, queue.random
        self._ready: list[Waiting] = []
        self._arrivals = 0
        self.inflight = 0.0

    def ready(self, step: int, unit: Unit) -> None:
        """Take in the pieces of a unit that all ranks have."""
        operation = self._plan.operations[unit.operation]
        pieces = self._plan.pieces(unit)
        keys = [operation.key or 0] * len(pieces)
        if self._random is not None:  # as it is simulated: alike on all ranks, anew each step
            keys = drawn(self._random, step, unit.operation, pieces).tolist()
        for piece, key in zip(pieces, keys, strict=True):
            self._arrivals += 1
            insort(self._ready, Waiting(key, self._arrivals, step, unit.operation, piece))

    def done(self, operation: int, piece: int) -> None:
        """Give back what a finished piece held of the window."""
        self.inflight -= self._size(operation, piece)

    def take(self) -> Waiting | None:
        """Return what may start now, and count it as started."""
        for at, each in enumerate(self._ready):
            size = self._size(each.operation, each.piece)
            fits = self.inflight < self._window if self._blocking else self._fits(size)
            if fits:
                self.inflight += size
                return self._ready.pop(at)
            if self._blocking:
                return None
        return None

    def _fits(self, size: float) -> bool:
        return self.inflight == 0 or self.inflight + size <= self._window

    def _size(self, operation: int, piece: int) -> float:
        return 1.0 if self._unit == "operations" else float(self._plan.piece_bytes(operation, piece))


class Fixed:
    """The same questions where the order was fixed beforehand: the next of the list, once it is ready."""

    def __init__(self, plan: LivePlan, role: str = "dp") -> None:
        self._plan = plan
        self._window, self._unit = plan.queue.windows.get(role, (1, "operations"))
        self._ready: set[tuple[int, int, int]] = set()
        self._step, self._at = 0, 0
        self.order = list(plan.order)
        self.inflight = 0.0

    def begin(self, step: int) -> None:
        """Say which step comes first."""
        self._step = step

    def ready(self, step: int, unit: Unit) -> None:
        """Take in the pieces of a unit that this rank has."""
        self._ready |= {(step, unit.operation, piece) for piece in self._plan.pieces(unit)}

    def done(self, operation: int, piece: int) -> None:
        """Give back what a finished piece held of the window."""
        self.inflight -= self._size(operation, piece)

    def head(self) -> tuple[int, int, int]:
        """Return the step, operation and piece that everything else waits for."""
        return (self._step, *self.order[self._at])

    def take(self) -> Waiting | None:
        """Return the next of the list, where it is ready and fits."""
        if not self.order or self.head() not in self._ready or self.inflight >= self._window:
            return None
        step, operation, piece = self.head()
        self._ready.discard((step, operation, piece))
        self.inflight += self._size(operation, piece)
        self._at += 1
        if self._at == len(self.order):
            self._step, self._at = step + 1, 0
        return Waiting(0, 0, step, operation, piece)

    def _size(self, operation: int, piece: int) -> float:
        return 1.0 if self._unit == "operations" else float(self._plan.piece_bytes(operation, piece))
