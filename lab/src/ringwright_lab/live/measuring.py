"""A rank's own clock: when each layer ran forward, backward, waited and was updated."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence

from ringwright_lab.live.profile import StepSpans

KEPT_STEPS = 64


class StepTimer:
    """Takes down spans; everything between the begin of forward and the end of backward belongs to some layer."""

    def __init__(self) -> None:
        self.measured: list[StepSpans] = []
        self.backward = False  # in a backward pass
        self.counting = False
        self._now = StepSpans(0)
        self._forward = False
        self._open: tuple[str, float] | None = None
        self._ready: list[tuple[str, float]] = []
        self._ended_s = self._forward_end_s = 0.0
        self._away_s = 0.0

    def forward_begins(self, step: int) -> None:
        """Begin a step, unless it goes on with another forward pass."""
        now_s = time.perf_counter()
        if not self._now.forward:
            self._now = StepSpans(
                step, now_s, gap_s=max(now_s - self._ended_s - self._away_s, 0.0) if self._ended_s else 0.0
            )
        self._now.step = step
        self._forward = not self.backward
        self._open = None
        self._forward_end_s = now_s

    def segment_ends(self) -> float:
        """End the span of the layer before; return now."""
        now_s = time.perf_counter()
        if self._forward and self._open is not None:
            self._now.forward.append((self._open[0], self._open[1], now_s))
            self._open = None
        return now_s

    def segment_begins(self, layer: str, begun_s: float) -> None:
        """Begin a layer; what came before the first one is counted to it."""
        if self._forward and not self.backward:
            first = not self._now.forward and not self._now.waited and not self._now.update
            self._open = (layer, min(begun_s, self._now.begun_s) if first else time.perf_counter())

    def forward_ends(self) -> None:
        """End the forward pass."""
        if self._forward:
            self._forward_end_s = self.segment_ends()
            self._forward = False

    def backward_begins(self) -> None:
        """Begin a backward pass; the loss is counted to the layer whose gradients come first."""
        self.backward = True
        self._ready = []

    def ready(self, name: str) -> None:
        """Take down when a gradient was ready."""
        self._ready.append((name, time.perf_counter()))

    def backward_ends(self, named: Mapping[str, Sequence[str]]) -> None:
        """Cut the backward pass into layers: one ends with the last of its gradients."""
        layer_of = {name: layer for layer, names in named.items() for name in names}
        last = {layer_of[name]: when_s for name, when_s in self._ready if name in layer_of}
        self._now.ready = [name for name, _ in self._ready]
        begin_s = self._forward_end_s
        for layer, when_s in sorted(last.items(), key=lambda each: each[1]):
            self._now.backward.append((layer, begin_s, when_s))
            begin_s = when_s
        now_s = time.perf_counter()
        if last and now_s > begin_s:  # what no parameter marks the end of
            layer, first_s, _ = self._now.backward.pop()
            self._now.backward.append((layer, first_s, now_s))
        self.backward = False

    def settled(self) -> None:
        """The hooks at the end of backward are through."""
        self.restart()

    def restart(self) -> None:
        """Count what is neither forward nor backward from now on."""
        self._ended_s, self._away_s = time.perf_counter(), 0.0

    def step_ends(self) -> None:
        """End the step."""
        if self._now.forward and self._now.backward:
            self.measured.append(self._now)
            del self.measured[:-KEPT_STEPS]
        self._now = StepSpans(self._now.step + 1)

    @contextlib.contextmanager
    def waiting(self, layer: str) -> Iterator[None]:
        """Take down a wait."""
        begin_s = time.perf_counter()
        try:
            yield
        finally:
            self._take(self._now.waited, layer, begin_s)

    @contextlib.contextmanager
    def updating(self, layer: str) -> Iterator[None]:
        """Take down an update."""
        begin_s = time.perf_counter()
        try:
            yield
        finally:
            self._take(self._now.update, layer, begin_s)

    def _take(self, rows: list[tuple[str, float, float]], layer: str, begin_s: float) -> None:
        end_s = time.perf_counter()
        rows.append((layer, begin_s, end_s))
        if not self._forward and not self.backward:
            self._away_s += end_s - begin_s

    def steady(self) -> list[StepSpans]:
        """Return the steps without the first one, where there are others."""
        return self.measured[1:] or self.measured
