"""Abuse of the lab: each kind of fault with several seeds, then many runs of which some are killed by -9 at random moments.

scripts/lab-abuse                         every fault with 5 seeds, then 50 runs with 10 killed
scripts/lab-abuse --seeds 1 --runs 5 --kills 2 --rootless

After every run nothing may be left: no process of the lab, no network namespace, no file in the runtime folder, no interface.
A fault counts as shown where the counters or the times of the run tell it from a run without faults. Exit code 1 where one does
not show, where a run fails, or where something is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

FABRIC = "switch:3,rate=20Mb/s"
LIMIT_S = 40.0
GONE_S = 5.0

# Rank 0 sends 1.5 MB to rank 1 in blocks and hears of each; rank 2 ticks. Everything is printed with its time.
RANK = """
import os, socket, sys, time
rank = int(os.environ["RANK"])
began = time.monotonic()
if rank == 0:
    for _ in range(500):
        try:
            peer = socket.create_connection(("10.77.0.2", 6100), timeout=20)
            break
        except OSError:
            time.sleep(0.01)
    for _ in range(30):
        peer.sendall(bytes(50000))
        peer.recv(1)
        print("block", time.monotonic() - began, flush=True)
elif rank == 1:
    server = socket.create_server(("0.0.0.0", 6100))
    peer, _ = server.accept()
    got = 0
    while got < 1500000:
        more = len(peer.recv(1 << 16))
        if not more:
            break
        for _ in range((got + more) // 50000 - got // 50000):
            peer.sendall(b"x")
        got += more
else:
    while time.monotonic() - began < 1.0:
        sum(range(20000))
        time.sleep(0.002)
        print("tick", time.monotonic() - began, flush=True)
print("took", time.monotonic() - began, flush=True)
"""


@dataclass
class Run:
    """What one lab gave: its exit code, its document, what the ranks printed, and what was left behind."""

    code: int
    document: dict[str, Any] = field(default_factory=dict)
    printed: dict[int, list[str]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    wall_s: float = 0.0
    said: str = ""

    def took_s(self, rank: int) -> float:
        """Seconds a rank took by its own clock; no number where it did not end by itself."""
        words = [line.split() for line in self.printed.get(rank, [])]
        return next((float(each[1]) for each in words if each and each[0] == "took"), float("nan"))

    def moments(self, rank: int) -> list[float]:
        """Times of a rank's blocks or ticks."""
        words = [line.split() for line in self.printed.get(rank, [])]
        return [float(each[1]) for each in words if each and each[0] in ("block", "tick")]

    def gap_s(self, rank: int) -> float:
        """Longest time between two of them."""
        found = self.moments(rank)
        return max((b - a for a, b in pairwise(found)), default=0.0)

    def count(self, name: str) -> int:
        """Frames lost, reordered or marked by switches in user space."""
        return sum(counts[name] for counts in self.document.get("switched", {}).values())

    def sent(self, link: str) -> int:
        """Bytes of a link."""
        return next((row["bytes"] for row in self.document.get("totals", []) if row["name"] == link), 0)


HEALTHY_S = 1.5e6 / (0.956 * 2.5e6)  # of rank 0: 0.63 s
Shown = Callable[[Run], bool]
FAULTS: dict[str, tuple[list[str], Shown]] = {
    "none": ([], lambda run: run.took_s(0) < 3 * HEALTHY_S),
    "rate": (["link rank0 rate 40%"], lambda run: run.took_s(0) > 2.0 * HEALTHY_S),
    "loss": (["link rank0 loss 2%"], lambda run: run.count("lost") > 0),
    "latency": (["link rank1 latency 10ms"], lambda run: run.took_s(0) > HEALTHY_S + 0.3),
    "jitter": (["link rank1 jitter 10ms"], lambda run: run.took_s(0) > HEALTHY_S + 0.1),
    "reorder": (["link rank0>switch reorder 3%"], lambda run: run.count("reordered") > 0),
    "ecn": (["link rank0>switch ecn 5%"], lambda run: run.count("marked") > 0),
    "dead": (["link rank0 dead from 0.25s for 0.3s"], lambda run: run.gap_s(0) > 0.25),
    "flap": (["link rank0 flap 80ms every 300ms"], lambda run: run.took_s(0) > HEALTHY_S + 0.1),
    "slow": (["rank 2 slow 3x"], lambda run: statistics.median(gaps(run, 2)) > 0 and slow_share(run) > 0.4),
    "stop": (["rank 2 stop at 0.3s for 0.3s"], lambda run: run.gap_s(2) > 0.25),
    "kill": (["rank 2 kill at 0.4s"], lambda run: run.code == 137 and run.took_s(2) != run.took_s(2)),
    "flow": (["flow 2>1 at 0.1s for 1s"], lambda run: run.sent("rank2>switch") > 100_000),
    "switch": (["switch switch dead from 0.2s for 0.2s"], lambda run: run.gap_s(0) > 0.15),
    "random": (["link random:1 rate 30%", "link random:1 jitter 1ms"], lambda run: bool(run.document.get("switched"))),
}


def gaps(run: Run, rank: int) -> list[float]:
    """Times between a rank's blocks or ticks."""
    found = run.moments(rank)
    return [b - a for a, b in pairwise(found)] or [0.0]


def slow_share(run: Run) -> float:
    """Share of rank 2's time in which it was stopped: gaps of more than 8 ms, of the period of 20 ms."""
    found = gaps(run, 2)
    return sum(gap for gap in found if gap > 0.008) / max(1e-9, sum(found))


class Ground:
    """What the machine has before a run, and what it has more of afterwards; labs of others are not counted."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        self.interfaces = socket.if_nameindex()

    def ours(self) -> set[int]:
        """Process numbers of the lab: those whose command line or environment names our runtime folder."""
        mark, found = os.fsencode(self.runtime), set()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "cmdline").read_bytes() or mark in (path / "environ").read_bytes():
                    found.add(int(path.name))
            except OSError:
                continue
        return found - {os.getpid()}

    def namespaces(self, numbers: set[int]) -> set[str]:
        """Network namespaces of these processes other than our own."""
        found = set()
        for number in numbers:
            try:
                found.add(str(Path(f"/proc/{number}/ns/net").readlink()))
            except OSError:
                continue
        return found - {str(Path("/proc/self/ns/net").readlink())}

    def holders(self, namespaces: set[str]) -> list[int]:
        """Processes that keep one of these namespaces."""
        found = []
        for path in Path("/proc").glob("[0-9]*/ns/net"):
            try:
                if str(path.readlink()) in namespaces:
                    found.append(int(path.parts[2]))
            except OSError:
                continue
        return found

    def left(self, namespaces: set[str]) -> list[str]:
        """What is left, after some patience."""
        end_s = time.monotonic() + GONE_S
        while True:
            found = [f"process {number}" for number in self.ours()]
            found += [f"namespace kept by {number}" for number in self.holders(namespaces)]
            found += [f"file {path}" for path in self.runtime.iterdir()]
            if socket.if_nameindex() != self.interfaces:
                found.append("interfaces changed")
            if not found or time.monotonic() > end_s:
                return found
            time.sleep(0.02)


def play(ground: Ground, faults: list[str], seed: int, *, rootless: bool, kill_s: float | None = None) -> Run:
    """Run one lab; with ``kill_s``, kill it by -9 that long after its start."""
    with tempfile.TemporaryDirectory(prefix="lab-abuse-") as folder:
        out = Path(folder) / "capture"
        command = [sys.executable, "-m", "ringwright", "lab", FABRIC, "--seed", str(seed), "--out", str(out)]
        command += [word for line in faults for word in ("--fault", line)] + (["--rootless"] if rootless else [])
        command += ["--timeout", "30s", "--", sys.executable, "-I", "-S", "-c", RANK]
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(ground.runtime)}
        began_s = time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        seen: set[str] = set()
        while process.poll() is None and time.monotonic() - began_s < LIMIT_S:
            if kill_s is not None and time.monotonic() - began_s >= kill_s:
                seen |= ground.namespaces(ground.ours())
                process.kill()
                break
            if kill_s is None and not seen and (out / "lab.json").exists():
                seen |= ground.namespaces(ground.ours())
            time.sleep(0.02)
        else:
            process.kill()  # no effect where it has ended
        said = (process.communicate()[1] or b"").decode(errors="replace")
        run = Run(process.returncode, wall_s=time.monotonic() - began_s, said=said)
        if (out / "lab.json").exists():
            run.document = json.loads((out / "lab.json").read_text())
        run.printed = {
            n: (out / f"rank-{n}.out").read_text().splitlines() for n in range(3) if (out / f"rank-{n}.out").exists()
        }
        if (out / "timeline.jsonl").exists():
            [json.loads(line) for line in (out / "timeline.jsonl").read_text().splitlines()]
        run.left = ground.left(seen)
        return run


def campaign(ground: Ground, seeds: int, *, rootless: bool) -> int:
    """Every fault with every seed; one line each."""
    bad = 0
    print(f"{'fault':9} {'shown':>6} {'left':>5} {'failed':>6}  {'rank 0 s, by seed':32} verdicts")
    for name, (lines, shown) in FAULTS.items():
        runs = [play(ground, lines, seed, rootless=rootless) for seed in range(seeds)]
        wrong = [run for run in runs if run.code not in ((137,) if name == "kill" else (0,))]
        seen = sum(1 for run in runs if run not in wrong and shown(run))
        left = sum(1 for run in runs if run.left)
        times = " ".join(f"{run.took_s(0):.2f}" for run in runs)
        verdicts = [run.document.get("limit", {}).get("what", "?") for run in runs]
        told = ", ".join(f"{verdicts.count(what)} {what}" for what in dict.fromkeys(verdicts))
        print(f"{name:9} {f'{seen}/{seeds}':>6} {left:>5} {len(wrong):>6}  {times:32} {told}", flush=True)
        for run in wrong + [run for run in runs if run.left]:
            print(f"  exit {run.code}; left: {run.left}; {run.said.strip()[-300:]}")
        bad += (seen < seeds) + left + len(wrong)
    return bad


def killed(ground: Ground, runs: int, kills: int, seed: int, *, rootless: bool) -> int:
    """Runs with a fault each, some killed at a random moment between start and end."""
    draw = random.Random(f"lab abuse {seed}")  # noqa: S311 (a lottery, not a secret)
    doomed = set(draw.sample(range(runs), kills))
    bad, moments, ended = 0, [], 0
    for number in range(runs):
        lines, _ = FAULTS[draw.choice(sorted(FAULTS))]
        kill_s = draw.uniform(0.1, 2.0) if number in doomed else None
        run = play(ground, lines, number, rootless=rootless, kill_s=kill_s)
        if kill_s is not None and run.code == -9:
            moments.append(kill_s)
        elif run.code in (0, 137):
            ended += 1
        else:
            bad += 1
            print(f"  run {number} ({lines}): exit {run.code}: {run.said.strip()[-300:]}")
        if run.left:
            bad += 1
            print(f"  run {number} ({lines}, killed at {kill_s}): left {run.left}")
    told = " ".join(f"{moment:.2f}" for moment in sorted(moments))
    print(f"{runs} runs: {ended} ended, {len(moments)} killed by -9 at {told} s; {bad} left something or failed")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the lottery of runs and moments")
    parser.add_argument("--rootless", action="store_true")
    arguments = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lab-abuse-run-") as folder:
        ground = Ground(Path(folder))
        bad = campaign(ground, arguments.seeds, rootless=arguments.rootless) if arguments.seeds else 0
        if arguments.runs:
            bad += killed(ground, arguments.runs, arguments.kills, arguments.seed, rootless=arguments.rootless)
    print(f"{'nothing left, all shown' if not bad else f'{bad} defects'}; {time.monotonic() - began_s:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
