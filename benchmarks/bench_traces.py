"""A job's profiler traces: our report beside HolisticTraceAnalysis on the same files, each as a process of its own.

    python benchmarks/bench_traces.py FOLDER [--hta PYTHON]

FOLDER holds one trace per rank; PYTHON is an interpreter with HolisticTraceAnalysis, which needs pandas and is no part of this
project. Printed: seconds and peak memory of a bare decode of all files, of our summary with overlap, waits and kernels, and of
HTA's reading with its communication-computation overlap and kernel breakdown.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

DECODE = """
import gzip, pathlib, resource, sys, msgspec
total = 0
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    data = (gzip.open(path) if path.suffix == ".gz" else path.open("rb")).read()
    total += len(data)
    msgspec.json.decode(data)
print(total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
OURS = """
import resource, sys
from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
found = summarise(read(sys.argv[1]))
print(len(found["kernels"]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
HTA = """
import logging, pathlib, resource, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
files = {rank: str(path) for rank, path in enumerate(sorted(pathlib.Path(sys.argv[1]).iterdir()))}
found = TraceAnalysis(trace_files=files, trace_dir="")
overlap = found.get_comm_comp_overlap(visualize=False)
found.get_gpu_kernel_breakdown(visualize=False)
print(len(overlap), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def measured(python: str, code: str, folder: str, rounds: int = 3) -> tuple[float, int] | None:
    """Return the least seconds and the peak KiB of a child, None where it fails."""
    best, peak = float("inf"), 0
    for _ in range(rounds):
        begin = time.perf_counter()
        done = subprocess.run([python, "-c", code, folder], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"  failed: {done.stderr.strip().splitlines()[-1:]}")
            return None
        best, peak = min(best, time.perf_counter() - begin), int(done.stdout.split()[-1])
    return best, peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--hta", help="interpreter with HolisticTraceAnalysis")
    given = parser.parse_args()
    size = sum(path.stat().st_size for path in Path(given.folder).iterdir())
    print(f"{given.folder}: {len(list(Path(given.folder).iterdir()))} files, {size / 1e6:.1f} MB on disk")
    rows = [("bare decode (msgspec)", sys.executable, DECODE), ("ringwright summary", sys.executable, OURS)]
    rows += [("HolisticTraceAnalysis", given.hta, HTA)] if given.hta else []
    base = None
    for name, python, code in rows:
        found = measured(python, code, given.folder)
        if found is not None:
            base = base or found[0]
            print(f"{name:<24} {found[0]:7.2f} s  {found[0] / base:6.2f}x  {found[1] / 1024:7.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
