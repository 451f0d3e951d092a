#!/usr/bin/env python3
"""What the NCCL tuner plug-in costs a call: ns, for tables of few and of many rows.

    python benchmarks/bench_tuner.py [--calls 100000] [--rounds 5] [--most-rows 1000] [--json]

Needs a C compiler. A stand-in for NCCL asks about random calls, one after another, through the plug-in's own table of functions;
medians over rounds. ``ranges`` is a table of ranges of sizes side by side, as an export writes it; ``conditions`` one in which
every range has rows for other groups of calls first, which a call has to pass.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from ringwright.capture.nccl_tuner import TUNER_FILE_NAME, build_tuner  # noqa: E402
from ringwright.costs.nccl.constants import OPS  # noqa: E402
from ringwright.costs.nccl.tuner import BYTES_MAX, TunerRule  # noqa: E402
from ringwright.formats.settings.nccl_tuner_csv import nccl_tuner_csv  # noqa: E402

CALL = np.dtype([("bytes", "u8"), ("op", "i4"), ("pipelined", "i4"), ("registered", "i4"), ("available", "i4")])
SIZES = 1 << 33


def rules(ranges: int, conditions: int) -> list[TunerRule]:
    """Return ranges of sizes for every operation, each with rows for other groups of calls before its own."""
    made = []
    for op in OPS:
        ends = [SIZES * at // ranges for at in range(ranges)]
        for low, high in zip(ends, [*(end - 1 for end in ends[1:]), BYTES_MAX], strict=True):
            made += [TunerRule(op, low, high, "ring", "ll", 4, pipelined=2 + more) for more in range(conditions)]
            made.append(TunerRule(op, low, high, "ring", "simple", 8))
    return made


CASES = {"5 ranges": (5, 0), "100 ranges": (100, 0), "10,000 ranges": (10_000, 0), "100 ranges, 4 conditions": (100, 4)}


def run(folder: Path, table: list[TunerRule], count: int) -> float:
    (folder / "tuner.csv").write_bytes(nccl_tuner_csv(table))
    draw = random.Random(1)
    calls = np.zeros(count, CALL)
    calls["bytes"] = [draw.randrange(SIZES) for _ in range(count)]
    calls["op"] = [draw.randrange(len(OPS)) for _ in range(count)]
    calls["pipelined"] = 1
    calls.tofile(folder / "calls")
    command = [str(folder / "host"), str(folder / TUNER_FILE_NAME), "5", "2", "16", str(folder / "calls"), "bench=10"]
    variables = {**os.environ, "NCCL_TUNER_CONFIG_FILE": str(folder / "tuner.csv")}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most-rows", type=int, default=1_000_000, help="leave larger tables out")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_tuner(folder)
        include = ROOT / "src" / "ringwright" / "capture" / "nccl_tuner"
        command = ["cc", "-std=c11", "-O2", f"-I{include}", str(ROOT / "tests" / "tuner_host.c")]
        subprocess.run([*command, "-o", str(folder / "host"), "-ldl"], check=True)
        for case, shape in CASES.items():
            table = rules(*shape)
            if len(table) > arguments.most_rows:
                continue
            each = [run(folder, table, arguments.calls) for _ in range(arguments.rounds)]
            results[case] = {"rows": len(table), "call_ns": statistics.median(each), "worst_ns": max(each)}
    if arguments.json:
        print(json.dumps(results))
        return
    for case, row in results.items():
        print(f"{case:26} {row['rows']:7} rows {row['call_ns']:8.1f} ns a call (worst round {row['worst_ns']:.1f})")


if __name__ == "__main__":
    main()
