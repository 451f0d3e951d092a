"""The benchmarks run: a figure that nobody can take again is worth nothing."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from patience import HANG_S
from ringwright.native import engine

pytestmark = pytest.mark.once

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.skipif(engine is None or shutil.which("g++") is None, reason="needs the compiled engine and a compiler")
def test_engines_against_the_hand_written_loop() -> None:
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "bench_engines.py"), "--quick", "--rounds", "1"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    assert "halving-doubling" in done.stdout


@pytest.mark.slow
def test_profiler_traces_against_a_bare_decode() -> None:
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "bench_kineto.py"), "--events", "5000", "--rounds", "1"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    assert "ratio" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(engine, "job"), reason="needs the compiled job loop")
def test_job_loops_side_by_side() -> None:
    sizes = ["--instances", "4000", "--twin", "1000", "--ready", "300"]
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "bench_jobs.py"), *sizes]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    assert "patient" in done.stdout


def test_candidates_a_second_and_what_they_are_spent_on() -> None:
    asked = ["--candidates", "1", "--model", "gpt3-125m", "--gpus", "4", "--parallel", "tp2"]
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "bench_jobs.py"), *asked]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    assert "candidates a CPU second" in done.stdout
    assert "bytescheduler" in done.stdout


@pytest.mark.parametrize(
    ("topology", "name", "ranks", "theirs_ns", "off"),
    [
        ("Ring", "ring", 8, 2_304_597, 1e-4),
        ("Switch", "ring", 64, 5_171_734, 1e-4),
        ("Switch", "hd", 8, 4_428_188, 0.015),
    ],
)
def test_whole_messages_take_what_astra_sim_says(
    topology: str, name: str, ranks: int, theirs_ns: int, off: float
) -> None:
    """64 MiB by ASTRA-sim's congestion-aware backend; the first row gave the rate of adding, the others are predictions."""
    column = runpy.run_path(str(REPOSITORY / "benchmarks" / "astra_column.py"))
    assert column["time_ns"](topology, name, ranks, 64 << 20) == pytest.approx(theirs_ns, rel=off)


@pytest.fixture(scope="module")
def overlap() -> dict[str, Any]:
    return runpy.run_path(str(REPOSITORY / "benchmarks" / "gpu" / "bench_overlap.py"))


def test_a_row_of_the_gpu_carries_the_nearest_sample_of_the_clocks(overlap: dict[str, Any]) -> None:
    rows = [{"from_s": 10.0, "to_s": 10.2}, {"from_s": 10.4, "to_s": 10.42}, {"from_s": 99.0, "to_s": 99.1}]
    samples = [(10.09, {"sampled_sm_mhz": 1980}), (10.39, {"sampled_sm_mhz": 1500})]
    got = [row.get("sampled_sm_mhz") for row in overlap["with_clocks"](rows, samples)]
    assert got == [1980, 1500, None]
    assert overlap["with_clocks"](rows, []) == rows


def test_rows_of_a_run_that_was_cut_off_are_read(overlap: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert overlap["read_rows"](path) == []
    path.write_text('{"section": "waves", "from_s": 1}\n{"section": "wa')
    assert overlap["read_rows"](path) == [{"section": "waves", "from_s": 1}]


def test_a_section_that_hangs_or_fails_costs_its_own_rows(overlap: dict[str, Any], tmp_path: Path) -> None:
    """A stand-in for the compiled program: one section writes, one fails, one never ends."""
    program = tmp_path / "overlap"
    row = '{"section": "sections", "name": "waves", "took_s": 1, "rows_left_out": 0, "from_s": 1, "to_s": 2}'
    program.write_text(
        f"#!/bin/sh\ncase $1 in waves) echo '{row}' >> $2;; fused) echo no >&2; exit 3;; *) exec sleep 60;; esac\n"
    )
    program.chmod(0o755)
    overlap["run_section"].__globals__["GRACE_S"] = 0.5
    ends = {
        name: overlap["run_section"](name, 0.1 if name == "beside" else 30, tmp_path, tmp_path / "rows", tmp_path)
        for name in ("waves", "fused", "beside")
    }
    assert {name: end["status"] for name, end in ends.items()} == {"waves": 0, "fused": 3, "beside": None}
    assert ends["fused"]["said"] == "no\n"
    assert len(overlap["read_rows"](tmp_path / "rows")) == 1


def test_sections_fit_the_seconds_of_the_gpu(overlap: dict[str, Any]) -> None:
    """Every section has a budget and a function, and every source is compiled."""
    assert sum(overlap["BUDGET_S"].values()) <= 300
    folder = REPOSITORY / "benchmarks" / "gpu"
    assert {path.stem for path in folder.glob("*.cu")} == set(overlap["SOURCES"])
    named = (folder / "main.cu").read_text()
    assert all(f'{{"{name}", section_{name}}}' in named for name in overlap["BUDGET_S"])


@pytest.mark.slow
def test_a_log_that_grows_is_followed() -> None:
    asked = ["--rate", "2", "--seconds", "2", "--interval", "0.2"]
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "bench_live.py"), *asked]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    assert "lag when shown" in done.stdout


def test_the_history_is_the_table_on_its_page() -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "benchmark"))
    rows = [json.loads(line) for line in script["HISTORY"].read_text().splitlines()]
    assert {key for row in rows for key in row} == {*script["SHOWN"], "command"}, "no name of a machine"
    assert {row["benchmark"] for row in rows} == set(script["QUICK"])
    page = (REPOSITORY / "docs" / "explanation" / "house.md").read_text()
    assert f"\n{script['table'](rows)}\n" in page, "scripts/benchmark --show prints it"
