"""Plans under any interleaving, and the data and arithmetic of real ranks against independent definitions."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from declared_programs import MSCCL, MSCCLPP
from plan_oracle import Stuck, verify
from ringwright import interpreter
from ringwright.algorithms.blocks.ring import ring
from ringwright.collective import PER_RANK, REDUCE_OPS, ROOTED, Collective
from ringwright.errors import ProgramError, UsageError
from ringwright.execute import arithmetic, check, data
from ringwright.execute.job import Asked, Found
from ringwright.execute.plan import Do, Message, Plan, Run, plans
from ringwright.execute.push import PIECE_BYTES, cut, packed
from ringwright.fabrics import fabric
from ringwright.program import Op, Program, Step, explicit
from ringwright.sources.programs import read_program
from ringwright.studies import real_ranks
from ringwright.studies.registry import System, systems
from shared_data import needs_shared_data, real

DTYPES = tuple(arithmetic.STORED)
NETWORK = ("collnet-direct", "collnet-chain", "nvls", "nvls-tree", "nvls-collnet")


def drawn(system: System, op: str, chance: random.Random) -> Program | None:
    """Return a program of a drawn size, group, element type and cut; None where the algorithm openly declines it."""
    named = system.fabrics[0] if system.fabrics and ":" in system.fabrics[0] else ""
    p = chance.choice((2, 3, 4, 5, 6, 8))
    topology = fabric(named or f"switch:{p}")
    p = min(p, topology.n_ranks)
    counts: Any = None
    size = chance.choice((0, 8, 8 * p, 8 * (p + 3), 1000))
    if op in PER_RANK and chance.random() < 0.5:
        counts = tuple(8 * chance.randrange(4) for _ in range(p))
        size = sum(counts)
    if op == "all-to-all" and chance.random() < 0.5:
        counts = tuple(tuple(8 * chance.randrange(4) for _ in range(p)) for _ in range(p))
    group = tuple(chance.sample(range(topology.n_ranks), p))
    root = chance.randrange(p) if op in ROOTED else 0
    size = 0 if op == "barrier" else size
    try:
        return system.load()(
            Collective(op, group, size, chance.choice(DTYPES), chance.choice(REDUCE_OPS), root, counts=counts), topology
        )
    except UsageError:
        return None


@pytest.mark.parametrize("system", systems(), ids=lambda system: system.slug)
def test_any_interleaving_gives_the_interpreters_result(system: System) -> None:
    """Any cut, group and element type; as messages and as groups of messages."""
    chance, tried = random.Random(system.slug), 0
    for op in system.ops:
        for _ in range(12):
            program = drawn(system, op, chance)
            if program is not None and program.n_nodes <= 20:
                verify(program, seed=chance.randrange(1000), groups=chance.random() < 0.4)
                tried += 1
    assert tried >= len(system.ops), "hardly anything was tried"


@pytest.mark.parametrize("slug", NETWORK)
def test_programs_with_nodes_behind_the_ranks(slug: str) -> None:
    found = [program for case in real_ranks.chosen(slugs=[slug]) if (program := real_ranks.program(case))]
    with_aggregators = [program for program in found if program.aggregators]
    assert with_aggregators
    for seed, program in enumerate(found):
        verify(program, seed=seed)
        verify(program, seed=seed, groups=True)


@needs_shared_data
@pytest.mark.parametrize("name", [*MSCCL[:9], *MSCCL[10:15], *MSCCLPP])
def test_imported_programs(name: str) -> None:
    """Their slots follow no pattern, and some chunks lie in several places."""
    where = f"msccl-xml/{name}.xml" if name in MSCCL else f"mscclpp-json/{name}.json"
    program = read_program(real(f"real/{where}"))
    attributes = program.lanes.attributes  # type: ignore[union-attr]
    if "nchunksperloop" in attributes:
        program = read_program(real(f"real/{where}"), size_bytes=int(attributes["nchunksperloop"]) * 8)
    verify(program, seed=3)
    verify(program, seed=4, groups=True)


def many() -> list[Program]:
    return [program for case in real_ranks.chosen((3,), ("ragged",))[::3] if (program := real_ranks.program(case))]


def test_both_ends_number_and_cut_alike() -> None:
    for program in many():
        made = plans(program)
        ours: dict[tuple[int, int], list[Message]] = defaultdict(list)
        theirs: dict[tuple[int, int], list[Message]] = defaultdict(list)
        for plan in made:
            for message in plan.sends:
                ours[plan.node, message.peer].append(message)
            for message in plan.receives:
                theirs[message.peer, plan.node].append(message)
        assert ours.keys() == theirs.keys()
        for pair, sent in ours.items():
            assert [each.turn for each in sent] == list(range(len(sent))) == [each.turn for each in theirs[pair]]
            for one, other in zip(sent, theirs[pair], strict=True):
                assert (one.step, one.number, one.size) == (other.step, other.number, other.size)
                assert packed(one.runs) == packed(other.runs)
                assert [cut(run, 64) for run in one.runs] == [cut(run, 64) for run in other.runs]


def test_pieces_cover_a_run() -> None:
    for size, piece in itertools.product((1, 63, 64, 65, 1000, PIECE_BYTES + 1), (64, PIECE_BYTES)):
        pieces = cut(Run(0, 0, size, False, True), piece)
        assert [begin for begin, _ in pieces] == [sum(size for _, size in pieces[:k]) for k in range(len(pieces))]
        assert sum(size for _, size in pieces) == size
        assert all(0 < size <= piece for _, size in pieces)


# ------------------------------------------------------------------------------------------------ wrong plans and programs
def changed(made: list[Plan], node: int, **fields: Any) -> list[Plan]:
    import msgspec

    return [msgspec.structs.replace(plan, **fields) if plan.node == node else plan for plan in made]


def without(plan: Plan, *kinds: Do) -> list[tuple[int, int]]:
    return [each for each in plan.order if each[0] not in kinds]


def moved(*blocks: Any, p: int = 2, size: int = 48, copies: int = 1) -> Program:
    """An all-gather of explicit steps."""
    base = ring(Collective("all-gather", range(p), size))
    layout = dataclasses.replace(base.layout, n_slots=copies * base.layout.n_chunks)
    steps = [Step((block,)) for block in blocks]
    return dataclasses.replace(base, layout=layout, make_steps=lambda: steps, n_steps=len(steps))


def test_the_oracle_sees_a_source_overwritten_too_early() -> None:
    everyone = explicit(Op.SEND, [0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1], [0, 0, 1, 1, 2, 2])
    aside = explicit(Op.SEND, [0], [1], [0], [3])
    over, restored = explicit(Op.SEND, [2], [0], [2], [0]), explicit(Op.SEND, [2], [0], [0])
    program = moved(everyone, aside, over, restored, p=3, copies=2)
    for seed in range(20):
        verify(program, seed=seed)
    made = plans(program)
    late = [*without(made[0], Do.SENT), *(each for each in made[0].order if each[0] == Do.SENT)]
    wrong = changed(made, 0, order=late)
    with pytest.raises(AssertionError, match="overwritten before it had left"):
        any(verify(program, made=wrong, seed=seed) for seed in range(20))


def test_the_oracle_sees_a_deadlock() -> None:
    program = ring(Collective("all-reduce", range(3), 48))
    made = plans(program)
    first = made[1].order
    send = next(number for number, each in enumerate(first) if each[0] == Do.SEND)
    take = next(number for number, each in enumerate(first) if each[0] in (Do.TAKE, Do.GRAB))
    order = [*first[:send], *first[send + 1 : take + 1]]
    with pytest.raises(Stuck, match="2 TAKE 1 step 0"):
        verify(program, made=changed(made, 1, order=order))


def test_a_swap_within_a_step_goes_through_scratch() -> None:
    swap = explicit(Op.SEND, [0, 1], [1, 0], [0, 1], [1, 0])
    program = moved(swap, swap, explicit(Op.SEND, [0, 1], [1, 0], [0, 1]))
    assert sum(what == Do.GRAB for what, _ in plans(program)[0].order) == 2
    for seed in range(30):
        verify(program, seed=seed)


def test_too_small_a_slot_is_refused() -> None:
    """A chunk of 8 B in a scratch slot of 4 B would run over into the next one."""
    away = explicit(Op.SEND, [0], [1], [0], [3])
    with pytest.raises(ProgramError, match="puts 8 B where there is room for 4") as raised:
        plans(moved(away, size=12, copies=2))
    assert raised.value.where == "rank 1, step 0, slot 3"


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ProgramError, match="sends what is not there"):
        plans(moved(explicit(Op.SEND, [0], [1], [1])))
    with pytest.raises(ProgramError, match="rank 0 ends without chunk 1"):
        plans(moved(explicit(Op.SEND, [0], [1], [0])))


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
        "sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "max": max, "min": min,
    }  # fmt: skip
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
    bits = np.concatenate([
        chance.integers(0, 1 << 32, 20_000, dtype=np.uint32),
        (chance.integers(0, 1 << 16, 4000, dtype=np.uint32) << 16) | 0x8000,  # ties
        chance.integers(0, 1 << 23, 2000, dtype=np.uint32),  # subnormal
    ])  # fmt: skip
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


def answers(program: Program, stored: np.ndarray) -> list[Found]:
    return [Found(0, "x", results=[(0, 0, stored.tobytes())]) for _ in range(program.p)]


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
    assert found.found == pytest.approx(off[77], rel=0.1)  # the value, not how it is stored


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
    nothing = [Found(0, "x") for _ in range(3)]
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
        back = Asked.of(collective).collective()
        assert list(back.group) == [0, 1]
        assert dataclasses.replace(back, group=collective.group) == collective
