"""Benchmark files of every shape, as measurements; and their bandwidths in one convention."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ringwright.analysis.bandwidth import bandwidth, bus_factor
from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read as read_any
from ringwright.formats.sources.bench import read_bench
from ringwright.formats.sources.detect import kind_of
from ringwright.formats.sources.gate.inputs import find
from ringwright.ground.errors import InputError
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace
from shared_data import needs_shared_data, real
from sources.test_nccl_tests_source import NEW
from work_done import calls_made
from written import sources

GIB = 1 << 30


def read(folder: Path, data: bytes | str, name: str = "all_reduce.txt") -> Trace:
    return read_bench(sources(folder, {name: data.encode() if isinstance(data, str) else data}))


def test_text_gives_both_runs_of_each_size(tmp_path: Path) -> None:
    trace = read(tmp_path, NEW)
    frame = trace.df
    assert set(frame["kind"]) == {"measurement"}
    assert frame.select("op", "task", "size_bytes", "count", "nranks", "nnodes").rows()[-1] == (
        "all-reduce",
        "in-place",
        GIB,
        GIB // 4,
        2,
        2,
    )
    assert trace.meta["nccl_versions"] == ["2.29.3"]
    claims = {claim["field"]: claim["value"] for claim in trace.table("claims").to_dicts()}
    assert claims["gpu"] == "NVIDIA A100-SXM4-40GB"
    assert claims["hosts"] == "a b"


def test_json_of_nccl_tests(tmp_path: Path) -> None:
    side = {"time": 100.0, "alg_bw": 10.49, "bus_bw": 9.18, "nwrong": None}
    document: dict[str, Any] = {
        "version": 1,
        "args": ["./build/all_gather_perf", "-J", "x"],
        "env": [],
        "nccl_version": 22703,
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "devices": [
                {"rank": rank, "hostname": f"h{rank // 4}", "device": rank % 4, "device_info": "NVIDIA H100"}
                for rank in range(8)
            ],
        },
        "results": [
            {
                "size": 1 << 20,
                "count": 1 << 15,
                "type": "bfloat16",
                "out_of_place": side,
                "in_place": side | {"time": 90.0, "alg_bw": 11.65, "bus_bw": 10.19},
            },
            {
                "size": 8,
                "count": 2,
                "type": "bfloat16",
                "out_of_place": None,
                "in_place": side | {"alg_bw": 0.0, "bus_bw": 0.0},
            },
        ],
        "average_bus_bandwidth": {"bandwidth": 9.7, "okay": "unchecked"},
    }
    trace = read(tmp_path, json.dumps(document), "out.json")
    assert trace.df.select("op", "task", "size_bytes", "duration_s", "nranks", "nnodes", "datatype").rows()[:2] == [
        ("all-gather", "out-of-place", 1 << 20, pytest.approx(1e-4), 8, 2, "bfloat16"),
        ("all-gather", "in-place", 1 << 20, pytest.approx(9e-5), 8, 2, "bfloat16"),
    ]
    assert trace.meta["nccl_versions"] == ["2.27.3"]
    assert kind_of(json.dumps(document).encode()) == "bench"


def test_reports_of_rccl_tests(tmp_path: Path) -> None:
    row = {
        "name": "AllReduce",
        "nodes": 2,
        "ranks": 16,
        "ranksPerNode": 8,
        "size": "1048576",
        "type": "float",
        "inPlace": 0,
        "time": "50.5",
        "algBw": 20.76,
        "busBw": 38.93,
    }
    entries = [row, row | {"inPlace": 1, "time": 40, "algBw": 26.21, "busBw": 49.15}]
    lines = "\n".join(json.dumps(entry) for entry in entries)
    for data, name in ((json.dumps(entries), "a.json"), (lines, "b.jsonl")):
        frame = read(tmp_path, data, name).df
        assert frame.select("op", "task", "duration_s", "nnodes").rows() == [
            ("all-reduce", "out-of-place", pytest.approx(50.5e-6), 2),
            ("all-reduce", "in-place", pytest.approx(40e-6), 2),
        ]
    table = "name,nodes,ranks,ranksPerNode,size,type,redop,inplace,time,algbw,busbw\nAllReduce,1,8,8,1024,float,sum,0,12.5,0.08,0.14\n"
    assert read(tmp_path, table, "c.csv").df.select("op", "nranks", "duration_s").rows() == [
        ("all-reduce", 8, pytest.approx(12.5e-6))
    ]


def test_results_of_superbench(tmp_path: Path) -> None:
    line = {
        "node": "n1",
        "nccl-bw:nvlink/allreduce_8_time:0": 30.0,
        "nccl-bw:nvlink/allreduce_1073741824_time:0": 8159.5,
        "nccl-bw:nvlink/allreduce_1073741824_busbw:0": 230.29,
        "nccl-bw:nvlink/return_code": 0,
    }
    nested = {"node": "n2", "rccl-bw": {"allgather_16_time": [7.0, 8.0]}}
    trace = read(tmp_path, json.dumps(line) + "\n" + json.dumps(nested), "results-summary.jsonl")
    shown = trace.df.select("op", "size_bytes", "nranks", "text").rows()
    assert shown[:2] == [("all-reduce", 8, 8, "results-summary.jsonl/n1/nccl-bw/nvlink")] * 0 + [
        ("all-reduce", 8, 8, "results-summary.jsonl/n1/nccl-bw/nvlink"),
        ("all-reduce", GIB, 8, "results-summary.jsonl/n1/nccl-bw/nvlink"),
    ]
    assert shown[2][:2] == ("all-gather", 16)
    assert kind_of(json.dumps(line).encode()) == "bench"


def test_bits_are_not_bytes(tmp_path: Path) -> None:
    old = "0:\n duration: 0.0480 sec\n algo throughput: 1333333333333.3 bps, 1333.3333 Gbps\n busbw: 1000.0000  Gbps\n"
    (entry,) = bandwidth(read(tmp_path, old, "all_reduce_bench.txt"))
    assert (entry["size_bytes"], entry["nranks"]) == (4_000_000_000, 4)
    assert entry["busbw_gbs"] == pytest.approx(125, rel=1e-3)
    new = (
        "The average bandwidth of all_reduce over 8 ranks (5 warmups / 20 trials):\n\n| payload |    busbw   |    algbw   |\n"
        "| ------: | ---------: | ---------: |\n|  32KiB |   6.42GBps |   3.67GBps |\n|   4GiB | 480.11GBps | 274.35GBps |\n"
    )
    found = bandwidth(read(tmp_path, new, "bench.md"))
    assert [entry["size_bytes"] for entry in found] == [32 << 10, 4 << 30]
    assert found[1]["busbw_gbs"] == pytest.approx(480.11, rel=1e-3)
    assert kind_of(new.encode()) == kind_of(old.encode()) == "bench"


def test_ranks_are_implied_only_where_rounding_allows(tmp_path: Path) -> None:
    head = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    sure = head + "  1073741824     268435456     float     sum      -1  10887.4   98.62  184.92       0\n"
    unsure = head + "  1073741824     268435456     float     sum      -1  461684    2.33    4.64       0\n"
    assert read(tmp_path, sure).df["nranks"].to_list() == [16]
    assert read(tmp_path, unsure, "b.txt").df["nranks"].to_list() == [None]
    (entry,) = bandwidth(read(tmp_path, unsure, "b.txt"))
    assert entry["busbw_gbs"] == 4.64  # as printed


def test_an_aborted_run_does_not_lose_the_others(tmp_path: Path) -> None:
    trace = read_bench(sources(tmp_path, {"a.txt": NEW.encode(), "b.txt": NEW.split("  1073741824")[0][:600].encode()}))
    assert trace.df.height > 0
    assert trace.meta["losses"] == [
        f"{tmp_path}/b.txt: no row of a benchmark: its table is cut, or the run had not begun"
    ]
    with pytest.raises(InputError, match="no row"):
        read(tmp_path, "#       size         count      type\n")


LISTED = "".join(
    f"#  Rank  {rank} Group  0 Pid 9 on host{rank // 2} device {rank % 2} [0x8d] NVIDIA H100\n" for rank in range(4)
)


@pytest.mark.parametrize(
    ("more", "world"),
    [("", None), ("#       size         count      type   redop    root     time   algbw   busbw #wrong\n", 4)],
)
def test_ranks_that_are_listed_are_read_where_no_row_follows(more: str, world: int | None, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("# nThread 1 nGpus 1 minBytes 8 maxBytes 64\n" + LISTED + more)
    trace = read_any(tmp_path / "x.txt")
    assert (trace.meta["source"], trace.meta["world"], trace.df.height) == ("bench", world, 0)
    assert trace.table("topology")["host"].to_list() == ["host0", "host0", "host1", "host1"]
    assert ("gpu", "NVIDIA H100") in {(row["field"], row["value"]) for row in trace.table("claims").to_dicts()}
    seen = summarise(trace)
    assert (seen["answer"]["kind"], seen["ranks_seen"]) == ("cannot-tell", 4)
    (tmp_path / "y.txt").write_text(
        "# nThread 1 nGpus 1\n" + LISTED + "host0: Test NCCL failure common.cu:1012 'unhandled system error'\n"
    )
    with pytest.raises(InputError, match="the run was aborted"):
        read_any(tmp_path / "y.txt")


@pytest.mark.parametrize(
    ("op", "p", "factor"),
    [
        ("all-reduce", 8, 1.75),
        ("all-gather", 8, 0.875),
        ("reduce-scatter", 4, 0.75),
        ("all-to-all", 2, 0.5),
        ("broadcast", 8, 1.0),
        ("reduce", None, 1.0),
        ("all-reduce", None, None),
        ("barrier", 8, None),
        ("all-reduce", 1, 0.0),
    ],
)
def test_the_bus_factor(op: str, p: int | None, factor: float | None) -> None:
    assert bus_factor(op, p) == factor


def test_the_shortest_rank_is_the_transfer_and_the_group_counts() -> None:
    event = {"kind": "collective", "op": "all-reduce", "communicator": 0, "size_bytes": 1000, "multiplicity": 1}
    events = [event | {"rank": rank, "sequence": 0, "duration_s": (rank + 1) * 1e-6} for rank in range(2)]
    events += [event | {"rank": 0, "sequence": 1, "duration_s": 3e-6, "multiplicity": 1}]
    events += [
        event | {"rank": 0, "sequence": None, "size_bytes": 10, "duration_s": 1e-6},
        event | {"rank": 0, "sequence": 2},
    ]
    comms = [{"communicator": 0, "comm_id": "tp", "size": 2}]
    trace = Trace.of({"events": rows("events", events), "communicators": rows("communicators", comms)})
    found = {entry["size_bytes"]: entry for entry in bandwidth(trace)}
    assert found[1000]["time_us"] == pytest.approx(2.0)  # the median of 1 and 3 us
    assert (found[1000]["samples"], found[1000]["nranks"], found[1000]["table"], found[1000]["kind"]) == (
        2,
        2,
        "tp",
        "job",
    )
    assert found[1000]["busbw_gbs"] == found[1000]["algbw_gbs"] == pytest.approx(0.5)
    assert found[1000]["ranks_seen"] == 1
    assert set(found) == {10, 1000}


def test_an_empty_trace_has_no_bandwidth() -> None:
    assert bandwidth(Trace.of({})) == []


REAL = {
    "alcf_polaris__nccl_2_18__n8.g4.2024-04-29-18-14-00__all_reduce_output.dat.1.txt": (GIB, 5.98),
    "alcf_polaris__nccl_2_18__n8.g4.2024-04-29-18-14-00__all_reduce_output.dat.3.txt": (GIB, 36.08),
    "alcf_polaris__nccl_2_18__n8.g4.2024-04-29-18-14-00__all_reduce_output.dat.5.txt": (GIB, 36.53),
    "alcf_polaris__nccl_2_18__n128.g4.2024-04-29-18-31-53__all_reduce_output.dat.1.txt": (GIB, 4.64),
    "alcf_sophia__n2.g8__2024-10-15-11-28-16__all_reduce_output.dat.6.txt": (GIB, 177.59),
    "superbench_a100_nccl_allreduce.log": (8 * GIB, 235.26),
    "superbench_a100_nccl_allgather.log": (8 * GIB, 223.39),
    "superbench_a100_nccl_reducescatter.log": (8 * GIB, 231.52),
    "deepops_dgxa100_2n_8xHDR200_allreduce.txt": (4 * GIB, 188.53),
    "aks_rdma_infiniband_expected_output.txt": (8 * GIB, 187.22),
    "gcp_a3high_tcpx_allgather_2n.txt": (GIB // 2, 70.90),
    "oci_bm_gpu_b4_8_a100_2n_allreduce.txt": (8 * GIB, 189.60),
}


@needs_shared_data
@pytest.mark.parametrize("name", REAL)
def test_real_bandwidths(name: str) -> None:
    trace = read_bench(find([str(real(f"real/nccl-tests/{name}"))]))
    size, printed = REAL[name]
    (entry,) = [e for e in bandwidth(trace) if e["size_bytes"] == size and e["task"] == "out-of-place"]
    # computed from the time, of which five digits are printed
    assert entry["busbw_gbs"] == pytest.approx(printed, abs=0.011)
    last = trace.df.filter(pl.col("size_bytes") == size, pl.col("task") == "out-of-place")
    assert last["value"].to_list() == [printed]


@needs_shared_data
def test_real_closing_lines_and_baselines() -> None:
    trace = read_bench(find([str(real("real/nccl-tests/superbench_a100_nccl_allreduce.log"))]))
    claims = {claim["field"]: claim["value"] for claim in trace.table("claims").to_dicts()}
    assert claims["average_busbw_gbs"] == "68.4048"
    assert claims["gpu"] == "A100-SXM4-40GB"
    assert trace.df["nranks"].unique().to_list() == [8]
    both = trace.df["value"].mean()
    assert both == pytest.approx(68.4048, abs=0.01)  # what the closing line averages
    found = bandwidth(read_bench(find([str(real("real/nccl-tests/mscclpp_ndmv4_baseline.jsonl"))])))
    large = [e for e in found if (e["op"], e["size_bytes"], e["nranks"]) == ("all-reduce", GIB, 8)]
    assert max(e["busbw_gbs"] for e in large) == pytest.approx(243.96, rel=0.001)


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "ranks", "median_gbs"),
    [
        ("bigscience_n1_16gb_all_reduce_bench.txt", 4, 125.26),
        ("bigscience_all_reduce_bench-32gb-n4.txt", 16, 10.59),
        ("bigscience_n16_32gb_all_reduce_bench.txt.gz", 64, 7.27),
    ],
)
def test_real_torch_benchmarks(name: str, ranks: int, median_gbs: float) -> None:
    trace = read_bench(find([str(real(f"real/nccl-logs/{name}"))]))
    assert trace.df.height == 5
    (entry,) = bandwidth(trace)
    assert (entry["size_bytes"], entry["nranks"], entry["samples"]) == (4_000_000_000, ranks, 5)
    assert entry["busbw_gbs"] == pytest.approx(median_gbs, abs=0.01)


def test_many_tables_in_one_file_are_told_apart_without_looking_at_all_for_each(tmp_path: Path) -> None:
    needed = []
    table = "# size count type redop time algbw busbw\n 1024 256 float sum 10.0 0.10 0.10\n# Avg bus bandwidth : 0.10\n"
    for number in (300, 600):
        folder = tmp_path / str(number)
        folder.mkdir()
        held = sources(folder, {"all_reduce.txt": (table * number).encode()})
        assert len(set(read_bench(held).df["text"])) == number
        needed.append(calls_made(partial(read_bench, held)))
    assert needed[1] < 2.1 * needed[0]
