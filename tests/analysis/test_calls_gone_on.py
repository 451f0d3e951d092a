"""Whether calls block is told by what the next issue is steady to: healthy jobs whose calls overlap work accuse nobody."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from ringwright.analysis.culprits import culprits
from ringwright.analysis.slow.lateness import _goes_on
from ringwright_lab.testing import noise, slow_ranks


def test_a_healthy_job_that_was_accused_once_is_not() -> None:
    """Its calls ended just before or after the next was issued, so that some ranks seemed blocked and others not."""
    trace, truth = slow_ranks.job("none", 2000485, noise.ours())
    assert truth.is_healthy
    assert culprits(trace, None, states=False, timed=True, metrics=False)[0] == []


def calls(waits: bool, *, lasts: float, work: float = 10.0, ranks: int = 4, steps: int = 30) -> pl.DataFrame:
    """Return two calls a step: a rank goes on ``work`` behind the end of the first call, or behind its issue."""
    draw = np.random.default_rng(7)
    rows = []
    for rank in range(ranks):
        at = 0.0
        for step in range(steps):
            took = lasts * float(draw.uniform(0.5, 1.5))  # as the others are early or late
            following = at + (took if waits else 0.0) + work * float(draw.uniform(0.98, 1.02))
            rows += [(rank, step, at, at + took), (rank, step, following, max(following, at + took) + lasts)]
            at = rows[-1][3] + 5.0
    return pl.DataFrame(rows, schema=["rank", "step", "begins", "ended"], orient="row")


@pytest.mark.parametrize("lasts", [4.0, 8.0, 12.0])
def test_a_call_that_work_goes_on_behind_does_not_block(lasts: float) -> None:
    timed = calls(waits=False, lasts=lasts)
    assert timed.with_columns(_goes_on(timed).alias("on"))["on"].to_list()[::2] == [True] * 120


@pytest.mark.parametrize("lasts", [4.0, 8.0, 12.0])
def test_a_call_that_is_waited_for_blocks(lasts: float) -> None:
    timed = calls(waits=True, lasts=lasts)
    assert not any(timed.with_columns(_goes_on(timed).alias("on"))["on"].to_list())


def test_calls_that_always_last_as_long_block_as_they_did() -> None:
    """Then both gaps are as steady, and nothing tells."""
    timed = pl.DataFrame(
        {
            "rank": [0] * 40,
            "step": [step for step in range(20) for _ in range(2)],
            "begins": [20.0 * step + 10 * half for step in range(20) for half in range(2)],
        }
    ).with_columns((pl.col("begins") + 4.0).alias("ended"))
    assert not any(_goes_on(timed).to_list())
