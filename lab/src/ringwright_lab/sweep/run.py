"""Runs the grid points of a grid, each recorded into a folder of its own; a sweep that was cut short goes on where it stopped.

``OUT/points/<key>/point.json`` is written last: a grid point without it is run anew.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ringwright
import ringwright_lab
from ringwright.capture.settings import Options, settings
from ringwright.executors.fan_out import Chosen, WorkAccount, fan_out
from ringwright.ground import drafts
from ringwright.ground.errors import MissingExtraError, RanksFailedError, RingwrightError, UsageError
from ringwright.ground.stepwise import Advance
from ringwright_lab.sweep import environment
from ringwright_lab.sweep.grid import Grid
from ringwright_lab.sweep.point import GridPoint
from ringwright_lab.sweep.program import WARM, told

CELLS = "cells"
FACTS = "cell.json"
SIMULATED = "simulated.json"
JOB = "ringwright_lab.models.job"
WORKER = "ringwright_lab.models.worker"
_RECORD = Options(nccl="off")
_NEEDED = ("torch", "transformers")
_PACKAGES = ("ringwright", "torch", "transformers", "numpy", "polars")


def sweep(
    grid: Grid,
    out: Path,
    *,
    timeout_s: float = 300.0,
    retry: bool = False,
    fresh: bool = False,
    progress: Advance | None = None,
    executor: Chosen = None,
) -> Swept:
    """Run the grid points that are not there yet; return how many were run, kept from before, and failed, and who worked.

    A grid point that fails keeps its recording and its reason, and the others go on; ``retry`` runs failed grid points again,
    ``fresh`` all of them. What is simulated ``executor`` does, before ranks of this machine run, one grid point at a time.
    ``progress`` is called with grid points done, grid points in all, and the key of the next one. Raises MissingExtraError
    without PyTorch.
    """
    if any(point.ground != "simulated" for point in grid.points):
        _check_libraries()
    (out / CELLS).mkdir(parents=True, exist_ok=True)
    kept = {} if fresh else {point.key: facts for point in grid.points if (facts := facts_of(out / CELLS / point.key))}
    kept = {key: facts for key, facts in kept.items() if facts["outcome"] == "done" or not retry}
    left = [point for point in grid.points if point.key not in kept]
    outcomes = [facts["outcome"] for facts in kept.values()]

    def advance(more: int, name: str) -> None:
        if progress is not None:
            progress(len(kept) + more, len(grid.points), name)

    with fan_out(executor) as fan, worker() as ask:
        simulated = [point for point in left if point.ground == "simulated"]
        fan.map(
            timed,
            [(point,) for point in simulated],
            title=lambda point: point.key,
            progress=lambda done, _, name: advance(done, name),
            each=lambda number, came: outcomes.append(_written(simulated[number], out, came)),
        )
        for done, point in enumerate((point for point in left if point.ground != "simulated"), len(simulated)):
            advance(done, point.key)
            outcomes.append(run_point(point, out / CELLS / point.key, ask, timeout_s=timeout_s)["outcome"])
    advance(len(left), "")
    return Swept({"run": len(left), "kept": len(kept), "failed": sum(each != "done" for each in outcomes)}, fan.account)


@dataclass(frozen=True)
class Swept:
    """How many grid points were run, kept and failed; and who simulated."""

    counts: dict[str, int]
    account: WorkAccount


@dataclass(frozen=True)
class TimedPoint:
    """What the model of its library says of a grid point: rows, or why there are none; when and how long it took (s)."""

    rows: list[dict[str, Any]]
    why: str
    started_s: float
    took_s: float


def timed(point: GridPoint) -> TimedPoint:
    """Time what the ranks of a grid point would issue by the model of its library, which does not run here."""
    from ringwright_lab.sweep import simulated

    began_s = time.time()
    try:
        rows, why = simulated.rows(point), ""
    except RingwrightError as error:
        rows, why = [], error.what
    return TimedPoint(rows, why, began_s, round(time.time() - began_s, 3))


def _written(point: GridPoint, out: Path, came: TimedPoint) -> str:
    """Write a simulated grid point into its folder of a sweep, its facts last, and return its outcome."""
    folder = out / CELLS / point.key
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outcome: dict[str, object] = {"outcome": "failed", "why": came.why}
    if not came.why:
        drafts.write(folder / SIMULATED, json.dumps(came.rows, indent=1) + "\n")
        of_nccl = point.backend == "nccl"
        why = "rank programs compute on CPUs, where NCCL does not run" if of_nccl else "PyTorch has no MPI here"
        by = came.rows[0]["simulated_by"]
        outcome = {"outcome": "done", "ground": "simulated", "simulated_by": by, "simulated_for": why}
    facts = _facts(point, came.started_s) | {"took_s": came.took_s, **outcome}
    drafts.write(folder / FACTS, json.dumps(facts, indent=1) + "\n")
    return str(facts["outcome"])


def _facts(point: GridPoint, began_s: float) -> dict[str, object]:
    """Return what is known of a grid point before it runs."""
    return {
        "cell": asdict(point),
        "key": point.key,
        "versions": versions(),
        "started_s": began_s,
        "program": told(point),
    }


def facts_of(folder: Path) -> dict[str, Any] | None:
    """Return what is known of a grid point that was run, None where it was not, or not to its end."""
    with suppress(OSError, ValueError):
        document = json.loads((folder / FACTS).read_text())
        if isinstance(document, dict) and {"cell", "outcome"} <= set(document):
            return document
    return None


def run_point(
    point: GridPoint, folder: Path, ask: Ask, *, timeout_s: float, options: Options | None = _RECORD
) -> dict[str, Any]:
    """Run one grid point, recorded as ``options`` say (None: not at all), and return its facts, which also lie in its folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began_s = time.time()
    facts = _facts(point, began_s)
    variables = _environment(folder, options or _RECORD) | ({"RINGWRIGHT_CAPTURE": ""} if options is None else {})
    variables |= environment.settings(point.env)
    try:
        run = _in_lab if point.fabric else _here
        outcome = run(point, folder, variables, ask, timeout_s)
    except RingwrightError as error:
        outcome = {"outcome": "failed", "why": error.what}
    facts |= {"took_s": round(time.time() - began_s, 3), **outcome}
    drafts.write(folder / FACTS, json.dumps(facts, indent=1) + "\n")
    return facts


def _here(point: GridPoint, folder: Path, variables: dict[str, str], ask: Ask, timeout_s: float) -> dict[str, Any]:
    world = 1 if point.world else point.ranks
    answer = ask(
        {
            "spec": told(point),
            "world": world,
            "folder": str(folder),
            "environment": variables,
            "timeout_s": timeout_s,
        }
    )
    return {**_outcome(folder, answer["codes"], is_late=answer["is_late"]), "cpu_s": answer["cpu_s"]}


def _in_lab(point: GridPoint, folder: Path, variables: dict[str, str], _ask: Ask, timeout_s: float) -> dict[str, Any]:
    """Run the ranks in network namespaces; the fault script's clock starts when all are warm."""
    from ringwright_lab.network import ranks

    words = [f"{name}={value}" for name, value in variables.items()]
    program = [sys.executable, "-m", JOB, json.dumps({**told(point), "out": str(folder)})]
    lab = ranks.run(
        point.fabric,
        ["env", *words, *program],
        faults=[line for line in point.fault.split(";") if line.strip()],
        seed=point.seed,
        tcp=point.tcp,
        timeout_s=timeout_s,
        ready=WARM if point.warm else "",
        out=folder / "lab",
    )
    told_ = {"lab_verdict": lab.limit.verdict, "lab_why": lab.limit.why, "timeline": list(lab.timeline)}
    codes = [ended.code for ended in lab.ranks]
    return {**_outcome(folder / "lab", codes, is_late=any(ended.is_late for ended in lab.ranks)), **told_}


def _outcome(folder: Path, codes: list[int], *, is_late: bool) -> dict[str, Any]:
    if not any(codes) and not is_late:
        return {"outcome": "done", "codes": codes}
    why = "out of time" if is_late else ""
    for rank, code in enumerate(codes):
        words = ""
        with suppress(OSError):
            words = (folder / f"rank-{rank}.err").read_text(errors="replace").strip()[-400:]
        if code and not why:
            why = f"rank {rank} ended with {code}: {words}"
    return {"outcome": "failed", "codes": codes, "why": why}


Ask = Callable[[dict[str, Any]], dict[str, Any]]


@contextmanager
def worker() -> Iterator[Ask]:
    """Start the program that forks ranks, at the first question, and give what asks it; it ends with the block."""
    process: list[subprocess.Popen[str]] = []

    def ask(asked: dict[str, Any]) -> dict[str, Any]:
        if not process:
            process.append(_start_worker())
        write, read = process[0].stdin, process[0].stdout
        if write is None or read is None:
            raise RanksFailedError("the program that forks ranks has no pipes")
        write.write(json.dumps(asked) + "\n")
        write.flush()
        line = read.readline()
        if not line:
            process.clear()
            raise RanksFailedError("the program that forks ranks is gone", remedy="run the sweep again: it goes on")
        answer: dict[str, Any] = json.loads(line)
        return answer

    try:
        yield ask
    finally:
        for each in process:
            each.kill()
            each.communicate()  # closes both pipes


def _start_worker() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", WORKER]
    process = subprocess.Popen(
        command,
        env={**os.environ, **_environment(Path.cwd(), _RECORD)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise RanksFailedError("the program that forks ranks did not start", where=" ".join(command))
    return process


def _environment(folder: Path, options: Options) -> dict[str, str]:
    """Return what ranks find: the recorder, this package, one thread each, no network for models."""
    package = os.pathsep.join(str(Path(each.__file__ or "").parents[1]) for each in (ringwright, ringwright_lab))
    return {
        **settings(folder, options, {"PYTHONPATH": package}).variables,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    releases = {"python": platform.python_version(), "kernel": platform.release()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            releases[name] = version(name)
    return releases


def _check_libraries() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"models need {' and '.join(missing)}; PyTorch's CPU build will do", extra="models")


def check_folder(out: Path) -> None:
    """Raise UsageError where ``out`` holds something else than a sweep."""
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not (out / CELLS).is_dir()):
        raise UsageError(f"{out} is no sweep's folder", remedy="name another with --output")
