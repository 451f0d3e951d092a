"""Who hung the job: real runs with a known answer, made jobs with injected faults, and healthy ones that accuse nobody."""

from __future__ import annotations

import io
from typing import Any

import polars as pl
import pytest

from ringwright.analysis.hangs.hang import hang
from ringwright.analysis.hangs.hang_gauge import hang_gauge
from ringwright.analysis.hangs.hang_mismatch import mismatches
from ringwright.analysis.hangs.hang_progress import progress
from ringwright.analysis.hangs.hang_waits import vote
from ringwright.formats.sources.flight_recorder import read_flight_recorder
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.prometheus import read_prometheus
from ringwright.formats.sources.source import Source
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace
from ringwright_lab.testing.flight_recorder import FAULTS, HEALTHY, FlightJob
from shared_data import needs_shared_data, real

KINDS = {
    "killed": "hang-no-dump",
    "stopped": "hang-not-entered",
    "late": "hang-not-entered",
    "gpu-error": "hang-device-stuck",
    "gpu-stall": "hang-not-started",
    "size": "hang-mismatch-size",
    "split": "hang-mismatch-split",
    "dtype": "hang-mismatch-datatype",
    "op": "hang-mismatch-operation",
    "order": "hang-mismatch-order",
    "skipped": "hang-mismatch-skipped",
    "order-across-groups": "hang-deadlock",
    "p2p-deadlock": "hang-deadlock",
}
KEYS = {"ranks", "hosts", "kind", "confidence", "evidence", "command"}


def trace_of(job: FlightJob) -> Trace:
    files = job.files().items()
    return read_flight_recorder([Source(name, lambda data=data: io.BytesIO(data)) for name, data in files])


def accused(culprits: list[dict[str, Any]]) -> list[int]:
    return culprits[0]["ranks"] if culprits and culprits[0]["confidence"] > 0 else []


@needs_shared_data
@pytest.mark.parametrize(
    ("run", "kind"), [("gpu_error_2nd", "hang-device-stuck"), ("lock_gil_1st", "hang-not-entered")]
)
def test_the_injected_ranks_of_both_real_runs(run: str, kind: str) -> None:
    folder = real(f"real/flight-recorder/{run}")
    trace = read_flight_recorder([source for source in find([str(folder)]) if "_dump_" in source.name])
    culprits = hang(trace)
    assert len(culprits) == 1
    assert culprits[0].keys() == KEYS
    assert culprits[0]["ranks"] == [9, 14]
    assert culprits[0]["kind"] == kind
    assert culprits[0]["confidence"] >= 0.9
    assert any("_dump_9" in line for line in culprits[0]["evidence"])
    assert any("record 1" in line for line in culprits[0]["evidence"])
    assert vote(progress(trace)).top == {9, 14}


@needs_shared_data
@pytest.mark.parametrize("lost", [[9], [3], [0, 14]])
def test_real_runs_with_lost_dumps_still_name_no_innocent(lost: list[int]) -> None:
    folder = real("real/flight-recorder/gpu_error_2nd")
    sources = [
        s
        for s in find([str(folder)])
        if not any(s.name.endswith(f"_dump_{rank}") for rank in lost) and "_dump_" in s.name
    ]
    assert set(accused(hang(read_flight_recorder(sources)))) <= {9, 14} | set(lost)


@pytest.mark.sampled(18, "seed")
@pytest.mark.parametrize("mechanism", FAULTS)
@pytest.mark.parametrize("seed", range(4))
def test_injected_faults_are_named(mechanism: str, seed: int) -> None:
    job = FlightJob(mechanism, seed=100 + seed)
    culprits = hang(trace_of(job))
    assert culprits, job
    if mechanism == "gpu-stall" and not accused(culprits):
        assert culprits[0]["kind"] == "hang-group-stuck"  # where only two members meet, neither is a minority
        return
    assert accused(culprits) == job.truth()["ranks"], (job, culprits)
    assert culprits[0]["kind"] == KINDS[mechanism], (job, culprits)
    assert culprits[0]["evidence"]
    assert culprits[0]["command"]


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    "shape",
    [
        {"timing": False},
        {"active_only": True},
        {"form": "json"},
        {"buffer": 30},
        {"world": 64, "tp": 8, "pp": 4},
    ],
)
@pytest.mark.parametrize("mechanism", ["killed", "stopped", "gpu-error", "size", "order-across-groups", "p2p-deadlock"])
def test_faults_in_other_jobs_and_dumps(shape: dict[str, Any], mechanism: str) -> None:
    job = FlightJob(mechanism, seed=7, **shape)
    assert accused(hang(trace_of(job))) == job.truth()["ranks"], job


@pytest.mark.parametrize("mechanism", HEALTHY)
@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_accused_in_a_healthy_job(mechanism: str, seed: int) -> None:
    job = FlightJob(mechanism, seed=seed)
    culprits = hang(trace_of(job))
    assert accused(culprits) == []
    if mechanism != "healthy-running":
        assert culprits == []


def test_two_stopped_ranks_are_named_together() -> None:
    assert accused(hang(trace_of(FlightJob("stopped", seed=0, culprits=(1, 6))))) == [1, 6]


def test_a_stall_cannot_be_told_without_times() -> None:
    culprits = hang(trace_of(FlightJob("gpu-stall", seed=1, timing=False)))
    assert accused(culprits) == []
    assert "cannot tell" in culprits[0]["evidence"][0]


def test_most_dumps_missing_cannot_tell() -> None:
    job = FlightJob("stopped", seed=3)
    files = dict(list(job.files().items())[:6])
    trace = read_flight_recorder([Source(name, lambda data=data: io.BytesIO(data)) for name, data in files.items()])
    assert accused(hang(trace)) in ([], job.truth()["ranks"])


def test_evidence_names_both_values() -> None:
    job = FlightJob("dtype", seed=11)
    evidence = "\n".join(hang(trace_of(job))[0]["evidence"])
    assert "sequence" in evidence
    assert "float32" in evidence
    assert f"rank {job.truth()['ranks'][0]}" in evidence
    assert "record" in evidence


def made(events: list[dict[str, Any]], size: int = 4) -> Trace:
    comm = {"communicator": 0, "comm_id": "g", "name": "g", "size": size, "members": list(range(size))}
    base = {
        "kind": "collective",
        "communicator": 0,
        "nranks": size,
        "file": "made",
        "datatype": "float32",
        "state": "started",
    }
    return Trace.of(
        {
            "events": rows("events", [base | {"line": n} | event for n, event in enumerate(events)]),
            "communicators": rows("communicators", [comm]),
        }
    )


def ask(rank: int, op: str = "all-gather", sent: int = 4, received: int = 16, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "op": op, "sequence": 1, "sent_bytes": sent, "received_bytes": received, **more}


def test_uneven_parts_of_one_whole_are_no_mismatch() -> None:
    assert mismatches(made([ask(0, sent=4), ask(1, sent=8), ask(2, sent=0), ask(3, sent=4)])) == []


def test_an_unknown_size_is_no_other_size() -> None:
    unknown: dict[str, Any] = {"sent_bytes": None, "received_bytes": None}
    alike = [
        ask(0, "all-reduce", 4, 4),
        ask(1, "all-reduce", 4, 4) | {"received_bytes": None},
        ask(2, "all-reduce") | unknown,
    ]
    assert mismatches(made(alike)) == []
    odd = mismatches(
        made([ask(n, "all-reduce", 4 if n else 8, 4) | unknown | {"sent_bytes": 4 if n else 8} for n in range(4)])
    )
    assert [culprit["ranks"] for culprit in odd] == [[0]]


def test_a_tie_cannot_tell() -> None:
    culprits = mismatches(made([ask(0), ask(1), ask(2, sent=8, received=32), ask(3, sent=8, received=32)]))
    assert culprits[0]["ranks"] == []
    assert culprits[0]["confidence"] == 0.0
    assert "cannot tell" in culprits[0]["evidence"][1]


def test_roots_and_leaves_of_scatter_and_gather_may_differ() -> None:
    assert mismatches(made([ask(0, "gather", 4, 16), *(ask(n, "gather", 4, 0) for n in (1, 2, 3))])) == []
    assert mismatches(made([ask(0, "scatter", 16, 4), *(ask(n, "scatter", 0, 4) for n in (1, 2, 3))])) == []
    assert len(mismatches(made([ask(0, "gather", 4, 16), *(ask(n, "gather", 8, 0) for n in (1, 2, 3))]))) == 1


def test_uneven_all_to_all_that_adds_up_is_no_mismatch() -> None:
    even = [
        ask(0, "all-to-all", 8, 4),
        ask(1, "all-to-all", 4, 8),
        ask(2, "all-to-all", 6, 6),
        ask(3, "all-to-all", 6, 6),
    ]
    assert mismatches(made(even)) == []


def test_a_trace_without_states_or_without_anything_says_nothing() -> None:
    assert hang(made([ask(0, state=None), ask(1, sent=99, state=None)])) == []
    assert hang(Trace.of({})) == []


def test_a_broken_graph_of_members_is_survived() -> None:
    assert hang(made([ask(7, peer=99, kind="p2p", op="send"), ask(1, communicator=5)])) == []


@needs_shared_data
@pytest.mark.parametrize(("name", "ranks"), [("all", list(range(8))), ("some", [0, 2, 5])])
def test_ranks_of_the_hang_gauge(name: str, ranks: list[int]) -> None:
    path = real(f"real/metrics/dlrover_hang_xpu_timer_metric_{name}.prom")
    culprits = hang_gauge(read_prometheus([Source(path.name, lambda: path.open("rb"))]))
    assert culprits[0].keys() == KEYS
    assert culprits[0]["ranks"] == ranks
    assert culprits[0]["confidence"] <= 0.5
    assert f"the gauge is 1 on {len(ranks)} of 8 ranks" in culprits[0]["evidence"][0]


def test_no_hang_gauge_accuses_nobody() -> None:
    text = b'XPU_TIMER_COMMON_HANG{rank="0"} 0\nXPU_TIMER_COMMON_HANG{rank="1"} 0\nother{rank="0"} 1\n'
    trace = read_prometheus([Source("job.prom", lambda: io.BytesIO(text))])
    assert hang_gauge(trace) == []
    assert trace.df.filter(pl.col("kind") == "metric").height == 3
