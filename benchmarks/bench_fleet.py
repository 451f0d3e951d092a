"""A server with many jobs: its first table, its second start, and its memory before and after all pages were asked.

    python benchmarks/bench_fleet.py --jobs 2000

Jobs are drawn as the laboratory draws them, twenty recordings of each, of which two are made and the others copies of those with
a time of their own. Prints one line a figure. Times are of this machine with whatever else it does; memory is
the server's own (VmRSS), without the processes that read.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

RUNS, MADE = 20, 2  # of each name; of these so many are made, the others are copies
OPENED = 100  # jobs that are looked at


def made(folder: Path, jobs: int) -> None:
    """Write so many recordings."""
    from ringwright_lab.testing.drawn_jobs import drawn, recorded

    for name in range(-(-jobs // RUNS)):
        job = drawn(name)
        for run in range(min(RUNS, jobs - name * RUNS)):
            target = folder / f"job-{name}-run-{run}"
            if run < MADE:
                recorded(job, job.workload, run).save(target)
            else:
                shutil.copytree(folder / f"job-{name}-run-{run % MADE}", target)
            for path in target.iterdir():
                os.utime(path, (1.76e9 + 86400 * run, 1.76e9 + 86400 * run))


class Server:
    """A server as a process, and requests to it."""

    def __init__(self, keep: Path, folder: Path) -> None:
        words = [sys.executable, "-m", "ringwright", "serve", str(folder), "--port", "0", "--json", "--keep", str(keep)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]

    def ask(self, path: str, body: object = None) -> bytes:
        """Return the body of an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url.rstrip("/") + path, data, {"content-type": "application/json"})
        with urlopen(request, timeout=600) as answer:
            return bytes(answer.read())

    def until_read(self, jobs: int) -> list[dict[str, object]]:
        """Return the rows once all jobs are read and compared."""
        while True:
            rows = json.loads(self.ask("/fleet.json"))["rows"]
            told = json.loads(self.ask("/api/state"))["fleet"]["told"]
            if len(rows) == jobs and not told:
                return list(rows)
            time.sleep(0.5)

    def memory(self) -> str:
        """Return what the server holds now, and has held at most."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        now, most = (
            next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key)) for key in ("VmRSS", "VmHWM")
        )
        return f"{now:.0f} MiB, at most {most:.0f}"

    def end(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(60)


def told(what: str, value: object) -> None:
    """Print one figure."""
    print(f"{what:<44}{value}", flush=True)


def asked(server: Server, rows: list[dict[str, object]]) -> None:
    """Ask for the table, every history, every name's address, and open jobs, each once."""
    began = time.perf_counter()
    for _ in range(50):
        server.ask("/fleet.json")
    told("the table, mean of 50", f"{(time.perf_counter() - began) / 50 * 1e3:.0f} ms")
    names = sorted({str(row["name"]) for row in rows})
    for name in names:
        server.ask(f"/fleet.json?name={quote(name)}")
        server.ask(f"/job/{quote(name, safe='')}?at=1760000000000")
    told("memory after the table and every history", server.memory())
    for row in rows[:OPENED]:
        identity = json.loads(server.ask("/api/jobs", {"path": row["path"]}))["id"]
        while True:
            state = json.loads(server.ask("/api/state"))
            if next(job["state"] for job in state["jobs"] if job["id"] == identity) in ("done", "failed"):
                break
            time.sleep(0.1)
        server.ask(f"/jobs/{identity}/report")
        server.ask(f"/api/jobs/{identity}/timeline")
    told(f"memory after {min(OPENED, len(rows))} jobs were opened", server.memory())
    told("jobs that are kept", len(json.loads(server.ask("/api/state"))["jobs"]))


def main() -> None:
    """Make the jobs and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2000)
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as name:
        folder, keep = Path(name) / "jobs", Path(name) / "keep"
        folder.mkdir()
        made(folder, jobs)
        began = time.perf_counter()
        server = Server(keep, folder)
        told("answers / after", f"{time.perf_counter() - began:.1f} s")
        told("memory at the beginning", server.memory())
        server.until_read(jobs)
        told(f"{jobs:,} jobs read and compared after", f"{time.perf_counter() - began:.1f} s")
        told("memory then", server.memory())
        server.end()
        began = time.perf_counter()
        server = Server(keep, folder)
        rows = json.loads(server.ask("/fleet.json"))["rows"]
        told(f"second start: the table of {len(rows):,} after", f"{time.perf_counter() - began:.1f} s")
        server.until_read(jobs)
        told("second start: looked through after", f"{time.perf_counter() - began:.1f} s")
        copied = folder / "job-0-run-99"
        shutil.copytree(folder / "job-0-run-0", copied)
        began = time.perf_counter()
        rows = server.until_read(jobs + 1)
        told("a new job is in the table after", f"{time.perf_counter() - began:.1f} s")
        told("memory of the second server", server.memory())
        asked(server, rows)
        server.end()


if __name__ == "__main__":
    main()
