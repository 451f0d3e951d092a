"""Ranks of PyTorch as forks of one process that has loaded it, where a test is not about how a rank's program starts.

``Nursery`` starts that process (this file as a program). ``Forks`` stands where the product says ``subprocess``: a command of a
rank's module, at a place in the lab too, becomes a fork, anything else a process as ever.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ringwright_lab.network import enter

LOADED = ("torch.distributed", "torch._dynamo", "ringwright.execute.rank")  # optimisers need the second
MOST_BYTES = 1 << 17  # of a request: mostly an environment


class Nursery:
    """The process that forks; it ends, and its forks with it, when this one does."""

    def __init__(self) -> None:
        self._asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for each in (self._asked, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MOST_BYTES)
        paths = os.pathsep.join(dict.fromkeys(filter(None, sys.path)))
        mine = {name: of for name, of in os.environ.items() if name != "TMPDIR"}  # one test's; PyTorch writes there
        environment = {**mine, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        argv = [sys.executable, __file__, str(theirs.fileno())]
        self._process = subprocess.Popen(argv, env=environment, cwd="/", pass_fds=[theirs.fileno()])
        theirs.close()
        atexit.register(self.close)

    def ask(self, question: Mapping[str, object], *handed: int) -> Any:
        """Return what it answers; ``handed``: the files that a fork writes to."""
        socket.send_fds(self._asked, [json.dumps(question).encode()], handed)
        answer = self._asked.recv(MOST_BYTES)
        assert answer, "the process that forks ranks has ended"
        return json.loads(answer)

    def close(self) -> None:
        self._asked.close()
        self._process.wait()


@functools.cache
def nursery() -> Nursery:
    return Nursery()


class Fork:
    """A fork, asked what a ``subprocess.Popen`` is asked."""

    def __init__(self, question: Mapping[str, object], out: int, errors: int) -> None:
        self.returncode: int | None = None
        self.pid = int(nursery().ask(question, out, errors))

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = nursery().ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until_s = time.monotonic() + (float("inf") if timeout is None else timeout)
        while self.poll() is None:
            if time.monotonic() > until_s:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode


class Forks:
    """What the product uses of ``subprocess``, its ranks' processes forked."""

    DEVNULL, TimeoutExpired = subprocess.DEVNULL, subprocess.TimeoutExpired

    @staticmethod
    def Popen(argv: Sequence[str], **how: Any) -> Any:  # noqa: N802 (its name there)
        python = [at for at, word in enumerate(argv) if word == sys.executable and argv[at + 1] == "-m"]
        within = argv[: python[0]] if python else argv
        if not python or (within and [Path(each).name for each in within[-4:-3]] != ["enter.py"]):
            return subprocess.Popen(argv, **how)
        assert how["start_new_session"]
        _, _, module, *words = argv[python[0] :]
        question = {"module": module, "words": words, "environment": dict(how["env"]), "within": list(within[-3:])}
        question["folder"] = str(Path.cwd())
        return Fork(question, how["stdout"].fileno(), how["stderr"].fileno())


def main() -> int:
    """Fork on request until the other end of the socket is closed."""
    for each in LOADED:
        with contextlib.suppress(ImportError):  # where PyTorch is absent the others are forks all the same
            importlib.import_module(each)
    gc.freeze()  # a search for garbage would copy all of it into every fork
    asked = socket.socket(fileno=int(sys.argv[1]))
    while True:
        text, handed, *_ = socket.recv_fds(asked, MOST_BYTES, 2)
        if not text:
            return 0
        question = json.loads(text)
        answer = forked(asked, question, handed) if handed else ended(question["ended"])
        asked.send(json.dumps(answer).encode())


def ended(pid: int) -> int | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def forked(asked: socket.socket, question: dict[str, Any], handed: list[int]) -> int:
    """Return the number of a new process, which leads a session of its own by now."""
    importlib.import_module(question["module"])  # so that what it imports is loaded once
    ready, leads = os.pipe()
    pid = os.fork()
    if not pid:
        asked.close()
        os.setsid()
        enter.libc.prctl(enter.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(ready)
        os.close(leads)
        be(question, handed)
    os.close(leads)
    os.read(ready, 1)
    for each in (ready, *handed):
        os.close(each)
    return pid


def be(question: dict[str, Any], handed: list[int]) -> NoReturn:
    """Be the rank, or the parent of one that lives in the lab; end as it ends."""
    for number, at in zip(handed, (1, 2), strict=True):
        os.dup2(number, at)
        os.close(number)
    os.environ.clear()
    os.environ.update(question["environment"])
    os.chdir(question["folder"])
    sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each not in sys.path]
    if question["within"]:
        holder, user, folder = question["within"]
        enter.enter(holder, user=user == "1")
        child = os.fork()
        if child:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code < 0:
                os.kill(os.getpid(), -code)
            os._exit(code)
        enter.libc.prctl(enter.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.chdir(folder)
    sys.argv = [question["module"], *question["words"]]
    os._exit(ran(question["module"]))


def ran(module: str) -> int:
    """Run a module as a program and return its exit code."""
    code: Any = 0
    try:
        warnings.filterwarnings("ignore", message=".*found in sys.modules after import of package")
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as left:
        code = left.code
    except BaseException:  # noqa: BLE001 - as a program ends then
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return int(code or 0)


if __name__ == "__main__":
    sys.exit(main())
