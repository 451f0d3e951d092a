"""Bursts of simulations: closed forms, and the same figures when the simulation is saved as a Trace and read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringwright.cli import main

pytestmark = pytest.mark.once  # whole jobs: with the compiled loops alone

MIB = 1 << 20
FIGURES = (
    *("count", "transfers", "unsized", "bytes", "duty", "gap_us", "window_us", "nics_total", "steps_total"),
    *(f"{name}_p{percent}" for name in ("size_bytes", "gap_us", "duration_us", "incast") for percent in (50, 95, 99)),
    *("incast_max", "size_classes", "gap_classes", "nics", "phases", "steps", "of"),
)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def collective(capsys: pytest.CaptureFixture[str], op: str, fabric: str, algorithm: str, *more: str) -> dict[str, Any]:
    return asked(capsys, "simulate", op, "--fabric", fabric, "--algorithm", algorithm, "-b", "8M", "-e", "8M", *more)


def alike(one: Any, other: Any, where: str = "bursts") -> None:
    """Compare numbers to a part in 10^9 (a Trace holds a beginning and a duration), all else exactly."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            alike(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for at, (a, b) in enumerate(zip(one, other, strict=True)):
            alike(a, b, f"{where}[{at}]")
    elif isinstance(one, float):
        assert other == pytest.approx(one, rel=1e-9, abs=1e-6), where
    else:
        assert one == other, where


def told_both_ways(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> dict[str, Any]:
    simulated = asked(capsys, *words, "--trace", str(folder))["bursts"]
    read = asked(
        capsys, "summary", str(folder), *(("--gap", words[words.index("--gap") + 1]) if "--gap" in words else ())
    )
    for figure in FIGURES:
        alike(simulated[figure], read["bursts"][figure], figure)
    told: dict[str, Any] = simulated
    return told


def test_a_ring_of_ranks_alone_is_one_burst_each(capsys: pytest.CaptureFixture[str]) -> None:
    bursts = collective(capsys, "all-gather", "ring:8", "ring")["bursts"]
    assert (bursts["count"], bursts["nics_total"], bursts["transfers"]) == (8, 8, 56)
    assert bursts["size_bytes_p50"] == bursts["size_bytes_p99"] == 7 * MIB
    assert (bursts["incast_max"], bursts["duty"], bursts["gap_us_p50"]) == (1, pytest.approx(1.0, abs=1e-3), None)
    assert (bursts["algorithm"], bursts["size_bytes"], bursts["of"]) == ("ring", 8 * MIB, "rank")


def test_a_direct_exchange_is_the_incast_of_all_others(capsys: pytest.CaptureFixture[str]) -> None:
    bursts = collective(capsys, "gather", "switch:8,rate=10GB/s", "linear")["bursts"]
    assert (bursts["incast_max"], bursts["count"]) == (7, 7)
    root = next(row for row in bursts["nics"] if row["nic"] == "rank 0")
    assert (root["count"], root["bytes"], root["incast_max"]) == (0, 0, 7)


def test_only_what_leaves_a_host_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks 7 and 15 alone send to the other host in a ring in order of ranks: 2 * 15/16 of the size each."""
    bursts = collective(capsys, "all-reduce", "dgx-h100:2", "ring")["bursts"]
    assert {row["nic"]: row["bytes"] for row in bursts["nics"] if row["bytes"]} == {
        "rank 7": 15 * MIB,
        "rank 15": 15 * MIB,
    }
    assert bursts["ground"].startswith("what a rank sends to other hosts")


@pytest.mark.parametrize(
    ("op", "fabric", "algorithm", "more"),
    [
        ("all-reduce", "dgx-h100:2", "ring", ()),
        ("all-reduce", "dgx-h100:2", "blueconnect", ("--gap", "2us")),
        ("all-to-all", "switch:8", "direct", ()),
        ("all-reduce", "leaf-spine:8", "recursive-doubling", ("--engine", "packets", "--gap", "1us")),
        ("all-reduce", "dgx-h100:4", "ring", ("--ranks", "4-11")),
        ("all-reduce", "switch:8", "ring", ("--arrivals", "late:3=2ms")),
        ("all-reduce", "switch:8", "ring", ("--fault", "link rank0>switch rate 10% from 50us to 1ms")),
    ],
)
def test_a_simulated_collective_has_the_bursts_of_its_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, op: str, fabric: str, algorithm: str, more: tuple[str, ...]
) -> None:
    words = ("simulate", op, "--fabric", fabric, "--algorithm", algorithm, "-b", "1M", "-e", "4M", *more)
    bursts = told_both_ways(capsys, tmp_path / "trace", *words)
    assert bursts["count"] > 0
    assert bursts["size_bytes"] == 4 * MIB


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        ("--model", "llama3-8b", "--gpus", "16", "--parallel", "tp8,dp2", "--fabric", "dgx-h100:2"),
        ("--model", "llama3-8b", "--gpus", "16", "--parallel", "tp4,pp2,dp2", "--fabric", "dgx-h100:2", "--micro-batches", "4"),
        ("--model", "resnet50", "--gpus", "8", "--fabric", "switch:8", "--policy", "p3"),
        ("--model", "resnet50", "--gpus", "8", "--fabric", "switch:8", "--unfolded"),
        ("--model", "resnet50", "--gpus", "8", "--fabric", "switch:8", "--fault", "rank 3 slow 2x"),
        ("--model", "mixtral-8x7b", "--gpus", "16", "--parallel", "ep8", "--fabric", "switch:16", "--mode", "prefill"),
    ],
)  # fmt: skip
def test_a_simulated_job_has_the_bursts_of_its_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    bursts = told_both_ways(capsys, tmp_path / "trace", "simulate", *words)
    assert bursts["count"] > 0
    assert [row["step"] for row in bursts["steps"]] == list(range(bursts["steps_total"]))


def test_phases_of_a_job_are_those_of_its_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    job = ("--model", "resnet50", "--gpus", "8", "--fabric", "switch:8")
    bursts = asked(capsys, "simulate", *job)["bursts"]
    assert [row["phase"] for row in bursts["phases"]] == ["backward"]
    assert bursts["policy"] == "pytorch-ddp"


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_phases_of_inference_are_its_passes(capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: str) -> None:
    job = ("--model", "llama3-8b", "--gpus", "8", "--parallel", "tp8", "--fabric", "switch:8", "--mode", mode)
    bursts = told_both_ways(capsys, tmp_path / "trace", "simulate", *job)
    assert [row["phase"] for row in bursts["phases"]] == [mode]


def test_a_larger_gap_gives_fewer_bursts(capsys: pytest.CaptureFixture[str]) -> None:
    job = ("simulate", "--model", "resnet50", "--gpus", "8", "--fabric", "switch:8,rate=10GB/s")
    counts = [asked(capsys, *job, "--gap", gap)["bursts"]["count"] for gap in ("1us", "50us", "1ms", "10s")]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 8  # one of each rank
    assert asked(capsys, *job)["bursts"]["count"] == counts[1]


def test_what_follows_no_message_has_no_bursts_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    answer = collective(capsys, "all-reduce", "switch:8", "ring", "--engine", "closed-form")
    assert answer["bursts"] is None
    assert "follows no single message; try --engine events" in answer["bursts_unknown"]
    many = collective(capsys, "all-reduce", "ring:1024", "ring")
    assert many["bursts"] is None
    assert "ask for fewer ranks or a smaller size" in many["bursts_unknown"]


def test_the_terminal_shows_bursts_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "all-reduce", "--fabric", "switch:8", "--algorithm", "ring", "-b", "8M", "-e", "8M"]
    shown = []
    for more in ([], ["--bursts"], ["--gap", "1ms"]):
        assert main([*words, *more]) == 0
        shown.append(capsys.readouterr().out)
    assert "Bursts" not in shown[0]
    assert "Bursts of ring at 8 MiB  a pause of more than 50 us" in shown[1]
    assert "a pause of more than 1,000 us" in shown[2]
    job = ["simulate", "--model", "resnet50", "--gpus", "8", "--fabric", "switch:8", "--bursts"]
    assert main(job) == 0
    assert "Bursts by pytorch-ddp" in capsys.readouterr().out


def test_the_pages_hold_bursts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, words in (
        ("one.html", ["all-reduce", "--fabric", "switch:8", "--algorithm", "ring", "-b", "8M", "-e", "8M"]),
        ("job.html", ["--model", "resnet50", "--gpus", "8", "--fabric", "switch:8"]),
    ):
        assert main(["simulate", *words, "-o", str(tmp_path / name)]) == 0
        text = (tmp_path / name).read_text()
        assert 'id="chart-burst-1"' in text
        assert "a pause of more than 50 us ends a burst of a NIC" in text
