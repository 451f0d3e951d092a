"""A bandwidth beside what other systems reach: the measure, what is not compared, and the gate."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import ringwright
from ringwright.analysis import normal as module
from ringwright.analysis.compared.gate import check, read_thresholds
from ringwright.analysis.normal import normal
from ringwright.analysis.summary import summarise
from ringwright.model.trace import Trace
from ringwright.reports.html import page

HEAD = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1073741824 step: 32(factor) warmup iters: 5 iters: 20 agg iters: 1 validate: 1
#
# Using devices
{ranks}
# NCCL version 2.20.5+cuda12.4
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
SIZES = (1 << 20, 32 << 20, 1 << 30)


def table(folder: Path, gbs: float, *, nodes: int = 2, gpu: str = "NVIDIA A100-SXM4-80GB") -> Path:
    """A table of an all-reduce on nodes of eight GPUs with this bus bandwidth at each size."""
    count = 8 * nodes
    ranks = "\n".join(
        f"#  Rank {r:2d} Group  0 Pid  {100 + r} on  node{r // 8} device  {r % 8} [0x0{r % 8}] {gpu}"
        for r in range(count)
    )
    factor = 2 * (count - 1) / count
    lines = [HEAD.format(ranks=ranks)]
    for size in SIZES:
        time_us = size / (gbs / factor * 1e9) * 1e6
        shown = f"{time_us:9.1f}"
        alg = size / float(shown) / 1e3
        half = f"{shown} {alg:7.2f} {alg * factor:7.2f}      0"
        lines.append(f"{size:12d} {size // 4:13d}     float     sum      -1 {half} {half}\n")
    path = folder / f"all_reduce_{gbs:g}_{nodes}.txt"
    path.write_text("".join(lines))
    return path


def rows(path: Path) -> list[module.NormalRow]:
    return normal(ringwright.read(str(path))).rows


def test_who_is_faster_leaves_more_systems_behind(tmp_path: Path) -> None:
    slow, usual, fast = (rows(table(tmp_path, gbs))[-1] for gbs in (20, 120, 240))
    assert slow["percentile"] < 5 < usual["percentile"] < fast["percentile"] < 100
    assert {each["p50"] for each in (slow, usual, fast)} == {usual["p50"]}, "what others reach is not what was measured"
    assert usual["p05"] < usual["p50"] < usual["p95"]


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_the_quantiles_are_those_of_the_share(tmp_path: Path, nodes: int) -> None:
    first = rows(table(tmp_path, 100, nodes=nodes))[-1]
    for name, share in (("p05", 5.0), ("p50", 50.0), ("p95", 95.0)):
        again = rows(table(tmp_path, first[name], nodes=nodes))[-1]
        assert again["percentile"] == pytest.approx(share, abs=0.5)


def test_what_is_assumed_is_said(tmp_path: Path) -> None:
    said = rows(table(tmp_path, 100))[-1]["assumed"]
    assert said == ["NICs a node: 8 or 4 of 200 Gb/s", "network: one of infiniband, roce, efa, slingshot"]
    inside = rows(table(tmp_path, 200, nodes=1))[-1]
    assert inside["assumed"] == []
    assert inside["n_systems"] == module.shipped().seen["nvlink"].systems > 1


def test_a_named_network_is_compared_with_its_own_kind(tmp_path: Path) -> None:
    path = table(tmp_path, 40)
    wide = rows(path)[-1]
    path.write_text(f"node0:100:120 [0] NCCL INFO Using network IB\n{path.read_text()}")
    named = rows(path)[-1]
    assert named["n_systems"] == module.shipped().seen["infiniband"].systems < wide["n_systems"]
    assert not any("network" in each for each in named["assumed"])


@pytest.mark.parametrize(("said", "kind"), [("Socket", "tcp"), ("AWS Libfabric", "efa")])
def test_a_few_systems_have_no_percentile(tmp_path: Path, said: str, kind: str) -> None:
    path = table(tmp_path, 40)
    path.write_text(f"node0:100:120 [0] NCCL INFO Using network {said}\n{path.read_text()}")
    told = normal(ringwright.read(str(path)))
    assert module.shipped().seen[kind].systems < module.FEWEST_SYSTEMS
    assert not told.rows
    assert any(f"a percentile needs {module.FEWEST_SYSTEMS}" in each for each in told.unknown)


@pytest.mark.parametrize(("library", "why"), [("gloo", "GLOO made its calls"), ("nccl", "does not name its GPU")])
def test_a_job_without_a_gpu_is_not_said_to_hide_it(library: str, why: str) -> None:
    """What runs on CPUs has no GPU to name; what other systems reach is known of NCCL."""
    events = pl.DataFrame([
        {"kind": "collective", "op": "all-reduce", "communicator": 0, "sequence": 0, "rank": rank, "size_bytes": 1 << 20,
         "duration_s": 1e-3, "multiplicity": 1}
        for rank in (0, 1)
    ])  # fmt: skip
    group = pl.DataFrame({"communicator": [0], "comm_id": ["g"], "size": [2], "members": [[0, 1]]})
    meta = {"source": "calls", "inputs": ["job"], "library": library}
    answer = summarise(Trace.of({"events": events, "communicators": group}, meta))["answer"]
    assert answer is not None
    assert why in answer["sentence"]


def test_several_networks_name_none(tmp_path: Path) -> None:
    path = table(tmp_path, 40)
    lines = "".join(f"node{n}:100:120 [0] NCCL INFO Using network {name}\n" for n, name in enumerate(("Socket", "IB")))
    path.write_text(lines + path.read_text())
    assert any("network" in each for each in rows(path)[-1]["assumed"])


@pytest.mark.parametrize(("gpu", "why"), [("Quadro RTX 6000", "is not known"), ("", "does not name its GPU")])
def test_what_has_no_like_is_not_compared(tmp_path: Path, gpu: str, why: str) -> None:
    told = normal(ringwright.read(str(table(tmp_path, 100, gpu=gpu))))
    assert not told.rows
    assert any(why in each for each in told.unknown)


def test_the_summary_warns_and_the_gate_fails(tmp_path: Path) -> None:
    config = tmp_path / "gate.toml"
    config.write_text('[[limit]]\nop = "all-reduce"\nmin_size = "16M"\nmin_percentile = 10\n')
    for gbs, passes in ((20.0, False), (150.0, True)):
        summary = summarise(ringwright.read(str(table(tmp_path, gbs))))
        answer = check(summary, read_thresholds(config))
        judged = [each for each in answer["checks"] if "min_percentile" in each["check"]]
        assert [each["passed"] for each in judged] == [passes]
        assert answer["passed"] is passes
        warned = [each for each in summary["findings"] if "of such systems" in each["title"]]
        assert bool(warned) is not passes
        assert "Is it normal?" in page(summary)


def test_a_limit_without_a_like_cannot_be_judged(tmp_path: Path) -> None:
    config = tmp_path / "gate.toml"
    config.write_text("[[limit]]\nmin_percentile = 10\n")
    summary = summarise(ringwright.read(str(table(tmp_path, 100, gpu=""))))
    (judged,) = [
        each for each in check(summary, read_thresholds(config))["checks"] if "min_percentile" in each["check"]
    ]
    assert not judged["passed"]
    assert "cannot be judged" in judged["detail"]
