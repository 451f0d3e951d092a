"""Inference with experts of unequal popularity: how much longer than ideal a layer takes, by what is known of its tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError
from ringwright.schedulers.priority.lina._chunks import EXPERTS, carries_tokens
from ringwright.schedulers.priority.lina.placement import layer_tokens, place
from ringwright.schedulers.priority.lina.popularity import decide_again, most_wanted

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.workload import Payload, Workload

PLANS = ("even", "exact", "estimate", "again")
TOKENS = 512  # on each device: not in the paper


@dataclass(frozen=True)
class Skew:
    """Popularity by Zipf's law: the most popular of the experts, one a device, has ``ratio`` times the tokens of the least.

    ``plan``: even (expert i on device i), exact (devices by the batch's own counts), estimate (by a guess that names the
    two in front in a share ``accuracy`` of the layers), or again (the same, and decided again from the counts where they differ).
    """

    ratio: float
    plan: str = "again"
    accuracy: float = 0.584
    seed: int = 0


def layer_times(skew: Skew, devices: int, tokens: int) -> Iterator[float]:
    """Yield without end the time of a layer, 1 is ideal (tokens / devices); which expert is popular is drawn anew each time."""
    import numpy as np

    draw = np.random.default_rng(skew.seed)
    popular = np.arange(1, devices + 1) ** -(math.log(skew.ratio) / math.log(devices))
    popular /= popular.sum()
    batch = 0
    while True:
        real = draw.permutation(popular)
        counts = draw.multinomial(tokens, real)
        guessed = _guessed(draw, popular, real, skew.accuracy)
        if skew.plan == "even":
            yield int(counts.max()) / (tokens / devices)
        else:
            counted = skew.plan == "exact" or (skew.plan == "again" and decide_again(guessed, counts))
            made = place(counts / tokens if counted else guessed, devices, seed=batch)
            yield layer_tokens(made, counts.tolist()) / (tokens / devices)
        batch += 1


def _guessed(draw: np.random.Generator, popular: np.ndarray, real: np.ndarray, accuracy: float) -> np.ndarray:
    """Return the popularity as estimated: as it is, or another order with other two experts in front."""
    if draw.random() < accuracy or len(real) <= 2:  # of two, the same two are always in front
        return real
    while True:
        guessed = draw.permutation(popular)
        if most_wanted(guessed) != most_wanted(real):
            return guessed


def skewed(workload: Workload, skew: Skew) -> tuple[Workload, str]:
    """Return the workload with expert tasks and their all-to-alls as large as on the fullest device, and a sentence that says so.

    UsageError for a workload that trains, or in which no experts exchange tokens.
    """
    if any(task.kind == "U" for task in workload.tasks):
        raise UsageError("lina: skew is of inference, and this job trains", remedy="--mode prefill or --mode decode")
    devices = {workload.mesh.extent(each.axes) for each in workload.payloads if carries_tokens(each)}
    if not devices or min(devices) < 2:
        raise UsageError("lina: no experts exchange tokens in this job", remedy="--parallel ep8")
    times = layer_times(skew, min(devices), TOKENS * min(devices))
    seconds = {task.name: next(times) for task in workload.tasks if task.tag == EXPERTS}
    made = replace(
        workload,
        tasks=tuple(replace(task, seconds=task.seconds * seconds.get(task.name, 1.0)) for task in workload.tasks),
        payloads=tuple(_payload(each, seconds) for each in workload.payloads),
    )
    mean, most = sum(seconds.values()) / max(len(seconds), 1), max(seconds.values(), default=1.0)
    return made, f"plan={skew.plan}: {len(seconds)} layers take {mean:.2f} times the ideal, {most:.2f} at the most"


def _payload(each: Payload, seconds: dict[str, float]) -> Payload:
    touched = [seconds[name] for name in (*each.producers, *(name for name, _ in each.consumers)) if name in seconds]
    if not touched or not carries_tokens(each):
        return each
    return replace(each, size_bytes=round(each.size_bytes * max(touched)), elements=round(each.elements * max(touched)))
