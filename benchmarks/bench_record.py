"""What recording costs a real training step: steps of one job with and without the recorder in turns, wall and CPU time.

    python benchmarks/bench_record.py [--pairs 120] [--source calls,again,no-layers,flight,profile] [--model resnet-18,llama]

Two jobs of one program differ by several per cent in what a step takes (where their pages lie, which core a thread came to), far
more than recording costs. So each job is its own comparison: its ranks take everything out that the recorder put in (kernels,
module calls, waits, backward, optimiser hooks), make some steps, put it back, and make as many. Such a pair gives a ratio of wall
time of a median step (the slowest rank's) and one of CPU time (all ranks', all threads'); which comes first alternates by job.
Shown are the ratio and the difference with 95 % intervals: Hodges and Lehmann's estimate with Wilcoxon's signed ranks, since the
noise of shared machines comes in bursts. "again" puts nothing in: what the instrument shows where there is nothing. Ranks are
forked from one process that has loaded PyTorch, and each has a core of its own where there are enough.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ringwright.capture.settings import Options, settings
from ringwright_lab.models.worker import preload
from ringwright_lab.sweep.point import GridPoint
from ringwright_lab.sweep.program import told

Pair = tuple[tuple[float, float], tuple[float, float]]  # (wall, CPU) seconds of a step without the recorder and with it
WARM, BLOCK = 4, 3  # steps before the first pair; steps of each half of a pair that count, after one that does not
JOB_PAIRS = 60
TINY = "layers=6,hidden=384,intermediate=1024,heads=6,kv_heads=6,head=64,vocabulary=8192"
CELLS = {
    "resnet-18": GridPoint("resnet", "resnet-18", dims="image=64,classes=200", parallel="ddp:dp=2", batch=16),
    "resnet-18-short": GridPoint("resnet", "resnet-18", dims="image=32,classes=10", parallel="ddp:dp=2", batch=8),
    # As many modules, and with this bucket as many calls, as ResNet-18: the milliseconds alone.
    "resnet-thin": GridPoint("resnet", "tiny", parallel="ddp:dp=2", batch=2, bucket_cap_mb=1.0),
    "llama": GridPoint("llama", dims=TINY, parallel="ddp:dp=2", batch=2, sequence=128),
    "llama-fsdp": GridPoint("llama", dims=TINY, parallel="fsdp:dp=2", batch=2, sequence=128),
    "llama-tp": GridPoint("llama", dims=TINY, parallel="tp:tp=2", batch=4, sequence=128),
}
SOURCES = {
    "calls": Options(nccl="off"),
    "again": Options(nccl="off"),
    "no-layers": Options(nccl="off", layers=False),
    "flight": Options(nccl="off", flight=True),
    "profile": Options(nccl="off", profile=(WARM, 100_000)),
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


class Switch:
    """Takes the recorder out of a rank and puts it back. Made before the process has a group, and so a recorder."""

    def __init__(self) -> None:
        import torch
        from torch._C._distributed_c10d import Work
        from torch.optim import optimizer

        self._places = [(torch.nn.Module, "_call_impl"), (Work, "wait"), (torch.autograd, "backward")]
        self._hooks = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
        self._plain = self._look()
        self._recorded: list[Any] = []

    def _look(self) -> list[Any]:
        return [getattr(*place) for place in self._places] + [dict(hooks) for hooks in self._hooks]

    def _put(self, found: list[Any]) -> None:
        for place, value in zip(self._places, found, strict=False):
            setattr(*place, value)
        for hooks, value in zip(self._hooks, found[len(self._places) :], strict=True):
            hooks.clear()
            hooks.update(value)

    def turn(self, *, on: bool) -> None:
        """Have the recorder in the process, or not."""
        import torch
        from ringwright_recorder import torch_job  # what the recorder is called inside a job

        job = torch_job._state["job"]
        self._recorded = self._recorded or self._look()
        if on:
            self._put(self._recorded)
            job._step_in(torch)
            return
        self._put(self._plain)
        job._library._destroy()
        if job._functional is not None:
            job._functional._destroy()
            job._functional = None


class Pace:
    """What a rank does before each step: it notes time and CPU time, and turns the recorder on or off where a half begins."""

    def __init__(self, pairs: int, first: bool, turn: Callable[[bool], None]) -> None:
        self._turn = turn
        self._is_on = [half % 2 == (0 if first else 1) for half in range(2 * pairs)]
        self._begun = (0.0, 0.0)
        self.found: list[tuple[bool, list[tuple[float, ...]]]] = []  # with the recorder?, and (wall, CPU) of each step

    def __call__(self, _spec: object, step: int) -> None:
        half, place = divmod(step - WARM, 1 + BLOCK)
        if (half > 0 and place == 0) or (half >= 0 and place > 1):
            self.found[-1][1].append(tuple(now - begun for now, begun in zip(stamp(), self._begun, strict=True)))
        if half >= 0 and place == 0 and half < len(self._is_on):
            self._turn(self._is_on[half])
            self.found.append((self._is_on[half], []))
        self._begun = stamp()


def stamp() -> tuple[float, float]:
    use = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), use.ru_utime + use.ru_stime


def rank(point: GridPoint, number: int, source: str, pairs: int, *, first: bool, folder: Path) -> None:
    """Be one rank of a job, and leave its times in a file."""
    if (os.cpu_count() or 1) >= point.ranks:
        os.sched_setaffinity(0, {number})
    os.environ.update(settings(folder, SOURCES[source], {}).variables)
    os.environ.update(RANK=str(number), WORLD_SIZE=str(point.ranks), LOCAL_RANK=str(number))
    for file in (1, 2):
        os.dup2(os.open(folder / f"rank-{number}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), file)
    from torch import distributed

    from ringwright_lab.models import job, loop

    switch = Switch()

    def turn(is_on: bool) -> None:
        switch.turn(on=is_on and source != "again")
        distributed.barrier()

    loop.announce = pace = Pace(pairs, first, turn)  # called before each step
    steps = WARM + 2 * pairs * (1 + BLOCK) + 1
    given = {**told(replace(point, steps=steps)), "store": str(folder / "store"), "out": str(folder)}
    code = job.main([json.dumps(given)])
    (folder / f"pace-{number}.json").write_text(json.dumps(pace.found))
    sys.exit(code)


def ran(point: GridPoint, source: str, pairs: int, *, first: bool) -> list[Pair]:
    """Run one job; return per pair (wall, CPU) seconds of a step without the recorder and with it."""
    folder = Path(tempfile.mkdtemp())  # no context manager: ranks leave by way of it too
    children = []
    for number in range(point.ranks):
        children.append(os.fork())
        if not children[-1]:
            rank(point, number, source, pairs, first=first, folder=folder)
    for child in children:
        if os.waitpid(child, 0)[1]:
            raise SystemExit(" | ".join(path.read_text()[-800:] for path in sorted(folder.glob("*.err"))))
    paces = [json.loads((folder / f"pace-{number}.json").read_text()) for number in range(point.ranks)]
    shutil.rmtree(folder)
    halves = []
    for each in zip(*paces, strict=True):  # one half, on all ranks
        steps = [tuple(zip(*step, strict=True)) for step in zip(*(times for _, times in each), strict=True)]
        wall_s, cpu_s = (statistics.median(of(step[what]) for step in steps) for what, of in ((0, max), (1, sum)))
        halves.append((each[0][0], wall_s, cpu_s))
    pairs_found = []
    for one, other in zip(halves[::2], halves[1::2], strict=True):
        plain, recorded = (other, one) if one[0] else (one, other)
        pairs_found.append((plain[1:], recorded[1:]))
    return pairs_found


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of the means of all pairs of values, with its 95 % interval."""
    found = np.asarray(values)
    rows, columns = np.triu_indices(len(found))
    means = np.sort((found[rows] + found[columns]) / 2)
    n = len(found)
    out = max(0, int(n * (n + 1) / 4 - 1.96 * np.sqrt(n * (n + 1) * (2 * n + 1) / 24)))
    return float(np.median(means)), float(means[out]), float(means[-1 - out])


def measure(name: str, source: str, pairs: int, raw: Path | None) -> str:
    found: list[Pair] = []
    while len(found) < pairs:
        found += ran(CELLS[name], source, min(JOB_PAIRS, pairs - len(found)), first=len(found) // JOB_PAIRS % 2 == 0)
    if raw is not None:
        with raw.open("a") as file:
            file.write(json.dumps({"model": name, "source": source, "pairs": found}) + "\n")
    words = [f"{name:15} {source:9} {pairs:5} {statistics.median(plain[0] for plain, _ in found) * 1e3:8.1f}"]
    for what in (0, 1):
        ratio, low, high = np.exp(middle([math.log(recorded[what] / plain[what]) for plain, recorded in found]))
        more, least, most = (each * 1e3 for each in middle([recorded[what] - plain[what] for plain, recorded in found]))
        words.append(f"{ratio:.4f} ({low:.4f} to {high:.4f})  {more:+6.2f} ({least:+.2f} to {most:+.2f})")
    return "  ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=120)
    parser.add_argument("--source", default="calls,again")
    parser.add_argument("--model", default="resnet-18,llama")
    parser.add_argument("--raw", type=Path, help="a file that takes each pair's times")
    given = parser.parse_args()
    if "RINGWRIGHT_CAPTURE" not in os.environ:  # the recorder stands ready only where Python began with it
        ready = settings(Path.cwd(), SOURCES["calls"], os.environ).variables
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ready, **ONE_THREAD})
    preload()
    print(
        "model      source    pairs plain ms  wall ratio (95 %)          ms    CPU ratio (95 %)           ms",
        flush=True,
    )
    for name in given.model.split(","):
        for source in given.source.split(","):
            print(measure(name, source, given.pairs, given.raw), flush=True)


if __name__ == "__main__":
    main()
