"""Bandwidths of a job's own collectives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from ringwright.analysis.bandwidth import bandwidth
from ringwright.sources import read
from ringwright.testing.flight_recorder import FlightJob

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
