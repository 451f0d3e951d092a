"""Bursts of plain transfers: laws, a slow second way of counting, and what is refused."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any, NamedTuple

import pytest

from ringwright.analysis.traffic import bursts
from ringwright.analysis.traffic.bursts import GAP_S, bursts_of
from ringwright.ground.errors import UsageError

PS = 1e-12


class Transfer(NamedTuple):
    """Times in picoseconds, so that the slow twin counts exactly."""

    nic: str
    start: int
    end: int
    size: int
    to: str
    phase: str | None
    step: int | None


def drawn(seed: int, count: int) -> list[Transfer]:
    rng = random.Random(seed)
    nics = [f"n{number}" for number in range(rng.choice([1, 2, 5]))]
    rows = []
    for _ in range(count):
        start = rng.randrange(0, 2000) * 1_000_000
        end = start + rng.choice([0, rng.randrange(0, 400)]) * 1_000_000
        ends = rng.choice(nics), rng.choice(["r0", "r1", *nics])
        parts = rng.choice([None, "forward", "backward"]), rng.choice([None, 0, 1, 7])
        rows.append(Transfer(ends[0], start, end, rng.randrange(0, 1 << 20), ends[1], *parts))
    return rows


def asked(rows: list[Transfer], gap_s: float | None = None, **more: Any) -> Any:
    columns = {
        "end_s": [row.end * PS for row in rows],
        "to": [row.to for row in rows],
        "phase": [row.phase for row in rows],
        "step": [row.step for row in rows],
    } | more
    starts, sizes = [row.start * PS for row in rows], [row.size for row in rows]
    return bursts_of([row.nic for row in rows], starts, sizes, gap_s=gap_s, **columns)


def slow_bursts(rows: list[Transfer], gap: int) -> list[list[Transfer]]:
    """Join the two closest-by bursts of a NIC until none are close: no order of time is used."""
    bursts = [[row] for row in rows]
    joined = True
    while joined:
        joined = False
        for one in range(len(bursts)):
            for other in range(one + 1, len(bursts)):
                a, b = bursts[one], bursts[other]
                begin, end = (max(min(t.start for t in x) for x in (a, b)), min(max(t.end for t in x) for x in (a, b)))
                if a[0].nic == b[0].nic and begin - end <= gap:
                    bursts[one] = a + b
                    del bursts[other]
                    joined = True
                    break
            if joined:
                break
    return bursts


def ranked(values: list[float], percent: int) -> float | None:
    """Return the nearest rank: the smallest value that at least this share does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else None


def slow_pauses(bursts: list[list[Transfer]]) -> list[float]:
    pauses = []
    for nic in {burst[0].nic for burst in bursts}:
        spans = sorted((min(t.start for t in b), max(t.end for t in b)) for b in bursts if b[0].nic == nic)
        pauses += [(after[0] - before[1]) / 1e6 for before, after in itertools.pairwise(spans)]
    return pauses


def slow_duty(rows: list[Transfer]) -> float:
    moments = sorted({moment for row in rows for moment in (row.start, row.end)})
    nics = {row.nic for row in rows}
    busy = sum(
        after - before
        for nic in nics
        for before, after in itertools.pairwise(moments)
        if any(row.nic == nic and row.start <= before and after <= row.end for row in rows)
    )
    return busy / len(nics) / (moments[-1] - moments[0])


def slow_degrees(rows: list[Transfer]) -> list[int]:
    """Return the degree of each receiver in each microsecond in which something comes in."""
    degrees = []
    for to in {row.to for row in rows}:
        came = [row for row in rows if row.to == to]
        for tick in range(2400):
            begin, end = tick * 1_000_000, (tick + 1) * 1_000_000
            sources = {row.nic for row in came if row.start <= begin and end <= row.end}
            degrees += [len(sources)] if sources else []
    return degrees


@pytest.mark.parametrize("seed", range(12))
def test_figures_equal_a_slow_second_way_of_counting(seed: int) -> None:
    rows = drawn(seed, 24)
    gap = random.Random(seed).choice([0, 3, 20, 50, 200])
    told, bursts = asked(rows, gap * 1e-6), slow_bursts(rows, gap * 1_000_000)
    sizes, pauses = [float(sum(t.size for t in burst)) for burst in bursts], slow_pauses(bursts)
    spans = [(max(t.end for t in burst) - min(t.start for t in burst)) / 1e6 for burst in bursts]
    degrees = slow_degrees(rows)
    assert told["count"] == len(bursts)
    for percent in (50, 95, 99):
        assert told[f"size_bytes_p{percent}"] == ranked(sizes, percent)
        assert told[f"gap_us_p{percent}"] == ranked(pauses, percent)
        assert told[f"duration_us_p{percent}"] == ranked(spans, percent)
        assert told[f"incast_p{percent}"] == ranked([float(each) for each in degrees], percent)
    assert told["incast_max"] == max(degrees)
    assert told["duty"] == pytest.approx(slow_duty(rows), rel=1e-9)


@pytest.mark.parametrize("seed", range(12, 20))
def test_rows_are_the_figures_of_their_own_transfers(seed: int) -> None:
    rows = drawn(seed, 60)
    told = asked(rows)
    whole = max(row.end for row in rows) * PS
    window = (min(row.start for row in rows) * PS, whole)
    for row in told["nics"]:
        mine = [each for each in rows if each.nic == row["nic"]]
        came = [each for each in rows if each.to == row["nic"]]
        if mine:
            alone = asked(mine, window_s=window)
            assert {**row, "nic": 0} == {**row, "nic": 0, **_without_incast(alone)}
        assert row["incast_max"] == (asked(came)["incast_max"] if came else None)
    for row in told["phases"]:
        alone = asked([each for each in rows if each.phase == row["phase"]], window_s=window)
        assert all(alone[key] == value for key, value in row.items() if key != "phase")
    for row in told["steps"]:
        alone = asked([each for each in rows if each.step == row["step"]])
        assert all(alone[key] == value for key, value in row.items() if key != "step")
    assert [row["step"] for row in told["steps"]] == [0, 1, 7]
    assert [row["phase"] for row in told["phases"]] == ["backward", "forward"]


def _without_incast(told: Any) -> dict[str, object]:
    rows = (
        "nics",
        "phases",
        "steps",
        "nics_total",
        "steps_total",
        "gap_rule",
        "gap_us",
        "window_us",
        "size_classes",
        "gap_classes",
    )
    return {key: value for key, value in told.items() if key not in rows and not key.startswith("incast")}


@pytest.mark.parametrize("seed", range(20, 28))
def test_bytes_are_kept_and_a_larger_gap_never_gives_more_bursts(seed: int) -> None:
    rows = drawn(seed, 80)
    counts = [asked(rows, gap * 1e-6)["count"] for gap in (0, 1, 10, 100, 1_000, 1e6)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == len({row.nic for row in rows})
    told = asked(rows)
    assert told["bytes"] == sum(row["bytes"] for row in told["nics"]) == sum(row.size for row in rows)
    assert sum(row["count"] for row in told["nics"]) == told["count"]
    merges = sum(len(burst) - 1 for burst in slow_bursts(rows, round(GAP_S * 1e12)))
    assert told["count"] + merges == told["transfers"] == len(rows)


def test_shuffled_rows_change_nothing() -> None:
    rows = [row._replace(size=row.size * 0.1) for row in drawn(99, 200)]  # type: ignore[arg-type]
    shuffled = random.Random(5).sample(rows, len(rows))
    assert asked(rows) == asked(shuffled)


def test_one_transfer_is_one_burst_without_a_pause() -> None:
    told = bursts_of([3], [1.0], [10], end_s=[2.0], to=[4])
    assert (told["count"], told["size_bytes_p99"], told["gap_us_p50"], told["duration_us_p50"]) == (1, 10.0, None, 1e6)
    assert (told["duty"], told["incast_max"]) == (1.0, 1)
    assert [row["nic"] for row in told["nics"]] == ["3", "4"]
    assert [row["count"] for row in told["nics"]] == [1, 0]
    assert told["nics"][1]["duty"] is None  # it sends nothing
    assert told["nics"][1]["incast_p50"] == 1


def test_no_transfer_has_no_figures_and_no_zero() -> None:
    told = bursts_of([], [], [], end_s=[], to=[])
    assert (told["count"], told["transfers"], told["bytes"]) == (0, 0, 0.0)
    assert (
        told["size_bytes_p50"] is told["gap_us_p50"] is told["duty"] is told["incast_max"] is told["window_us"] is None
    )


def test_transfers_that_take_no_time_have_no_duty_and_no_incast() -> None:
    told = bursts_of([0, 1], [1.0, 1.0], [10, 10], end_s=[1.0, 1.0], to=[2, 2])
    assert (told["count"], told["duty"], told["incast_max"], told["duration_us_p50"]) == (2, None, None, 0.0)


def test_without_ends_only_beginnings_count() -> None:
    told = bursts_of([0, 0, 0], [0.0, 40e-6, 1.0], [1, 2, 4], to=[1, 1, 1])
    assert (told["count"], told["gap_us_p50"], told["size_bytes_p50"]) == (2, 999_960.0, 3.0)
    assert told["duty"] is told["duration_us_p50"] is told["incast_p50"] is told["window_us"] is None


def test_a_pause_as_long_as_the_gap_ends_no_burst() -> None:
    assert bursts_of([0, 0], [0.1, 0.10005], [1, 1], gap_s=50e-6)["count"] == 1
    assert bursts_of([0, 0], [0.1, 0.100050001], [1, 1], gap_s=50e-6)["count"] == 2


def test_a_short_transfer_within_a_long_one_ends_no_burst() -> None:
    told = bursts_of([0, 0, 0], [0.0, 0.1, 0.5], [1, 1, 1], end_s=[1.0, 0.2, 0.6])
    assert (told["count"], told["duration_us_p50"], told["duty"]) == (1, 1e6, 1.0)


def test_sources_that_follow_each_other_are_not_at_once() -> None:
    in_turn = bursts_of([0, 1], [0.0, 1.0], [1, 1], end_s=[1.0, 2.0], to=[2, 2])
    at_once = bursts_of([0, 1], [0.0, 0.5], [1, 1], end_s=[1.0, 2.0], to=[2, 2])
    same = bursts_of([0, 0], [0.0, 0.5], [1, 1], end_s=[1.0, 2.0], to=[2, 2])
    assert [told["incast_max"] for told in (in_turn, at_once, same)] == [1, 2, 1]
    assert at_once["incast_p50"] == 1  # a quarter of the time two do


def test_bursts_of_unknown_size_have_no_size_and_are_counted() -> None:
    told = bursts_of([0, 0, 0, 0], [0.0, 1.0, 1.00001, 2.0], [7, None, 5, 9])
    assert (told["count"], told["unsized"], told["bytes"]) == (3, 1, 21.0)
    assert (told["size_bytes_p50"], told["size_bytes_p99"]) == (7.0, 9.0)  # the second burst may be of any size
    unknown = bursts_of([0], [0.0], [None])
    assert (unknown["count"], unknown["unsized"], unknown["size_bytes_p50"]) == (1, 1, None)
    assert unknown["bytes"] is None
    assert unknown["size_classes"] == []


@pytest.mark.parametrize("seed", range(28, 32))
def test_classes_hold_every_burst_and_pause_once(seed: int) -> None:
    told = asked(drawn(seed, 80))
    bursts = slow_bursts(drawn(seed, 80), round(GAP_S * 1e12))
    sizes, pauses = [sum(t.size for t in burst) for burst in bursts], slow_pauses(bursts)
    for row in told["size_classes"]:
        assert row["count"] == sum(row["log2_low_bytes"] <= size < row["log2_high_bytes"] for size in sizes)
    for row in told["gap_classes"]:
        assert row["count"] == sum(row["log2_low_us"] <= pause < row["log2_high_us"] for pause in pauses)
    assert sum(row["count"] for row in told["size_classes"]) == told["count"]
    assert sum(row["count"] for row in told["gap_classes"]) == len(pauses)


def test_the_smallest_class_holds_what_is_below_one() -> None:
    told = bursts_of([0, 0, 0, 1], [0.0, 60e-6, 60.5e-6, 0.0], [0, 1, 1, 3], end_s=[0, 60e-6, 61e-6, 0], gap_s=0)
    assert [row["log2_low_bytes"] for row in told["size_classes"]] == [0, 1, 2]
    assert told["gap_classes"] == [
        {"log2_low_us": 0, "log2_high_us": 1, "count": 1},
        {"log2_low_us": 32, "log2_high_us": 64, "count": 1},
    ]


def test_a_transfer_to_nobody_counts_for_no_incast() -> None:
    told = bursts_of([0, 1], [0.0, 0.0], [1, 1], end_s=[1.0, 1.0], to=[2, None])
    assert (told["count"], told["incast_max"]) == (2, 1)
    assert [row["nic"] for row in told["nics"]] == ["0", "1", "2"]
    with pytest.raises(UsageError, match="names no NIC"):
        bursts_of([None], [0.0], [1])


def test_of_many_nics_those_that_send_most_are_kept() -> None:
    count = bursts.MOST_ROWS + 7
    told = bursts_of(range(count), [0.0] * count, range(count), step=range(count))
    assert (told["nics_total"], told["steps_total"], told["count"]) == (count, count, count)
    assert [row["nic"] for row in told["nics"]] == [str(at) for at in range(7, count)]
    assert [row["step"] for row in told["steps"]] == list(range(bursts.MOST_ROWS))


def test_the_gap_rule_names_the_gap() -> None:
    assert bursts_of([], [], [])["gap_us"] == 50.0
    told = bursts_of([], [], [], gap_s=2e-3)
    assert told["gap_us"] == 2000.0
    assert told["gap_rule"] == "a pause of more than 2,000 us ends a burst of a NIC"


def test_a_window_makes_the_duty_a_share_of_itself() -> None:
    assert bursts_of([0], [1.0], [1], end_s=[2.0], window_s=(0.0, 4.0))["duty"] == 0.25


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (([0], [-1.0], [1], [1.0]), "start_s of transfer 0 is -1.0"),
        (([0], [math.nan], [1], [1.0]), "start_s of transfer 0 is nan"),
        (([0, 0], [0.0, 1.0], [1, 1], [math.inf, 2.0]), "end_s of transfer 0 is inf"),
        (([0], [1.0], [-5], [1.0]), "size_bytes of transfer 0 is -5"),
        (([0], [2.0], [1], [1.0]), "ends at 1.0 s, before it begins at 2.0 s"),
        (([0], [1.0], [1, 2], [1.0]), "size_bytes has 2 values for 1 transfers"),
        (([0], ["soon"], [1], [1.0]), "start_s holds something else than numbers"),
    ],
)
def test_impossible_transfers_are_refused(columns: Any, said: str) -> None:
    nic, start_s, size_bytes, end_s = columns
    with pytest.raises(UsageError, match=said):
        bursts_of(nic, start_s, size_bytes, end_s=end_s)


def test_impossible_questions_are_refused() -> None:
    for gap_s in (-1e-6, math.nan, math.inf):
        with pytest.raises(UsageError, match="a gap of"):
            bursts_of([0], [0.0], [1], gap_s=gap_s)
    with pytest.raises(UsageError, match="outside the window"):
        bursts_of([0], [1.0], [1], end_s=[3.0], window_s=(0.0, 2.0))
    with pytest.raises(UsageError, match="2 phases or steps for 1 transfers"):
        bursts_of([0], [1.0], [1], phase=["a", "b"])
