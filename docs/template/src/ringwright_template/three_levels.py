"""Three levels: a number is -1, 0 or 1 times a step that all workers of a packet agree on.

Idea: the step is half of the largest magnitude of the packet; a worker sends two bits, a node adds them.
Holds: zeros stay zeros, and nothing overflows; a sum is off by up to three quarters of itself.
Source: none: an example.
"""

import numpy as np

from ringwright.model.codecs.contributions import NodeSum, Packet, encodable, in_packets, out_of_packets, unfinite

OPS = ("sum",)
CARRIES = ("float16", "float32")
ADDED_AS = "uint32"
SWITCHES = ("tofino",)
TOLERANCE = 0.75
WHOLE_NUMBERS = True


def three_levels(given: np.ndarray, *, packet: Packet = 256) -> NodeSum:
    """Return the sum of contributions, of their dtype and of shape (elements,).

    Knobs: ``packet`` numbers that share a step.
    """
    given = encodable("three-levels", given, packet)
    cut = in_packets(given, packet)
    step = np.abs(cut).max(axis=(0, 2))[:, None] / 2
    known = np.isfinite(step)
    with np.errstate(invalid="ignore", divide="ignore"):
        level = np.where(known & (step > 0), np.clip(np.rint(cut / step), -1, 1), 0)
    sent = np.where(known, level * np.where(known, step, 0), np.nan)
    total = out_of_packets(sent.sum(axis=0), given[0])
    return NodeSum(total, out_of_packets(sent, given), not_finite=unfinite(given))


def wire_bytes(packet: int = 256) -> tuple[float, float]:
    """Return bytes of a number: two bits to the node, a byte back; the step goes along with each packet."""
    return 0.25 + 4 / packet, 1.0
