"""Block exponent: the numbers of a packet are integers that share one exponent, agreed by the maximum (SwitchML).

Idea: 2^e is above every number of the packet at every worker; each worker sends round(f x) with f = limit / (n 2^e), limit
    2^31 - 1 for ``element`` int32 and 127 for int8, so n of them never leave the register; the sum is divided by f. The exponent
    of a packet travels ahead.
Holds: no overflow for any number of workers and any finite numbers (what rounding would put above 1/n of the register is
    held back by one step); the error of a sum is at most n/2 steps of n 2^e / limit (n steps for int8), and sums do not depend
    on the order in which contributions arrive. A packet of zeros gives zeros. Subnormal numbers share the exponent of the
    smallest normal one and are kept to within those steps. Negative zero comes back as zero.
Declines: more workers than a register has steps for (127 for int8); a packet with NaN or an infinity has no exponent: the
    greatest value says so, wins the maximum, and the whole packet comes back as NaN. (The public code sends what the
    processor makes of such a conversion; the switch of ``ringwright switch`` has its workers refuse it.)
Source: SwitchML, NSDI 2021, section 3.7 and appendix C; p4lang/p4app-switchML.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices
from ringwright.model.codecs.contributions import (
    NodeSum,
    Packet,
    encodable,
    in_packets,
    one_of,
    out_of_packets,
    unfinite,
)

OPS = ("sum", "min", "max")
CARRIES = ("float16", "bfloat16", "float32")
ADDED_AS = "int32"
SWITCHES = ("tofino", "fpisa")
TOLERANCE = 1e-7
WHOLE_NUMBERS = True
LIMITS = {"int32": (1 << 31) - 1, "int8": 127}
SMALLEST = -126  # exponent of the smallest normal float32: no packet has a smaller one
NO_EXPONENT = -(1 << 15)  # nothing but zeros
UNKNOWN = (1 << 15) - 1  # NaN or an infinity among them
COMBINE = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def block_exponent(
    given: np.ndarray,
    *,
    op: Annotated[str, Choices(("sum", "min", "max"))] = "sum",
    packet: Packet = 256,
    element: Annotated[str, Choices(("int32", "int8"))] = "int32",
) -> NodeSum:
    """Return the result of contributions in integers with one exponent a packet: float16 or float32 of shape (elements,).

    Knobs: ``op`` what they are combined by; ``packet`` numbers in a packet; ``element`` the integers.
    Raises UsageError for another dtype, an unknown operation, an empty packet and more workers than int8 has room for.
    """
    given = encodable("block-exponent", given, packet)
    one_of("block-exponent", "op", op, tuple(COMBINE))
    one_of("block-exponent", "element", element, tuple(LIMITS))
    sharing = len(given) if op == "sum" else 1
    require_room(sharing, element)
    cut = in_packets(given, packet)
    agreed = exponents(cut).max(axis=0)
    f, unknown = factors(agreed, sharing, element), agreed == UNKNOWN
    whole = to_whole(np.where(unknown[:, None], 0, cut), f, sharing, element)
    held = COMBINE[op].reduce(whole.astype(np.int64), axis=0)
    overflows = int((np.abs(held) > LIMITS[element]).sum())
    values, sent = from_whole(held, f), from_whole(whole, f)
    values[unknown], sent[:, unknown] = np.nan, np.nan
    return NodeSum(out_of_packets(values, given[0]), out_of_packets(sent, given), overflows, not_finite=unfinite(given))


def require_room(workers: int, element: str) -> None:
    """Raise UsageError where so many workers leave each of them no step of a register."""
    if workers > LIMITS[element]:
        raise UsageError(f"{workers} workers leave an {element} no room", remedy="element=int32, codec=block-exponent")


def exponents(values: np.ndarray) -> np.ndarray:
    """Return e with 2^e above every magnitude of a packet, the last axis: int16 of the shape of the others.

    ``NO_EXPONENT`` where there are only zeros, ``UNKNOWN`` where something is not finite.
    """
    largest = np.max(np.abs(values), axis=-1, initial=0.0)
    known = np.isfinite(largest)
    power = np.maximum(np.frexp(np.where(known, largest, 1.0))[1], SMALLEST).astype(np.int16)
    told = np.where(largest > 0, power, np.int16(NO_EXPONENT))
    marked: np.ndarray = np.where(known, told, np.int16(UNKNOWN))
    return marked


def factors(agreed: np.ndarray, workers: int, element: str) -> np.ndarray:
    """Return f for each exponent (int16); 0 where there are only zeros, or none. float64 of the shape of ``agreed``."""
    has_none = (agreed == NO_EXPONENT) | (agreed == UNKNOWN)
    scales = np.ldexp(LIMITS[element] / workers, -np.where(has_none, 0, agreed).astype(np.int32))
    f: np.ndarray = np.where(has_none, 0.0, scales)
    return f


def to_whole(values: np.ndarray, f: np.ndarray, workers: int, element: str) -> np.ndarray:
    """Return round(x f) of packets with their factors: of dtype ``element`` and of the shape of ``values``."""
    scaled: np.ndarray = values * f[:, None]
    np.rint(scaled, out=scaled)
    # Rounded up, a share of int8 would be too large by one.
    share = LIMITS[element] // workers
    np.clip(scaled, -share, share, out=scaled)
    whole: np.ndarray = scaled.astype(element)
    return whole


def from_whole(sums: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Return sums divided by their factors; packets whose factor is 0 are 0. float64 of the shape of ``sums``."""
    inverse = np.divide(1.0, f, out=np.zeros_like(f), where=f > 0)
    reals: np.ndarray = sums * inverse[:, None]
    return reals


def error_bound(agreed: np.ndarray, workers: int, element: str) -> np.ndarray:
    """Return how far a sum may be off, before it is rounded to float32. float64 of the shape of ``agreed``."""
    f = factors(agreed, workers, element)
    # Clipping may cost a whole step of an int8.
    halves = workers if element == "int8" else workers / 2
    bound: np.ndarray = np.divide(halves, f, out=np.zeros_like(f), where=f > 0)
    return bound


def wire_bytes(packet: int = 256, element: str = "int32") -> tuple[float, float]:
    """Return bytes of a number to the node and back: its integer, and its share of the packet's exponent on the way there."""
    size = np.dtype(element).itemsize
    return size + 1 / packet, float(size)
