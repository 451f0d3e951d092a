"""Quantities in words."""

from __future__ import annotations

import pytest

from ringwright.ground.units import format_time


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
