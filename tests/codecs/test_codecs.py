"""Number formats of nodes that add: what each holds, for any finite numbers, any workers and any order of arrival."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringwright.ground.errors import UsageError
from ringwright.model import codecs
from ringwright.model.codecs import formats
from ringwright.model.codecs.contributions import NodeSum
from ringwright.model.codecs.formats import FORMATS, HOUSE, added, numbers_in, wire_bytes
from ringwright.model.codecs.lookup_table import entries_of

pytestmark = pytest.mark.once
OF_WHOLE_NUMBERS = [name for name, codec in HOUSE.items() if codec.whole_numbers]
ENCODED = [name for name in FORMATS if name != "native"]
TOP = np.float32(3.4028235e38)
SMALL = np.float32(1e-45)  # the smallest float32
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def normal(workers: int, elements: int = 1000, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((workers, elements)).astype(dtype)


def rows(*numbers: Any, dtype: Any = np.float32) -> np.ndarray:
    """Return one element of each worker."""
    return np.array(numbers, dtype).reshape(-1, 1)


def summed(codec: str, *numbers: Any, **knobs: Any) -> float:
    return float(added(codec, rows(*numbers), **knobs).values[0])


def test_the_formats_are_the_files_of_the_folder() -> None:
    assert set(FORMATS) == set(HOUSE) == set(formats.codecs())
    files = {path.stem for path in Path(str(codecs.__file__)).parent.glob("*.py")}
    assert {name.replace("-", "_") for name in FORMATS} <= files


def test_operations_are_those_that_each_format_declares() -> None:
    for name, codec in HOUSE.items():
        for op in ("sum", "prod", "min", "max"):
            if op in codec.ops:
                assert added(name, rows(2, 3), op=op).values.dtype == np.float32
            else:
                with pytest.raises(UsageError, match=f"have no {op}|op={op} is not known"):
                    added(name, rows(2, 3), op=op)


@pytest.mark.parametrize("codec", FORMATS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_sum_is_near_the_exact_one_and_of_the_type_that_came(codec: str, dtype: Any) -> None:
    numbers = normal(4, 64, dtype=dtype)
    knobs: dict[str, Any] = {"bits": 8, "register_bits": 16, "rounding": "nearest"} if codec == "lookup-table" else {}
    total = added(codec, numbers, **knobs)
    assert (total.values.dtype, total.values.shape, total.sent.shape) == (dtype, (64,), (4, 64))
    exact = numbers.astype(np.float64).sum(axis=0)
    allowed = max(float(HOUSE[codec].tolerance or 0), 2e-3 if dtype == np.float16 else 0)
    assert np.abs(total.values - exact).max() < 5 * allowed * np.abs(exact).std()
    assert (total.overflows, total.overwrites, total.resent, total.not_finite) == (0, 0, 0, 0)


@pytest.mark.parametrize("codec", FORMATS)
def test_whole_numbers_are_added_as_they_are_and_wrap_around(codec: str) -> None:
    numbers = np.array([[2**31 - 1, 7], [1, 8]], np.int32)
    assert added(codec, numbers).values.tolist() == [-(2**31), 15]


@pytest.mark.parametrize("codec", FORMATS)
def test_zeros_stay_zeros_and_subnormal_numbers_are_treated_as_said(codec: str) -> None:
    assert summed(codec, 0.0, 0.0) == 0
    assert not math.copysign(1, summed(codec, -0.0, -0.0)) < 0 or codec == "native"
    assert math.copysign(1, summed("native", -0.0, -0.0)) < 0
    assert summed(codec, SMALL, SMALL) == (0 if codec == "fixed-point" else 2 * SMALL)


@pytest.mark.parametrize("codec", FORMATS)
def test_what_is_not_finite_is_never_a_number_again(codec: str) -> None:
    """NaN and infinities come out as IEEE 754 says, or as NaN with their packet where the packet has no exponent."""
    poisoned = codec in ("block-exponent", "lookup-table")
    knobs: dict[str, Any] = {"packet": 2} if codec in OF_WHOLE_NUMBERS else {}
    numbers = np.array([[np.nan, 1, np.inf, 1, np.inf, 1, 1, 1], [1, 1, np.inf, 1, -np.inf, 1, 1, 1]], np.float32)
    total = added(codec, numbers, **knobs)
    wanted = [np.nan] * 6 if poisoned else [np.nan, 2, np.inf, 2, np.nan, 2]
    np.testing.assert_array_equal(total.values, np.array([*wanted, 2, 2], np.float32))
    assert (total.not_finite, total.overflows, total.overwrites) == (3, 3 if codec == "fixed-point" else 0, 0)


@pytest.mark.parametrize("codec", FORMATS)
def test_nothing_is_a_sum_of_nothing(codec: str) -> None:
    total = added(codec, np.zeros((3, 0), np.float32))
    assert (total.values.shape, total.sent.shape, total.values.dtype) == ((0,), (3, 0), np.float32)


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_registers_of_what_is_not_finite_are_not_counted(number: float) -> None:
    many = added("split-float", np.full((300, 1), number, np.float32))
    assert (many.overflows, many.not_finite) == (0, 1)
    assert added("split-float", rows(1, number), variant="approximate").overwrites == 0


def test_an_order_is_one_of_the_workers() -> None:
    numbers = rows(1e8, 1, -1e8)
    assert added("native", numbers).values[0] == 0
    assert added("native", numbers, [0, 2, 1]).values[0] == 1
    for wrong in ([0, 1], [0, 1, 1], [1, 2, 3]):
        with pytest.raises(UsageError, match="no order of 3 workers"):
            added("native", numbers, wrong)


@pytest.mark.parametrize(
    ("codec", "numbers", "knobs", "says"),
    [
        ("float9", rows(1), {}, "no number format that is known"),
        ("split-float", rows(1, dtype=np.float64), {}, "carries no float64"),
        ("native", np.zeros(3), {}, r"contributions of shape \(3,\)"),
        ("block-exponent", np.zeros((0, 3), np.float32), {}, r"contributions of shape \(0, 3\)"),
        ("native", rows(1), {"packet": 2}, "has no knob 'packet'"),
        ("block-exponent", rows(1), {"packet": 0}, "packet=0 is out of range"),
        ("fixed-point", rows(1), {"packet": 0}, "packet=0 is out of range"),
        ("lookup-table", rows(1), {"packet": 0}, "packet=0 is out of range"),
        ("fixed-point", rows(1), {"scale": 0.5}, "scale=0.5 is out of range"),
        ("split-float", rows(1), {"shift": 32}, "shift=32 is out of range"),
        ("split-float", rows(1), {"variant": "half"}, "variant=half is not known"),
        ("split-float", rows(1), {"overflow": "trap"}, "overflow=trap is not known"),
        ("lookup-table", rows(1), {"bits": 9}, "bits=9 is out of range"),
        ("lookup-table", rows(1), {"register_bits": 17}, "register_bits=17 is out of range"),
        ("lookup-table", rows(1), {"table": "round"}, "table=round is not known"),
        ("lookup-table", rows(1), {"rounding": "up"}, "rounding=up is not known"),
        ("lookup-table", np.zeros((128, 1), np.float32), {}, "128 workers have no room in sums of 8 bits"),
    ],
)
def test_what_a_format_cannot_take_is_refused(codec: str, numbers: np.ndarray, knobs: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        added(codec, numbers, **knobs)
    assert refused.value.remedy


def test_bytes_on_the_wire() -> None:
    assert wire_bytes("native", 2) == wire_bytes("split-float", 2) == (2, 2)
    assert wire_bytes("block-exponent", 2, packet=64) == (4 + 1 / 64, 4)
    assert wire_bytes("fixed-point") == (4, 4)
    assert wire_bytes("lookup-table", packet=100, bits=6, register_bits=16) == (0.75 + 0.04, 2)
    sizes = {"native": 256, "block-exponent": 256, "fixed-point": 256, "split-float": 256, "lookup-table": 2048}
    assert {name: numbers_in(name, 1024) for name in FORMATS} == sizes
    assert numbers_in("lookup-table", 1024, bits=8) == 1024
    assert numbers_in("native", 1, 4) == 1
    with pytest.raises(UsageError, match="no number format"):
        wire_bytes("float9")


# --------------------------------------------------------------------------------------------------- any order of arrival
@pytest.mark.parametrize("codec", OF_WHOLE_NUMBERS)
def test_sums_of_whole_numbers_do_not_depend_on_the_order_of_arrival(codec: str) -> None:
    numbers, generator = normal(8, 500), np.random.default_rng(1)
    wanted = added(codec, numbers).values
    for _ in range(20):
        np.testing.assert_array_equal(added(codec, numbers, generator.permutation(8).tolist()).values, wanted)


@pytest.mark.parametrize("codec", ["native", "split-float"])
def test_sums_of_floats_depend_on_it(codec: str) -> None:
    numbers = normal(8, 500)
    backwards = added(codec, numbers, list(range(8))[::-1])
    assert (backwards.values != added(codec, numbers).values).any()
    np.testing.assert_array_equal(backwards.values, added(codec, numbers[::-1]).values)


# -------------------------------------------------------------------------------------------------------- block exponent
@settings(max_examples=200, deadline=None)
@given(workers=st.integers(1, 64), fill=st.lists(FINITE, min_size=1, max_size=4), packet=st.integers(1, 5))
@example(workers=64, fill=[TOP], packet=1)
@example(workers=63, fill=[-TOP, SMALL], packet=1)
@example(workers=48, fill=[float(np.nextafter(np.float32(2), np.float32(0)))], packet=1)
def test_a_block_exponent_never_overflows_and_is_as_near_as_said(workers: int, fill: list[float], packet: int) -> None:
    numbers = np.resize(np.array(fill, np.float32), (workers, 5))
    for given_ in (numbers, np.full_like(numbers, fill[0])):
        total = added("block-exponent", given_, packet=packet)
        assert total.overflows == 0
        exact = given_.astype(np.float64).sum(axis=0)
        for begin in range(0, 5, packet):
            part = slice(begin, begin + packet)
            largest = max(float(np.abs(given_[:, part]).max()), 2.0**-127)
            step = workers * 2.0 ** math.frexp(largest)[1] / (2**31 - 1)
            fits = np.abs(exact[part]) < TOP
            rounded = np.abs(exact[part]) * 2.0**-24 + 2.0**-150  # of the result, which is a float32 again
            off = np.abs(total.values[part].astype(np.float64) - exact[part])
            # Half a step of each worker, and what is held back of those that rounding would put above their share.
            assert (off[fits] <= (workers / 2 + workers) * step + 2 * rounded[fits]).all()


def test_a_share_of_the_register_is_never_exceeded() -> None:
    """With 3,000 workers rounding alone would leave 32 bits: what is below 2^e by less than a step is held back."""
    numbers = np.full((3000, 1), np.nextafter(np.float32(1), np.float32(0)), np.float32)
    assert added("block-exponent", numbers).overflows == 0
    step = 3000 * 1.0 / (2**31 - 1)
    assert added("block-exponent", numbers).values[0] == pytest.approx(3000, abs=3000 * step)


def test_subnormal_numbers_have_the_exponent_of_the_smallest_normal_one() -> None:
    """A byte holds no smaller one: for 256 workers a step is the smallest float32, for more of them it is larger."""
    assert added("block-exponent", np.full((128, 1), SMALL)).values[0] == 128 * SMALL
    assert added("block-exponent", np.full((1024, 1), SMALL)).values[0] == 0


def test_an_exponent_is_of_its_packet() -> None:
    numbers = np.array([[1e30, 1.0], [1e30, 1.0]], np.float32)
    assert added("block-exponent", numbers, packet=1).values[1] == 2
    assert added("block-exponent", numbers, packet=2).values[1] == 0
    assert added("block-exponent", numbers, packet=2, op="max").values[0] == np.float32(1e30)
    assert added("block-exponent", rows(3.0, -5.0), op="min").values[0] == -5


def test_what_a_worker_had_is_what_was_sent_and_the_rest() -> None:
    """Error feedback rests on it: the sum of what was sent is the result."""
    numbers = normal(8, 600)
    for codec in ENCODED:
        total = added(codec, numbers)
        np.testing.assert_allclose(total.sent.astype(np.float64).sum(axis=0), total.values, atol=2e-6)
        exact = codec == "split-float"
        assert (total.sent == numbers).all() == exact


# ----------------------------------------------------------------------------------------------------------- fixed point
def test_a_packet_that_overflows_goes_again_as_floats() -> None:
    numbers = np.array([[2000, 1e-7, 1, 1], [2000, 1e-7, 1, 1]], np.float32)
    total = added("fixed-point", numbers, packet=2)
    assert total.values.tolist() == [4000, pytest.approx(2e-7), 2, 2]
    assert (total.overflows, total.resent) == (1, 1)
    np.testing.assert_array_equal(total.sent[:, :2], numbers[:, :2])
    assert added("fixed-point", numbers, packet=1).values[1] == 0
    assert summed("fixed-point", 2000.0, 2000.0, scale=1e5) == 4000
    assert added("fixed-point", numbers, scale=1e5).resent == 0
    assert added("fixed-point", rows(3000.0)).resent == 1  # no worker can convert it


def test_an_overflow_on_the_way_is_seen_where_the_sum_comes_back() -> None:
    back = rows(2000.0, 1000.0, -2000.0)
    assert added("fixed-point", back).resent == 1
    assert added("fixed-point", back, [0, 2, 1]).resent == 0
    floats = rows(1e8, 1, -1e8)
    assert summed("fixed-point", 1e8, 1, -1e8) == 0
    assert added("fixed-point", floats, [0, 2, 1]).values[0] == 1  # at a server, as they arrive


# ----------------------------------------------------------------------------------------------------------- split float
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=20))
def test_one_full_addition_is_off_by_less_than_the_22nd_bit_of_the_larger(pairs: list[tuple[float, float]]) -> None:
    numbers = np.array(pairs, np.float32).T
    total = added("split-float", numbers)
    exact = numbers.astype(np.float64).sum(axis=0)
    inside = np.abs(exact) < TOP
    larger = np.maximum(np.abs(numbers).max(axis=0).astype(np.float64), 2.0**-126)
    assert (np.abs(total.values.astype(np.float64) - exact)[inside] < larger[inside] * 2.0**-22).all()
    assert np.isinf(total.values[np.abs(exact) >= 2.0**128]).all()
    assert total.overflows == 0


def test_a_full_sum_has_no_scale() -> None:
    numbers = normal(8, 200)
    wanted = added("split-float", numbers).values
    for power in (-90, -7, 60):
        scaled = np.ldexp(numbers, power).astype(np.float32)
        np.testing.assert_array_equal(added("split-float", scaled).values, np.ldexp(wanted, power))


def test_ones_are_counted_and_128_of_the_largest_mantissa_fit() -> None:
    for workers in (1, 2, 3, 64, 128):
        assert summed("split-float", *[1.0] * workers) == workers
    below_two = np.full((129, 1), np.nextafter(np.float32(2), np.float32(0)), np.float32)
    assert added("split-float", below_two[:128]).overflows == 0
    assert added("split-float", -below_two[:128]).values[0] == -256 * (1 - 2.0**-24)
    assert added("split-float", below_two).overflows == 1
    assert added("split-float", below_two).values[0] < 0  # it wraps around
    assert added("split-float", below_two, overflow="saturate").values[0] == pytest.approx(256)


def test_the_approximate_form_is_the_full_one_where_no_newcomer_is_larger() -> None:
    numbers = normal(8, 2000)
    falling = -np.sort(-np.abs(numbers), axis=0) * np.sign(numbers)
    np.testing.assert_array_equal(
        added("split-float", falling, variant="approximate").values, added("split-float", falling).values
    )


def test_the_approximate_form_shifts_up_or_overwrites() -> None:
    near = added("split-float", rows(1.0, 2.0**7), variant="approximate")
    assert (near.values[0], near.overwrites, near.overflows) == (129, 0, 0)
    far = added("split-float", rows(1.0, 2.0**8), variant="approximate")
    assert (far.values[0], far.overwrites) == (256, 1)
    assert added("split-float", rows(1.0, 2.0**7), variant="approximate", shift=6).overwrites == 1
    assert summed("split-float", 1.0, 2.0**8, variant="approximate", shift=8) == 1 - 2.0**8  # out of headroom
    assert summed("split-float", 1.0, 2.0**8, variant="approximate", shift=8, overflow="saturate") == 256 - 2.0**-16
    assert summed("split-float", 1.0, 2.0**8) == 257


def test_room_for_a_shift_and_for_all_workers_is_enough() -> None:
    """shift + ceil(log2 n) <= 7: no overflow, whatever comes; one bit more and there is."""
    numbers = normal(8, 1 << 14)
    assert added("split-float", numbers, variant="approximate", shift=4).overflows == 0
    assert added("split-float", numbers, variant="approximate", shift=6).overflows > 0


def test_half_precision_has_registers_of_its_own() -> None:
    assert added("split-float", rows(65504, 65504, dtype=np.float16)).values[0] == np.inf
    assert added("split-float", rows(2.0**-24, 2.0**-24, dtype=np.float16)).values[0] == 2.0**-23
    assert added("split-float", rows(1, 2.0**-11, dtype=np.float16)).values[0] == 1
    assert added("split-float", rows(1, 1 + 2.0**-10, dtype=np.float16)[:, ::-1]).values[0] == 2


# ---------------------------------------------------------------------------------------------------------- lookup table
@given(st.integers(1, 255), st.integers(2, 8), st.integers(8, 16), st.sampled_from(["uniform", "normal"]))
def test_a_table_rises_is_alike_on_both_sides_and_leaves_room(workers: int, bits: int, width: int, kind: str) -> None:
    if workers * 2 > 2**width - 1:
        return
    entries = entries_of(workers, bits=bits, register_bits=width, table=kind)
    assert (np.diff(entries) > 0).all()
    assert entries[0] == 0
    assert (entries + entries[::-1] == entries[-1]).all()
    assert len(entries) <= 2**bits - 1
    assert workers * entries[-1] < 2**width
    assert workers * (entries[-1] + 2) > 2**width - 1  # no room is left over


def test_sums_of_entries_never_overflow() -> None:
    for workers in (1, 2, 7, 64, 127):
        assert added("lookup-table", np.full((workers, 3), TOP, np.float32)).overflows == 0
        assert added("lookup-table", np.full((workers, 3), SMALL, np.float32)).values[0] == pytest.approx(
            workers * SMALL, rel=1e-6
        )


def spread(total: NodeSum, numbers: np.ndarray) -> float:
    return float(np.sqrt(((total.sent - numbers) ** 2).mean()))


def test_knobs_of_a_table_show() -> None:
    numbers = normal(4, 4096)
    least = spread(added("lookup-table", numbers), numbers)
    assert spread(added("lookup-table", numbers, rounding="nearest"), numbers) < least / 1.3
    assert spread(added("lookup-table", numbers, bits=3), numbers) > 1.5 * least
    assert spread(added("lookup-table", numbers, bits=6, register_bits=16), numbers) < least / 3
    assert spread(added("lookup-table", numbers, table="normal"), numbers) < least / 1.1
    one, other = (added("lookup-table", numbers, seed=seed).values for seed in (1, 2))
    assert (one != other).any()
    np.testing.assert_array_equal(one, added("lookup-table", numbers, seed=1).values)
    large = numbers.copy()
    large[:, 0] *= 100
    narrow, wide = (spread(added("lookup-table", large, packet=packet), large) for packet in (64, 4096))
    assert narrow < wide / 2


def test_stochastic_rounding_is_right_on_the_average() -> None:
    numbers = np.full((1, 4096), 0.3, np.float32)
    numbers[0, ::64] = 1.0
    between = numbers[0] < 1
    sent = added("lookup-table", numbers, packet=64).sent[0, between]
    assert len(np.unique(sent)) == 2
    assert sent.mean() == pytest.approx(0.3, abs=0.005)
    assert len(np.unique(added("lookup-table", numbers, packet=64, rounding="nearest").sent[0, between])) == 1
