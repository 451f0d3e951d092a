"""A server with a large job: reading once, the first picture, pans, a hundred viewers, and its memory.

    python benchmarks/bench_serve.py                        # a million events of 64 ranks
    python benchmarks/bench_serve.py --events 10000000 --ranks 1024
    python benchmarks/bench_serve.py --recording FILE       # one of your own
    python benchmarks/bench_serve.py --browser              # the first picture and pans in headless Chromium too

Prints one line a figure. Times are of this machine with whatever else it does; memory is the server's own, in MiB.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

VIEWERS = 100
PANS = 200


def made(folder: Path, events: int, ranks: int) -> Path:
    """Write a Trace of so many events: on each rank calls and kernels that alternate, with gaps."""
    import numpy as np
    import polars as pl

    from ringwright.model.trace import Trace

    each = events // ranks
    number = np.arange(ranks * each)
    rank, place = number // each, number % each
    is_call = place % 2 == 0
    generator = np.random.default_rng(1)
    frame = pl.DataFrame(
        {
            "kind": pl.Series(np.where(is_call, "collective", "compute")),
            "op": pl.Series(np.where(is_call, np.where(place % 4 == 0, "all-reduce", "all-gather"), "")).replace(
                "", None
            ),
            "kernel": pl.Series(np.where(is_call, "", "gemm_kernel")).replace("", None),
            "rank": pl.Series(rank.astype(np.int32)),
            "communicator": pl.Series(np.where(is_call, 0, -1)).cast(pl.Int32).replace(-1, None),
            "sequence": pl.Series(np.where(is_call, place // 2, -1)).replace(-1, None),
            "size_bytes": pl.Series(np.where(is_call, 1 << 20, -1)).replace(-1, None),
            "start_s": pl.Series(place * 100e-6 + generator.uniform(0, 20e-6, len(number))),
            "duration_s": pl.Series(generator.uniform(20e-6, 75e-6, len(number))),
            "multiplicity": pl.Series(np.ones(len(number), np.int64)),
        }
    ).with_columns(pl.lit("one").alias("clock"))
    return Trace.of({"events": frame}, {"source": "kineto", "world": ranks}).save(folder / "trace")


class Server:
    """A server as a process, and requests to it."""

    def __init__(self, keep: Path, *paths: str) -> None:
        command = [sys.executable, "-m", "ringwright", "serve", *paths, "--port", "0", "--json", "--keep", str(keep)]
        began = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]
        self.ask("/")
        told("answers / after", f"{time.perf_counter() - began:.2f} s")

    def ask(self, path: str) -> bytes:
        """Return the body of an answer."""
        where = urlsplit(self.url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=600)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {body[:300]!r}")
        return body

    def json(self, path: str) -> Any:
        """Return an answer that is an object."""
        return json.loads(self.ask(path))

    def memory_mib(self) -> tuple[float, float]:
        """Return what the server itself holds and its peak, without pages of files that are mapped."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        values = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("RssAnon", "VmHWM"))}
        return int(values["RssAnon"]) / 1024, int(values["VmHWM"]) / 1024


def told(what: str, figure: str) -> None:
    print(f"{what:46} {figure}", flush=True)


def spread(times: list[float]) -> str:
    times.sort()
    most, worst = times[int(0.95 * len(times))], times[-1]
    return f"median {1e3 * statistics.median(times):.1f} ms, 95 % {1e3 * most:.1f} ms, worst {1e3 * worst:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--recording", type=Path)
    parser.add_argument("--browser", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-serve-") as folder:
        where = Path(folder)
        path = given.recording or made(where, given.events, given.ranks)
        size = sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
        told("recording", f"{path.name}, {size / 1e6:,.0f} MB")
        measure(where, path, browser=given.browser)


def measure(where: Path, path: Path, *, browser: bool) -> None:
    """Print every figure of one recording."""
    began = time.perf_counter()
    server = Server(where / "keep", str(path))
    try:
        while (job := server.json("/api/state")["jobs"][0])["state"] in ("waiting", "running"):
            time.sleep(0.1)
        if job["state"] != "done":
            raise SystemExit(job["told"])
        told("read once", f"{time.perf_counter() - began:.1f} s")
        levels = where / "keep" / "jobs" / job["id"] / "timeline"
        told("timeline on disk", f"{sum(file.stat().st_size for file in levels.iterdir()) / 1e6:,.0f} MB")
        told("memory before the first look", f"{server.memory_mib()[0]:.0f} MiB")
        began = time.perf_counter()
        meta = server.json(f"/api/jobs/{job['id']}/timeline")
        many = min(len(meta["rows"]), 40)
        first = server.ask(f"/api/jobs/{job['id']}/view?from=0&to={meta['end_us']}&rows=0-{many - 1}&pixels=2400")
        told(
            "first picture, without the browser",
            f"{1e3 * (time.perf_counter() - began):.0f} ms, {len(first) / 1e3:,.0f} kB",
        )
        told("events and rows", f"{meta['events']:,} in {len(meta['rows']):,}")
        random_ = random.Random(1)
        times, largest = [], 0
        for _ in range(PANS):
            span = meta["end_us"] * 10 ** random_.uniform(-5, 0)
            begin = random_.uniform(0, meta["end_us"] - span)
            row = random_.randrange(max(len(meta["rows"]) - many, 1))
            began = time.perf_counter()
            query = f"from={begin}&to={begin + span}&rows={row}-{row + many - 1}&pixels=2400"
            largest = max(largest, len(server.ask(f"/api/jobs/{job['id']}/view?{query}")))
            times.append(time.perf_counter() - began)
        told(f"{PANS} pans, any zoom and rows", f"{spread(times)}; at most {largest / 1e3:,.0f} kB")
        told("memory after them, and its peak", "{:.0f} and {:.0f} MiB".format(*server.memory_mib()))
        times = []

        def look(number: int) -> None:
            began = time.perf_counter()
            begin = meta["end_us"] * (number % VIEWERS) / VIEWERS
            server.ask(
                f"/api/jobs/{job['id']}/view?from={begin}&to={begin + meta['end_us'] / VIEWERS}&rows=0-{many - 1}"
            )
            server.ask("/api/state")
            times.append(time.perf_counter() - began)

        began = time.perf_counter()
        with ThreadPoolExecutor(VIEWERS) as viewers:
            list(viewers.map(look, range(10 * VIEWERS)))
        told(
            f"{VIEWERS} viewers at once, {10 * VIEWERS} looks", f"{time.perf_counter() - began:.1f} s; {spread(times)}"
        )
        told("memory after them, and its peak", "{:.0f} and {:.0f} MiB".format(*server.memory_mib()))
        if browser:
            in_browser(f"{server.url}#job={job['id']}&tab=timeline")
    finally:
        server.process.terminate()
        server.process.wait()


def in_browser(address: str) -> None:
    """Print what a person waits for: the first picture, then pans and zooms until their picture is there."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        began = time.perf_counter()
        page.goto(address)
        page.wait_for_selector(".timeline[data-drawn]")
        told("first picture in Chromium", f"{time.perf_counter() - began:.2f} s")
        page.focus(".track-view")
        times, painted = [], []
        for key in ["+"] * 8 + ["ArrowRight"] * 12 + ["-"] * 8:
            # From the key to the next frame, which moves what is there, and to the answer of the server.
            page.evaluate(
                "() => { delete document.querySelector('.timeline').dataset.drawn; window.keyed = performance.now(); }"
            )
            page.keyboard.press(key)
            painted.append(
                page.evaluate(
                    "() => new Promise((done) => requestAnimationFrame(() => done((performance.now() - window.keyed) / 1e3)))"
                )
            )
            page.wait_for_selector(".timeline[data-drawn]")
            times.append(page.evaluate("() => (performance.now() - window.keyed) / 1e3"))
        told("a pan or zoom: to the next frame", spread(painted))
        told("a pan or zoom: to the server's answer", spread(times))
        heap = page.evaluate("() => performance.memory ? performance.memory.usedJSHeapSize / 1048576 : 0")
        told("memory of the page's script", f"{heap:.0f} MiB")
        browser.close()


if __name__ == "__main__":
    main()
