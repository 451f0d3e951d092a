"""The data and arithmetic of real ranks against independent definitions, and the bounds for any order of additions."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from ringwright.algorithms.blocks.ring import ring
from ringwright.execute import arithmetic, check, data
from ringwright.execute.job import AskedCollective, NodeResult
from ringwright.ground.errors import UsageError
from ringwright.model import interpreter
from ringwright.model.collective import REDUCE_OPS, Collective
from ringwright.model.program import Program

pytestmark = pytest.mark.once

DTYPES = tuple(arithmetic.STORED)


# --------------------------------------------------------------------------------------------------------------- arithmetic
def nearest(value: Fraction, codes: list[Fraction]) -> int:
    """Return the code of the nearest number, of two as near the even one; codes are in rising order."""
    above = bisect.bisect_left(codes, value)
    beside = [code for code in (above - 1, above) if 0 <= code < len(codes)]
    return min(beside, key=lambda code: (abs(codes[code] - value), code % 2))


def e4m3(code: int) -> float:
    """Decode by the words of the specification: S.EEEE.MMM, bias 7, no infinities, S.1111.111 is NaN."""
    bits = f"{code:08b}"
    exponent, mantissa = int(bits[1:5], 2), int(bits[5:], 2)
    if bits[1:] == "1111111":
        return math.nan
    size = math.ldexp(8 + mantissa, exponent - 10) if exponent else math.ldexp(mantissa, -9)
    return -size if bits[0] == "1" else size


def test_float8_decodes_as_specified() -> None:
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(arithmetic.widen(codes, "float8"), np.array([e4m3(code) for code in range(256)]))
    known = {0x00: 0.0, 0x01: 2**-9, 0x08: 2**-6, 0x38: 1.0, 0x7E: 448.0, 0xFE: -448.0}
    assert {code: e4m3(code) for code in known} == known


@pytest.mark.parametrize("reduce_op", ["sum", "prod", "max", "min"])
def test_float8_exhaustively(reduce_op: str) -> None:
    """All 65,536 pairs against exact fractions."""
    exact: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
        "sum": lambda a, b: a + b,
        "prod": lambda a, b: a * b,
        "max": max,
        "min": min,
    }
    positive = [Fraction(e4m3(code)) for code in range(127)]
    rounded: dict[Fraction, float] = {}

    def wanted(a: float, b: float) -> float:
        if math.isnan(a) or math.isnan(b):
            return math.nan
        value = exact[reduce_op](Fraction(a), Fraction(b))
        size = abs(value)
        if size not in rounded:
            rounded[size] = math.nan if size > 464 else float(positive[nearest(size, positive)])
        return -rounded[size] if value < 0 else rounded[size]

    mine, theirs = (each.reshape(-1).astype(np.uint8) for each in np.mgrid[0:256, 0:256])
    expected = [wanted(e4m3(a), e4m3(b)) for a, b in zip(mine.tolist(), theirs.tolist(), strict=True)]
    arithmetic.combiner("float8", reduce_op)(mine, theirs)
    np.testing.assert_array_equal(arithmetic.widen(mine, "float8"), np.array(expected))


def bfloat16(value: float) -> int:
    """Round a float32 to the nearest of the two bfloat16 beside it, ties to even; by fractions, for finite results."""
    bits = int(np.float32(value).view(np.uint32))
    below = bits >> 16
    low, high = (Fraction(float(np.uint32(code << 16).view(np.float32))) for code in (below, below + 1))
    exact = Fraction(float(np.float32(value)))
    return min((below, below + 1), key=lambda code: (abs((low if code == below else high) - exact), code % 2))


def test_bfloat16_rounds_to_nearest_even() -> None:
    chance = np.random.default_rng(0)
    bits = np.concatenate(
        [
            chance.integers(0, 1 << 32, 20_000, dtype=np.uint32),
            (chance.integers(0, 1 << 16, 4000, dtype=np.uint32) << 16) | 0x8000,  # ties
            chance.integers(0, 1 << 23, 2000, dtype=np.uint32),  # subnormal
        ]
    )
    values = bits.view(np.float32)
    values = values[np.isfinite(values) & (np.abs(values) < 3.3e38)]
    found = arithmetic.narrow(values, "bfloat16")
    assert found.tolist() == [bfloat16(value) for value in values]


def test_bfloat16_at_its_ends() -> None:
    edge = np.array([np.inf, -np.inf, 3.4028235e38, -3.4028235e38, 0.0, -0.0], np.float32)
    assert arithmetic.narrow(edge, "bfloat16").tolist() == [0x7F80, 0xFF80, 0x7F80, 0xFF80, 0, 0x8000]
    unreal = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001], np.uint32).view(np.float32)
    assert np.isnan(arithmetic.widen(arithmetic.narrow(unreal, "bfloat16"), "bfloat16")).all()


@pytest.mark.parametrize("reduce_op", ["sum", "prod", "max", "min"])
def test_bfloat16_combines_as_float32_rounded_once(reduce_op: str) -> None:
    chance = np.random.default_rng(1)
    mine, theirs = (chance.integers(0, 1 << 16, 70_000, dtype=np.uint16) for _ in range(2))
    one, other = (arithmetic.widen(each, "bfloat16") for each in (mine, theirs))
    with np.errstate(all="ignore"):
        wide = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[reduce_op](one, other)
        arithmetic.combiner("bfloat16", reduce_op)(mine, theirs)
    expected = arithmetic.widen(arithmetic.narrow(wide, "bfloat16"), "bfloat16")
    np.testing.assert_array_equal(arithmetic.widen(mine, "bfloat16"), expected)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
def test_averages_of_integers_are_floored(dtype: str) -> None:
    values = np.array([7, 9, 10, 0], arithmetic.STORED[dtype])
    assert arithmetic.scale(values, dtype, 3).tolist() == [2, 3, 3, 0]
    if dtype.startswith("int"):
        assert arithmetic.scale(-values, dtype, 3).tolist() == [-3, -3, -4, 0]


# --------------------------------------------------------------------------------------------------------------------- data
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduce_op", REDUCE_OPS)
@pytest.mark.parametrize("p", [2, 3, 8, 17, 40])
def test_whole_numbers_give_the_same_in_any_order(dtype: str, reduce_op: str, p: int) -> None:
    """In the element type, over random trees of additions; for reals the exact result."""
    collective = Collective("all-reduce", range(p), 64 * arithmetic.STORED_BYTES[dtype], dtype, reduce_op)
    parts = [data.values(collective, rank, 0, collective.size_bytes, 5) for rank in range(p)]
    combine, chance = arithmetic.combiner(dtype, reduce_op), random.Random(p)
    wanted = data.expected(collective, 0, 5)
    for _ in range(5):
        rest = [part.copy() for part in parts]
        while len(rest) > 1:
            one = rest.pop(chance.randrange(len(rest)))
            combine(rest[chance.randrange(len(rest))], one)
        found = arithmetic.scale(rest[0], dtype, p) if reduce_op == "avg" else rest[0]
        np.testing.assert_array_equal(found, wanted)
    if dtype in arithmetic.MANTISSA_BITS and reduce_op == "sum":
        exact = np.sum([np.asarray(arithmetic.widen(part, dtype), np.float64) for part in parts], axis=0)
        np.testing.assert_array_equal(np.asarray(arithmetic.widen(wanted, dtype), np.float64), exact)
    assert reduce_op != "sum" or len(np.unique(wanted)) > 1, "a result that is the same everywhere shows no shift"


def reals(dtype: str, p: int, reduce_op: str = "sum") -> tuple[Program, list[np.ndarray]]:
    collective = Collective("all-reduce", range(p), 256 * arithmetic.STORED_BYTES[dtype], dtype, reduce_op)
    return ring(collective), [
        data.values(collective, rank, 0, collective.size_bytes, 1, reals=True) for rank in range(p)
    ]


def answers(program: Program, stored: np.ndarray) -> list[NodeResult]:
    return [NodeResult(0, "x", results=[(0, 0, stored.tobytes())]) for _ in range(program.p)]


@pytest.mark.parametrize("dtype", list(arithmetic.MANTISSA_BITS))
@pytest.mark.parametrize("p", [2, 3, 8, 20])
def test_any_order_is_within_the_bound_and_a_wrong_sum_is_not(dtype: str, p: int) -> None:
    program, parts = reals(dtype, p)
    for seed in range(10):
        order = random.Random(seed).sample(range(p), p)
        total = parts[order[0]].copy()
        for rank in order[1:]:
            arithmetic.combiner(dtype, "sum")(total, parts[rank])
        assert check.within_order(program, answers(program, total), seed=1) is None
    wide = [np.asarray(arithmetic.widen(part, dtype), np.float64) for part in parts]
    room = data.order_bound(wide, 2 * (p - 1) if dtype == "float64" else p - 1, dtype)
    off = np.sum(wide, axis=0)
    off[77] += 2 * room[77] + 2.0 ** -arithmetic.MANTISSA_BITS[dtype] * 4 * np.abs(off[77])
    found = check.within_order(program, answers(program, arithmetic.narrow(off, dtype)), seed=1)
    assert found is not None
    assert (found.rank, found.element, found.wrong) == (0, 77, p)
    assert found.got == pytest.approx(off[77], rel=0.1)  # the value, not how it is stored


def test_averages_of_reals_are_within_the_bound() -> None:
    for dtype in arithmetic.MANTISSA_BITS:
        program, parts = reals(dtype, 3, "avg")
        total = parts[2].copy()
        for part in parts[:2]:
            arithmetic.combiner(dtype, "sum")(total, part)
        assert check.within_order(program, answers(program, total), seed=1) is None
        undivided = arithmetic.narrow(arithmetic.widen(total, dtype) * 3, dtype)
        assert check.within_order(program, answers(program, undivided), seed=1) is not None


def test_reals_whose_order_cannot_matter_must_be_equal() -> None:
    program, parts = reals("float32", 3, "max")
    best = np.max(parts, axis=0)
    assert check.within_order(program, answers(program, best), seed=1) is None
    best[3] = np.nextafter(best[3], np.float32(9))
    assert check.within_order(program, answers(program, best), seed=1) is not None


def test_a_lost_block_is_a_difference() -> None:
    program, _ = reals("float32", 3)
    nothing = [NodeResult(0, "x") for _ in range(3)]
    assert check.within_order(program, nothing, seed=1) is not None
    assert check.against_interpreter(program, nothing) is not None


def test_products_of_reals_are_refused() -> None:
    program, parts = reals("float32", 2, "prod")
    with pytest.raises(UsageError, match="no bound"):
        check.within_order(program, answers(program, parts[0]), seed=1)


def test_expected_is_the_interpreters_oracle() -> None:
    for op, dtype in itertools.product(("all-reduce", "all-gather", "scatter", "all-to-all", "send-recv"), ("int32",)):
        collective = Collective(op, range(4), 4 * 40, dtype)
        wanted = interpreter.expected(collective, data.inputs(collective, 9))
        for blocks in wanted:
            for block, values in blocks.items():
                np.testing.assert_array_equal(data.expected(collective, block, 9), values)


def test_a_collective_comes_back_from_what_is_asked() -> None:
    rows = ((0, 8), (16, 4))
    for collective in (
        Collective("all-to-all", (3, 1), 24, counts=rows),
        Collective("gather", (5, 2), 12, counts=(4, 8)),
    ):
        back = AskedCollective.of(collective).collective()
        assert list(back.group) == [0, 1]
        assert dataclasses.replace(back, group=collective.group) == collective
