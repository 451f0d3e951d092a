"""Fixed point: numbers are sent as whole millionths in 32 bits; where that overflows, the packet is sent anew as floats (ATP).

Idea: a worker multiplies by 10^6 and rounds; the node adds integers and marks a packet whose sum left 32 bits, or that a
    worker could not convert; such a packet goes once more, as floats, to a server that adds them as they arrive.
Holds: a number is within half a step of 10^-6 of what it was: numbers below that become zero (subnormal ones among them),
    numbers above 2147.48 have no integer. Sums that stay in range do not depend on the order of arrival; those of packets
    that were sent anew do, as floats do. Negative zero comes back as zero. Of packets with NaN or an infinity the floats
    decide, so each such element is IEEE 754's.
Source: ATP, NSDI 2021, section 4.2; in-ATP/ATP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Range
from ringwright.model.codecs.contributions import (
    NodeSum,
    Packet,
    encodable,
    in_order,
    in_packets,
    out_of_packets,
    unfinite,
    within,
)
from ringwright.model.codecs.native import native

OPS = ("sum",)
CARRIES = ("float16", "bfloat16", "float32")
ADDED_AS = "int32"
SWITCHES = ()  # ATP's own program is none of those that fabrics have
TOLERANCE = 1e-6
WHOLE_NUMBERS = True
OF_PROGRAMS = ("scale",)
MOST = (1 << 31) - 1
USUAL_SCALE = 1e6


def fixed_point(
    given: np.ndarray,
    *,
    order: Sequence[int] | None = None,
    packet: Packet = 62,
    scale: Annotated[float, Range(1, 2**31)] = USUAL_SCALE,
) -> NodeSum:
    """Return the sum of contributions in whole parts of 1/``scale``: float16 or float32 of shape (elements,).

    Knobs: ``order`` the workers in the order in which they arrive (as given); ``packet`` numbers in a packet; ``scale`` what
    numbers are multiplied by.
    Raises UsageError for another dtype, an empty packet, a scale out of range and an order that is none.
    """
    given = encodable("fixed-point", given, packet)
    within("fixed-point", "scale", scale, 1, 2**31)
    scaled = np.rint(in_packets(in_order(given, order), packet) * scale)
    fits = np.abs(scaled) <= MOST  # false for NaN too
    sums = np.cumsum(np.where(fits, scaled, 0), axis=0)  # whole numbers below 2^53: exact
    left = (~fits).any(axis=0) | (np.abs(sums) > MOST).any(axis=0)
    again = left.any(axis=1)
    floats = in_packets(native(given, order=order).values[None], packet)[0]
    kept = np.rint(in_packets(given, packet) * scale) / scale
    return NodeSum(
        out_of_packets(np.where(again[:, None], floats, sums[-1] / scale + 0.0), given[0]),
        out_of_packets(np.where(again[:, None], in_packets(given, packet), kept), given),
        overflows=int(left.sum()),
        resent=int(again.sum()),
        not_finite=unfinite(given),
    )


def to_whole(values: np.ndarray, workers: int, scale: float = USUAL_SCALE) -> np.ndarray:
    """Return round(x scale) of a worker's numbers, so many that no sum of ``workers`` overflows: int32 of their shape.

    Raises UsageError where a number has no room: nobody sends such packets again as floats here.
    """
    scaled = np.rint(values.astype(np.float64) * scale)
    share = MOST // workers
    if not (np.abs(scaled) <= share).all():
        worst = float(np.abs(values).max())
        raise UsageError(
            f"fixed point: {worst:g} has no room among {workers} workers; {share / scale:g} is the largest",
            where="the values of this rank",
            remedy="codec=block-exponent, or a smaller scale",
        )
    whole: np.ndarray = scaled.astype(np.int32)
    return whole


def from_whole(sums: np.ndarray, scale: float = USUAL_SCALE) -> np.ndarray:
    """Return sums of such numbers as reals: float64 of the shape of ``sums``."""
    reals: np.ndarray = sums / scale
    return reals


def wire_bytes() -> tuple[float, float]:
    """Return bytes of a number to the node and back; a packet that is sent anew costs them once more."""
    return 4.0, 4.0
