"""Quantities in words."""

from __future__ import annotations

import pytest

from ringwright.ground.units import format_size, format_sizes, format_time


@pytest.mark.parametrize(
    ("time_s", "words"),
    [
        (0.0, "0 us"),
        (93.9e-6, "93.9 us"),
        (0.0025186, "2,519 us"),
        (0.0625, "62.5 ms"),
        (0.99996, "1000 ms"),
        (4.7507, "4.751 s"),
        (999.4, "999.4 s"),
        (12_345.0, "12,345 s"),
    ],
)
def test_a_time_is_told_in_the_unit_in_which_it_reads_best(time_s: float, words: str) -> None:
    assert format_time(time_s) == words


def test_sizes_of_one_table_differ_in_text() -> None:
    sizes = [2_101_248, 2_099_200, 4096, 1_000_000_007, 1_000_000_008, 0]
    told = format_sizes(sizes)
    assert len(set(told.values())) == len(sizes)
    assert (told[2_101_248], told[2_099_200], told[4096], told[0]) == ("2.004 MiB", "2.002 MiB", "4 KiB", "0 B")
    assert told[1_000_000_007] == "1,000,000,007 B"  # no digit of a MiB tells them apart
    assert format_sizes([100_000, 100_000]) == {100_000: format_size(100_000)}
