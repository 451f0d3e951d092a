"""Tile-triggered copies on threads: sums to the bit; what is hidden is measured by ``benchmarks/lab_decompose.py``."""

from __future__ import annotations

import pytest

from ringwright.errors import UsageError
from ringwright.studies.tile_triggers import TriggeredProduct, measure


def test_sums_are_right_whoever_is_slower() -> None:
    for tile_s, copy_s in ((0.0, 0.001), (0.001, 0.0), (0.001, 0.001)):
        for seed in range(3):
            assert measure(TriggeredProduct(tile_s=tile_s, copy_s=copy_s, tiles=4, seed=seed)).equal


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="1 GPUs"):
        TriggeredProduct(ranks=1)
