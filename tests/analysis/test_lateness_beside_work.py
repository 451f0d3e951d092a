"""Who is late where communication runs beside work: a call blocks a rank only while it does not work."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from ringwright.advise.layers.repair import repair_settings
from ringwright.advise.situation import of_recording
from ringwright.analysis.slow.arrivals import arrivals
from ringwright.model.registry import scheduler
from ringwright.model.trace import Trace
from ringwright_lab.testing.drawn_jobs import drawn, recorded
from ringwright_lab.testing.noise import HealthyNoise, ours

SEEDS = (1000, 1002, 1008, 1012)
SLOW, TIMES = 1, 1.4
POLICIES = ("pytorch-ddp:bucket_cap_mb=1000", "tictac")


def recording(seed: int, policy: str, slowed: dict[int, float]) -> Trace:
    """Return a recording of a job whose gradients are sent beside its backward pass, with ranks alike but for slow ones."""
    job = replace(drawn(seed), slowed=slowed, noise_scale=0.1)
    noise: HealthyNoise = ours()
    return recorded(job, job.planned(scheduler(policy)[1]), 0, noise)


def as_live(trace: Trace) -> Trace:
    """Return the calls as schedules of real ranks record them: they begin when the last rank has handed its own in."""
    events = trace.table("events")
    is_call = pl.col("kind") == "collective"
    last = pl.col("start_s").max().over("kind", "sequence")
    live = events.with_columns(
        pl.when(is_call).then(last).otherwise(pl.col("start_s")).alias("start_s"),
        pl.when(is_call).then(pl.col("start_s")).otherwise(pl.col("enqueue_s")).alias("enqueue_s"),
        (pl.when(is_call).then(pl.col("start_s") - last).otherwise(0.0) + pl.col("duration_s")).alias("duration_s"),
        pl.lit("live").alias("source"),
        pl.lit(None, pl.String).alias("stream"),
    )
    live = live.with_columns(pl.when(is_call).then(pl.col("enqueue_s")).alias("enqueue_s"))
    frames = {"events": live, "communicators": trace.table("communicators")}
    return Trace.of(frames, trace.meta)


@pytest.mark.sampled(5, "seed")
@pytest.mark.parametrize("is_live", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_rank_is_found_beside_communication(seed: int, policy: str, is_live: bool) -> None:
    trace = recording(seed, policy, {SLOW: TIMES})
    found = arrivals(as_live(trace) if is_live else trace)
    assert [each["ranks"] for each in found["culprits"]] == [[SLOW]]


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("is_live", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_accused_where_ranks_are_alike(seed: int, policy: str, is_live: bool) -> None:
    trace = recording(seed, policy, {})
    found = arrivals(as_live(trace) if is_live else trace)
    assert found["culprits"] == []


def test_what_a_slow_rank_of_a_live_schedule_computes_is_told() -> None:
    """The others wait before a call that has not begun: that is no work of theirs."""
    mended = repair_settings(of_recording(as_live(recording(1008, POLICIES[0], {SLOW: TIMES})), None))
    assert [each.spelling for each in mended] == [str(SLOW)]
    times = float(mended[0].what.partition("(")[2].partition(" times")[0])
    assert times == pytest.approx(TIMES, rel=0.1)
