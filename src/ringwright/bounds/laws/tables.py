"""Laws of benchmark tables: what a row prints of time and bandwidth must agree, within the digits that are printed.

A printed number stands for everything that it may have been rounded from; zeros at the ends of all numbers of a column are no
digits of it, whoever wrote them there. Some releases count all-gather and reduce-scatter
by what a rank receives from others, (p-1)/p of the size, and print both bandwidths alike: a whole table may keep to that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial

from ringwright.bounds.laws.law import Law
from ringwright.ground.units import format_size
from ringwright.model.collective import BUS_FACTORS

MOST_PLACES = 20  # before or behind the point
MOST_BYTES = 1 << 62  # of a row; beyond it is no size
SLACK = 1e-3  # beside one unit of the last printed digit: some tools print the mean of rates beside the mean of times
LONGEST_COUNT = 18  # digits of a number of elements
CLOSE = 0.05  # a printed rate this close to its limits tells a factor
LEAST_DIGITS = 3  # that a column has, however many of its numbers are round ones
AGREEING = 3  # so many rows that agree with each other outweigh a list of ranks
_OWN_CONVENTION = ("all-gather", "reduce-scatter")
_PAIRED = ("broadcast", "reduce", "send-recv")
_MOST_RANKS = 64  # beyond, factors of neighbouring numbers of ranks are as near as rounding

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Side:
    """One run of one row, as printed: microseconds, GB/s, elements that are wrong; "" where nothing or no number stands."""

    time_us: str
    algbw_gbs: str = ""
    busbw_gbs: str = ""
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Printed:
    """One row: its size in bytes and its runs."""

    size_bytes: int
    sides: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class JudgedTable:
    """Rows that broke a law (index -> law and detail), and why the printed number of ranks or operation is not used.

    Where ``ranks_refused``, rows and list of ranks contradict each other: neither that number nor a printed busbw may be used.
    """

    broken: dict[int, tuple[str, str]]
    ranks_refused: str = ""
    op_refused: str = ""


def judge(op: str, ranks: int, rows: Sequence[Printed], *, is_op_told: bool = True) -> JudgedTable:
    """Return what breaks a law in the rows of ONE table; ``op`` "" and ``ranks`` 0 stand for unknown.

    ``is_op_told`` is False where the operation was only guessed (from a file's name): then it gives way to the rows.
    """
    rows = _as_precise(rows)
    shares = _share(op, ranks, rows)
    broken: dict[int, tuple[str, str]] = {}
    for index, row in enumerate(rows):
        detail = next((text for side in row.sides if (text := _algbw(row.size_bytes, side, shares))), "")
        if detail:
            broken[index] = ("algbw", detail)
        if wrong := sum(_wrong(side) for side in row.sides):
            broken[index] = ("correct", f"{format_size(row.size_bytes)}: {wrong:,} elements are wrong")
    whole = [(index, row) for index, row in enumerate(rows) if index not in broken]
    sides = _telling([row for _, row in whole])
    factor, ranks_refused, op_refused = _factor(op, ranks, sides, shares, is_op_told=is_op_told)
    unsure = 0.0 if factor == factor_of(op, ranks) else _unsure(sides)
    for index, row in whole:
        detail = next(
            (text for side in row.sides if (text := _busbw(row.size_bytes, side, factor, shares, unsure))), ""
        )
        if detail:
            broken[index] = ("busbw", detail)
    return JudgedTable(_all_or_some(rows, broken), ranks_refused, op_refused)


def _wrong(side: Side) -> int:
    """Return how many elements of a run are wrong, as far as it says."""
    return int(side.wrong) if side.wrong.isdecimal() and len(side.wrong) <= LONGEST_COUNT else 0


def _all_or_some(rows: Sequence[Printed], broken: dict[int, tuple[str, str]]) -> dict[int, tuple[str, str]]:
    """Return what is broken; every row, where each whose digits tell a factor has another than the operation's.

    The digits of the others are too few to show it: they are rows of the same wrong operation.
    """
    telling = [
        index
        for index, row in enumerate(rows)
        if any(_is_close(s.algbw_gbs) and _is_close(s.busbw_gbs) for s in row.sides)
    ]
    wrong = [index for index in telling if broken.get(index, ("",))[0] == "busbw"]
    if len(wrong) < AGREEING or len(wrong) < len(telling):
        return broken
    why = ("busbw", f"the factor of all {len(wrong)} rows that tell it is another: {broken[wrong[-1]][1]}")
    return {index: broken.get(index, why) for index in range(len(rows))}


@lru_cache(1 << 16)
def rounded_from(text: str) -> Interval | None:
    """Return the least and the greatest value that may have been printed so; None where it is no number of 0 or more."""
    try:
        number = float(text)
        exponent = Decimal(text).as_tuple().exponent
    except (ValueError, InvalidOperation):
        return None
    if not (math.isfinite(number) and number >= 0 and isinstance(exponent, int)):
        return None
    unit = 10.0 ** min(max(exponent, -300), 300)
    return max(0.0, (number - unit) * (1 - SLACK)), (number + unit) * (1 + SLACK)


def factor_of(op: str, ranks: int) -> float | None:
    """Return bus over algorithm bandwidth; None where the operation or its ranks are not known."""
    if op in _PAIRED:
        return 1.0
    return BUS_FACTORS[op] * (ranks - 1) / ranks if op in BUS_FACTORS and 0 < ranks < 1 << 31 else None


# -------------------------------------------------------------------------------------------------------------- digits
def _as_precise(rows: Sequence[Printed]) -> list[Printed]:
    """Return the rows with each number cut to the digits that its column has: of 3 digits, 475.0000 says no more than 475."""
    sides = [side for row in rows for side in row.sides]
    names = ("time_us", "algbw_gbs", "busbw_gbs")
    most = {name: _digits([getattr(side, name) for side in sides]) for name in names}

    def cut(side: Side) -> Side:
        return replace(side, **{name: _cut(getattr(side, name), digits) for name, digits in most.items()})

    return [replace(row, sides=tuple(map(cut, row.sides))) for row in rows]


def _decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and number and abs(number.adjusted()) < MOST_PLACES else None


def _digits(column: Sequence[str]) -> int:
    """Return how many digits the number of a column has that has the most, zeros at its end not counted."""
    numbers = filter(None, map(_decimal, column))
    most = max([LEAST_DIGITS, *(len(number.normalize().as_tuple().digits) for number in numbers)])
    return min(most, MOST_PLACES)


def _cut(text: str, digits: int) -> str:
    """Return a number without zeros behind its point that are beyond so many digits; other text as it is."""
    number = _decimal(text)
    if number is None:
        return text
    last = min(number.adjusted() - digits + 1, 0)
    own = number.as_tuple().exponent
    return f"{number.quantize(Decimal(1).scaleb(last)):f}" if isinstance(own, int) and own < last else text


# ------------------------------------------------------------------------------------------------- algorithm bandwidth
def _by_time(size_bytes: int, side: Side, share: float) -> Interval | None:
    """Return the limits of size x share / time in GB/s."""
    time = rounded_from(side.time_us)
    if time is None or time[1] <= 0 or size_bytes > MOST_BYTES:
        return None
    low = size_bytes * share / time[1] / 1e3
    return low, size_bytes * share / time[0] / 1e3 if time[0] > 0 else math.inf


def _meet(one: Interval, other: Interval) -> Interval | None:
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else None


def _algbw(size_bytes: int, side: Side, share: float) -> str:
    """Return how a run breaks the law, "" where it holds or says too little."""
    said, told = _by_time(size_bytes, side, share), rounded_from(side.algbw_gbs)
    if said is None or told is None or _meet(said, told):
        return ""
    exact = size_bytes * share / float(side.time_us) / 1e3 if float(side.time_us) > 0 else math.inf
    return f"{side.algbw_gbs} GB/s printed, {exact:.4g} GB/s by {size_bytes} B in {side.time_us} us"


def _share(op: str, ranks: int, rows: Sequence[Printed]) -> float:
    """Return which share of the size the table's algorithm bandwidth counts: 1, or (p-1)/p by its own convention."""
    if op not in _OWN_CONVENTION:
        return 1.0
    # (p-1)/p of 2 ranks and more: another share is no convention
    sides = [(row.size_bytes, side) for row in rows for side in row.sides if _is_close(side.algbw_gbs)]
    shares = [float(s.algbw_gbs) * float(s.time_us) * 1e3 / size for size, s in sides if size and _is_close(s.time_us)]
    share = statistics.median(shares) if shares else 1.0
    legal = [(p - 1) / p for p in ((ranks,) if ranks > 1 else range(2, _MOST_RANKS + 1))]
    nearest = min(legal, key=lambda value: abs(value - share))
    alike = sum(side.algbw_gbs == side.busbw_gbs for _, side in sides)
    return nearest if alike * 2 > len(sides) and abs(nearest - share) < abs(1 - share) else 1.0


def _is_close(text: str) -> bool:
    """Say whether the digits of a printed number tell it to 5 %."""
    limits = rounded_from(text)
    return limits is not None and limits[0] > 0 and limits[1] / limits[0] < 1 + CLOSE


# ------------------------------------------------------------------------------------------------------- bus bandwidth
def _busbw(size_bytes: int, side: Side, factor: float | None, share: float, unsure: float) -> str:
    """Return how a run breaks the law, "" where it holds or says too little; ``unsure``: by how much the factor may be off."""
    printed, told = rounded_from(side.busbw_gbs), rounded_from(side.algbw_gbs)
    if printed is None or told is None or factor is None:
        return ""
    said = _by_time(size_bytes, side, share)
    sure = (_meet(said, told) if said else None) or told
    if _meet(printed, (sure[0] * factor * (1 - SLACK - unsure), sure[1] * factor * (1 + SLACK + unsure))):
        return ""
    return (
        f"{side.busbw_gbs} GB/s printed, {float(side.algbw_gbs) * factor:.4g} GB/s by {side.algbw_gbs} x {factor:.4g}"
    )


def _telling(rows: Sequence[Printed]) -> list[Side]:
    """Return the runs whose digits tell the factor."""
    return [side for row in rows for side in row.sides if _is_close(side.algbw_gbs) and _is_close(side.busbw_gbs)]


def _unsure(sides: Sequence[Side]) -> float:
    """Return by how much a factor that is read off such runs may be off: as far as their digits tell it."""
    limits = [(rounded_from(side.algbw_gbs), rounded_from(side.busbw_gbs)) for side in sides]
    widths = [alg[1] / alg[0] * bus[1] / bus[0] - 1 for alg, bus in limits if alg and bus]
    return statistics.median_high(widths) / 2 if widths else 0.0


def _factor(
    op: str, ranks: int, sides: Sequence[Side], share: float, *, is_op_told: bool
) -> tuple[float | None, str, str]:
    """Return the table's bus factor, and why its number of ranks or its operation is not believed."""
    factors = [float(side.busbw_gbs) / float(side.algbw_gbs) for side in sides]
    seen = statistics.median(factors) if factors else None
    known = 1.0 if share < 1 else factor_of(op, ranks)
    if seen is None:
        return known, "", ""
    agreeing = sum(abs(value - seen) < 0.01 for value in factors)
    if op and not _is_legal(op, seen) and share >= 1:
        if not is_op_told:
            return seen, "", f"busbw / algbw is {seen:.4g}, which {op} never has"
        return known if known is not None else _nearest(op, seen), "", ""
    if known is None:
        return seen, "", ""
    if agreeing >= AGREEING and _contradict(sides, known, abs(seen - known)):
        return seen, f"busbw / algbw is {seen:.4g} in {agreeing} runs, {known:.4g} by {ranks} ranks of {op}", ""
    return known, "", ""


def _contradict(sides: Sequence[Side], factor: float, apart: float) -> bool:
    """Say whether the digits of runs leave no room for a factor: of those that tell it from what is seen, ``apart`` from it."""
    limits = [(rounded_from(side.busbw_gbs), rounded_from(side.algbw_gbs)) for side in sides]
    ratios = [(bus[0] / alg[1], bus[1] / alg[0]) for bus, alg in limits if bus and alg and alg[0] > 0]
    telling = [(low, high) for low, high in ratios if (high - low) / 2 < apart]
    return apart > 0.01 and len(telling) >= AGREEING and all(not low <= factor <= high for low, high in telling)


def _legal(op: str) -> list[float]:
    if op not in BUS_FACTORS:
        return [1.0]
    return [BUS_FACTORS[op] * (p - 1) / p for p in range(1, _MOST_RANKS + 1)] + [BUS_FACTORS[op]]


def _nearest(op: str, seen: float) -> float:
    return min(_legal(op), key=lambda value: abs(value - seen))


def _is_legal(op: str, seen: float) -> bool:
    """Say whether some number of ranks gives an operation this factor."""
    nearest = _nearest(op, seen)
    return abs(nearest - seen) <= 0.01 + 0.01 * seen or (op in BUS_FACTORS and _beyond(op, seen))


def _beyond(op: str, seen: float) -> bool:
    return BUS_FACTORS[op] * (_MOST_RANKS - 1) / _MOST_RANKS <= seen <= BUS_FACTORS[op] * 1.01


# ---------------------------------------------------------------------------------------------------------------- laws
def _broken(law: str, op: str, ranks: int, *rows: tuple[int, str, str, str, str]) -> str:
    """Return how rows of a table (bytes; microseconds, GB/s twice, elements that are wrong) break one of the laws."""
    printed = [Printed(size, (Side(*side),)) for size, *side in rows]
    return next((detail for name, detail in judge(op, ranks, printed).broken.values() if name == law), "")


_GOOD = (1 << 20, "100.0", "10.49", "18.35", "0")
_SOURCE = "NVIDIA/nccl-tests, doc/PERFORMANCE.md and src/common.cu"
LAWS = (
    Law(
        "algbw",
        "algorithm bandwidth is size / time, within what the printed digits allow",
        _SOURCE,
        partial(_broken, "algbw"),
        kept=(("all-reduce", 8, _GOOD),),
        broken=(("all-reduce", 8, (1 << 20, "100.0", "20.97", "36.70", "0")),),
    ),
    Law(
        "busbw",
        "bus bandwidth is algorithm bandwidth x the factor of the operation and its ranks",
        _SOURCE,
        partial(_broken, "busbw"),
        kept=(("all-reduce", 8, _GOOD),),
        broken=(("all-reduce", 8, (1 << 20, "100.0", "10.49", "10.49", "0")),),
    ),
    Law(
        "correct",
        "what a benchmark computed is right: no element is wrong, no value out of bounds",
        _SOURCE,
        partial(_broken, "correct"),
        kept=(("all-reduce", 8, _GOOD),),
        broken=(("all-reduce", 8, (*_GOOD[:4], "7")),),
    ),
)
