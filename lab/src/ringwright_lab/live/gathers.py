"""Second halves of sums: each goes once its scatter is done here and forward has come near the layers that need it.

One rank that needs a gather lets it go on all: what is held back is bandwidth, and no rank waits for another one's forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock

from ringwright_lab.live.plan import LivePlan


class GatherGate:
    """Which gathers of which steps may go; ``announce`` is called with step and unit, once each, without a lock held."""

    def __init__(self, plan: LivePlan, announce: Callable[[int, int], None]) -> None:
        self._plan, self._announce, self._lock = plan, announce, Lock()
        self.unit = {each.operation: at for at, each in enumerate(plan.units) if each.operation in plan.gathers}
        turn = {operation: at for at, (operation, _) in enumerate(plan.order)}
        self._line = sorted(plan.gathers, key=lambda each: turn.get(each, each))
        self._scattered: dict[int, set[int]] = {}
        self._opened: dict[int, int] = {}  # step -> how many of the line
        self._said: set[tuple[int, int]] = set()

    def scattered(self, step: int, operation: int) -> None:
        """Take in that a scatter is done here."""
        if operation in self._plan.completed_by:
            self._go(step, 0, self._plan.completed_by[operation])

    def wanted(self, step: int, names: Iterable[str]) -> None:
        """Let go what parameters need, and what is held until forward comes to the first layer that needs them."""
        names = list(names)
        reached = max((self._plan.first_needed.get(name, 0) for name in names), default=0)
        needed = {self._plan.gather_of(name) for name in names}
        opened = [
            at + 1
            for at, each in enumerate(self._line)
            if each in needed or 0 < self._plan.gathers[each].opened_by <= reached
        ]
        self._go(step, max(opened, default=0))

    def told(self, step: int, unit: int) -> None:
        """Take in that a rank has let a gather go."""
        operation = self._plan.units[unit].operation
        if operation in self._plan.gathers:
            self._go(step, self._line.index(operation) + 1)

    def forget(self, before: int) -> None:
        """Forget steps before this one."""
        with self._lock:
            for kept in (self._scattered, self._opened):
                for step in [step for step in kept if step < before]:
                    del kept[step]
            self._said = {each for each in self._said if each[0] >= before}

    def _go(self, step: int, opened: int, gather: int | None = None) -> None:
        if not self._line:
            return
        with self._lock:
            scattered = self._scattered.setdefault(step, set())
            if gather is not None:
                scattered.add(gather)
            self._opened[step] = max(self._opened.get(step, 0), opened, self._at_once())
            ready = [each for each in self._line[: self._opened[step]] if each in scattered]
            going = [each for each in ready if (step, each) not in self._said]
            self._said |= {(step, each) for each in going}
        for each in going:
            self._announce(step, self.unit[each])

    def _at_once(self) -> int:
        """Return how many of the line are held by no layer."""
        held = [at for at, each in enumerate(self._line) if self._plan.gathers[each].opened_by]
        return held[0] if held else len(self._line)
