"""Exposed communication and why, on traces small enough to say the answer beforehand."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest

from kineto_traces import ALL_REDUCE, GEMM, Maker, read
from ringwright.analysis.exposed.overlap import overlap
from ringwright.analysis.intervals import covered, length, union
from ringwright.analysis.kernels import kernels
from ringwright.analysis.steps import steps_us
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace

NONE = float("nan")


def reasons(job: Maker) -> dict[str, float]:
    return {row["reason"]: row["exposed_us"] for row in overlap(read(job))["audit"]}


def test_union_and_cover_against_counting() -> None:
    chance = random.Random(3)
    for _ in range(50):
        spans = [(start := chance.randrange(200), start + chance.randrange(30)) for _ in range(chance.randrange(1, 20))]
        starts, ends = (np.array([float(span[side]) for span in spans]) for side in (0, 1))
        marked = {moment for start, end in spans for moment in range(start, end)}
        joined = union(starts, ends)
        assert length(joined) == len(marked)
        asked = [(start := chance.randrange(220), start + chance.randrange(40)) for _ in range(10)]
        found = covered(joined, *(np.array([float(span[side]) for span in asked]) for side in (0, 1)))
        assert found.tolist() == [len(marked & set(range(start, end))) for start, end in asked]
    empty = union(np.zeros(0), np.zeros(0))
    assert length(empty) == 0
    assert covered(empty, np.array([1.0]), np.array([2.0])).tolist() == [0.0]


def test_overlap_in_closed_form() -> None:
    job = Maker()
    job.collective(100, 100)  # 100-200
    job.kernel(ALL_REDUCE, 150, 100, stream=21)  # 150-250: a second stream, union 150
    job.kernel(GEMM, 180, 40)  # 180-220 hides 40
    job.kernel(GEMM, 300, 50)
    job.add("gpu_memcpy", "Memcpy HtoD", 120, 50, stream=9)  # copies hide nothing
    job.kernel("my_all_gather_gemm", 400, 10, stream=9)  # sounds like communication: neither
    found = overlap(read(job))
    wanted = {
        "comm_us": 150,
        "overlapped_us": 40,
        "exposed_us": 110,
        "compute_us": 90,
        "memory_us": 50,
        "unknown_us": 10,
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert found["span_us"] == pytest.approx(310)
    assert found["idle_us"] == pytest.approx(310 - 150 - 50 - 10)
    assert found["ranks"][0]["rank"] == 0


def test_sums_weigh_folded_ranks() -> None:
    one = {
        "kind": "collective",
        "op": "all-reduce",
        "kernel": "k",
        "start_s": 0.0,
        "duration_s": 1e-6,
        "multiplicity": 4,
    }
    two = {"kind": "compute", "kernel": "c", "kernel_class": "compute", "start_s": 0.0, "duration_s": 0.25e-6}
    trace = Trace.of({"events": rows("events", [one, two | {"multiplicity": 4}])})
    assert overlap(trace)["exposed_us"] == pytest.approx(3.0)
    assert overlap(trace)["ranks"][0]["rank"] is None
    assert {row["name"]: row["sum_us"] for row in kernels(trace)} == {"k": 4.0, "c": 1.0}


def test_same_stream() -> None:
    job = Maker()
    job.kernel(GEMM, 50, 40)
    job.kernel(ALL_REDUCE, 100, 100, stream=7, launch=60)
    job.kernel(GEMM, 205, 40, launch=70)
    assert reasons(job) == {"same-stream": 100}


def test_strict_order_names_the_call_that_waited() -> None:
    job = Maker()
    job.collective(100, 100)
    job.add("cuda_runtime", "cudaStreamSynchronize", 98, 104)
    job.kernel(GEMM, 210, 40, launch=204)
    found = overlap(read(job))["audit"][0]
    assert (found["reason"], found["confidence"], found["count"]) == ("strict-order", 0.9, 1)
    evidence = found["evidence"][0]
    assert job.events[evidence["wait_event"]]["name"] == "cudaStreamSynchronize"
    assert job.events[evidence["next_event"]]["name"] == GEMM
    assert job.events[evidence["event"]]["name"] == ALL_REDUCE
    assert evidence["file"] == "job/t0.json"
    assert "rank = 0" in found["command"]
    assert found["advice"]


def test_late_launch_without_a_wait() -> None:
    job = Maker()
    job.collective(100, 100)
    job.kernel(GEMM, 300, 40, launch=290)
    found = overlap(read(job))["audit"][0]
    assert found["reason"] == "late-launch"
    assert "90 us after it ended" in found["evidence"][0]["text"]


def test_a_wait_that_begins_when_the_communication_has_ended_did_not_hold_it_up() -> None:
    job = Maker()
    job.collective(0, 128)
    job.add("cuda_runtime", "cudaStreamSynchronize", 128, 4)
    job.kernel(GEMM, 200, 40, launch=132)
    assert reasons(job) == {"late-launch": 128}


def test_dependency_behind_a_stream_wait() -> None:
    job = Maker()
    job.collective(100, 100)
    job.add("cuda_runtime", "cudaStreamWaitEvent", 97, 1)
    job.kernel(GEMM, 203, 40, launch=99)
    found = overlap(read(job))["audit"][0]
    assert (found["reason"], found["confidence"]) == ("dependency", 0.8)
    assert job.events[found["evidence"][0]["wait_event"]]["name"] == "cudaStreamWaitEvent"


def test_dependency_behind_a_chain_of_communication() -> None:
    job = Maker()
    job.collective(100, 100)
    job.collective(210, 300, launch=105)
    job.add("cuda_runtime", "cudaStreamWaitEvent", 107, 1)
    job.kernel(GEMM, 515, 40, launch=109)
    assert reasons(job) == {"dependency": 400}


def test_bucket_at_the_end_of_a_step() -> None:
    job = Maker()
    job.step(1, 0, 2000)
    job.collective(100, 50, **{"In msg nelems": 1000})
    job.kernel(GEMM, 90, 100)
    job.collective(300, 400, **{"In msg nelems": 9000})
    job.kernel(GEMM, 705, 10, launch=300)
    assert reasons(job) == {"bucket": 400}


def test_connections_when_launch_order_is_always_kept() -> None:
    job = Maker()
    for place in range(12):
        at = 1000.0 * place
        job.collective(
            at + 200, 100, launch=at + 100
        )  # waits 100 us; the next is launched meanwhile and never overtakes
        job.kernel(GEMM, at + 310, 100, launch=at + 120)
    found = overlap(read(job))["audit"]
    assert [(row["reason"], row["confidence"]) for row in found] == [("connections", 0.5)]


def test_cannot_tell_is_an_answer() -> None:
    last = Maker()
    last.kernel(GEMM, 50, 40)
    last.collective(100, 100)
    assert reasons(last) == {"cannot tell": 100}
    unlaunched = Maker()
    unlaunched.collective(100, 100)
    unlaunched.kernel(GEMM, 205, 10, launch=NONE)
    assert reasons(unlaunched) == {"cannot tell": 100}


def test_hidden_communication_is_no_case() -> None:
    job = Maker()
    job.collective(100, 100)
    job.kernel(GEMM, 90, 120)
    assert overlap(read(job))["audit"] == []
    assert overlap(read(job))["exposed_us"] == 0


def test_sources_without_compute_cannot_tell() -> None:
    row = {"kind": "collective", "op": "all-reduce", "rank": 0, "kernel": "k", "start_s": 0.0, "duration_s": 1e-6}
    found = overlap(Trace.of({"events": rows("events", [row])}))
    assert found["exposed_us"] is None
    assert "communication only" in found["why"]
    assert "no device kernel" in overlap(Trace.of({}))["why"]


def test_kernels_communication_first_and_bounded() -> None:
    job = Maker()
    for place in range(30):
        job.kernel(f"compute_{place}", 100 * place, 50 + place)
    job.collective(5000, 1)
    job.kernel("exotic_reduce_scatter", 6000, 2)
    found = kernels(read(job), most=10)
    assert [row["class"] for row in found[:3]] == ["nccl", "unknown-communication", "compute"]
    assert found[2]["name"] == "compute_29"
    assert len(found) == 11
    assert found[-1]["name"] == "others (22 names)"
    assert found[-1]["count"] == 22
    assert sum(row["sum_us"] for row in found) == pytest.approx(sum(50 + place for place in range(30)) + 3)


def test_union_of_kernels_is_per_rank() -> None:
    jobs = [Maker(rank=rank) for rank in range(2)]
    for job in jobs:
        job.kernel(GEMM, 100, 50)
        job.kernel(GEMM, 120, 50, stream=8)
    (row,) = kernels(read(*jobs))
    assert (row["count"], row["sum_us"], row["union_us"]) == (4, pytest.approx(200), pytest.approx(140))


def test_steps_in_order_of_time() -> None:
    jobs = [Maker(rank=rank) for rank in range(2)]
    for rank, job in enumerate(jobs):
        job.add("user_annotation", "## forward ##", 10, 5)
        job.step(8, 2000, 300 + rank)
        job.step(7, 1000, 200)
    trace = read(*jobs)
    assert steps_us(trace) == {0: [200, 300], 1: [200, 301]}
    assert trace.df.filter(pl.col("kind") == "phase")["text"].to_list() == ["forward"] * 2
