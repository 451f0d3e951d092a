"""Sizes, rates and times: SI floats inside, the unit in every name, one way to print each.

A size typed by a user is binary (``128M`` = 128 * 2**20), as in nccl-tests; GB/s is decimal.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

from ringwright.ground.errors import UsageError

_BINARY = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:I?B)?\s*", re.IGNORECASE)
_RATE = re.compile(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*(?:([kMGT]?)(i?)(b|B)(?:/s|ps))?\s*")
_TIME = re.compile(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*(ps|ns|us|µs|ms|s|min|h|)\s*")
_SECONDS = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "min": 60.0, "h": 3600.0}
MOST_BYTES = 1 << 60
MIB, GIB = 1 << 20, 1 << 30
PS = 1e12  # of a second
_STEPS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def parse_size(text: str) -> int:
    """Return bytes for ``8``, ``64K``, ``1.5G`` or ``128MiB`` (binary suffixes); raise UsageError otherwise."""
    match = _SIZE.fullmatch(text)
    value = _number(match[1]) if match else None
    if match is None or value is None:
        raise UsageError(f"'{text}' is not a size", remedy="give bytes with an optional suffix, for example 128M")
    size_bytes = round(value * _BINARY[match[2].upper()])
    if size_bytes > MOST_BYTES:
        raise UsageError(f"'{text}' is more than {format_size(MOST_BYTES)}", remedy="give a smaller size, such as 128M")
    return size_bytes


def parse_rate(text: str) -> float:
    """Return bytes per second for ``50GB/s``, ``400Gb/s`` (bits), ``50GiB/s`` or a plain number; raise UsageError otherwise."""
    match = _RATE.fullmatch(text)
    value = _number(match[1]) if match else None
    if match is None or value is None:
        raise UsageError(
            f"'{text}' is not a rate", remedy="give bytes or bits per second, for example 50GB/s or 400Gb/s"
        )
    power = " kMGT".index(match[2] or " ")
    scale = 1024.0**power if match[3] else 1000.0**power
    return value * scale / (8 if match[4] == "b" else 1)


def parse_time(text: str) -> float:
    """Return seconds for ``1.5us``, ``100ms``, ``2s`` or a plain number of seconds; raise UsageError otherwise."""
    match = _TIME.fullmatch(text)
    value = _number(match[1]) if match else None
    if match is None or value is None:
        raise UsageError(
            f"'{text}' is not a time", remedy="give a number with ps, ns, us, ms, s, min or h, such as 100ms"
        )
    # Dividing gives the nearest float to what was written, where multiplying by 1e-3 does not.
    scale = _SECONDS[match[2]]
    return value * scale if scale >= 1 else value / round(1 / scale)


def _number(text: str) -> float | None:
    """Return the number, None for no number and for one that no float holds."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def format_size(size_bytes: float, digits: int = 3) -> str:
    """Return a size in the largest binary unit that keeps it at or above one: ``14336`` -> ``14 KiB``."""
    value = float(size_bytes)
    step = 0
    while abs(value) >= 1024 and step < len(_STEPS) - 1:
        value /= 1024
        step += 1
    is_whole = value == int(value) or (digits == 3 and value >= 100)
    number = f"{value:.0f}" if is_whole else f"{value:.{digits}g}"
    return f"{number} {_STEPS[step]}"


def format_sizes(sizes_bytes: Iterable[int | float]) -> dict[int | float, str]:
    """Return the text of each size of one table: those that would look alike have more digits, or are counted in bytes.

    >>> format_sizes([2101248, 2099200, 4096])
    {2101248: '2.004 MiB', 2099200: '2.002 MiB', 4096: '4 KiB'}
    """
    told = {size: f"{size:,.0f} B" for size in sizes_bytes}
    left = set(told)
    for digits in range(3, 8):
        texts = {size: format_size(size, digits) for size in left}
        times = Counter(texts.values())
        alone = {size: text for size, text in texts.items() if times[text] == 1}
        told |= alone
        left -= alone.keys()
    return told


def format_us(time_s: float) -> str:
    """Return microseconds with four digits, and with all that stand before the point: ``0.0025186`` -> ``2,519 us``."""
    time_us = time_s * 1e6
    return f"{time_us:,.0f} us" if time_us >= 1000 else f"{time_us:.4g} us"


def format_time(time_s: float) -> str:
    """Return a time in the unit in which it reads best: ``2,519 us``, ``62.52 ms``, ``60 s``."""
    if abs(time_s) < 0.01:
        return format_us(time_s)
    if abs(time_s) < 1:
        return f"{time_s * 1e3:.4g} ms"
    return f"{time_s:.4g} s" if abs(time_s) < 1000 else f"{time_s:,.0f} s"


def format_count(count: int) -> str:
    """Return a count with thousands separated by a thin comma."""
    return f"{count:,}"
