"""Predicted against measured in the lab: a table by fault. See scripts/lab-prediction."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path

import numpy as np

from ringwright.ground.errors import RingwrightError
from ringwright_lab.bench import BenchSpec, bench, capture, compare

STAR = "switch:4,rate=100Mb/s"
TWO_LEVEL = "leaf-spine:4,per_leaf=2,spines=1,rate=100Mb/s"
SHARED = "leaf-spine:4,per_leaf=2,spines=1,oversubscription=2,rate=100Mb/s"  # two ranks' flows meet on each uplink
FAULTS = {
    "none": (),
    "rate": ("link * rate 50%",),
    "straggler": ("link rank3 rate 20%",),
    "rate from 1 s to 3 s": ("link * rate 50% from 1s to 3s",),
    "loss 0.1%": ("link * loss 0.1%",),
    "loss 1%": ("link rank3 loss 1%",),
    "flap": ("link rank3 flap 100ms every 1s",),
    "flow": ("flow 1>2",),
}
# From 256 KiB on: below, what HTB lets through at once (16 KiB a link) is a good part of a message.
SIZES = (256 << 10, 512 << 10, 1 << 20, 2 << 20)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--fabric", default="", help="star, two-level, shared")
    given = parser.parse_args()
    print(
        f"{'fabric':11} {'fault':21} {'algorithm':17} {'seeds':>5} {'error':>7} {'inside p10-p90':>15}  outside the model"
    )
    for name, lab in (("star", STAR), ("two-level", TWO_LEVEL), ("shared", SHARED)):
        if given.fabric and name not in given.fabric.split(","):
            continue
        algorithms = ("ring", "halving-doubling", "blueconnect")[: 2 if name == "star" else 3]
        for fault, lines in FAULTS.items():
            if given.only and fault not in given.only.split(","):
                continue
            seeds = given.seeds if any(word in fault for word in ("loss", "flap", "flow")) else 1 if given.quick else 3
            _fault(name, lab, fault, lines, algorithms, seeds)
    return _kill()


def _fault(name: str, lab: str, fault: str, lines: tuple[str, ...], algorithms: tuple[str, ...], seeds: int) -> None:
    rows: list[compare.ComparedRow] = []
    outside: list[str] = []
    times_us: dict[tuple[str, int], list[float]] = {}
    for seed in range(seeds):
        print(f"{name} {fault} seed {seed}", file=sys.stderr)
        question = BenchSpec(
            "all-reduce", 4, SIZES, algorithms=algorithms, lab=lab, faults=lines, seed=seed, rounds=5, timeout_s=60
        )
        with tempfile.TemporaryDirectory() as folder:
            bench(question, out=Path(folder) / "capture")
            found = compare.compare(Path(folder) / "capture")
            for run in capture.load(Path(folder) / "capture")["runs"]:
                times_us.setdefault((run["algorithm"], run["size_bytes"]), []).extend(
                    1e6 * each for each in run["time_s"]
                )
        rows += found.rows
        outside = list(found.outside)
    for algorithm in algorithms:
        mine = [row for row in rows if row.algorithm == algorithm]
        tested = [row for row in mine if not row.used]
        error = math.exp(np.mean([abs(math.log(row.simulated_us / row.measured_us)) for row in tested])) - 1
        inside = []
        for size in sorted({row.size_bytes for row in tested}):
            low, high = np.quantile(times_us[algorithm, size], [0.1, 0.9])
            simulated = float(np.median([row.simulated_us for row in mine if row.size_bytes == size]))
            inside.append(low <= simulated <= high)
        said = "; ".join(line.partition(":")[0] for line in outside)
        print(
            f"{name:11} {fault:21} {algorithm:17} {seeds:5} {100 * error:6.1f}% {sum(inside):>7} of {len(inside):<5}  {said}",
            flush=True,
        )


def _kill() -> int:
    """The verdict over a rank that is killed must name it."""
    question = BenchSpec("all-reduce", 4, SIZES, lab=STAR, faults=("rank 2 kill at 1s",), rounds=50, timeout_s=20)
    try:
        bench(question)
    except RingwrightError as error:
        right = "rank 2 was killed by signal 9" in error.what
        print(f"kill: {'right' if right else 'WRONG'}: {error.what.splitlines()}")
        return 0 if right else 1
    print("kill: WRONG: nobody noticed")
    return 1


if __name__ == "__main__":
    sys.exit(main())
