"""The benchmarks run: a figure that nobody can take again is worth nothing."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patience import HANG_S
from ringwright.native import engine

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
    sizes = ["--instances", "20000", "--twin", "4000", "--ready", "1000"]
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "bench_jobs.py"), *sizes]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    assert "patient" in done.stdout


def test_candidates_a_second_and_what_they_are_spent_on() -> None:
    asked = ["--candidates", "1", "--model", "llama3-8b", "--gpus", "16", "--parallel", "tp8"]
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
