"""A server as a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from patience import HANG_S

ENDED = ("done", "failed", "cancelled", "interrupted")


@dataclass
class Served:
    """A server that runs; ``url`` has its token where it asks for one."""

    process: subprocess.Popen[str]
    url: str

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request and return status, headers and body of the answer."""
        where = urlsplit(self.url)
        connection = http.client.HTTPConnection("127.0.0.1", where.port or 0, timeout=HANG_S)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, body=data, headers={"Host": where.netloc} | (headers or {}))
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def json(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request that is answered with an object."""
        status, _, data = self.ask(method, path, body)
        assert status == 200, data
        return json.loads(data)

    def until(self, condition: Callable[[Any], Any]) -> Any:
        """Return the state once it meets a condition."""
        end = time.monotonic() + HANG_S
        while time.monotonic() < end:
            state = self.json("GET", "/api/state")
            if condition(state):
                return state
            time.sleep(0.05)
        raise AssertionError(f"never came: {state}")

    def job(self, path: str | Path) -> Any:
        """Open a recording and return its job once it was read, or could not be."""
        name = self.json("POST", "/api/jobs", {"path": str(path)})["id"]
        state = self.until(lambda state: any(job["id"] == name and job["state"] in ENDED for job in state["jobs"]))
        return next(job for job in state["jobs"] if job["id"] == name)

    def answer(self, question: str, jobs: list[str], answers: dict[str, Any]) -> Any:
        """Ask a question and return the run once it has ended."""
        name = self.json("POST", "/api/runs", {"question": question, "jobs": jobs, "answers": answers})["id"]
        self.until(lambda state: any(run["id"] == name and run["state"] in ENDED for run in state["runs"]))
        return self.json("GET", f"/api/runs/{name}")

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(HANG_S)


@contextmanager
def serving(keep: Path, *words: str, home: Path | None = None) -> Iterator[Served]:
    """Run a server on a free port."""
    command = [sys.executable, "-m", "ringwright", "serve", *words, "--port", "0", "--json", "--keep", str(keep)]
    environment = os.environ | ({"HOME": str(home)} if home else {})
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the server ended before it began"
        yield Served(process, json.loads(line)["url"])
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(HANG_S)
        if process.stdout is not None:
            process.stdout.close()
