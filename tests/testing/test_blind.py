"""The generator of the blind campaign: what is put in is what the trace holds, and the campaign counts as it says."""

from __future__ import annotations

import io
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import polars as pl
import pytest

from ringwright_lab.testing import blind, noise, slow_ranks

pytestmark = pytest.mark.once

OURS = noise.ours()


def _steps_of(mechanism: str, seed: int) -> tuple[pl.DataFrame, slow_ranks.Injected]:
    """Return rank, iteration and the wait of each call, which a late rank does not have."""
    trace, truth = slow_ranks.job(mechanism, seed, OURS)
    calls = trace.df.filter(pl.col("kind") == "collective")
    least = pl.col("duration_s").min().over("communicator", "sequence", "op")
    return calls.with_columns((pl.col("duration_s") - least).alias("wait_s")), truth


@pytest.mark.parametrize("mechanism", ["straggler", "straggler-late", "straggler-ends"])
def test_others_wait_for_the_rank_that_was_slowed_and_from_that_step_on(mechanism: str) -> None:
    seen = 0
    for seed in range(12):
        calls, truth = _steps_of(mechanism, seed)
        if truth.severity < 1.5 or truth.begin is None:
            continue
        waits = calls.group_by("iteration", "rank").agg(pl.col("wait_s").sum())
        held = waits.filter(pl.col("iteration") == truth.begin + 1).sort("wait_s")
        assert held["rank"][0] in truth.ranks
        seen += 1
    assert seen > 2


def test_severities_ranks_and_begins_cover_what_they_should() -> None:
    truths = [slow_ranks.job(kind, seed, OURS) for kind in ("straggler", "loader") for seed in range(40)]
    severities = np.array([truth.severity for _, truth in truths])
    assert severities.min() >= 1.15
    assert severities.max() <= 3.0
    assert abs(float(np.median(np.log(severities))) - np.log(1.15 * 3.0) / 2) < 0.15  # log-uniform
    worlds = {trace.meta["world"] for trace, _ in truths}
    assert min(worlds) == 4
    assert max(worlds) == 64


def test_clocks_of_hosts_are_apart_and_the_same_seed_gives_the_same_job() -> None:
    trace, truth = next(
        found for seed in range(50) if (found := slow_ranks.job("none", seed, OURS))[0].meta["world"] > 16
    )
    assert truth.is_healthy
    first = trace.df.filter(pl.col("kind") == "collective").group_by("clock").agg(pl.col("start_s").max())
    assert first["start_s"].max() - first["start_s"].min() > 1e-3  # type: ignore[operator]
    again = slow_ranks.job("moving", 3, OURS)
    assert again[0].df.equals(slow_ranks.job("moving", 3, OURS)[0].df)
    assert again[1] == slow_ranks.job("moving", 3, OURS)[1]


def test_noise_is_that_of_its_tables_and_of_recordings() -> None:
    drawn = OURS.ranks(16, 50, np.random.default_rng(1))
    assert drawn.shape == (16, 50)
    values = np.unique(np.concatenate([table.ravel() for table in OURS.late]))
    assert np.isin(np.unique(drawn), values).all()
    assert 0.001 < np.abs(drawn).mean() < 0.2


def _answer(mechanism: str, outcome: str, severity: float | None, *, begin: bool | None = None) -> blind.Verdict:
    return blind.Verdict(blind.BlindCase(mechanism, False, 1, True), (1,), (), "", outcome, severity, begin)


def test_silence_is_a_miss_and_bands_are_counted_apart() -> None:
    answers = [
        _answer("straggler", "right", 1.6, begin=True),
        _answer("straggler", "silent", 1.7, begin=False),
        _answer("straggler", "silent", 1.2, begin=False),
        _answer("moving", "told", 2.5),
        _answer("none", "false-alarm", None),
        _answer("none", "right", None),
    ]
    found = blind.document(answers)
    rows = {(row["mechanism"], row["severity_from"], row["severity_to"]): row for row in found["kinds"]}
    assert rows["straggler", 1.5, None]["recall"] == 0.5
    assert rows["straggler", 1.5, None]["begin_found"] == 0.5
    assert rows["straggler", 1.15, 1.5]["recall"] == 0.0
    assert rows["moving", 1.5, None]["recall"] == 1.0
    assert found["healthy"] == {"cases": 2, "false_alarms": 1}
    out = io.StringIO()
    blind.write(found, out)
    assert "straggler 1.5x and above" in out.getvalue()


@pytest.mark.parametrize("seed", [900006, 900025, 900035])
def test_calls_that_queue_behind_others_make_no_slow_network(seed: int) -> None:
    (answer,) = blind.judge([blind.BlindCase("none", False, seed, True)])
    assert answer.outcome == "right", answer


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is absent")
@pytest.mark.parametrize(("mechanism", "seed"), [("straggler-late", 800002), ("moving", 800005)])
def test_real_ranks_with_clocks_apart(mechanism: str, seed: int) -> None:
    import_module("torch._dynamo")  # PyTorch's profiler loads it, here once and not in each rank, which is a fork
    (answer,) = blind.judge([blind.BlindCase(mechanism, True, seed)])
    assert answer.outcome == "right", answer
