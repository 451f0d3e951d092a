"""The loop of jobs: the compiled twin equals its oracle to the picosecond."""

from __future__ import annotations

import dataclasses
import signal
import types
from typing import Any

import numpy as np
import pytest

import job_cases as cases
import pieced_jobs
from ringwright.engines.job import run
from ringwright.engines.job.flat import FlatJob, InstanceTimes, Interference
from ringwright.engines.job.loop import Loop
from ringwright.model.stages import LinkCosts
from ringwright.native import engine
from ringwright.workloads.chain import ChainLayer, chain

compiled = pytest.mark.skipif(not hasattr(engine, "job"), reason="needs a compiled job loop")
COLUMNS = ("ready", "start", "moved", "end")


def native(flat: FlatJob) -> InstanceTimes:
    return InstanceTimes(*engine.job(flat))


def unequal(one: InstanceTimes, other: InstanceTimes) -> list[str]:
    found = [name for name in COLUMNS if not np.array_equal(getattr(one, name), getattr(other, name))]
    return found + ["events"] * (one.events != other.events)


# -------------------------------------------------------------------------------------------------- the twin is equal
@pytest.mark.sampled(8, "*")
@compiled
@pytest.mark.parametrize("block", range(20))
def test_native_equals_python_on_random_jobs(block: int) -> None:
    for seed in range(40 * block, 40 * block + 40):
        flat = cases.random_job(seed)
        assert not unequal(Loop(flat).run(), native(flat)), f"seed {seed}"


@compiled
@pytest.mark.parametrize("seed", range(5))
def test_native_equals_python_on_larger_jobs(seed: int) -> None:
    flat = cases.random_job(10_000 + seed, most=3000)
    assert not unequal(Loop(flat).run(), native(flat))


@pytest.mark.sampled(2, "*")
@compiled
@pytest.mark.parametrize("model", cases.MODELS)
def test_native_equals_python_where_ends_are_overruled_all_the_time(model: str) -> None:
    # Eighty queues that share one link, beside one long task: thousands of ends that no longer count wait at a time.
    n, r = 1500, np.random.default_rng(1)
    flat = cases.job(
        [10**9, *r.integers(1, 10**6, n).tolist()],
        [0, *(1 + np.arange(n) % 80).tolist()],
        cases.communication(80, 2, streams=1),
        loads=[(1 + at, 0, 0.5) for at in range(n)],
        sms=[0.0] + [0.01] * n,
        tiles=[400] * (n + 1),
        interference=Interference(model, factors=cases.FACTORS),
    )
    assert not unequal(Loop(flat).run(), native(flat))


@pytest.mark.sampled(4, "*")
@compiled
@pytest.mark.parametrize("block", range(10))
def test_native_equals_python_on_operations_in_pieces(block: int) -> None:
    # 2285, 3345: something more urgent comes when a piece has just begun, in the second turn of one moment.
    for seed in [*range(60 * block, 60 * block + 60), *([2285, 3345] if not block else [])]:
        flat = pieced_jobs.pieced_job(seed)
        assert not unequal(Loop(flat).run(), native(flat)), f"seed {seed}"


def test_random_pieces_go_one_by_one_and_are_cut_by_others() -> None:
    alone = shared = passed = 0
    for seed in range(60):
        flat = pieced_jobs.pieced_job(seed)
        times = Loop(flat).run()
        same = (np.diff(flat.queue) == 0) & (np.diff(flat.work_ps) == 0) & (flat.work_ps[1:] > 0)
        same &= ~flat.queues.strict[flat.queue[1:]]
        took = (times.end - times.moved)[1:]
        alone += int((same & (took == flat.work_ps[1:])).sum())
        shared += int((same & (took > flat.work_ps[1:])).sum())
        passed += int((same & (times.start[1:] > times.end[:-1])).sum())
    assert min(alone, shared, passed) > 100


def test_random_jobs_have_every_feature() -> None:
    flats = [cases.random_job(seed) for seed in range(100)]
    ended = [(Loop(flat).run().end >= 0).all() for flat in flats]
    assert {flat.interference.model for flat in flats} == set(cases.MODELS)
    assert 20 < sum(ended) < 100
    for feature in ("load", "token", "gates", "after"):
        assert sum(getattr(flat, feature).size > 0 for flat in flats) > 20, feature


# ------------------------------------------------------------------------------------------------------- bad arrays
def _sample() -> FlatJob:
    queues = cases.communication(2, streams=1)
    return cases.job(
        [5, 5, 5], [0, 1, 2], queues, edges=[(0, 1), (1, 2)], loads=[(1, 0, 1.0)], tokens=[(1, 0, 1.0)], capacity=[1]
    )


BAD: dict[str, Any] = {
    "latency_ps": np.zeros(2, np.int64),
    "queue": np.array([0, 1, 3], np.int32),
    "waits": np.array([0, 1, 2]),
    "tag": np.array([0, 0, 3], np.int32),
    "work_ps": np.array([5, -1, 5]),
    "size": np.array([1.0, np.nan, 1.0]),
    "after_start": np.array([0, 2, 1, 2]),
    "after": np.array([1, 3]),
    "after_many": np.array([1, 2]),
    "load": np.array([1], np.int32),
    "share": np.array([-1.0]),
    "domain": np.array([0, 0, -1], np.int32),
    "domain_start": np.array([0, 1, 2, 4]),
    "token": np.array([1], np.int32),
    "token_start": np.zeros(4, np.int64),
    "gates": np.array([[0, 3, -1, 0]], np.int32),
    "n_domains": -1,
    "interference": Interference("magic"),
    "tiles": np.array([0, 1, 2], np.int32),
}


def measured(column: str) -> dict[str, Interference]:
    """Return what makes a row of factors that is not there a mistake."""
    return {"interference": Interference("measured", factors=((1.0, 1.5),))} if column == "tiles" else {}


@compiled
@pytest.mark.parametrize("column", BAD)
def test_bad_columns_are_named_and_no_crash(column: str) -> None:
    with pytest.raises(ValueError, match=column.removesuffix("_ps") if column != "latency_ps" else "columns"):
        engine.job(dataclasses.replace(_sample(), **measured(column), **{column: BAD[column]}))


@compiled
@pytest.mark.parametrize("column", ["work_ps", "queue", "gates", "after"])
def test_columns_of_another_kind_are_a_type_error(column: str) -> None:
    for strange in (getattr(_sample(), column).astype(np.int16), np.zeros((2, 2, 2)), None, np.zeros(6, np.int64)[::2]):
        with pytest.raises(TypeError, match=column):
            engine.job(dataclasses.replace(_sample(), **{column: strange}))


@compiled
def test_bad_queues() -> None:
    flat = _sample()
    for change in (
        {"traffic": np.array([-1, 0, 3], np.int32)},
        {"issue_ps": np.array([0, -1, 0])},
        {"window": np.ones(2)},
    ):
        with pytest.raises(ValueError, match=r"traffic|issue_ps|different lengths|queue"):
            engine.job(dataclasses.replace(flat, queues=dataclasses.replace(flat.queues, **change)))


@compiled
def test_times_beyond_the_clock() -> None:
    flat = cases.job([2**61] * 3, [0] * 3, cases.communication(0, streams=1))
    with pytest.raises(OverflowError, match="ps"):
        engine.job(flat)


@compiled
def test_an_interrupt_is_heard_during_the_run() -> None:
    n = 3_000_000
    base = cases.job([1], [0], cases.communication(0, streams=1))
    long = {
        name: np.repeat(getattr(base, name), n) for name in ("work_ps", "latency_ps", "queue", "key", "size", "tag")
    }
    long |= {name: np.repeat(getattr(base, name), n) for name in ("waits", "tiles", "sms", "domain")}
    long |= {name: np.zeros(n + 1, np.int64) for name in ("after_start", "load_start", "token_start")}
    flat = dataclasses.replace(base, **long, domain_start=np.arange(n + 1))

    def heard(*_: object) -> None:
        raise InterruptedError("heard")

    before = signal.signal(signal.SIGPROF, heard)
    try:
        signal.setitimer(signal.ITIMER_PROF, 0.02)
        with pytest.raises(InterruptedError, match="heard"):
            engine.job(flat)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def test_a_build_without_the_job_loop_serves_by_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    job = chain("toy", [ChainLayer(2, 2, 3), ChainLayer(2, 2, 6)])
    first = run.simulate(job, LinkCosts(1.0))
    monkeypatch.setattr(run, "engine", types.SimpleNamespace(events=None))
    second = run.simulate(job, LinkCosts(1.0))
    assert second.engine == "python"
    assert first.engine == ("native" if hasattr(engine, "job") else "python")
    assert not unequal(first.times, second.times)
