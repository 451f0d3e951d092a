#!/usr/bin/env python3
"""What the NCCL profiler plug-in costs the thread that calls it: ns per event, one thread and four.

    python benchmarks/bench_profiler.py [--pairs 1000000] [--rounds 5] [--json]

Needs a C compiler. A stand-in for NCCL calls the plug-in through its table, as NCCL does, as fast as it can; medians over
rounds. ``collective`` is one start and one stop, ``step`` a proxy step with its two changes of state (four calls).
Calls come in bursts of a thousand with 4 ms between, which are not counted: a ring takes such a burst whole. ``no pause`` calls
without end, which fills the rings: records are then dropped and counted, and ``kept`` says how many were not. ``nothing
recorded`` is the same loop with a mask that takes no event: what the calls alone cost.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from ringwright.capture.nccl_profiler import FILE_NAME, build  # noqa: E402
from ringwright.formats.sources.gate.inputs import find  # noqa: E402
from ringwright.formats.sources.nccl_profiler.file import read_file  # noqa: E402

CASES = {
    "1 thread": (1, "default", 4000),
    "4 threads": (4, "default", 4000),
    "1 thread, no pause": (1, "default", 0),
    "1 thread, nothing recorded": (1, "ctrl", 0),
}


def build_all(folder: Path) -> None:
    build(folder)
    include = ROOT / "src" / "ringwright" / "capture" / "nccl_profiler"
    command = ["cc", "-std=c11", "-O2", "-pthread", f"-I{include}", str(ROOT / "tests" / "fake_nccl_host.c")]
    subprocess.run([*command, "-o", str(folder / "host"), "-ldl"], check=True)


def run(folder: Path, threads: int, events: str, pause_us: int, pairs: int) -> dict[str, float]:
    recording = folder / "bench.rwprof"
    recording.unlink(missing_ok=True)
    variables = {"RINGWRIGHT_PROFILE_FILE": str(recording), "RINGWRIGHT_PROFILE_EVENTS": events}
    command = [
        str(folder / "host"),
        str(folder / FILE_NAME),
        "6",
        f"bench={pairs}",
        f"threads={threads}",
        f"pause_us={pause_us}",
    ]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    recorded = read_file(find([str(recording)])[0], None)
    made = 2 * pairs * threads
    found["kept"] = sum(recorded.counts.get(kind, 0) for kind in (2, 32)) / made
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        build_all(Path(name))
        for case, how in CASES.items():
            rounds = [run(Path(name), *how, arguments.pairs) for _ in range(arguments.rounds)]
            results[case] = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
    if arguments.json:
        print(json.dumps(results))
        return
    for case, found in results.items():
        print(
            f"{case:27} collective {found['coll_pair_ns']:6.1f} ns, step {found['step_ns']:6.1f} ns, kept {found['kept']:.0%}"
        )


if __name__ == "__main__":
    main()
