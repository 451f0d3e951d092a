"""Copies by the copy engines of one host's GPUs, each of which reads another one's memory: no kernel, no multiprocessor.

No link was measured: engines start as they do for copies inside a device, and what of a link they reach is assumed.
"""

from __future__ import annotations

from ringwright.costs.contention.starts import STEPS

REACHED = (
    0.82  # share of a link's rate that a copy between two GPUs has, assumed: about 370 of NVLink's 450 GB/s of an H100
)
START_S = (
    STEPS["copy-d2d"].device_s + STEPS["word"].device_s
)  # and the word by which the reader knows that there is something


def copied_s(wire_s: float) -> float:
    """Return seconds of a copy that keeps its links busy for ``wire_s`` at their full rate."""
    return START_S + wire_s / REACHED
