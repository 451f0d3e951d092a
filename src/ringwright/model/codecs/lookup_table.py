"""Lookup table: a number is the index of an entry of a table whose entries are whole numbers, and sums are such numbers (THC).

Idea: workers agree by the maximum on the largest magnitude R of a packet. The table has 2^b - 1 entries, whole numbers from 0
    (for -R) to g (for R); a worker sends the index of an entry next to its number, b bits; the node looks it up and adds in
    ``register_bits``; g is the largest even number with n g below 2^register_bits: headroom for n workers. The result
    is what the sum of entries says, times 2 R / g.
Holds: no overflow; zero has an entry of its own, so that zeros (of either sign) stay zeros; sums do not depend on the order
    of arrival; with stochastic rounding the expectation of a contribution is the number itself. R may be subnormal.
    A ``normal`` table has its entries closer together near zero, as the density of normal numbers asks for.
Declines: more workers than ``register_bits`` have room for; a packet with NaN or an infinity comes back as NaN.
    The rotation (random Hadamard transform) that THC does before is not done here.
Source: THC, NSDI 2024 (arXiv 2302.08545), sections 4 and 5.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Annotated

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices, Range, Seed
from ringwright.model.codecs.contributions import (
    NodeSum,
    Packet,
    encodable,
    in_packets,
    one_of,
    out_of_packets,
    unfinite,
    within,
)

OPS = ("sum",)
CARRIES = ("float16", "bfloat16", "float32")
ADDED_AS = "uint8"
SWITCHES = ()  # nor is THC's
TOLERANCE = 0.3
WHOLE_NUMBERS = True
OF_PROGRAMS = ("bits", "register_bits", "table", "rounding")
TAIL = 1.9  # R in units of the wider normal (sqrt 3 sigma) whose density is that of good entries: R = 3.3 sigma in 1,024 numbers


def lookup_table(
    given: np.ndarray,
    *,
    packet: Packet = 1024,
    bits: Annotated[int, Range(2, 8)] = 4,
    register_bits: Annotated[int, Range(8, 16)] = 8,
    table: Annotated[str, Choices(("uniform", "normal"))] = "uniform",
    rounding: Annotated[str, Choices(("stochastic", "nearest"))] = "stochastic",
    seed: Seed = 0,
) -> NodeSum:
    """Return the sum of contributions as entries of a table: float16 or float32 of shape (elements,).

    Knobs: ``packet`` numbers that share a range; ``bits`` of an index; ``register_bits`` of a sum; ``table`` how its entries
    lie; ``rounding`` to which neighbour a number goes; ``seed`` of stochastic rounding.
    Raises UsageError for another dtype, a knob out of range and more workers than a sum has room for.
    """
    given = encodable("lookup-table", given, packet)
    one_of("lookup-table", "rounding", rounding, ("stochastic", "nearest"))
    entries = entries_of(len(given), bits=bits, register_bits=register_bits, table=table)
    middle = int(entries[-1]) // 2
    cut = in_packets(given, packet)
    largest = np.abs(cut).max(axis=(0, 2))[:, None]
    known = np.isfinite(largest)
    scale = np.where(known & (largest > 0), largest, 1.0)
    with np.errstate(invalid="ignore"):
        asked = np.where(known, cut / scale * middle + middle, middle)
    below = np.clip(np.searchsorted(entries, asked, side="right") - 1, 0, len(entries) - 2)
    low, high = entries[below], entries[below + 1]
    share = (asked - low) / (high - low)
    draw = np.random.default_rng(seed).random(share.shape) if rounding == "stochastic" else 0.5
    entry = np.where(share > draw, high, low)
    total = entry.sum(axis=0)
    step = np.where(known, scale / middle, np.nan)
    return NodeSum(
        out_of_packets((total - len(given) * middle) * step, given[0]),
        out_of_packets((entry - middle) * step, given),
        overflows=int((total >= 1 << register_bits).sum()),
        not_finite=unfinite(given),
    )


def entries_of(workers: int, *, bits: int = 4, register_bits: int = 8, table: str = "uniform") -> np.ndarray:
    """Return the table for so many workers: rising whole numbers from 0 to g, alike on both sides, int64 of shape (entries,).

    It has 2^bits - 1 entries, or as many whole numbers as there are. Raises UsageError where a sum has no room.
    """
    within("lookup-table", "bits", bits, 2, 8)
    within("lookup-table", "register_bits", register_bits, 8, 16)
    one_of("lookup-table", "table", table, ("uniform", "normal"))
    middle = ((1 << register_bits) - 1) // workers // 2
    if not middle:
        room = ((1 << register_bits) - 1) // 2
        raise UsageError(
            f"lookup-table: {workers} workers have no room in sums of {register_bits} bits",
            remedy=f"{room} workers at the most" + (", or register_bits=16" if register_bits < 16 else ""),
        )
    side = np.linspace(0, 1, 1 << (bits - 1))
    if table == "normal":
        normal = NormalDist()
        side = np.array([normal.inv_cdf(0.5 + (normal.cdf(TAIL) - 0.5) * each) for each in side]) / TAIL
    upper = np.unique(np.rint(side * middle).astype(np.int64))
    return np.concatenate((middle - upper[:0:-1], middle + upper))


def wire_bytes(packet: int = 1024, bits: int = 4, register_bits: int = 8) -> tuple[float, float]:
    """Return bytes of a number to the node and back: index and sum, and its share of the range of 4 B on the way there."""
    return bits / 8 + 4 / packet, register_bits / 8
