"""The public profiler traces, with the answers that are known of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from ringwright.analysis.exposed.overlap import overlap
from ringwright.analysis.kernels import kernels
from ringwright.analysis.slow.arrivals import arrivals
from ringwright.analysis.steps import steps_us
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.kineto import read_kineto
from ringwright.model.trace import Trace
from shared_data import needs_shared_data, real

pytestmark = needs_shared_data
COMM_US = [5798, 11336, 3492, 9774, 6587, 6251, 3558, 1746]
STEPS_US = [14455, 19901, 13017, 19313, 17979, 17797, 13091, 12509]


def one(name: str) -> Trace:
    return read_kineto(find([str(real(f"real/kineto/{name}"))]))


def communication(trace: Trace) -> list[dict[str, object]]:
    return [row for row in kernels(trace) if row["class"] in ("nccl", "rccl")]


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder: Path = tmp_path_factory.mktemp("dlrm")
    shutil.unpack_archive(real("real/kineto/param_dlrm_kineto.tar.gz"), folder)
    return read_kineto(find([str(path) for path in sorted(folder.rglob("*.json"))]))


def test_metadata_on_kernels() -> None:
    trace = one("hta_nccl_data.json.gz")
    assert (trace.meta["world"], trace.meta["nccl_versions"], trace.meta["losses"]) == (2, ["2.17.1"], [])
    assert trace.meta["origin_ns"] // 10**9 == 1_716_423_322  # 22 May 2024, as its own log lines say
    mine = trace.df.filter(pl.col("kind") == "collective")
    per_op = mine.group_by("op").agg(pl.len(), pl.col("sent_bytes").sum()).sort("op").rows()
    assert per_op == [("all-reduce", 15, 306_684_384), ("broadcast", 6, 638_712)]
    assert set(mine["rank"]) == {0}
    assert set(mine["nranks"]) == {2}
    assert set(mine["protocol"]) == {"ll"}
    assert sum(row["count"] for row in communication(trace)) == 21  # type: ignore[misc]
    found = overlap(trace)
    assert found["comm_us"] == pytest.approx(46_876.5, abs=0.1)
    assert found["overlapped_us"] == pytest.approx(7_317, abs=0.1)
    assert found["exposed_us"] == pytest.approx(46_876.5 - 7_317, abs=0.1)
    assert arrivals(trace)["verdict"] == "cannot tell"  # one rank of two


def test_two_streams_overlap_each_other() -> None:
    trace = one("hta_negative_queue_rank0.json.gz")
    (row,) = communication(trace)
    assert (row["count"], row["sum_us"], row["union_us"]) == (80, 190_345, 187_870)
    assert "SendRecv" in str(row["name"])
    assert overlap(trace)["comm_us"] == 187_870
    # the calls that launched them name other operations, and five were launched before the profile began
    counts = dict(trace.df.filter(pl.col("kernel_class") == "nccl").group_by("op").len().rows())
    assert counts == {"all-to-all": 45, "reduce-scatter": 10, "all-gather": 10, "all-reduce": 10, "send-recv": 5}
    assert trace.meta["world"] == 16


def test_eight_ranks_and_who_was_last(dlrm: Trace) -> None:
    found = overlap(dlrm)
    assert [row["comm_us"] for row in found["ranks"]] == COMM_US
    assert steps_us(dlrm) == {rank: [us] for rank, us in enumerate(STEPS_US)}
    late = arrivals(dlrm)
    assert late["verdict"] == "straggler"
    assert late["collectives"] == 8
    (culprit,) = late["culprits"]
    assert culprit["ranks"] == [7]
    assert culprit["kind"] == "straggler"
    assert 0 < culprit["confidence"] < 0.7
    assert "worker7" in culprit["evidence"][2]
    assert "event" in culprit["evidence"][2]
    assert min(late["ranks"], key=lambda row: row["wait_us"])["rank"] == 7
    counts = dict(dlrm.df.filter(pl.col("kind") == "collective").group_by("op").len().rows())
    assert counts == {"all-to-all": 40, "all-reduce": 24}
    groups = dlrm.table("communicators")
    assert groups["members"].to_list() == [list(range(8))]
    assert groups["ground"].to_list() == ["inferred"]
    sizes = dlrm.df.filter((pl.col("kind") == "collective") & (pl.col("rank") == 2)).sort("enqueue_s")
    assert sizes.filter(pl.col("op") == "all-reduce")["size_bytes"].to_list() == [1_576_964, 448, 907_840]  # of labels
    swapped = sizes.filter(pl.col("op") == "all-to-all")["size_bytes"].to_list()
    assert swapped == [24_576, 192, 1_536, 13_568, 24_576]  # one of them of 24 long int


def test_a_trace_of_the_host_only() -> None:
    trace = one("hta_rank_non_gpu.json.gz")
    assert "CPU only" in trace.meta["limits"][0]
    assert trace.df.filter(pl.col("kind") == "collective")["op"].to_list() == ["all-to-all"] * 6
    assert kernels(trace) == []
    assert steps_us(trace) == {0: [75_473]}
    found = overlap(trace)
    assert found["exposed_us"] is None
    assert "cannot tell" in found["why"]


def test_rank_three_of_eight() -> None:
    trace = one("hta_trace_diff_control.json.gz")
    assert trace.meta["world"] == 8
    assert trace.df["rank"].unique().to_list() == [3]
    assert sum(row["count"] for row in communication(trace)) == 60  # type: ignore[misc]
    counts = dict(trace.df.filter(pl.col("kind") == "collective").group_by("op").len().rows())
    assert counts == {"all-to-all": 42, "all-reduce": 18}
    assert len(steps_us(trace)[3]) == 6


def test_a_sampled_trace() -> None:
    trace = one("hta_sampled_rank-0.json.gz")
    assert trace.meta["world"] == 128
    assert trace.df["rank"].unique().to_list() == [0]
    assert sum(row["count"] for row in communication(trace)) == 10  # type: ignore[misc]
    assert overlap(trace)["comm_us"] == 396_199
    assert steps_us(trace) == {0: [607_312, 622_928]}


@pytest.mark.sampled(4, "*")
@pytest.mark.parametrize("name", ["hta_nccl_data", "hta_sampled_rank-0", "hta_rank_non_gpu", "hta_trace_diff_control"])
def test_no_single_rank_is_accused(name: str) -> None:
    assert arrivals(one(f"{name}.json.gz"))["culprits"] == []
