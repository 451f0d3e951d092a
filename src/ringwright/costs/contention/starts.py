"""What starting work takes on one GPU: kernels in a queue, signals between streams, graphs, small copies.

Seconds of the device where its queue is full, and of the host where it is not: the slower of both is what a chain takes. Measured
beside an H100; the host's part is that host's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ringwright.costs.contention.movers import BUS_RATE
from ringwright.ground.errors import UsageError

Step = Literal["kernel", "event", "word", "copy-d2d", "copy-h2d", "copy-d2h"]
DEVICE_COPY_RATE = 2.6e12  # bytes/s of small copies inside the device, which stay in its cache


@dataclass(frozen=True)
class StepFit:
    """Seconds that a step takes the device and the host, and the bytes/s with which its size adds to the first (0: no size)."""

    device_s: float
    host_s: float
    rate: float = 0.0


STEPS: dict[Step, StepFit] = {
    "kernel": StepFit(1.75e-6, 3.5e-6),
    "event": StepFit(0.2e-6, 0.25e-6),  # recorded in one stream, awaited by another
    "word": StepFit(2.4e-6, 1.3e-6),  # written by one stream, awaited by another
    "copy-d2d": StepFit(2.0e-6, 3.9e-6, DEVICE_COPY_RATE),
    "copy-h2d": StepFit(2.4e-6, 1.5e-6, BUS_RATE),
    "copy-d2h": StepFit(1.8e-6, 1.4e-6, BUS_RATE),
}
HANDOVER_S = 8e-6  # a copy over the bus that follows a kernel, and the kernel after it, together
ON_BUS = ("copy-h2d", "copy-d2h")
GRAPH_S, GRAPH_KERNEL_S, GRAPH_FORK_S = 2.1e-6, 0.96e-6, 2.25e-6


def chain_s(steps: Sequence[Step], size_bytes: float = 0, *, queued: bool = True) -> float:
    """Return seconds for each round of a chain of ``steps`` that follow each other, over and over.

    ``queued``: the host has written all of it beforehand; else its own time counts where it is more. Copies have
    ``size_bytes``. UsageError for a step that was not measured.
    """
    strange = [step for step in steps if step not in STEPS]
    if strange or size_bytes < 0:
        raise UsageError(f"no such step: {strange[0] if strange else size_bytes}", remedy=f"one of: {', '.join(STEPS)}")
    fits = [STEPS[step] for step in steps]
    device = sum(fit.device_s + (size_bytes / fit.rate if fit.rate else 0.0) for fit in fits)
    if "kernel" in steps:
        device += HANDOVER_S * sum(step in ON_BUS for step in steps)
    return device if queued else max(device, sum(fit.host_s for fit in fits))


def graph_s(rounds: int, *, forked: bool = False) -> float:
    """Return seconds of a graph of ``rounds`` kernels in a row; ``forked``: behind each come two at once, both awaited."""
    if rounds < 1:
        raise UsageError(f"no graph has {rounds} rounds", remedy="1 and more")
    return GRAPH_S + rounds * (GRAPH_FORK_S if forked else GRAPH_KERNEL_S)
