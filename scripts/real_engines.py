"""The same questions on real engines here, each losing a worker in the middle, beside one process; see scripts/real-engines."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ringwright_lab.testing.many_ranks import ManyRanks

BIN = Path(sys.executable).parent
PAPERS = "blueconnect netai2020 bytescheduler torus-2d-allreduce accl camdoop dear coconet fpisa netagg".split()
GRID = """[axes]
model = ["llama"]
parallel = ["ddp:dp=4", "ddp:dp=8", "fsdp:dp=4", "fsdp:dp=8", "tp:tp=4"]
backend = ["nccl", "mpi"]
batch = [1, 2, 4]
bucket_cap_mb = [1.0, 25.0]
"""
QUESTIONS = {
    "ten papers": ["reproduce", *PAPERS],
    "sweep of 60": ["sweep", "grid.toml", "-o", "sweep"],
    "survey of a job": ["survey", "vgg16", "--fabric", "switch:4"],
    "1,000 files": ["summary", "ranks"],
    "an advice": [*"advise --model resnet-18 --gpus 4 --fabric switch:4,rate=25Gb/s --work 400000".split()],
}
JOB = ManyRanks(1000, 12, late_rank=400, damaged=5, missing=5)
OF_THIS_RUN = ("executor", "command", "took_s", "started_s", "search_s")
LOST_AFTER_S = 6.0
CONF = """ClusterName=here
SlurmctldHost={host}
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/d.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} CPUs={cpus} RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SkippedError(Exception):
    """An engine that cannot run here, and why."""


def begun(*words: str, **around: str) -> subprocess.Popen[bytes]:
    """Begin a process that is silent."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(words, env=os.environ | around, **quiet)  # type: ignore[call-overload, no-any-return]


def ran(*words: str) -> str:
    """Run a command, and return what it prints; SkippedError where it fails or is not there."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise SkippedError(f"{words[0]}: {error}") from error


@contextlib.contextmanager
def dask() -> Iterator[tuple[list[str], str, Callable[[], None]]]:
    """Give a scheduler with three workers, of which one is killed."""
    scheduler = begun(str(BIN / "dask"), "scheduler", "--port", "18786", "--no-dashboard")
    time.sleep(4)
    words = ["worker", "tcp://127.0.0.1:18786", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    workers = [begun(str(BIN / "dask"), *words) for _ in range(3)]
    time.sleep(6)
    try:
        yield [], "dask://127.0.0.1:18786", workers[0].kill
    finally:
        for each in (*workers, scheduler):
            each.kill()
            each.wait()


@contextlib.contextmanager
def ray() -> Iterator[tuple[list[str], str, Callable[[], None]]]:
    """Give a cluster of two raylets, of which one is killed."""
    ray_ = str(BIN / "ray")
    usual = ("--num-cpus=1", "--disable-usage-stats")
    head = ("--head", "--port=6399", "--ray-client-server-port=10001", "--include-dashboard=false")
    ran(ray_, "start", *head, *usual)
    ran(ray_, "start", "--address=127.0.0.1:6399", *usual)
    try:
        # The younger raylet: the client's own process hangs on the head's.
        yield [], "ray://127.0.0.1:10001", lambda: ran("pkill", "-9", "-n", "-f", "raylet/raylet") and None
    finally:
        ran(ray_, "stop", "--force")


@contextlib.contextmanager
def slurm() -> Iterator[tuple[list[str], str, Callable[[], None]]]:
    """Give a Slurm of this machine, of whose array one task that runs is cancelled."""
    if os.geteuid() or not all(map(shutil.which, ("slurmctld", "slurmd", "munged", "sbatch"))):
        raise SkippedError("needs root, slurmctld, slurmd and munge")
    host = socket.gethostname().partition(".")[0]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("state", "spool"):
            (Path(folder) / name).mkdir()
        conf = Path(folder) / "slurm.conf"
        conf.write_text(CONF.format(host=host, folder=folder, cpus=os.cpu_count()))
        os.environ["SLURM_CONF"] = str(conf)
        if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode:
            raise SkippedError("munge does not run: munged")
        daemons = [begun("slurmctld", "-D", "-f", str(conf)), begun("slurmd", "-D", "-f", str(conf))]
        time.sleep(6)

        def cancel() -> None:
            for _ in range(40):
                running = ran("squeue", "-h", "-r", "-o", "%i", "-t", "R").split()
                if running:
                    ran("scancel", running[-1])
                    return
                time.sleep(0.5)

        try:
            yield [], "slurm:partition=main,nodes=2,time=10", cancel
        finally:
            ran("scancel", "--user", "root")
            for each in daemons:
                each.terminate()
                each.wait()


@contextlib.contextmanager
def mpi() -> Iterator[tuple[list[str], str, None]]:
    """Give three ranks; one that is lost ends the run, so none is."""
    from ringwright.execute import mpi_runtime

    if not mpi_runtime.available():
        raise SkippedError("no MPI library")
    library = mpi_runtime.runtime(mpi_runtime.available()[0])
    line, around = mpi_runtime.command(library, 3, [], {"MPI4PY_RC_THREAD_LEVEL": "multiple"}, oversubscribed=True)
    os.environ.update(around)
    yield line, "mpi", None


@contextlib.contextmanager
def local() -> Iterator[tuple[list[str], str, Callable[[], None]]]:
    """Give two processes, of which one is killed."""
    yield [], "local:2", lambda: ran("pkill", "-9", "-n", "-f", "loky.backend.popen_loky_posix") and None


ENGINES = {"local": local, "dask": dask, "ray": ray, "slurm": slurm, "mpi": mpi}


@cache
def ranks() -> str:
    """Return where the files of a job of many ranks lie until this ends."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    JOB.write(Path(folder) / "ranks")
    return f"{folder}/ranks"


def answer(line: list[str], words: list[str], spelling: str, lose: Callable[[], None] | None) -> tuple[Any, Any, float]:
    """Return a verb's answer without what is of this run alone, who worked, and how long it took (s)."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "grid.toml").write_text(GRID)
        (Path(folder) / "ranks").symlink_to(ranks())
        began_s = time.monotonic()
        command = [*line, sys.executable, "-m", "ringwright", *words, "--json", "--executor", spelling]
        around = os.environ | {"RINGWRIGHT_TASKS": f"{folder}/kept"}
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=around)
        loss = threading.Timer(LOST_AFTER_S, lose) if lose else None
        if loss:
            loss.start()
        out, _ = process.communicate(timeout=600)
        took_s = time.monotonic() - began_s
        if loss:
            loss.cancel()
    document = json.loads(out)
    if "executor" not in document:
        raise RuntimeError(out)
    return without(document), document["executor"], took_s


def without(value: Any) -> Any:
    """Return a document without what is of one run alone."""
    if isinstance(value, dict):
        return {name: without(each) for name, each in value.items() if name not in OF_THIS_RUN}
    return [without(each) for each in value] if isinstance(value, list) else value


def main() -> int:
    """Ask every question of every engine that runs here, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="*", choices=[*ENGINES, []], help="(default: all)")
    parser.add_argument("--record", type=Path, help="write the rows as JSON")
    parser.add_argument("--ask", choices=QUESTIONS, action="append", help="(default: all questions)")
    given = parser.parse_args()
    asked = {name: words for name, words in QUESTIONS.items() if not given.ask or name in given.ask}
    alone = {name: answer([], words, "local:1", None) for name, words in asked.items()}
    rows = []
    for name in given.engines or ENGINES:
        for question, words in asked.items():
            row: dict[str, Any] = {"engine": name, "question": question, "alone_s": round(alone[question][2], 1)}
            try:
                with ENGINES[name]() as (line, spelling, lose):
                    same, who, took_s = answer(line, words, spelling, lose)
                row |= {"equal": same == alone[question][0], "took_s": round(took_s, 1), "lost": bool(lose), **who}
            except SkippedError as error:
                row["skipped"] = str(error)
            rows.append(row)
            print(json.dumps(row), flush=True)
    if given.record:
        given.record.write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1) + "\n")
    return 0 if all(row.get("equal", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
