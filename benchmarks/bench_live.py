#!/usr/bin/env python3
"""Follow a log that grows at a steady rate: how far ``ringwright live`` is behind it, at what cost in CPU and memory.

A process of its own writes clean lines of eight ranks, a new operation each; the follower looks as the verb does. *Lag* is the
age of the newest call that a look shows, at the moment when it is shown; until the next look it grows by the pause between them.
Usage: ``python benchmarks/bench_live.py [--rate 50] [--seconds 30] [--interval 2] [--ranks 8] [--folder DIR]``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

LINE = (
    "node001:{pid}:{tid} [{gpu}] NCCL INFO AllReduce: opCount {zero} sendbuff 0x7f0000000000 recvbuff 0x7f0000100000 "
    "count 4194304 datatype 7 op 0 root 0 comm 0x5600000000{gpu:02x} [nranks={ranks}] stream 0x5500000000\n"
)
INIT = (
    "node001:{pid}:{tid} [{gpu}] NCCL INFO comm 0x5600000000{gpu:02x} rank {gpu} nranks {ranks} cudaDev {gpu} "
    "busId {gpu:x}000 commId 0xabc - Init COMPLETE\n"
)
ZERO = "00000000"
OPERATIONS = 256  # of a block


def blocks(ranks: int) -> Any:
    """Yield blocks of lines for ever: all ranks make the same operations, numbered on."""
    who = [{"pid": 1000 + gpu, "tid": 2000 + gpu, "gpu": gpu, "ranks": ranks, "zero": ZERO} for gpu in range(ranks)]
    yield "".join(INIT.format(**each) for each in who).encode()
    text = "".join(LINE.format(**each) for each in who) * OPERATIONS
    data = np.frombuffer(text.encode(), np.uint8).copy()
    starts = np.array([at + len("opCount ") for at in _places(text, "opCount ")])
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    number = np.repeat(np.arange(OPERATIONS), ranks)
    while True:
        for digit in range(len(ZERO)):
            data[starts + digit] = digits[number >> 4 * (len(ZERO) - 1 - digit) & 15]
        number += OPERATIONS
        yield data.tobytes()


def _places(text: str, word: str) -> list[int]:
    places, at = [], text.find(word)
    while at >= 0:
        places.append(at)
        at = text.find(word, at + 1)
    return places


def write(path: str, rate: float, seconds: float, ranks: int, written: Any, times: Any) -> None:
    """Write at ``rate`` bytes a second; note when each block was written."""
    begin, total = time.monotonic(), 0
    with Path(path).open("ab", buffering=0) as out:
        for number, block in enumerate(blocks(ranks)):
            due = begin + total / rate
            if due > begin + seconds or number >= len(times):
                return
            time.sleep(max(0.0, due - time.monotonic()))
            out.write(block)
            total += len(block)
            times[number] = time.monotonic()
            written.value = number + 1


def resident_mib() -> float:
    """Return the memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Write and follow; print a row per look, then the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0, help="MB/s")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--folder", help="where the log is written; a temporary folder if left out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        follow_it(Path(folder) / "nccl.log", asked)


def follow_it(log: Path, asked: argparse.Namespace) -> None:
    """Follow a log while it is written, and a look longer."""
    from ringwright.capture.live.following import Follower, pause_s

    block_bytes = len(next(each for number, each in enumerate(blocks(asked.ranks)) if number))
    most = int(asked.rate * 1e6 * asked.seconds / block_bytes) + 10
    written, times = multiprocessing.Value("q", 0), multiprocessing.Array("d", most, lock=False)
    log.write_bytes(next(blocks(asked.ranks)))
    follower = Follower([str(log)])
    follower.look()
    writer = multiprocessing.get_context("fork").Process(
        target=write, args=(str(log), asked.rate * 1e6, asked.seconds, asked.ranks, written, times)
    )
    writer.start()
    begin, cpu, lags, looks, memory = time.monotonic(), time.process_time(), [], [], []
    print(f"{'s':>6}{'MB':>8}{'calls':>12}{'lag s':>8}{'look s':>8}{'MiB':>7}")
    while True:
        is_over = not writer.is_alive()
        start, start_cpu = time.monotonic(), time.process_time()
        snapshot = follower.look()
        shown = time.monotonic()
        calls = sum(row["count"] for row in snapshot.operations)
        if calls and not is_over:
            newest = min(calls // OPERATIONS, written.value - 1)
            lags.append(shown - times[newest])
            looks.append(shown - start)
            memory.append((shown - begin, resident_mib()))
            size = log.stat().st_size / 1e6
            print(
                f"{shown - begin:>6.1f}{size:>8.0f}{calls:>12,}{lags[-1]:>8.2f}{looks[-1]:>8.2f}{memory[-1][1]:>7.0f}",
                flush=True,
            )
        if is_over and not snapshot.left_bytes:
            break
        if not snapshot.left_bytes:
            time.sleep(pause_s(asked.interval, shown - start, time.process_time() - start_cpu))
    passed, spent = time.monotonic() - begin, time.process_time() - cpu
    expected = (written.value - 1) * OPERATIONS
    third = [mib for at, mib in memory if at > asked.seconds / 3] or [0.0]
    print(f"\n{log.stat().st_size / 1e6:,.0f} MB in {asked.seconds:g} s, {calls:,} calls of {expected:,} written")
    print(f"lag when shown: median {statistics.median(lags):.2f} s, most {max(lags):.2f} s")
    print(f"look: median {statistics.median(looks):.2f} s, most {max(looks):.2f} s, {len(looks)} looks")
    print(
        f"CPU: {spent / passed:.0%} of one core ({spent:.1f} s in {passed:.1f} s), load average {os.getloadavg()[0]:.1f}"
    )
    print(
        f"memory: {third[0]:.0f} MiB after a third of the time, {third[-1]:.0f} MiB at the end, most {max(third):.0f} MiB"
    )
    if calls != expected:
        sys.exit("the calls seen are not those that were written")


if __name__ == "__main__":
    main()
