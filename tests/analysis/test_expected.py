"""Expected against measured: equal clusters, NCCL's own model, cliffs, and saying when it cannot tell."""

from __future__ import annotations

from typing import Any

import pytest

from ringwright.analysis.benchmarks import gpu_model, same_gpu
from ringwright.analysis.expected import cliffs, expected
from ringwright.costs import nccl
from ringwright.formats.sources.bench import read_bench
from ringwright.formats.sources.gate.inputs import find
from ringwright.formats.sources.tables.perf_table import read_perf_table
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace
from shared_data import needs_shared_data, real

MIB = 1 << 20


def table(
    name: str,
    times_us: dict[int, float],
    *,
    op: str = "all-reduce",
    ranks: int = 16,
    nodes: int = 2,
    gpu: str = "NVIDIA A100-SXM4-40GB",
    release: str = "",
    hosts: str = "",
    inplace_us: dict[int, float] | None = None,
) -> Trace:
    base = {"kind": "measurement", "op": op, "nranks": ranks, "nnodes": nodes, "text": name, "multiplicity": 1}
    runs: list[tuple[str, dict[int, float]]] = [("out-of-place", times_us), ("in-place", inplace_us or {})]
    events = [
        base | {"task": task, "size_bytes": size, "duration_s": time * 1e-6}
        for task, run in runs
        for size, time in run.items()
    ]
    facts = {"gpu": gpu, "release": release, "hosts": hosts}
    claims = [
        {"field": field, "value": value, "source": name, "ground": "read"} for field, value in facts.items() if value
    ]
    return Trace.of({"events": rows("events", events), "claims": rows("claims", claims)}, {"source": "bench"})


def logged(times_us: dict[int, float], **said: str) -> Trace:
    """Return a table on four nodes of eight A100 whose log says more, such as network or platform."""
    trace = table("a", times_us, ranks=32, nodes=4, release="2.12.12")
    own = trace.table("claims").to_dicts()
    own += [{"field": field, "value": value, "source": "nccl-log", "ground": "read"} for field, value in said.items()]
    return Trace.of({"events": trace.table("events"), "claims": rows("claims", own)}, trace.meta)


def test_the_box_is_that_of_the_platform_that_the_log_names() -> None:
    """An instance with a quarter of the NICs' rate has a quarter of the ceiling: what is 6x below one box is 1.6x below it."""
    time_us = {1 << 30: 70253.0}
    (plain,) = expected(logged(time_us))
    assert plain["title"].startswith("6.0x below NCCL's own cost model: looks like default network settings")
    for said in ({"platform": "p4d.24xlarge"}, {"network": "AWS Libfabric"}):
        (told,) = expected(logged(time_us, **said))
        assert told["title"] == "63% of what NCCL's own cost model says"
        assert "taken as p4d:4, for its log names the" in told["detail"]


@pytest.mark.parametrize(
    ("network", "title"),
    [("IB", "its log names the network IB, so that plain sockets are not the cause"), ("Socket", "plain sockets")],
)
def test_a_cause_that_the_log_excludes_is_not_said(network: str, title: str) -> None:
    (told,) = expected(logged({1 << 30: 70253.0}, network=network))
    assert title in told["title"]
    assert "looks like" not in told["title"]


def titles(found: list[dict[str, Any]]) -> list[str]:
    return [f"{item['severity']}: {item['title']}" for item in found]


def test_six_times_below_an_equal_cluster() -> None:
    slow, good = table("a", {64 * MIB: 6000.0}), table("b", {64 * MIB: 1000.0})
    found = expected(slow, [good])
    assert titles(found)[0].startswith("warning: 6.0x below an equal cluster: looks like default network settings")
    assert set(found[0]) == {"severity", "title", "detail", "evidence", "command"}
    assert titles(expected(good, [slow]))[:1] == ["info: near NCCL's own cost model (86% to 89% of it)"]
    named = expected(table("a", {64 * MIB: 6000.0}, hosts="x y"), [table("b", {64 * MIB: 1000.0}, hosts="y x")])
    assert "below the same hosts" in named[0]["title"]


@pytest.mark.parametrize(
    "other",
    [
        {"op": "all-gather"},
        {"ranks": 32},
        {"gpu": "NVIDIA H100 80GB HBM3"},
        {"gpu": "NVIDIA A100-PCIE-40GB"},
        {"gpu": ""},
        {"nodes": 4},
    ],
)
def test_only_equals_are_compared(other: dict[str, Any]) -> None:
    found = expected(table("a", {64 * MIB: 6000.0}), [table("b", {64 * MIB: 1000.0}, **other)])
    assert not any("cluster" in item["title"] for item in found)


def test_small_sizes_say_nothing_of_bandwidth() -> None:
    assert expected(table("a", {1024: 600.0}), [table("b", {1024: 10.0})]) == []


def test_sizes_between_are_interpolated() -> None:
    good = table("b", {32 * MIB: 500.0, 128 * MIB: 2000.0})
    assert "1,000.0 us (6.0x)" in expected(table("a", {64 * MIB: 6000.0}), [good])[0]["evidence"][0]


def test_the_model_of_the_release() -> None:
    _, system = nccl.placed("dgx-a100:2")
    model_us = nccl.choose("all-reduce", 256 * MIB, system, "2.18.5").time_us
    near = expected(table("a", {256 * MIB: model_us * 1.1}, release="2.18.5"))
    assert titles(near) == ["info: near NCCL's own cost model (91% of it)"]
    far = expected(table("a", {256 * MIB: model_us * 5}, release="2.18.5"))
    assert titles(far)[0].startswith("warning: 5.0x below NCCL's own cost model")
    assert "8 x A100 a node taken as dgx-a100:2" in far[0]["evidence"]
    odd = expected(table("a", {256 * MIB: model_us * 0.3}, release="2.18.5", gpu=""), box="dgx-a100:2")
    assert "above NCCL's own cost model" in odd[0]["title"]


def test_an_unknown_release_is_a_range_over_those_that_know_the_gpu() -> None:
    (found,) = expected(table("a", {256 * MIB: 2700.0}))
    assert found["evidence"][2] == f"release not known: the range over the releases 2.8.4 to {nccl.releases()[-1]}"
    assert "NCCL's own model says 166.76 to 176.31 GB/s" in found["detail"]
    # no release is named as the one that it was, whatever was measured
    for time_us in (1700.0, 2700.0, 20000.0):
        (other,) = expected(table("a", {256 * MIB: time_us}))
        assert "NCCL 2." not in other["title"] + other["detail"]
    (hopper,) = expected(table("a", {256 * MIB: 1500.0}, gpu="NVIDIA H100 80GB HBM3"))
    assert "the releases 2.16.5 to" in hopper["evidence"][2]


def test_near_is_not_said_of_half() -> None:
    _, system = nccl.placed("dgx-a100:2")
    model_us = nccl.choose("all-reduce", 256 * MIB, system, "2.18.5").time_us
    assert titles(expected(table("a", {256 * MIB: model_us / 0.53}, release="2.18.5"))) == [
        "info: 53% of what NCCL's own cost model says"
    ]


def test_an_unknown_box_cannot_be_told() -> None:
    strange = table("a", {256 * MIB: 2700.0}, gpu="NVIDIA Z9000", release="2.18.5")
    assert titles(expected(strange)) == ["info: cannot tell what NCCL's model expects"]
    assert "no standard box has 8 x Z9000" in expected(strange)[0]["detail"]
    assert titles(expected(strange, box="dgx-a100:2"))[0].startswith("info: near")
    assert "cannot tell" in expected(strange, box="dgx-a100:4")[0]["title"]


def test_a_cliff_and_what_the_model_changes_there() -> None:
    times = {4 * MIB: 700.0, 8 * MIB: 1184.0, 16 * MIB: 4173.0, 32 * MIB: 5000.0}
    (found,) = cliffs(table("a", times, ranks=32, nodes=8, release="2.18.5"))
    assert (found["severity"], found["from_bytes"], found["to_bytes"]) == ("warning", 8 * MIB, 16 * MIB)
    assert found["fall"] == pytest.approx(0.4326, abs=0.001)
    assert "changes from tree/simple to ring/simple" in found["model"]
    (other,) = cliffs(table("a", times, gpu="", release="2.18.5"))
    assert other["model"].startswith("Cannot tell")


def test_a_first_call_is_no_cliff() -> None:
    out, inside = {131072: 55.0, 524288: 325.0}, {131072: 54.0, 524288: 79.0}
    (found,) = cliffs(table("a", out, inplace_us=inside))
    assert found["severity"] == "info"
    assert "out of place only" in found["title"]
    both = {131072: 54.0, 524288: 330.0}
    assert cliffs(table("a", out, inplace_us=both))[0]["severity"] == "warning"
    assert cliffs(table("a", {1024: 10.0, 4096: 20.0})) == []


def test_models_of_gpus() -> None:
    assert gpu_model("NVIDIA A100-SXM4-40GB") == gpu_model("A100-SXM4-80GB") == "A100-SXM4"
    assert gpu_model("NVIDIA H100 80GB HBM3") == "H100"
    assert same_gpu("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB")
    assert not same_gpu("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe")
    assert not same_gpu("", "")


def test_a_jobs_own_collectives_are_compared_too() -> None:
    event = {
        "kind": "collective",
        "op": "all-reduce",
        "communicator": 0,
        "nranks": 16,
        "nnodes": 2,
        "size_bytes": 64 * MIB,
    }
    events = [event | {"rank": rank, "sequence": 0, "duration_s": 6e-3, "multiplicity": 1} for rank in range(16)]
    comms = [{"communicator": 0, "comm_id": "dp", "size": 16}]
    claims = [{"field": "gpu", "value": "NVIDIA A100-SXM4-80GB", "source": "x", "ground": "read"}]
    tables = {
        "events": rows("events", events),
        "communicators": rows("communicators", comms),
        "claims": rows("claims", claims),
    }
    job = Trace.of(tables, {"source": "kineto", "nccl_versions": ["2.18.5"]})
    found = expected(job, [table("b", {64 * MIB: 1000.0})])
    assert "6.0x below an equal cluster" in found[0]["title"]
    assert "in group dp" in found[0]["detail"]


@needs_shared_data
def test_real_default_network_settings_on_polaris() -> None:
    names = [
        f"real/nccl-tests/alcf_polaris__nccl_2_18__n8.g4.2024-04-29-18-14-00__all_reduce_output.dat.{n}.txt"
        for n in (1, 3, 5)
    ]
    first, *others = (read_bench(find([str(real(name))])) for name in names)
    found = expected(first, others)
    assert titles(found)[0].startswith("warning: 6.1x below the same hosts: looks like default network settings")
    assert "5.98 GB/s at 1 GiB against 36.53 GB/s" in found[0]["detail"]
    assert titles(found)[1].startswith("warning: 7.9x below NCCL's own cost model")
    for good in others:
        assert not any(item["severity"] == "warning" for item in expected(good, [first, *others]))
    (cliff,) = cliffs(others[0])
    assert (cliff["from_bytes"], cliff["to_bytes"]) == (8 * MIB, 16 * MIB)
    assert "changes from tree/simple to ring/simple" in cliff["model"]


@needs_shared_data
def test_real_boxes_meet_their_expectation() -> None:
    tables_ = read_perf_table(find([str(real("real/perf-db/aiconfigurator_a100_sxm_nccl2.27.3.csv"))]))
    box = read_bench(find([str(real("real/nccl-tests/superbench_a100_nccl_allreduce.log"))]))
    found = expected(box, [tables_])
    assert titles(found)[0] == "info: as fast as an equal cluster"
    assert "223.68 GB/s at 512 MiB against 222.33 GB/s" in found[0]["detail"]
    oci = read_bench(find([str(real("real/nccl-tests/oci_bm_gpu_b4_8_a100_2n_allreduce.txt"))]))
    assert titles(expected(oci)) == ["info: near NCCL's own cost model (99% of it)"]
    wide = read_bench(
        find(
            [
                str(
                    real(
                        "real/nccl-tests/alcf_polaris__nccl_2_18__n128.g4.2024-04-29-18-31-53__all_reduce_output.dat.1.txt"
                    )
                )
            ]
        )
    )
    assert titles(expected(wide))[0].startswith("warning: 8.2x below NCCL's own cost model: looks like default network")


def test_times_of_zero_are_no_cliff() -> None:
    events = [
        {
            "kind": "measurement",
            "op": "all-reduce",
            "size_bytes": size,
            "duration_s": time,
            "nranks": 8,
            "nnodes": 1,
            "task": task,
            "text": "t",
            "multiplicity": 1,
            "records": 1,
        }
        for size, time in ((1 << 20, 1e-3), (2 << 20, 0.0), (4 << 20, 1e-2))
        for task in ("out-of-place", "in-place")
    ]
    assert isinstance(cliffs(Trace.of({"events": rows("events", events)}, {"source": "bench"})), list)
