"""Commands that a server runs: so many at once, the others wait; each can be cancelled and ends with the server.

A command is a process of its own: what it needs of memory and time is not the server's, an answer is what a terminal would get,
and a bug in it ends nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ringwright.ground import invocation
from ringwright.ground.errors import UsageError
from ringwright.reports.serve.workspace import Workspace

AT_ONCE = 2
MOST_WAITING = 32
PATIENCE_S = 5.0  # between asking a command to end and ending it
MOST_KEPT = 1 << 20  # bytes of stderr
OFTEN_S = 0.25  # between two signs of life that are passed on
_DIES_WITH_PARENT = 1
_TOLD = "ringwright: "


class Commands:
    """The processes. ``changed`` is called whenever something is worth a look.

    Parameters
    ----------
    workspace
        Where records and answers are kept.
    changed
        Called without arguments.
    at_once
        Commands that run at the same time.
    """

    def __init__(self, workspace: Workspace, changed: Callable[[], None], at_once: int = AT_ONCE) -> None:
        self._workspace, self._changed = workspace, changed
        self._free = asyncio.Semaphore(at_once)
        self._tasks: dict[str, asyncio.Task[int]] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._cancelled: set[str] = set()

    def begin(self, name: str, words: Sequence[str], folder: Path, told: Callable[[str], None]) -> asyncio.Task[int]:
        """Run ``python -m WORDS`` in a folder when its turn has come; ``told`` gets its signs of life.

        The task's result is the exit code, negative for the signal that ended it. Raises UsageError where too many wait.
        """
        if len(self._tasks) >= MOST_WAITING:
            raise UsageError(f"{MOST_WAITING} commands wait already", remedy="cancel one, or wait until some are done")
        task = asyncio.create_task(self._run(name, words, folder, told))
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))
        return task

    def is_known(self, name: str) -> bool:
        """Whether a command waits or runs."""
        return name in self._tasks

    def was_cancelled(self, name: str) -> bool:
        """Whether a command ended because somebody asked for it; told once."""
        cancelled = name in self._cancelled
        self._cancelled.discard(name)
        return cancelled

    async def cancel(self, name: str) -> None:
        """Ask a command to end, and end it where it does not."""
        if name not in self._tasks:
            return
        self._cancelled.add(name)
        process = self._processes.get(name)
        if process is None:
            self._tasks[name].cancel()
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            _signal(process, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), PATIENCE_S)
                return

    async def close(self) -> None:
        """End all of them; what was running is told as interrupted."""
        tasks = list(self._tasks.values())
        for process in self._processes.values():
            _signal(process, signal.SIGKILL)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workspace.interrupt()

    async def _run(self, name: str, words: Sequence[str], folder: Path, told: Callable[[str], None]) -> int:
        async with self._free:
            told("")
            with (folder / "out.txt").open("wb") as out:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    *words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=asyncio.subprocess.PIPE,
                    cwd=folder,
                    env=_environment(),
                    start_new_session=True,
                    preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                    limit=MOST_KEPT,
                )
            self._processes[name] = process
            try:
                if process.stderr is not None:
                    await _listen(process.stderr, folder / "err.txt", told)
                return await process.wait()
            finally:
                _signal(process, signal.SIGKILL)
                # Until it is gone its pipe is open, also where this task is being cancelled.
                await process.wait()
                self._processes.pop(name, None)


async def _listen(spoken: asyncio.StreamReader, errors: Path, told: Callable[[str], None]) -> None:
    """Keep what a command says on stderr, and pass its last line on at most a few times a second."""
    kept, last_s = 0, 0.0
    with errors.open("wb") as file:
        while True:
            try:
                line = await spoken.readline()
            except ValueError:  # a line longer than any of ours
                continue
            if not line:
                return
            if kept < MOST_KEPT:
                file.write(line)
                file.flush()
                kept += len(line)
            if time.monotonic() - last_s > OFTEN_S:
                last_s = time.monotonic()
                told(line.decode(errors="replace").strip().removeprefix(_TOLD)[:300])


def _environment() -> dict[str, str]:
    """Return what a command sees of our environment: text as wide as a page shows, and commands named as they are typed."""
    return {
        **os.environ,
        "COLUMNS": "120",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        invocation.TOLD_BY_SCRIPT: invocation.NAME,
    }


def _end_with_parent() -> None:
    """Have the kernel end this process when the server is killed: nobody would want its answer."""
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGTERM)


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
