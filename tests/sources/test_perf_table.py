"""Tables of expected performance: units, elements against bytes, warm-up, contradictions."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from ringwright.analysis.bandwidth import bandwidth
from ringwright.formats.sources.detect import detect, kind_of
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.tables.perf_table import read_perf_table
from ringwright.ground.errors import InputError
from shared_data import needs_shared_data, real
from written import sources, tar_of

CSV = (
    b'"framework","version","device","op_name","kernel_source","nccl_dtype","num_gpus","message_size","latency"\n'
    b'"TRTLLM","2.27.3","NVIDIA H100","all_gather","NCCL","half",8,1048576,0.05\n'
    b'"TRTLLM","2.27.3","NVIDIA H100","all_gather","NCCL","int8",8,2097152,0.05\n'
    b'"TRTLLM","2.27.3","NVIDIA H100","all_gather","NCCL","half",8,none,0.05\n'
)


def test_elements_become_bytes_and_milliseconds_seconds(tmp_path: Path) -> None:
    trace = read_perf_table(sources(tmp_path, {"h100_nccl2.27.3.csv": CSV}))
    assert trace.df.select("op", "size_bytes", "duration_s", "nranks", "datatype").rows() == [
        ("all-gather", 2 << 20, pytest.approx(5e-5), 8, "float16"),
        ("all-gather", 2 << 20, pytest.approx(5e-5), 8, "int8"),
    ]
    assert trace.table("ledger").filter(pl.col("outcome") == "refused")["lines"].to_list() == [1]
    assert kind_of(CSV, "x.csv") == "perf-table"
    assert trace.meta["losses"] == []


def test_a_version_that_contradicts_the_name_is_said(tmp_path: Path) -> None:
    trace = read_perf_table(sources(tmp_path, {"h100_nccl2.19.1.csv": CSV}))
    assert "the name says 2.19.1" in trace.meta["losses"][0]


def test_results_of_pico(tmp_path: Path) -> None:
    times = "highest\n0\n" + "999999\n" * 2 + "1000\n" * 8 + "-> Buffer: 1024 byte - 1 Gib\n"
    files = {
        "run/0/1024_allreduce_nccl_nvlstree.csv": times.encode(),
        "run/0/64_reduce_scatter_hier_mpi.csv": b"highest\n0\n70\n",
        "run/alloc.txt": b" {1 : b - 0}\n {0 : a - 3}\n",
    }
    trace = read_perf_table(sources(tmp_path, {"pico.tar": tar_of(files)}))
    assert trace.df.select("op", "size_bytes", "duration_s", "algorithm", "nranks", "nnodes", "records").rows() == [
        ("all-reduce", 1024, pytest.approx(1e-6), "nvls-tree", 2, 2, 8),
        ("reduce-scatter", 64, pytest.approx(7e-8), "hier_mpi", 2, 2, 1),
    ]
    assert trace.table("topology").select("rank", "host", "device").rows() == [(0, "a", 3), (1, "b", 0)]


def test_a_summary_of_pico(tmp_path: Path) -> None:
    text = (
        b"collective_type,array_dim,buffer_size,algo_name,datatype,mean,median,nnodes,n_iter,system,mpi_lib\n"
        b"ALLREDUCE,128,512,swing_static,int32,9000.0,8000.0,16,100,lumi,CRAY_MPICH\n"
    )
    trace = read_perf_table(sources(tmp_path, {"aggregated_results_summary.csv": text}))
    assert trace.df.select("op", "size_bytes", "duration_s", "nranks", "text").rows() == [
        ("all-reduce", 512, pytest.approx(8e-6), 16, "lumi CRAY_MPICH swing_static")
    ]
    assert kind_of(text, "a.csv") == "perf-table"


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no row"):
        read_perf_table(sources(tmp_path, {"a.csv": b"a,b\n1,2\n"}))


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "rows", "half_gbs"),
    [
        ("a100_sxm_nccl2.27.3", 504, 222.33),
        ("h100_sxm_nccl2.27.3", 1008, 444.97),
        ("b200_sxm_nccl2.27.5", 504, None),
        ("gb200_nccl2.29.2", 336, None),
        ("l40s_nccl2.27.3", 504, None),
    ],
)
def test_real_aiconfigurator(name: str, rows: int, half_gbs: float | None) -> None:
    found = find([str(real(f"real/perf-db/aiconfigurator_{name}.csv"))])
    assert detect(found[0]) == ("perf-table",)
    trace = read_perf_table(found)
    assert trace.df.height == rows
    entries = {(e["op"], e["nranks"], e["datatype"], e["size_bytes"]): e["busbw_gbs"] for e in bandwidth(trace)}
    if half_gbs:
        assert entries["all-reduce", 8, "float16", 512 << 20] == pytest.approx(half_gbs, abs=0.2)
    # the same bytes take about the same time whatever the type, which holds only if message_size counts elements
    for p in {key[1] for key in entries} if "l40s" not in name else ():  # over PCIe the runs differ among themselves
        sizes = 256 << 20
        assert entries["all-gather", p, "float16", sizes] == pytest.approx(
            entries["all-gather", p, "int8", sizes], rel=0.1
        )


@needs_shared_data
@pytest.mark.parametrize(
    ("name", "ranks", "nodes", "ring_gbs"),
    [
        ("2025_04_14___00_47_08", 64, 16, 74.9),
        ("2025_04_14___02_15_10", 16, 4, None),
    ],
)
def test_real_pico(name: str, ranks: int, nodes: int, ring_gbs: float | None) -> None:
    trace = read_perf_table(find([str(real(f"real/perf-db/pico_mare_nostrum_{name}.tar.gz"))]))
    assert trace.df.height == 90
    assert trace.df.select("nranks", "nnodes").unique().rows() == [(ranks, nodes)]
    ring = [e for e in bandwidth(trace) if e["algorithm"] == "ring" and e["size_bytes"] == 512 << 20]
    assert len(ring) == 1
    if ring_gbs:
        assert ring[0]["busbw_gbs"] == pytest.approx(ring_gbs, abs=0.2)
