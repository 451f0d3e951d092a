"""Nsight Systems exports: kernels, sizes from NCCL's ranges, clocks of several exports, hostile files."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from nsys_export import START, write, write_payloads
from ringwright.formats.sources.detect import detect
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.kernel_names import classify
from ringwright.formats.sources.nsys import read_nsys
from ringwright.ground.errors import InputError
from ringwright.model.trace import Trace


def read(*paths: Path) -> Trace:
    return read_nsys(find([str(path) for path in paths]))


def test_kernels_sizes_and_launches(tmp_path: Path) -> None:
    path = write(tmp_path / "report.3.sqlite")
    assert detect(find([str(path)])[0]) == ("nsys",)
    before = path.read_bytes()
    trace = read(path)
    calls = trace.df.filter(pl.col("kind") == "collective", pl.col("kernel_class") == "nccl")
    assert calls.select("op", "rank", "size_bytes", "sent_bytes", "algorithm", "protocol", "stream").rows() == [
        ("all-reduce", 3, 1 << 20, 1 << 20, "ring", "ll", "20"),
        ("all-reduce", 3, 2 << 20, 2 << 20, "ring", "ll", "20"),
        ("all-gather", 3, None, 512, "ring", "ll", "20"),  # one rank's part: the total needs the size of the group
    ]
    first = calls.row(0, named=True)
    assert first["start_s"] == pytest.approx(1e-6)
    assert first["duration_s"] == pytest.approx(5e-6)
    assert first["enqueue_s"] == pytest.approx(0.5e-6)
    assert calls["sequence"].to_list() == [0, 1, 0]
    assert sorted(trace.table("communicators")["comm_id"]) == ["0x4d", "stream 20", "stream 24", "stream 7"]
    assert trace.meta["origin_ns"] == START
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.3.sqlite"]  # nothing written beside it


def test_everything_else(tmp_path: Path) -> None:
    trace = read(write(tmp_path / "a.sqlite"))
    kinds = dict(trace.df.group_by("kind").len().rows())
    assert kinds == {"collective": 4, "p2p": 1, "compute": 1, "memory": 1, "step": 1}
    compute = trace.df.filter(pl.col("kind") == "compute").select("kernel", "kernel_class").rows()
    assert compute == [("void gemm<float>(float*)", "compute")]
    custom = trace.df.filter(pl.col("kernel_class") == "custom-all-reduce").select("op", "size_bytes").rows()
    assert custom == [("all-reduce", None)]  # vLLM's own: no call of NCCL tells its size
    step = trace.df.filter(pl.col("kind") == "step").row(0, named=True)
    assert (step["iteration"], step["text"], step["duration_s"]) == (12, "ProfilerStep#12", pytest.approx(2e-5))
    assert trace.table("topology").select("rank", "host", "pid", "device").rows() == [(0, "node7", 4242, 3)]
    assert any(claim["field"] == "rank" and claim["ground"] == "assumed" for claim in trace.table("claims").to_dicts())


def test_calls_and_kernels_of_unequal_number_are_not_matched(tmp_path: Path) -> None:
    trace = read(write(tmp_path / "a.sqlite", calls=3))
    rows = trace.df.filter(pl.col("op") == "all-reduce", pl.col("kernel_class") == "nccl")
    assert rows["size_bytes"].to_list() == [None, None]
    assert any("3 calls and 2 kernels" in claim["note"] for claim in trace.table("claims").to_dicts())


def test_several_exports_share_one_clock(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"rank{rank}.sqlite", pid=100 + rank, shift_ns=rank * 7000) for rank in range(2)]
    trace = read(*paths)
    mine = trace.df.filter(pl.col("op") == "all-reduce", pl.col("sequence") == 0, pl.col("kernel_class") == "nccl")
    starts = mine.sort("rank")["start_s"].to_list()
    assert starts == [pytest.approx(1e-6), pytest.approx(8e-6)]
    assert trace.meta["world"] == 2


def test_a_compressed_export_and_a_bad_one(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.sqlite").read_bytes()
    packed, bad, cut = tmp_path / "rank0.sqlite.gz", tmp_path / "rank1.sqlite", tmp_path / "rank2.sqlite"
    packed.write_bytes(gzip.compress(plain))
    bad.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    cut.write_bytes(plain[: len(plain) // 2])
    trace = read(packed, bad, cut)
    assert trace.df.filter(pl.col("rank") == 0).height == 8
    assert trace.meta["losses"]


def test_views_and_triggers_are_not_run(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n)"
            " SELECT start, start AS end FROM n"
        )
    db.close()
    with pytest.raises(InputError, match="nothing to read"):
        read(path)


def test_tables_without_the_columns_of_newer_releases(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, shortName INT)"
        )
        db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        db.execute("INSERT INTO StringIds VALUES (1, 'ncclKernel_AllReduce_RING_LL_Sum_float')")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 0, 1, 1), (NULL, 'x', 0, 1, 1)")
    db.close()
    trace = read(path)
    assert trace.df["op"].to_list() == ["all-reduce"]
    assert trace.meta["origin_ns"] is None


def test_nothing_to_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("hello")
    with pytest.raises(InputError, match="no SQLite"):
        read(path)


@pytest.mark.parametrize(
    ("name", "kind", "op"),
    [
        ("ncclDevKernel_ReduceScatter_Sum_f32_NVLS_SIMPLE(x)", "nccl", "reduce-scatter"),
        ("ncclDevKernel_Generic", "rccl", "unknown"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "nccl", "send-recv"),
        ("rcclDevKernel_AllReduce", "rccl", "all-reduce"),
        ("multimem_all_reduce_kernel", "multimem", "all-reduce"),
        ("void strange::all_reduce_thing<4>()", "unknown-communication", None),
        ("void cutlass::Kernel<x>", "compute", None),
    ],
)
def test_classes_of_kernels(name: str, kind: str, op: str | None) -> None:
    found = classify(name)
    assert (found.kernel_class, found.op) == (kind, op)


@pytest.mark.parametrize("as_text", [False, True])
def test_structures_of_nccl_tell_group_size_peer_and_reduction(tmp_path: Path, as_text: bool) -> None:
    trace = read(
        *(write_payloads(tmp_path / f"host{rank}.sqlite", rank=3 - rank, as_text=as_text) for rank in range(4))
    )
    mine = trace.df.filter(rank=2).sort("start_s", "op", descending=[False, True])
    columns = ("op", "nranks", "comm_rank", "size_bytes", "sent_bytes", "received_bytes", "peer", "reduce_op")
    assert mine.select(columns).rows() == [
        ("all-reduce", 4, 2, 4096, 4096, None, None, "avg"),
        ("reduce-scatter", 4, 2, 4096, 4096, 1024, None, "sum"),
        ("send", 2, 0, 512, 512, None, 1, None),
        ("recv", 2, 0, 256, None, 256, 1, None),
        ("all-reduce", None, None, None, None, None, None, None),  # of a graph: no call of the host launched it
    ]
    assert mine.filter(op="recv").select("kernel", "duration_s").rows() == [(None, pytest.approx(1e-7))]
    comms = {row["comm_id"]: row for row in trace.table("communicators").to_dicts()}
    assert comms["0xfedcba9876543210"]["members"] == [0, 1, 2, 3]
    assert comms["0x77"]["size"] == 2
    # neither MPI's table nor the files' names tell ranks: NCCL's largest communicator does
    ranks = [row for row in trace.table("claims").to_dicts() if row["field"] == "rank"]
    assert {row["ground"] for row in ranks} == {"inferred"}
    assert trace.meta["world"] == 4


def test_a_damaged_table_of_ranges_costs_no_kernel(tmp_path: Path) -> None:
    path = write_payloads(tmp_path / "a.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM NVTX_PAYLOAD_SCHEMA_ENTRIES WHERE name LIKE 'NCCL%'")
        db.execute("UPDATE NVTX_EVENTS SET binaryData = x'00' WHERE text = 'ncclReduceScatter'")
        db.execute("UPDATE NVTX_PAYLOAD_SCHEMA_ENTRIES SET offset = 1 << 40 WHERE name = 'Peer rank'")
    db.close()
    trace = read(path)
    assert trace.df.filter(pl.col("kernel").is_not_null()).height == 4
    sizes = dict(trace.df.sort("start_s").select("op", "size_bytes").rows()[:3])
    assert sizes["reduce-scatter"] is None
    assert trace.df.filter(op="send").select("size_bytes", "peer").rows() == [(512, None)]
