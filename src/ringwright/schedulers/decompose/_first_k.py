"""How many of the first layers' gradients of weights are best put off: one machine that sends by urgency what is released."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from ringwright.schedulers.search import Chosen, enumerated


@dataclass(frozen=True)
class LayerTimes:
    """Seconds of a layer, from the first one: forward, gradients of inputs and of weights, the sum of its gradients."""

    forward_s: float
    inputs_s: float
    weights_s: float
    sum_s: float


def releases(layers: Sequence[LayerTimes], k: int) -> tuple[list[float], float]:
    """Return when the gradients of each layer are there, and when backward ends, if the first ``k`` are put off."""
    now, ready = 0.0, [0.0] * len(layers)
    for at in reversed(range(len(layers))):
        now += layers[at].inputs_s + (layers[at].weights_s if at >= k else 0.0)
        ready[at] = now
    for at in range(k):
        now += layers[at].weights_s
        ready[at] = now
    return ready, now


def step_s(layers: Sequence[LayerTimes], k: int) -> float:
    """Return from the begin of backward to the end of the next forward pass: a layer runs behind its own sum."""
    ready, backward_s = releases(layers, k)
    done = _sent(layers, ready)
    now = backward_s
    for at, layer in enumerate(layers):
        now = max(now, done[at]) + layer.forward_s
    return now


def best_k(layers: Sequence[LayerTimes]) -> Chosen[int]:
    """Return the k whose step is shortest, the smallest of equals; all are tried."""
    return enumerated(range(len(layers) + 1), lambda k: step_s(layers, k), budget=len(layers) + 1)


def _sent(layers: Sequence[LayerTimes], ready: Sequence[float]) -> list[float]:
    """Return when each sum has ended: one at a time, of those that are ready the earliest layer's."""
    waiting: list[int] = []
    done, now = list(ready), 0.0
    coming = sorted((ready[at], at) for at, layer in enumerate(layers) if layer.sum_s)
    while coming or waiting:
        while coming and (coming[0][0] <= now or not waiting):
            at = coming.pop(0)[1]
            now = max(now, ready[at]) if not waiting else now
            heapq.heappush(waiting, at)
        at = heapq.heappop(waiting)
        now += layers[at].sum_s
        done[at] = now
    return done
