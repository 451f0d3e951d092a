"""One pool of gradients in the order in which backward makes them, reduced whenever enough of it is finished.

Idea: any run of finished gradients is one contiguous range, so that fusing needs no copy. Cost: of n bytes in pieces of at
least theta, ceil(n / theta) start-ups of an all-reduce and the volume of one. Source: GradientFlow (arXiv 1902.06855).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ringwright.ground.errors import UsageError

Reduce = Callable[[Any], Any]  # starts to sum a tensor over the ranks in place; what it returns can be waited for


class Pool:
    """Gradients of ``names`` (in the order of backward, alike on all ranks) in one buffer; ``theta_bytes`` 0: each alone."""

    def __init__(
        self, shapes: Mapping[str, torch.Size], names: Sequence[str], theta_bytes: float, reduce: Reduce
    ) -> None:
        missing = set(shapes) ^ set(names)
        if missing or len(set(names)) != len(names):
            raise UsageError(
                f"the order of the pool and its parameters differ in {min(missing, default='a name that is there twice')}",
                remedy="each parameter once, in the order in which backward finishes them",
            )
        self._names, self._theta_bytes, self._reduce = list(names), theta_bytes, reduce
        self._ends: list[int] = []
        self._views: dict[str, Any] = {}
        total = sum(shapes[name].numel() for name in names)
        self.buffer = torch.zeros(total)
        at = 0
        for name in names:
            size = shapes[name].numel()
            self._views[name] = self.buffer[at : at + size].view(shapes[name])
            at += size
            self._ends.append(at)
        self.begin()

    def begin(self) -> None:
        """Begin a step."""
        self._ready: set[str] = set()
        self._head = self._start = 0  # next name that is not finished; first element that is not sent
        self._works: list[Any] = []
        self.cuts: list[int] = []

    def put(self, name: str, gradient: Any) -> None:
        """Take a finished gradient; a range is sent when all before it is finished too and it has reached theta."""
        self._views[name].copy_(gradient)
        self._ready.add(name)
        while self._head < len(self._names) and self._names[self._head] in self._ready:
            end = self._ends[self._head]
            self._head += 1
            if (end - self._start) * self.buffer.element_size() >= self._theta_bytes:
                self._cut(end)

    def _cut(self, end: int) -> None:
        self._works.append(self._reduce(self.buffer[self._start : end]))
        self.cuts.append(end)
        self._start = end

    def finish(self) -> dict[str, Any]:
        """Send what is left, wait for all, and return the sums by name (views of the pool)."""
        if self._head < len(self._names):
            raise UsageError(f"{self._names[self._head]} has no gradient; the pool is full in every step, or not used")
        if self._start < self.buffer.numel():
            self._cut(self.buffer.numel())
        for work in self._works:
            if work is not None:
                work.wait()
        return self._views
