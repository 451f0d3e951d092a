"""Bandwidths of a job's own collectives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from ringwright.analysis.bandwidth import bandwidth
from ringwright.formats.sources import read
from ringwright_lab.testing.flight_recorder import FlightJob

pytestmark = pytest.mark.once


def test_mean_waits_are_the_same_each_time(tmp_path: Path) -> None:
    """A sum of floats depends on their order; of waits this long and this uneven it shows in what is printed."""
    for name, data in FlightJob(seed=1).files().items():
        (tmp_path / name).write_bytes(data)
    trace = read(str(tmp_path))
    events = trace.scan("events").with_columns(pl.col("duration_s") * (7e10 + pl.int_range(pl.len()) * 0.123))
    long = replace(trace, tables={**trace.tables, "events": events})
    first = bandwidth(long)
    assert any(row["wait_us"] for row in first)
    assert all(bandwidth(long) == first for _ in range(5))


def test_a_size_that_no_message_has_is_left_out(tmp_path: Path) -> None:
    """The largest integer of a damaged file, alone in its row: as a median it is none any more."""
    for name, data in FlightJob(seed=1).files().items():
        (tmp_path / name).write_bytes(data)
    trace = read(str(tmp_path))
    largest = pl.when(pl.col("sequence") == 1).then((1 << 63) - 1).otherwise(pl.col("size_bytes"))
    events = trace.scan("events").with_columns(largest.alias("size_bytes"), pl.lit(1e-3).alias("duration_s"))
    rows = bandwidth(replace(trace, tables={**trace.tables, "events": events}))
    assert rows
    assert all(row["size_bytes"] < 1 << 62 for row in rows)
