"""Public recordings of every kind through the summary: the answers that are known of them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from ringwright.analysis.summary import summarise
from ringwright.cli import main
from ringwright.formats.sources import read
from shared_data import needs_shared_data, real

pytestmark = needs_shared_data

KEYS = {
    "schema",
    "kind",
    "operations",
    "communicators",
    "verdict",
    "steps_us",
    "kernels",
    "exposed_us",
    "overlapped_us",
    "bandwidth",
    "culprits",
    "ledger",
    "coverage",
    "warnings",
    "ranks_seen",
    "ranks_expected",
    "findings",
    "waits",
    "bars",
}
ALL = [
    ("real/kineto/hta_nccl_data.json.gz", "kineto"),
    ("real/kineto/hta_rank_non_gpu.json.gz", "kineto"),
    ("real/kineto/hta_sampled_rank-0.json.gz", "kineto"),
    ("real/flight-recorder/gpu_error_2nd", "flight-recorder"),
    ("real/chakra/mlcommons_chakra_feeder_tests_trace.tar.gz", "chakra-et"),
    ("real/chakra/small_chakra.0.json", "chakra-et"),
    ("real/chakra/pytorch_et/resnet_2gpu_et.json.gz", "pytorch-et"),
    ("real/pytorch-et/param_dlrm_pytorch_et.tar.gz", "pytorch-et"),
    ("real/inspector", "inspector"),
    ("real/nccl-tests", "bench"),
    ("real/metrics/dlrover_hang_xpu_timer_metric_all.prom", "prometheus"),
    ("real/perf-db", "perf-table"),
]


@cache
def summary(path: str) -> dict[str, Any]:
    return summarise(read(str(real(path))))


def counts(found: dict[str, Any]) -> dict[str, int]:
    return {row["op"]: row["count"] for row in found["operations"]}


@pytest.mark.sampled(4, "*")
@pytest.mark.parametrize(("path", "kind"), ALL)
def test_every_kind_keeps_the_contract(path: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(real(path)), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() >= KEYS
    assert kind in found["kind"].split("+")
    for row in found["kernels"]:
        assert row.keys() >= {"name", "class", "count", "sum_us", "union_us"}
    for row in found["bandwidth"]:
        assert row.keys() >= {"op", "size_bytes", "time_us", "algbw_gbs", "busbw_gbs"}
    for row in found["culprits"]:
        assert row.keys() >= {"ranks", "kind", "confidence", "evidence"}
    assert main(["summary", str(real(path))]) == 0
    assert "bug" not in capsys.readouterr().err


def test_one_rank_with_all_metadata() -> None:
    found = summary("real/kineto/hta_nccl_data.json.gz")
    assert counts(found) == {"all-reduce": 15, "broadcast": 6}
    assert {row["op"]: row["bytes"] for row in found["operations"]} == {"all-reduce": 306_684_384, "broadcast": 638_712}
    mine = [row for row in found["kernels"] if row["class"] == "nccl"]
    assert sum(row["count"] for row in mine) == 21
    assert sum(row["sum_us"] for row in mine) == pytest.approx(46_876.5, abs=0.1)
    assert found["overlapped_us"] == pytest.approx(7_317, abs=1)
    assert found["exposed_us"] + found["overlapped_us"] == pytest.approx(46_876.5, abs=0.1)
    assert found["nccl_versions"] == ["2.17.1"]
    assert (found["ranks_seen"], found["ranks_expected"]) == (1, 2)


def test_streams_that_overlap_each_other() -> None:
    (kernel,) = [
        row for row in summary("real/kineto/hta_negative_queue_rank0.json.gz")["kernels"] if row["class"] == "nccl"
    ]
    assert kernel["count"] == 80
    assert (round(kernel["sum_us"]), round(kernel["union_us"])) == (190_345, 187_870)


def test_eight_ranks_of_a_recommendation_model() -> None:
    found = summary("real/kineto/param_dlrm_kineto.tar.gz")
    assert found["verdict"]["ranks"] == [7]
    steps = [found["steps_us"][str(rank)][0] for rank in range(8)]
    assert [round(step) for step in steps] == [14_455, 19_901, 13_017, 19_313, 17_979, 17_797, 13_091, 12_509]
    assert counts(found) == counts(summary("real/pytorch-et/param_dlrm_pytorch_et.tar.gz"))
    assert found["bars"]["refused"] == ""


def test_kernels_and_execution_trace_of_one_job_become_one() -> None:
    both = summarise(
        read(
            [
                str(real("real/kineto/param_dlrm_kineto.tar.gz")),
                str(real("real/pytorch-et/param_dlrm_pytorch_et.tar.gz")),
            ]
        )
    )
    alone = summary("real/pytorch-et/param_dlrm_pytorch_et.tar.gz")
    assert counts(both) == counts(alone)
    assert {row["op"]: row["bytes"] for row in both["operations"]} == {
        row["op"]: row["bytes"] for row in alone["operations"]
    }
    assert both["verdict"]["ranks"] == [7]
    assert both["ranks_seen"] == 8


@pytest.mark.parametrize("run", ["gpu_error_2nd", "lock_gil_1st"])
def test_the_ranks_that_were_broken(run: str) -> None:
    assert summary(f"real/flight-recorder/{run}")["verdict"]["ranks"] == [9, 14]


def test_twins_on_the_host_are_not_counted() -> None:
    found = summary("real/chakra/mlcommons_chakra_feeder_tests_trace.tar.gz")
    assert counts(found) == {"all-reduce": 5, "broadcast": 2}


def test_bandwidths_that_were_printed() -> None:
    (scatter,) = [row for row in summary("real/inspector")["bandwidth"] if row["op"] == "reduce-scatter"]
    assert round(scatter["algbw_gbs"], 2) == 418.44
    found = summary("real/nccl-tests")
    seen = {round(row["busbw_gbs"], 2) for row in found["bandwidth"] if row["busbw_gbs"] is not None}
    assert seen >= {5.98, 36.08, 36.53, 4.64, 188.53, 187.22, 189.60, 235.26}
    assert not found["operations"]
    assert any("6.1x below the same hosts" in finding["title"] for finding in found["findings"])


@pytest.mark.parametrize(("which", "ranks"), [("all", [*range(8)]), ("some", [0, 2, 5])])
def test_the_hang_gauge(which: str, ranks: list[int]) -> None:
    assert summary(f"real/metrics/dlrover_hang_xpu_timer_metric_{which}.prom")["verdict"]["ranks"] == ranks


def test_a_processor_alone_says_so() -> None:
    found = summary("real/kineto/hta_rank_non_gpu.json.gz")
    assert found["exposed_us"] is None
    assert not [row for row in found["kernels"] if row["class"] == "nccl"]
