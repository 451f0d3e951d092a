"""The laws of ceilings and of ranks: nothing moves faster than its links, and no more ranks are seen than are expected."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laws.test_law_records import inspector
from laws.test_law_tables import GOOD, HEADER
from laws.test_law_tables import read as read_table
from ringwright.analysis.bandwidth import bandwidth
from ringwright.analysis.benchmarks import tables
from ringwright.analysis.summary import summarise
from ringwright.bounds.laws import reason
from ringwright.bounds.laws.ceilings import above, ceiling
from ringwright.bounds.laws.ranks import census
from ringwright.costs.nccl import OPS, choose, placed, releases
from ringwright.costs.nccl.node_types import NVLINK_GBS
from ringwright.formats.sources import read
from ringwright.ground.trace_tables import rows
from ringwright.model.links import LINKS, links_of
from ringwright.model.trace import Trace
from shared_data import needs_shared_data, real

GIB = 1 << 30


def laws(trace: Trace) -> dict[str, int]:
    return {row["law"]: row["refused"] for row in summarise(trace)["laws"]}


def test_two_gpus_do_not_move_ten_terabytes(tmp_path: Path) -> None:
    fast = "  1073741824     268435456     float     sum    100.0 10737.42 10737.42  0e+00    100.0 10737.42 10737.42  0e+00\n"
    trace = read_table(tmp_path, "# all_reduce_perf\n" + HEADER + GOOD + fast)
    assert {entry["size_bytes"] for entry in bandwidth(trace)} == {256 << 20}
    (row,) = [row for row in trace.table("ledger").to_dicts() if row["outcome"] == "refused"]
    assert (row["reason"], row["lines"], row["example_line"]) == (reason("ceiling"), 1, 10)
    assert "busbw 10,737.42 GB/s, at most 300.0 GB/s: 300 GB/s a direction of NVIDIA A100-SXM4-40GB" in row["example"]
    summary = summarise(read_table(tmp_path, "# all_reduce_perf\n" + HEADER + fast))
    assert [(entry["law"], entry["refused"]) for entry in summary["laws"]] == [("ceiling", 1)]
    assert (summary["ranks_seen"], summary["bandwidth"]) == (2, [])


def job(
    time_us: float,
    *,
    op: str = "all-reduce",
    gpu: str = "",
    ranks: int = 8,
    nodes: int | None = 1,
    kind: str = "collective",
) -> Trace:
    event = {
        "kind": kind,
        "op": op,
        "communicator": 0,
        "size_bytes": GIB,
        "multiplicity": 1,
        "sequence": 1,
        "nnodes": nodes,
        "nranks": ranks,
        "duration_s": time_us * 1e-6,
        "text": "t",
        "task": "out-of-place",
    }
    comms = [{"communicator": 0, "comm_id": "dp", "size": ranks, "members": list(range(ranks))}]
    claims = [{"field": "gpu", "value": gpu, "source": "t", "ground": "read"}] if gpu else []
    events = [event | {"rank": rank} for rank in range(2 if kind == "collective" else 1)]
    return Trace.of(
        {
            "events": rows("events", events),
            "communicators": rows("communicators", comms),
            "claims": rows("claims", claims),
        }
    )


@pytest.mark.parametrize("kind", ["collective", "measurement"])
def test_times_of_a_job_and_of_a_performance_table_too(kind: str) -> None:
    trace = job(1000.0, gpu="NVIDIA A100-SXM4-80GB", kind=kind)  # 1,879 GB/s
    (entry,) = bandwidth(trace)
    assert (entry["busbw_gbs"], entry["algbw_gbs"]) == (None, None)
    assert entry["law"].startswith("law ceiling: busbw 1,879.05 GB/s, at most 300.0 GB/s")
    assert tables(trace) == []  # nothing is compared with it
    summary = summarise(trace)
    assert laws(trace)["ceiling"] == 1
    assert [row["reason"] for row in summary["ledger_detail"]] == [reason("ceiling")]
    assert bandwidth(job(9000.0, gpu="NVIDIA A100-SXM4-80GB", kind=kind))[0]["law"] == ""


def test_of_a_gpu_that_nobody_names_the_fastest_is_taken() -> None:
    assert bandwidth(job(1500.0))[0]["law"] == ""  # 1,253 GB/s: Blackwell with adding switches
    assert "any GPU known" in bandwidth(job(1000.0))[0]["law"]
    records = [(rank, 1, "AllReduce") for rank in range(2)]
    assert "ceiling" not in laws(inspector(*records))


def test_switches_that_add_let_an_all_reduce_pass_its_links() -> None:
    """Eight H100 reach 480 GB/s by NVLS; their links carry 450."""
    h100 = "NVIDIA H100 80GB HBM3"
    assert bandwidth(job(GIB * 1.75 / 480e3, gpu=h100))[0]["law"] == ""
    assert bandwidth(job(GIB * 1.75 / 900e3, gpu=h100))[0]["law"] != ""
    assert bandwidth(job(GIB * 0.875 / 480e3, op="all-gather", gpu=h100))[0]["law"] != ""


@pytest.mark.parametrize(
    ("op", "ranks", "nodes", "gpu", "nics", "most"),
    [
        ("all-reduce", 8, 1, "A100", 0, 300.0),
        ("all-reduce", 8, None, "H100", 0, 787.5),
        ("all-reduce", None, None, "H100", 0, 900.0),
        ("all-gather", 8, 1, "L40S", 0, 31.5),
        ("all-reduce", 16, 2, "A100", 1, 59.0625),  # SHARP, or a tree of two nodes: each byte leaves a node once
        ("all-gather", 16, 2, "A100", 1, 59.0625),
        ("all-to-all", 16, 2, "A100", 4, 29.53125),  # eight ranks share the way out
        ("broadcast", 16, 2, "A100", 1, 31.5),
        ("all-to-all", 16, 2, "A100", 0, 59.0625),  # eight PCIe links of 31.5 GB/s
        ("all-reduce", 72, 18, "NVIDIA GB200", 0, 1775.0),  # one NVLink fabric
        ("send-recv", 16, 2, "A100", 0, 252.0),
        ("all-reduce", 16, 2, "A100", 32, 300.0),
    ],
)
def test_the_ceiling(op: str, ranks: int | None, nodes: int | None, gpu: str, nics: int, most: float) -> None:
    found = ceiling(op, ranks, nodes, gpu, nics=nics)
    assert found is not None
    assert found.busbw_gbs == pytest.approx(most)
    assert above(most * 1.04, found) == ""
    assert above(most * 1.06, found).endswith(found.why)


def test_the_nics_that_a_log_names_bound_what_leaves_a_node() -> None:
    trace = job(GIB * 1.875 / 100e3, gpu="NVIDIA A100-SXM4-80GB", ranks=16, nodes=2, kind="measurement")  # 100 GB/s
    assert bandwidth(trace)[0]["law"] == ""
    nics = [{"kind": "nic", "host": host, "nic": "0", "value": "mlx5_0", "ground": "read"} for host in "ab"]
    (entry,) = bandwidth(replace(trace, tables={**trace.tables, "topology": rows("topology", nics).lazy()}))
    assert entry["law"].endswith("at most 59.1 GB/s: PCIe of 1 NIC carries 31.5 GB/s out of each of 2 nodes")


def test_one_rank_moves_nothing() -> None:
    assert ceiling("all-reduce", 1) is None
    assert above(1e9, None) == above(None, ceiling("all-reduce", 2)) == ""


@pytest.mark.parametrize(
    "box", ["dgx-a100:1", "dgx-a100:4", "dgx-h100:1", "dgx-h100:2", "dgx-b200:1", "dgx1:1", "polaris:8"]
)
@pytest.mark.parametrize("op", OPS)
def test_nccls_own_model_stays_below_the_ceiling(box: str, op: str) -> None:
    gpu = {"dgx-a100": "A100", "dgx-h100": "H100", "dgx-b200": "B200", "dgx1": "V100", "polaris": "A100"}[
        box.partition(":")[0]
    ]
    system = placed(box)[1]
    time_us = choose(op, 8 * GIB, system, releases()[-1]).time_us
    factor = {"all-reduce": 2.0, "broadcast": 1.0, "reduce": 1.0}.get(op, 1.0)
    share = 1.0 if op in ("broadcast", "reduce") else (system.ranks - 1) / system.ranks
    bus = 8 * GIB / time_us / 1e3 * factor * share
    assert above(bus, ceiling(op, system.ranks, system.nodes, gpu)) == ""


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GeForce RTX 2080 Ti", "2080TI"),
        ("AMD Instinct MI250X", "MI250X"),
        ("a100-40g", "A100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("NVIDIA RTX 6000 Ada Generation", None),
        ("", None),
    ],
)
def test_links_by_any_spelling(spelled: str, name: str | None) -> None:
    found = links_of(spelled)
    assert (found.name if found else None) == name


def test_links_are_no_slower_than_nccls_own_count() -> None:
    """NCCL's search counts what a link carries; the data sheet's rate is above it."""
    for name, capability, count in (("V100", 70, 6), ("A100", 80, 12), ("H100", 90, 18), ("B200", 100, 18)):
        assert NVLINK_GBS[capability] * count <= LINKS[name].fabric_gbs
    assert all(links.source for links in LINKS.values())


# ------------------------------------------------------------------------------------------------------------- ranks
@needs_shared_data
@pytest.mark.parametrize("op", ["allreduce", "allgather", "reducescatter"])
def test_a_process_that_names_no_rank_is_none(op: str) -> None:
    summary = summarise(read(real(f"real/nccl-tests/superbench_a100_nccl_{op}.log")))
    assert summary["coverage"].startswith("8/8 ranks on 1 host")
    (row,) = [row for row in summary["laws"] if row["law"] == "ranks"]
    assert row == {
        "law": "ranks",
        "refused": 1,
        "example": ("9 processes or devices for 8 ranks expected: 1 without a rank not counted (on hostname)"),
    }
    assert [line["reason"] for line in summary["ledger_detail"] if "law " in line["reason"]] == [reason("ranks")]


def seen(*ranks: int | None) -> list[dict[str, Any]]:
    return [{"rank": rank, "host": f"h{place // 8}"} for place, rank in enumerate(ranks)]


@pytest.mark.parametrize(
    ("devices", "expected", "found"),
    [
        (seen(*range(8)), 8, (8, 8, 1)),
        (seen(*range(6)), 8, (6, 8, 1)),
        (seen(*range(9)), None, (9, None, 2)),
        (seen(*range(8), None), 8, (8, 8, 1)),
        (seen(*range(6), None, None, None), 8, (6, 8, 1)),
        (seen(*range(8), 3), 8, (8, 8, 2)),  # one rank of two processes
        (seen(*range(9)), 8, (9, None, 2)),
        (seen(0, 1, 9), 2, (3, None, 1)),
        (seen(0, 5, None), 2, (2, None, 1)),
        (seen(None, None, None), 2, (3, None, 1)),
        ([], 8, (0, 8, 0)),
    ],
)
def test_no_more_ranks_than_expected(
    devices: list[dict[str, Any]], expected: int | None, found: tuple[int, int | None, int]
) -> None:
    counted = census(devices, expected)
    assert (counted.seen, counted.expected, counted.hosts) == found
    assert counted.expected is None or counted.seen <= counted.expected
    assert bool(counted.refused) == (expected is not None and len(devices) > expected)


@needs_shared_data
def test_no_healthy_figure_is_above_its_ceiling() -> None:
    """Tables of many machines, among them NVLS on H100 (445 GB/s) and B200 (683 GB/s)."""
    checked = 0
    for name in (
        "nccl-tests/aks_rdma_infiniband_expected_output.txt",
        "inspector",
        "perf-db/aiconfigurator_h100_sxm_nccl2.27.3.csv",
        "perf-db/aiconfigurator_b200_sxm_nccl2.27.5.csv",
        "nccl-tests/deepops_dgxa100_2n_8xHDR200_allreduce.txt",
    ):
        found = bandwidth(read(real(f"real/{name}")))
        assert [entry["law"] for entry in found if entry["law"]] == []
        checked += len(found)
    assert checked > 1000


def test_a_summary_with_refused_rates_is_written_and_shown() -> None:
    from ringwright.reports.completion import complete
    from ringwright.reports.terminal import text

    summary = summarise(job(1000.0, gpu="NVIDIA A100-SXM4-80GB"))
    json.dumps(summary, allow_nan=False)
    assert "refused: law" in text(complete(summary))
