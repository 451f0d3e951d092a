"""Competing TCP flows: both ends are started when the script's clock starts, and send when their time has come."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any

from ringwright.ground.errors import InfeasibleError
from ringwright_lab.network.namespaces import PROGRAMS, Inside
from ringwright_lab.network.script import Flow
from ringwright_lab.network.spec import address

FIRST_PORT = 45_000


class RunningFlow:
    """Two processes joined by one TCP connection, silent until ``begin``."""

    def __init__(self, flow: Flow, number: int, inside: list[Inside]) -> None:
        port, where = str(FIRST_PORT + number), address(flow.dst)
        self._sink = _start(inside[flow.dst], ["sink", where, port])
        self._sender = _start(inside[flow.src], ["send", where, port, repr(flow.rate)])
        self._wait_for(self._sender, flow)

    @staticmethod
    def _wait_for(process: subprocess.Popen[str], flow: Flow) -> None:
        if process.stdout is None or process.stdout.readline().strip() != "ready":
            raise InfeasibleError("a competing flow does not start", where=f"fault '{flow.text}'")

    def begin(self) -> None:
        """Send."""
        if self._sender.stdin is not None:
            with suppress(OSError):
                self._sender.stdin.write("go\n")
                self._sender.stdin.flush()

    def end(self) -> None:
        """Stop sending, at once: what the sender's kernel still holds is dropped with its process."""
        for process in (self._sender, self._sink):
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


def _start(inside: Inside, words: list[str]) -> subprocess.Popen[str]:
    command = [*inside.command, sys.executable, "-I", "-S", str(PROGRAMS / "traffic.py"), *words]
    options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, text=True, start_new_session=True, **options)
    if words[0] == "sink" and process.stdout is not None and process.stdout.readline().strip() != "ready":
        raise InfeasibleError(f"nothing listens in {inside.name}", where="a competing flow's end")
    return process
