"""Jobs that tests record with ``ringwright run``: what they do, how they are started, and how everything of them is ended."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from patience import HANG_S
from ringwright.cli import main

LOOP = """
import os, sys, time, signal
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, steps, what, who = dist.get_rank(), int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
held = torch.ones(1000)
for step in range(steps):
    if step == 5 and rank == who:
        if what == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if what == "stop": os.kill(os.getpid(), signal.SIGSTOP)
        if what == "sleep": time.sleep(1000)
        if what == "leave": sys.exit(0)
        if what == "raise": raise ValueError("on purpose")
        if what == "skip": dist.all_reduce(torch.ones(3)); continue
    dist.broadcast(held, 0)
    dist.all_reduce(held)
    if what == "slow": time.sleep(0.02)
    if step == 4 and rank == 0: open("five", "w").close()
print("sum", held.sum().item())
dist.destroy_process_group()
"""


def environment(**more: str) -> dict[str, str]:
    """Return an environment with the source on the path, one thread a rank, and nothing of a recording around this one."""
    source = str(Path(__file__).parents[1] / "src")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("RINGWRIGHT_", "SLURM_", "NCCL_"))
    }
    return kept | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"} | more


def torchrun(script: Path, *arguments: str, ranks: int = 2, more: Sequence[str] = ()) -> list[str]:
    """Return the command that starts ranks of a script."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        *more,
        str(script),
        *arguments,
    ]


def _hears() -> None:
    """A suite that was started by nohup ignores a signal that these jobs are about."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Job:
    """``ringwright run`` with its job, in a folder; all of it is killed when the block is left."""

    def __init__(
        self, folder: Path, command: Sequence[str], *options: str, out: Path | None = None, **more: str
    ) -> None:
        self.folder, self.out = folder, out or folder / "out"
        self.mark = f"rw{os.getpid()}x{time.monotonic_ns()}"
        words = [
            sys.executable,
            "-m",
            "ringwright",
            "run",
            "--out",
            str(self.out),
            "--nccl",
            "off",
            *options,
            "--",
            *command,
        ]
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment(RW_TEST_MARK=self.mark, **more),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_hears,  # noqa: PLW1509 - one thread
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for pid in self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()

    def ends(self, limit_s: float = HANG_S) -> tuple[int, str, str]:
        """Wait for the end; return exit code, standard output and standard error."""
        out, err = self.process.communicate(timeout=limit_s)
        return self.process.returncode, out, err

    def alive(self) -> list[int]:
        """Return the processes of this job that live, found by its mark in their environment."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if (
                    self.mark.encode() in (path / "environ").read_bytes()
                    and path.joinpath("stat").read_text().rpartition(")")[2][1] != "Z"
                ):
                    found.append(int(path.name))
            except (OSError, IndexError):
                continue
        return found

    def pids(self, *words: str) -> list[int]:
        """Return the processes of this job whose command line has all of some words."""
        lines = {}
        for pid in self.alive():
            try:
                lines[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
        return [pid for pid, line in lines.items() if all(word.encode() in line for word in words)]


@functools.cache
def _import_s() -> float:
    """Return how long the import of the library that each rank begins with takes here and now."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch.distributed"], check=False, timeout=HANG_S)
    return time.monotonic() - begun


def under_way_s(seconds: float) -> str:
    """Return a time-out for ``ringwright run`` that leaves the job ``seconds`` once it is under way, on a machine however busy."""
    return f"{seconds + 12 * _import_s():.0f}s"


def silent_s(seconds: float) -> int:
    """Return after how many seconds without a call a job hangs, and is not only slow, on a machine however busy."""
    return round(seconds + 3 * _import_s())


def wait_for(what: Any, limit_s: float = HANG_S) -> Any:
    """Wait until ``what()`` is true and return it; fail the test beyond the limit."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def summary(folder: Path) -> dict[str, Any]:
    """Return ``ringwright summary DIR --json``, which must exit with 0."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["summary", str(folder), "--json"]) == 0
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def lines(folder: Path, *, torn: bool = False) -> list[Any]:
    """Return the values of all whole lines of a recording's calls files; ``torn``: pass over what is no JSON."""
    found = []
    for path in sorted(folder.glob("calls.*.jsonl")):
        for line in path.read_bytes().split(b"\n")[:-1]:
            try:
                found += [json.loads(line)] if line else []
            except ValueError:
                assert torn, line
    return found


def calls(folder: Path, kind: str = "b") -> int:
    """Return how many calls begin (or end: ``e``) in a recording."""
    return sum(isinstance(value, list) and value[0] == kind for value in lines(folder))
