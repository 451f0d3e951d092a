"""What the printed rates tell: the size of the world, and whether a line agrees with itself.

``algbw`` is k x bytes / time with k = 2 for all-reduce, the world's size n for all-gather (until 0.19.8 reduce-scatter
too), else 1; the first releases doubled all. ``busbw / algbw`` is (n-1)/n for those that share their data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ringwright.formats.sources.deepspeed_comms.grammar import PrintedCall, op_of

_SHARED = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
_HALF = 0.0051  # of the last of two decimals
_MOST_WORLD = 1 << 24
_DOUBLED = 2


def world(rates: Iterable[tuple[str, float, float]]) -> int | None:
    """Return the ranks of the world from (log name, algbw, busbw); None where rounding leaves several, or rows differ."""
    low, high = 1.0, float(_MOST_WORLD)
    for name, algbw, busbw in rates:
        if op_of(name) not in _SHARED or algbw <= 1 or not 0 <= busbw < algbw:
            continue
        least, most = (max(busbw - _HALF, 0.0) / (algbw + _HALF), min((busbw + _HALF) / (algbw - _HALF), 1.0))
        low = max(low, 1 / (1 - least))
        high = min(high, 1 / (1 - most) if most < 1 else high)
    first = math.ceil(low - 1e-9)
    return first if first <= high + 1e-9 < first + 1 else None


def breaks(call: PrintedCall, n: int | None) -> str:
    """Return how a line contradicts itself, else "": rate x time / bytes must be a factor that is known."""
    if call.size_bytes <= 0 or call.time_ms < 1 or call.algbw < 1:
        return ""
    # Gbit/s x ms = 1e6 bits
    scale = 1e6 / (8 * call.size_bytes)
    least = (call.algbw - _HALF) * (call.time_ms - _HALF) * scale / (1 + _rounded(call.size_bytes))
    most = (call.algbw + _HALF) * (call.time_ms + _HALF) * scale * (1 + _rounded(call.size_bytes))
    whole = math.ceil(least)
    known = {1, _DOUBLED} | ({n, 2 * n} if n else set())
    holds = any(least <= factor <= most for factor in known) if n else whole <= most
    return (
        ""
        if holds
        else f"{call.algbw} Gbit/s x {call.time_ms} ms is {(least + most) / 2:.3g} x {call.size_bytes} bytes"
    )


def _rounded(size_bytes: int) -> float:
    """Return by which share a size may be off: 0.005 of its unit."""
    unit = 1024 ** int(math.log(size_bytes, 1024)) if size_bytes > 1 else 1
    return 0.005 * unit / size_bytes if unit > 1 else 0.0
