"""Tile-triggered copies on threads: sums to the bit; what is hidden is measured by ``benchmarks/lab_decompose.py``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringwright.ground.errors import UsageError
from ringwright_lab.judges.tile_triggers import TriggeredProduct, expected_s, measure


def test_sums_are_right_whoever_is_slower() -> None:
    for tile_s, copy_s in ((0.0, 0.001), (0.001, 0.0), (0.001, 0.001)):
        for seed in range(3):
            assert measure(TriggeredProduct(tile_s=tile_s, copy_s=copy_s, tiles=4, seed=seed)).equal


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="1 GPUs"):
        TriggeredProduct(ranks=1)


@pytest.mark.parametrize("grain", [1, 2, 4])
def test_a_copy_carries_as_many_tiles_as_it_is_asked_to(grain: int) -> None:
    job = TriggeredProduct(tile_s=0.0, copy_s=0.0, tiles=4, grain=grain)
    ran = measure(job)
    assert ran.equal
    assert ran.copies == job.ranks * job.copies == 4 * 3 * 4 // grain


def test_finer_copies_gain_where_they_wait_for_a_block_and_lose_where_each_start_takes_long() -> None:
    """By the order of copies: one block before the first in place of one tile; ``start_s`` for each copy more."""
    fast = TriggeredProduct(tiles=4, tile_s=0.01, copy_s=0.02)
    tiles, blocks = fast, replace(fast, grain=4)
    assert expected_s(tiles) == pytest.approx(0.01 + 3 * 4 * 0.02)
    assert expected_s(blocks) == pytest.approx(4 * 0.01 + 3 * 4 * 0.02)
    tiles, blocks = (replace(each, start_s=0.01) for each in (tiles, blocks))
    assert expected_s(tiles) == pytest.approx(0.01 + 3 * 4 * 0.03)
    assert expected_s(blocks) == pytest.approx(4 * 0.01 + 3 * 0.09)
    assert expected_s(tiles) > expected_s(blocks)


def test_no_run_is_expected_sooner_than_its_product_or_its_copies() -> None:
    for tile_s, copy_s, grain, ranks in ((0.02, 0.01, 1, 3), (0.01, 0.01, 2, 2), (0.0, 0.01, 4, 4), (0.01, 0.0, 2, 5)):
        job = TriggeredProduct(ranks, tiles=4, tile_s=tile_s, copy_s=copy_s, grain=grain)
        assert max(job.product_s, job.copies_s) - 1e-12 <= expected_s(job) <= job.product_s + job.copies_s + 1e-12


@pytest.mark.parametrize("grain", [0, 3, 8])
def test_a_grain_that_does_not_divide_the_tiles_is_refused(grain: int) -> None:
    with pytest.raises(UsageError, match="tiles of 4"):
        TriggeredProduct(tiles=4, grain=grain)
