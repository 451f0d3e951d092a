"""Ranks as processes of their own: a module of the package run once a rank, here or at places, ended after a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ringwright.execute.rank_host import Place
from ringwright.ground.errors import RanksFailedError


def run_ranks(module: str, folder: Path, places: Sequence[Place], timeout_s: float) -> None:
    """Run ``python -m MODULE FOLDER RANK`` at each place and wait; RanksFailedError with their last words where one fails.

    However they end, or do not, they are ended after ``timeout_s`` seconds.
    """
    started: list[subprocess.Popen[bytes]] = []
    with (folder / "errors").open("wb") as errors:
        try:
            started.extend(_start(module, folder, at, errors) for at in places)
            codes = _ends(started, timeout_s)
        finally:
            for each in started:
                if each.poll() is None:
                    os.killpg(each.pid, signal.SIGKILL)
                each.wait()
    if any(codes):
        said = (folder / "errors").read_text("utf-8", "replace").strip().splitlines()[-15:]
        raise RanksFailedError(
            "\n".join([f"ranks ended with {codes}", *said]), remedy="a larger timeout_s, if they were only slow"
        )


def _start(module: str, folder: Path, at: Place, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    package = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(dict.fromkeys([package, *sys.path]))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    argv = [*at.command, sys.executable, "-m", module, str(folder), str(at.rank)]
    if at.command:
        environment["GLOO_SOCKET_IFNAME"] = at.interface
    return subprocess.Popen(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
    )


def _ends(started: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> list[int | None]:
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s and any(each.poll() is None for each in started):
        time.sleep(0.05)
    return [each.poll() if each.poll() is not None else -1 for each in started]
