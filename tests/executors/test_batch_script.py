"""A sweep written as a script for Slurm: bash takes it, and what it starts gives the table that the sweep gives here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from patience import HANG_S
from ringwright.cli import main
from ringwright.ground.errors import EXIT_GOOD, EXIT_USAGE, UsageError
from ringwright_lab.sweep.batch_script import batch_script, batch_settings, quoted

pytestmark = pytest.mark.once

GRID = 'axes.model = ["llama"]\naxes.parallel = ["ddp:dp=2", "tp:tp=2"]\naxes.backend = ["nccl", "mpi"]\n'
# What sbatch does with a script: reads its options, runs it elsewhere with what it allotted.
SBATCH = """#!/bin/bash
set -eu
for option in partition nodes ntasks-per-node time account; do
  sed -n "s/^#SBATCH --$option=/$option /p" "$1"
done >"$HERE/options"
tasks=$(sed -n 's/^ntasks-per-node //p' "$HERE/options")
cd / && SLURM_JOB_ID=7 SLURM_NTASKS=$tasks bash "$1"
"""
SRUN = """#!/bin/bash
set -eu
echo "$@" >"$HERE/srun"
[[ $1 == --mpi=* ]] && shift
exec "$MPIRUN" -n "$SLURM_NTASKS" "$@"
"""


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """An environment in which sbatch and srun are ours."""
    (tmp_path / "bin").mkdir()
    for name, text in {"sbatch": SBATCH, "srun": SRUN}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    mpirun = Path(sys.executable).parent / "mpiexec.hydra"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RINGWRIGHT_", "SLURM_"))}
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return kept | {"PATH": path, "HERE": str(tmp_path), "MPIRUN": str(mpirun), "RINGWRIGHT_TASKS": f"{tmp_path}/kept"}


@pytest.mark.parametrize(
    "executor",
    [
        pytest.param("mpi", marks=[pytest.mark.mpi, pytest.mark.slow]),
        pytest.param("slurm:cluster=local,nodes=2", marks=pytest.mark.slow),
    ],
)
def test_the_script_sweeps_what_the_command_sweeps(tmp_path: Path, cluster: dict[str, str], executor: str) -> None:
    if executor == "mpi" and not Path(cluster["MPIRUN"]).exists():
        pytest.skip("no MPI library is installed")
    work = tmp_path / "a folder's name, größer"
    work.mkdir()
    grid = work / "grid.toml"
    grid.write_text(GRID)
    script = work / "job.sh"
    to = (
        "sbatch:partition=long,tasks=3,time=30,account=lab-1,mpi=pmix" if executor == "mpi" else "sbatch:partition=long"
    )
    assert main(["sweep", str(grid), "--to", to, "-o", str(script), "--executor", executor]) == EXIT_GOOD
    assert script.read_bytes().isascii()
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    assert not (work / "job").exists(), "nothing ran here"
    done = subprocess.run(
        ["sbatch", script], env=cluster, capture_output=True, text=True, timeout=3 * HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert main(["sweep", str(grid), "-o", str(work / "here"), "--executor", "local:1"]) == EXIT_GOOD
    there, here = (pl.read_parquet(work / name / "results.parquet") for name in ("job", "here"))
    assert there.height > 8
    timeless = [name for name in here.columns if name not in ("took_s", "started_s", "began", "began_s")]
    assert there.select(timeless).equals(here.select(timeless))
    options = dict(line.split() for line in (tmp_path / "options").read_text().splitlines())
    if executor == "mpi":
        assert options == {
            "partition": "long", "nodes": "1", "ntasks-per-node": "3", "time": "30", "account": "lab-1"
        }  # fmt: skip
        assert (tmp_path / "srun").read_text().startswith("--mpi=pmix ")
    else:
        assert options == {"partition": "long", "nodes": "1", "ntasks-per-node": "1", "time": "60"}
        assert not (tmp_path / "srun").exists()


def test_what_slurm_would_misread_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in (
        "pbs:nodes=1",
        "sbatch:nodes",
        "sbatch:partition=a\n#SBATCH --wrap=x",
        "sbatch:account=a b",
        "sbatch:account=$(id)",
        "sbatch:partition=--help",
        "sbatch:partition=größe",
        "sbatch:gpus=1",
    ):
        with pytest.raises(UsageError) as caught:
            batch_settings(text)
        assert caught.value.remedy, text
    for settings, executor in (
        ({}, "local:4"),
        ({}, "dask://h:1"),
        ({"tasks": "1"}, "mpi"),
        ({"nodes": "0"}, "mpi"),
        ({"time": "1h"}, "mpi"),
        ({"nodes": "4"}, "slurm:partition=P"),
    ):
        with pytest.raises(UsageError):
            batch_script(settings, [], executor)
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID)
    script = tmp_path / "job.sh"
    words = ["sweep", str(grid), "--to", "sbatch", "-o"]
    assert main([*words, str(tmp_path / "job")]) == EXIT_USAGE
    capsys.readouterr()
    assert main([*words, str(script), "--json"]) == EXIT_GOOD
    assert json.loads(capsys.readouterr().out)["folder"] == str(tmp_path / "job")
    assert main([*words, str(script)]) == EXIT_USAGE
    assert main([*words, str(script), "--force"]) == EXIT_GOOD
    grid.write_text('axes.nothing = ["llama"]\n')
    assert main([*words, str(script), "--force"]) != EXIT_GOOD, "a grid that is none is told here"


def test_words_are_quoted_whatever_they_hold() -> None:
    shell = shutil.which("bash")
    for word in ("plain", "a b", "it's", "größer", "new\nline", "back\\slash 'ü", "$(id)", "", "é1", "`x`"):
        text = quoted(word)
        assert text.isascii()
        assert re.fullmatch(r"[^\n]*", text)
        said = subprocess.run([shell or "bash", "-c", f"printf %s {text}"], capture_output=True, check=True).stdout
        assert said == word.encode(), word
