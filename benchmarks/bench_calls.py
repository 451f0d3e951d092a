"""Reading calls files: records a second and memory, beside a bare decode of the same lines, each as a process of its own.

    python benchmarks/bench_calls.py [--calls 500000] [--ranks 2]

Files are made in a temporary folder: per rank ``calls`` all-reduces, all-gathers and reduce-scatters, each with its end, and a
step every thousand. Records are lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench_traces import measured

DECODE = """
import pathlib, resource, sys, msgspec
total = sum(len(msgspec.json.Decoder().decode_lines(path.read_bytes())) for path in pathlib.Path(sys.argv[1]).iterdir())
print(total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
IMPORT = """
import resource, polars, msgspec, ringwright.formats.sources.calls
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
READ = """
import resource, sys
from ringwright.formats.sources import read
events = read(sys.argv[1]).table("events")
print(events.height, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
OPS = (("all-reduce", 16384, 16384), ("all-gather", 4096, 8192), ("reduce-scatter", 8192, 4096))


def write(folder: Path, rank: int, ranks: int, calls: int) -> int:
    """Write one rank's file and return its lines."""
    head = {"ringwright": "calls/1", "source": "torch-hook", "host": "n", "pid": rank, "rank": rank, "world": ranks}
    rows: list[object] = [head | {"wall_ns": 10**18, "clock_ns": 10**9}]
    rows += [
        ["g", 0, "0", "default_pg", "gloo", ranks, rank, list(range(ranks))],
        ["c", 0, None, "backward", "layers.1", 4096],
    ]
    for number in range(calls):
        op, sent, received = OPS[number % len(OPS)]
        at_ns = 10**9 + 100_000 * number
        rows.append(
            ["b", number, at_ns, 0, op, "float32", sent // 4, sent, received, None, None, "", 0, 1, 4242, number]
        )
        rows.append(["e", number, at_ns + 50_000])
        if number % 1000 == 999:
            rows.append(["s", number // 1000, at_ns - 10**8, at_ns + 60_000])
    with (folder / f"calls.n.{rank}.jsonl").open("w") as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    return len(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=500_000)
    parser.add_argument("--ranks", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        records = sum(write(Path(folder), rank, given.ranks, given.calls) for rank in range(given.ranks))
        print(f"{records:,} records, {sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6:.0f} MB")
        started = measured(sys.executable, IMPORT, folder)
        for name, code in (("bare decode (msgspec)", DECODE), ("ringwright read", READ)):
            found = measured(sys.executable, code, folder)
            if found is not None and started is not None:
                net_s = found[0] - started[0]
                print(
                    f"{name:<24} {found[0]:6.2f} s  {records / net_s:12,.0f} records/s after start-up  {found[1] / 1024:6.0f} MiB"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
