"""Split float: exponent and signed mantissa of a number in registers of their own, which integer adders serve (FPISA).

Idea: a mantissa of 24 bits (11 for float16), its hidden one and sign included, lies in a register of 32 bits, so the bits
    above are headroom. To add (e, m) to (E, M) with d = e - E: where d <= 0, M += m >> -d. Where d > 0 the *full* form
    shifts what it holds, M = (M >> d) + m and E = e, which today's switches cannot. The *approximate* form (FPISA-A) shifts
    the newcomer up, M += m << d, as long as d <= ``shift``, and beyond that overwrites both registers. The result is made a
    float again when it leaves.
Holds: full: an addition is off by less than 2^-22 of the larger number (shifts cut off towards minus infinity), results
    do not depend on the scale, 128 numbers of any float32 never overflow. Approximate: equal to full where no newcomer is
    larger; else a sum may overflow (it wraps around, or ``saturates``) or be thrown away; both are counted. With
    ``shift`` + ceil(log2 n) <= 7 it never overflows. Results depend on the order of arrival in both.
    Subnormal numbers are exact; a result above the type's range is an infinity; a zero has no sign.
Declines: NaN and infinities, whose exponent is none: beside the registers a mark remembers them, and such an element comes
    out as IEEE 754 adds it (the paper leaves this open).
Source: FPISA, NSDI 2022 (arXiv 2112.06095), section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from ringwright.ground.knobs import Choices, Range
from ringwright.model.codecs.contributions import NodeSum, encodable, in_order, one_of, unfinite, within
from ringwright.model.codecs.native import native

OPS = ("sum",)
CARRIES = ("float16", "float32")
ADDED_AS = "int32"
SWITCHES = ("fpisa", "tofino-fpisa")
TOLERANCE = 5e-7
OF_PROGRAMS = ("variant", "shift", "overflow")
LOW, HIGH = -(1 << 31), (1 << 31) - 1
FARTHEST = 31  # a shift by more leaves the sign
FIELDS = {"float16": (np.uint16, 10, 15), "float32": (np.uint32, 23, 127)}  # as unsigned, bits of the mantissa, bias


def split_float(
    given: np.ndarray,
    *,
    order: Sequence[int] | None = None,
    variant: Annotated[str, Choices(("full", "approximate"))] = "full",
    shift: Annotated[int, Range(0, 31)] = 7,
    overflow: Annotated[str, Choices(("wrap", "saturate"))] = "wrap",
) -> NodeSum:
    """Return the sum of contributions in exponent and mantissa registers: float16 or float32 of shape (elements,).

    Knobs: ``order`` the workers in the order in which they arrive (as given); ``variant`` whether what is held can be shifted;
    ``shift`` the farthest that a newcomer is shifted up (approximate alone); ``overflow`` what a register does when it is full.
    Raises UsageError for another dtype, a shift out of range and an order that is none.
    """
    given = encodable("split-float", given)
    one_of("split-float", "variant", variant, ("full", "approximate"))
    one_of("split-float", "overflow", overflow, ("wrap", "saturate"))
    within("split-float", "shift", shift, 0, FARTHEST)
    rows = in_order(given, order)
    lost = ~np.isfinite(rows).all(axis=0)
    held, mantissa = _taken_apart(rows[0])
    overflows = overwrites = 0
    for row in rows[1:]:
        exponent, newcomer = _taken_apart(row)
        ahead = exponent - held
        replaced = ahead > shift if variant == "approximate" else np.zeros(len(held), bool)
        if variant == "full":
            held, mantissa = _full(held, mantissa, exponent, newcomer)
        else:
            mantissa = np.where(replaced, newcomer, mantissa + _shifted(newcomer, ahead))
            held = np.where(replaced, exponent, held)
        full = ((mantissa < LOW) | (mantissa > HIGH)) & ~lost
        mantissa = np.clip(mantissa, LOW, HIGH) if overflow == "saturate" else (mantissa - LOW) % (1 << 32) + LOW
        overflows, overwrites = overflows + int(full.sum()), overwrites + int((replaced & ~lost).sum())
    values = np.where(lost, native(given, order=order).values, _rebuilt(held, mantissa, given.dtype))
    return NodeSum(values, given, overflows, overwrites, not_finite=unfinite(given))


def _taken_apart(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return exponent and signed mantissa, both int64 of the shape of ``row``; a subnormal number has no hidden one."""
    unsigned, bits, bias = FIELDS[row.dtype.name]
    raw = np.ascontiguousarray(row).view(unsigned).astype(np.int64)
    field = (raw >> bits) & (2 * bias + 1)
    mantissa = (raw & ((1 << bits) - 1)) | np.where(field > 0, 1 << bits, 0)
    return np.maximum(field, 1), np.where(np.signbit(row), -mantissa, mantissa)


def _full(
    held: np.ndarray, mantissa: np.ndarray, exponent: np.ndarray, newcomer: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the registers after an addition that shifts the smaller of the two. Both int64 of the shape of ``held``."""
    larger = np.maximum(held, exponent)
    return larger, _shifted(mantissa, held - larger) + _shifted(newcomer, exponent - larger)


def _shifted(mantissa: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Return mantissas shifted up by so many bits, or down where that is negative. int64 of the shape of ``mantissa``."""
    up, down = np.clip(by, 0, FARTHEST), np.clip(-by, 0, FARTHEST)
    moved: np.ndarray = (mantissa << up) >> down
    return moved


def _rebuilt(held: np.ndarray, mantissa: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the floats of registers, what does not fit a mantissa cut off. Of that dtype and the shape of ``held``."""
    _, bits, bias = FIELDS[dtype.name]
    exact = np.ldexp(mantissa.astype(np.float64), (held - bias - bits).astype(np.int64))
    with np.errstate(over="ignore", under="ignore"):
        rounded = exact.astype(dtype)
        nearer = np.nextafter(rounded, np.zeros(1, dtype))
    cut = np.where(np.abs(rounded.astype(np.float64)) > np.abs(exact), nearer, rounded)
    cut[np.abs(exact) >= 2.0 ** (bias + 1)] = np.inf
    floats: np.ndarray = np.copysign(cut, exact).astype(dtype)
    return floats


def wire_bytes(item_bytes: int) -> tuple[float, float]:
    """Return bytes of a number to the node and back: the float itself, which hosts need not convert."""
    return float(item_bytes), float(item_bytes)
