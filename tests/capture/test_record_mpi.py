"""``ringwright run -- mpirun ...``: an MPI program recorded through the command a user types, and read back."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patience import HANG_S
from ringwright.analysis.summary import summarise
from ringwright.execute.mpi_runtime import available, command, runtime
from ringwright.formats.sources import read

ABSENT = importlib.util.find_spec("mpi4py") is None or len(available()) < 2
PROGRAM = """
from mpi4py import MPI
import numpy, sys
world = MPI.COMM_WORLD
here, there = numpy.ones(1000), numpy.zeros(1000)
for _ in range(5):
    world.Allreduce(here, there)
halves = world.Split(world.rank % 2)
halves.Bcast(here, 0)
print("rank", world.rank)
sys.exit(3 if world.rank == 1 and "fail" in sys.argv else 0)
"""

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(ABSENT or shutil.which("cc") is None, reason="no MPI wheels or no compiler: no ranks over MPI"),
]


@pytest.mark.sampled(1, "*")  # calls of either library: test_mpi_shim.py
@pytest.mark.parametrize(("name", "ranks"), [("open-mpi", 4), ("mpich", 2)])
def test_an_mpi_program_is_recorded_by_the_command(name: str, ranks: int, tmp_path: Path) -> None:
    whole = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    line, settings = command(runtime(name), ranks, [sys.executable, "-c", PROGRAM, "fail"], whole, oversubscribed=True)
    out = tmp_path / "job"
    done = subprocess.run(
        [sys.executable, "-m", "ringwright", "run", "--out", str(out), "--", *line],
        env=settings,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout.count("rank") == ranks  # lines of two ranks may cut each other
    assert "all-reduce" in done.stderr
    result = summarise(read(str(out)))
    counts = {row["op"]: row["count"] for row in result["operations"]}
    assert counts["all-reduce"] == 5
    assert counts["broadcast"] == 2  # one a half
    assert result["ranks_seen"] == result["ranks_expected"] == ranks
    assert any(claim["field"] == "exit code" and claim["value"] == "3" for claim in result["claims"])


ONE_SIDED = """
from mpi4py import MPI
import numpy
world = MPI.COMM_WORLD
held, sent, got = numpy.zeros(8), numpy.full(4, world.rank + 1.0), numpy.zeros(4)
window = MPI.Win.Create(held, disp_unit=8, comm=world)
for call in (
    lambda: window.Put([sent, MPI.DOUBLE], (world.rank + 1) % world.size),
    lambda: window.Get([got, MPI.DOUBLE], world.rank),
    lambda: window.Accumulate([sent, MPI.DOUBLE], 0),
):
    window.Fence()
    call()
window.Fence()
other = numpy.zeros(4)
window.Lock(0)
window.Get_accumulate([sent, MPI.DOUBLE], [other, MPI.DOUBLE], 0)
window.Rput([sent, MPI.DOUBLE], 0).Wait()
window.Rget_accumulate([sent, MPI.DOUBLE], [other, MPI.DOUBLE], 0).Wait()
window.Fetch_and_op([sent[:1], MPI.DOUBLE], [other[:1], MPI.DOUBLE], 0)
window.Unlock(0)
assert (got == (world.rank - 1) % world.size + 1).all()
window.Free()
"""


@pytest.mark.parametrize(("name", "ranks"), [("open-mpi", 2), ("mpich", 2)])
def test_one_sided_communication_is_counted(name: str, ranks: int, tmp_path: Path) -> None:
    whole = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    line, settings = command(runtime(name), ranks, [sys.executable, "-c", ONE_SIDED], whole, oversubscribed=True)
    run = [sys.executable, "-m", "ringwright", "run", "--out", str(tmp_path / "job"), "--", *line]
    done = subprocess.run(run, env=settings, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr  # the program sees what it would see without
    told = [text for text in read(str(tmp_path / "job")).meta["losses"] if "one-sided" in text]
    for rank in range(ranks):
        mine = [text for text in told if text.startswith(f"rank {rank}: ")]
        assert sum("1 records are missing (windows of one-sided" in text for text in mine) == 1
        assert sum("7 records are missing (one-sided transfers" in text for text in mine) == 1
