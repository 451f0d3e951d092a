"""Jobs on one pool of slots: an equal part each, or any slot by hash with servers for what finds its slot taken."""

from __future__ import annotations

import dataclasses

import pytest

from ringwright.algorithms.innetwork import shared_pool
from ringwright.algorithms.innetwork.shared_pool import PoolJobs, shared
from ringwright.ground.errors import UsageError

pytestmark = pytest.mark.once

ONE = PoolJobs(1, packets=120, compute_ticks=50, slots=32, trip_ticks=32, steps=2)


def step(asked: PoolJobs, sharing: str) -> float:
    return float(shared(asked, sharing).step_ticks.mean())  # type: ignore[arg-type]


def test_one_job_with_the_whole_pool_takes_its_compute_its_packets_and_a_round_trip() -> None:
    assert step(ONE, "parted") == 50 + 119 + 32
    assert shared(ONE, "parted").at_servers == 0


@pytest.mark.parametrize("jobs", [2, 4, 8])
def test_a_part_of_the_pool_sends_its_slots_a_round_trip_whatever_the_others_do(jobs: int) -> None:
    own = 32 // jobs
    asked = dataclasses.replace(ONE, jobs=jobs)
    rounds, last = divmod(120 - 1, own)
    assert shared(asked, "parted").step_ticks.tolist() == [50 + rounds * 32 + last + 32] * jobs


def test_by_hash_what_finds_its_slot_taken_costs_a_packet_of_each_worker_at_the_server() -> None:
    roomy = dataclasses.replace(ONE, slots=1 << 20)
    assert shared(roomy, "hashed").at_servers == 0
    assert step(roomy, "hashed") == step(ONE, "parted")
    tight = dataclasses.replace(ONE, slots=1, jobs=1)
    assert 0.8 < shared(tight, "hashed").at_servers < 0.9, "no more under way than a round trip: 0.97"
    assert step(tight, "hashed") > 0.8 * 8 * 120
    fewer = dataclasses.replace(tight, workers=2)
    assert step(fewer, "hashed") < step(tight, "hashed") / 2


def test_parts_are_for_jobs_that_send_at_once_and_hash_for_those_that_compute() -> None:
    busy = dataclasses.replace(ONE, jobs=2, compute_ticks=0)
    idle = dataclasses.replace(ONE, jobs=8, compute_ticks=1000)
    assert step(busy, "parted") < step(busy, "hashed")
    assert step(idle, "hashed") < step(idle, "parted")


def test_more_jobs_make_no_job_faster_and_the_seed_moves_hash_alone() -> None:
    for sharing in ("parted", "hashed"):
        times = [step(dataclasses.replace(ONE, jobs=jobs, compute_ticks=0), sharing) for jobs in (1, 2, 4, 8)]
        assert times == sorted(times)
    again = dataclasses.replace(ONE, jobs=4, seed=3)
    assert step(again, "parted") == step(dataclasses.replace(again, seed=0), "parted")
    assert step(again, "hashed") != step(dataclasses.replace(again, seed=0), "hashed")


def test_jobs_that_are_none_or_do_not_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for odd in ({"jobs": 0}, {"jobs": 33}, {"packets": 0}, {"compute_ticks": -1}, {"workers": 0}, {"trip_ticks": 0}):
        with pytest.raises(UsageError, match="jobs of") as refused:
            dataclasses.replace(ONE, **odd)  # type: ignore[arg-type]
        assert refused.value.remedy
    monkeypatch.setattr(shared_pool, "MOST_TICKS", 100)
    with pytest.raises(UsageError, match="did not end in 100 packet times"):
        shared(ONE, "parted")
