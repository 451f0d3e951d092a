"""Stragglers by arrival: the last has the shortest kernel; balanced jobs accuse nobody."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ringwright.analysis.slow.arrivals import arrivals
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace
from ringwright_lab.testing import noise, slow_ranks


def job(
    late: dict[int, float],
    *,
    ranks: int = 8,
    steps: int = 5,
    per_step: int = 4,
    seed: int = 1,
    jitter: float = 20.0,
    transfer: float = 100.0,
) -> Trace:
    """All-reduces that take ``transfer`` us once all have arrived; ranks arrive up to ``jitter`` us late, some ``late``."""
    chance = random.Random(seed)
    events: list[dict[str, Any]] = []
    for place in range(steps * per_step):
        arrival = [chance.uniform(0, jitter) + late.get(rank, 0.0) for rank in range(ranks)]
        end = max(arrival) + transfer
        events += [
            {
                "kind": "collective",
                "op": "all-reduce",
                "communicator": 0,
                "sequence": place,
                "rank": rank,
                "nranks": ranks,
                "iteration": place // per_step,
                "start_s": at * 1e-6,
                "duration_s": (end - at) * 1e-6,
                "file": f"rank{rank}.json",
                "line": place,
                "multiplicity": 1,
            }
            for rank, at in enumerate(arrival)
        ]
    return Trace.of({"events": rows("events", events)})


def test_wait_and_transfer_in_closed_form() -> None:
    events = [
        {
            "kind": "collective",
            "op": "all-reduce",
            "communicator": 0,
            "sequence": number,
            "rank": rank,
            "duration_s": us * 1e-6,
        }
        for number, durations in enumerate([(100, 60, 10), (30, 20, 50)])
        for rank, us in enumerate(durations)
    ]
    found = arrivals(Trace.of({"events": rows("events", events)}))
    table = {
        row["rank"]: (row["wait_us"], row["transfer_us"], row["last_count"], row["caused_us"]) for row in found["ranks"]
    }
    assert table == {0: (100, 30, 0, 0), 1: (50, 30, 1, 40), 2: (30, 30, 1, 140)}
    assert found["wait_us"] == 180
    assert found["collectives"] == 2
    assert found["verdict"] == "cannot tell"
    assert found["culprits"] == []


def test_calls_under_way_at_the_same_time_wait_together() -> None:
    """Rank 0 hands in four calls at once and rank 1 comes 100 us later: nobody waits longer than the clock says."""
    events = [
        {
            "kind": "collective",
            "op": "all-reduce",
            "communicator": 0,
            "nranks": 2,
            "multiplicity": 1,
            "sequence": number,
            "rank": rank,
            "file": f"rank{rank}.json",
            "line": number,
            "start_s": begin * 1e-6,
            "duration_s": (110 + 10 * number - begin) * 1e-6,
        }
        for number in range(4)
        for rank, begin in enumerate((0, 100 + 10 * number))
    ]
    rows_of = arrivals(Trace.of({"events": rows("events", events)}))["ranks"]
    assert [row["wait_us"] for row in rows_of] == [130.0, 0.0]
    assert [row["caused_us"] for row in rows_of] == [0.0, 130.0]


@pytest.mark.parametrize("late", [{3: 200.0}, {0: 100.0}, {7: 1000.0}])
def test_one_straggler(late: dict[int, float]) -> None:
    found = arrivals(job(late))
    assert found["verdict"] == "straggler"
    (culprit,) = found["culprits"]
    assert culprit["ranks"] == list(late)
    assert culprit["kind"] == "straggler"
    assert culprit["confidence"] > 0.8
    (rank,) = late
    assert f"rank {rank} arrives last" in culprit["evidence"][0]
    assert any(f"rank{rank}.json event" in item for item in culprit["evidence"])


def test_two_stragglers_of_eight() -> None:
    found = arrivals(job({2: 300.0, 5: 300.0}, steps=10))
    assert found["culprits"][0]["ranks"] == [2, 5]


def test_a_pair_of_ranks() -> None:
    assert arrivals(job({1: 100.0}, ranks=2))["culprits"][0]["ranks"] == [1]
    assert arrivals(job({}, ranks=2))["culprits"] == []


@pytest.mark.sampled(1, "*")
@pytest.mark.parametrize("ranks", [2, 3, 8, 16, pytest.param(32, id="many-32")])
def test_balanced_jobs_accuse_nobody(ranks: int, pytestconfig: pytest.Config) -> None:
    accused, seeds = 0, 60 if pytestconfig.getoption("--campaigns") else 20
    for seed in range(seeds):
        for jitter in (1.0, 20.0, 500.0):
            accused += bool(arrivals(job({}, ranks=ranks, steps=1 + seed % 6, seed=seed, jitter=jitter))["culprits"])
    assert accused <= 3 * seeds // 180  # one of 180, none of fewer


def test_little_waiting_does_not_matter() -> None:
    found = arrivals(job({3: 5.0}, jitter=1.0, transfer=1000.0))
    assert found["verdict"] == "none"
    assert "nobody is accused" in found["reason"]


def test_how_little_the_waiting_is_is_said() -> None:
    """Of two ranks one waits 10 us in calls that take 190 us: 10 of 390 us of rank time."""
    events = [
        {"kind": "collective", "op": "all-reduce", "communicator": 0, "sequence": at, "rank": rank, "duration_s": s}
        for at in range(6)
        for rank, s in enumerate((190e-6, 200e-6))
    ]
    found = arrivals(Trace.of({"events": rows("events", events)}))
    assert (found["verdict"], found["wait_us"]) == ("none", 60)
    assert found["reason"] == "waiting is 2.6% of the time in collectives: nobody is accused"


def test_a_rank_late_in_one_step_of_many_is_not_accused() -> None:
    trace = job({}, steps=6, jitter=20.0)
    import polars as pl

    moved = trace.df.with_columns(
        pl.when((pl.col("iteration") == 2) & (pl.col("rank") != 4))
        .then(pl.col("duration_s") + 5e-3)
        .otherwise(pl.col("duration_s"))
        .alias("duration_s")
    )
    found = arrivals(Trace.of({"events": moved}))
    assert found["culprits"] == []
    assert found["verdict"] in ("none", "cannot tell")


def test_operations_that_do_not_synchronise_are_left_out() -> None:
    trace = job({3: 200.0})
    import polars as pl

    other = Trace.of({"events": trace.df.with_columns(pl.lit("broadcast").alias("op"))})
    found = arrivals(other)
    assert found["verdict"] == "cannot tell"
    assert found["ranks"] == []


def test_few_collectives_cannot_tell() -> None:
    found = arrivals(job({3: 200.0}, steps=1, per_step=3))
    assert found["verdict"] == "cannot tell"
    assert "clear last rank" in found["reason"]


def put_in(mechanism: str, seed: int) -> tuple[slow_ranks.Injected, dict[str, Any]]:
    trace, truth = slow_ranks.job(mechanism, seed, noise.ours())
    (culprit,) = arrivals(trace)["culprits"]
    return truth, culprit


@pytest.mark.parametrize(
    ("mechanism", "seed"), [("straggler-late", 2001), ("straggler-late", 2006), ("straggler-ends", 2003)]
)
def test_a_straggler_that_begins_late_is_named_with_its_step(mechanism: str, seed: int) -> None:
    truth, culprit = put_in(mechanism, seed)
    assert culprit["ranks"] == list(truth.ranks)
    assert abs(culprit["begin_step"] - truth.begin) <= 2  # type: ignore[operator]
    assert f"step {culprit['begin_step']}" in culprit["evidence"][0]
    assert abs(culprit["steps_share"] - truth.share) < 0.06


def test_the_slow_rank_that_changes_is_told_with_each_ones_steps() -> None:
    truth, culprit = put_in("moving", 2002)
    assert culprit["kind"] == "straggler-moving"
    assert culprit["ranks"] == list(truth.ranks)
    assert all(f"rank {rank} in steps " in culprit["evidence"][0] for rank in truth.ranks)


@pytest.mark.parametrize("mechanism", ["wandering", "pauses-of-all"])
def test_ranks_late_in_turn_are_told_with_the_share_of_steps_and_nobody_is_named(mechanism: str) -> None:
    truth, culprit = put_in(mechanism, 2003)
    assert culprit["ranks"] == []
    assert "cannot tell" in culprit["evidence"][0]
    assert abs(culprit["steps_share"] - truth.share) < 0.1


@pytest.mark.parametrize("mechanism", ["loader", "pauses-of-one"])
def test_a_rank_late_now_and_then_is_named(mechanism: str) -> None:
    truth, culprit = put_in(mechanism, 2009)
    assert culprit["ranks"] == list(truth.ranks)


def test_a_neighbour_in_a_small_group_is_not_blamed_for_the_straggler() -> None:
    """The members of its group of four come late to the large group too, because they wait for it."""
    events: list[dict[str, Any]] = []
    chance = random.Random(3)
    clock = [0.0] * 8
    for step in range(30):
        own = [1e-3 + chance.uniform(0, 2e-5) + (6e-4 if rank == 5 and step >= 15 else 0.0) for rank in range(8)]
        for number, groups in ((0, [[0, 1, 2, 3], [4, 5, 6, 7]]), (2, [[0, 4], [1, 5], [2, 6], [3, 7]])):
            for place, ranks in enumerate(groups):
                arrival = {rank: clock[rank] + (own[rank] if number == 0 else 0.0) for rank in ranks}
                end = max(arrival.values()) + 1e-4
                for rank in ranks:
                    row = {"kind": "collective", "op": "all-reduce", "communicator": number + place, "sequence": step}
                    row |= {
                        "rank": rank,
                        "iteration": step,
                        "start_s": arrival[rank],
                        "duration_s": end - arrival[rank],
                    }
                    events.append(row | {"multiplicity": 1, "file": "f", "line": len(events)})
                    clock[rank] = end
    (culprit,) = arrivals(Trace.of({"events": rows("events", events)}))["culprits"]
    assert culprit["ranks"] == [5]
    assert culprit["begin_step"] == 15


def test_no_healthy_job_of_a_seeded_twenty_accuses_anybody() -> None:
    jobs = [slow_ranks.job("none", seed, noise.ours())[0] for seed in range(2000, 2020)]
    assert [arrivals(job)["culprits"] for job in jobs] == [[]] * 20
