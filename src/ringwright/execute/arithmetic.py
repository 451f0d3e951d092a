"""Element types and reductions on raw memory, by NumPy and in place; bfloat16 and float8 too, which NumPy does not have.

bfloat16 is the upper half of a float32; sums are made in float32 and rounded to the nearest, ties to even. float8 is E4M3
without infinities (the OCP 8-bit floating point specification): a table of all 65,536 pairs holds each result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ringwright.model.collective import Collective

Combine = Callable[[np.ndarray, np.ndarray], object]  # mine := mine with theirs

STORED = {
    "int8": np.int8,
    "uint8": np.uint8,
    "float16": np.float16,
    "int32": np.int32,
    "uint32": np.uint32,
    "float32": np.float32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float64": np.float64,
    "bfloat16": np.uint16,
    "float8": np.uint8,
}
MANTISSA_BITS = {"float8": 4, "bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}  # the implicit bit included
_UFUNCS: dict[str, np.ufunc] = {"sum": np.add, "avg": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
_STRIP = 1 << 15  # elements: what bfloat16 needs beside itself stays in the cache


def element(collective: Collective) -> str:
    """Return the element type that the collective is run with: bytes where its size is not whole elements."""
    return collective.dtype if collective.unit_bytes == STORED_BYTES[collective.dtype] else "uint8"


STORED_BYTES = {name: np.dtype(kind).itemsize for name, kind in STORED.items()}


def combiner(dtype: str, reduce_op: str) -> Combine:
    """Return what adds a second array to the first, both as stored (bfloat16: uint16, float8: uint8)."""
    ufunc = _UFUNCS[reduce_op]
    if dtype == "bfloat16":
        return partial(_combine_bfloat16, ufunc)
    if dtype == "float8":
        return partial(_combine_float8, _table(reduce_op))
    return lambda mine, theirs: ufunc(mine, theirs, out=mine)


def widen(stored: np.ndarray, dtype: str) -> np.ndarray:
    """Return the values as an array that NumPy can count with: bfloat16 and float8 as float32, all others as they are.

    Of the shape of ``stored``.
    """
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return _decoded()[stored] if dtype == "float8" else stored


def narrow(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return values as they are stored, rounded to the nearest, ties to even.

    Of the dtype ``STORED[dtype]`` and the shape of ``values``.
    """
    if dtype == "bfloat16":
        return _to_bfloat16(np.asarray(values, np.float32))
    if dtype == "float8":
        return _to_float8(np.asarray(values, np.float32))
    return np.asarray(values).astype(STORED[dtype])


def scale(stored: np.ndarray, dtype: str, divisor: int) -> np.ndarray:
    """Return the stored values divided, as an average needs: integers towards minus infinity.

    Of dtype and shape of ``stored``.
    """
    values = widen(stored, dtype)
    return narrow(values / divisor if dtype in MANTISSA_BITS else values // divisor, dtype)


def _combine_bfloat16(ufunc: np.ufunc, mine: np.ndarray, theirs: np.ndarray) -> None:
    for begin in range(0, len(mine), _STRIP):
        part = mine[begin : begin + _STRIP]
        sums = ufunc(widen(part, "bfloat16"), widen(theirs[begin : begin + _STRIP], "bfloat16"))
        part[:] = _to_bfloat16(sums)


def _to_bfloat16(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32)
    rounded: np.ndarray = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    unreal = np.isnan(values)
    if unreal.any():  # rounding could turn a NaN into an infinity
        rounded[unreal] = 0x7FC0
    return rounded


def _combine_float8(table: np.ndarray, mine: np.ndarray, theirs: np.ndarray) -> None:
    mine[:] = table[mine, theirs]


@cache
def _table(reduce_op: str) -> np.ndarray:
    values = _decoded()
    with np.errstate(all="ignore"):
        return _to_float8(_UFUNCS[reduce_op](values[:, None], values[None, :]).astype(np.float32))


@cache
def _decoded() -> np.ndarray:
    """Return the value of each of the 256 codes: sign, four bits of exponent (bias 7), three of mantissa."""
    codes = np.arange(256)
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent, mantissa = (codes >> 3) & 0xF, codes & 7
    values = np.where(exponent > 0, (1 + mantissa / 8) * np.exp2(exponent - 7.0), mantissa / 8 * np.exp2(-6.0))
    values = np.where((codes & 0x7F) == 0x7F, np.nan, values)
    return (sign * values).astype(np.float32)


def _to_float8(values: np.ndarray) -> np.ndarray:
    """Round to the nearest code, ties to even; what is beyond 448 becomes NaN, for there is no infinity."""
    positive = _decoded()[:127]  # rising: codes 0 to 126
    size = np.abs(values)
    above = np.searchsorted(positive, size).clip(0, 126)
    below = np.maximum(above - 1, 0)
    up, down = positive[above] - size, size - positive[below]
    code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    code = np.where(np.isnan(values) | (size > 464), 0x7F, code)  # 464 lies midway to where 480 would be
    return (code | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)
