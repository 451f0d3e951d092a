"""Our executors beside the native libraries, the same algorithm on the same ranks in turns: python benchmarks/bench_real_ranks.py

Loopback: Open MPI and gloo with 4 ranks, MPICH with 2 (its ranks hold their cores while they wait); ours over shared memory, and
over that library's own messages. ``--lab``: 4 ranks over namespaces at 100 Mbit/s, ours over sockets. Sizes are 64 KiB to 64 MiB;
the ratio is ours over theirs, its geometric mean over the sizes. ``--small``: 8 B to 32 KiB.
"""

from __future__ import annotations

import argparse
import math
import sys

from ringwright.ground.errors import RingwrightError
from ringwright_lab.bench import BenchSpec, bench

CASES = (
    # library, ranks, collective, algorithms
    ("openmpi", 4, "all-reduce", ("ring", "rabenseifner", "recursive-doubling")),
    ("openmpi", 4, "all-gather", ("ring", "bruck")),
    ("openmpi", 4, "reduce-scatter", ("ring",)),
    ("openmpi", 4, "broadcast", ("binomial",)),
    ("mpich", 2, "all-reduce", ("ring", "rabenseifner", "recursive-doubling")),
    ("mpich", 2, "all-gather", ("ring",)),
    ("gloo", 4, "all-reduce", ("ring",)),
    ("gloo", 4, "all-gather", ("ring",)),
    ("gloo", 4, "reduce-scatter", ("ring",)),
)
LAB_CASES = (
    ("openmpi", 4, "all-reduce", ("ring", "rabenseifner")),
    ("gloo", 4, "all-reduce", ("ring",)),
    ("gloo", 4, "reduce-scatter", ("ring",)),
)


def main() -> int:
    """Print a line for each library, collective and algorithm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    sizes = [
        1 << shift
        for shift in (range(3, 16, 3) if given.small else (16, 20, 24, 26) if given.lab else range(16, 27, 2))
    ]
    labels = "".join(f"{_size(size):>8}" for size in sizes)
    print(f"{'theirs':9}{'collective':15}{'algorithm':20}{'ours over':20}{labels}{'geomean':>9}")
    for library, ranks, op, algorithms in LAB_CASES if given.lab else CASES:
        if given.only and library not in given.only.split(","):
            continue
        backends = (library, "ringwright") if given.lab else (library, "ringwright", f"ringwright@{library}")
        question = BenchSpec(
            op,
            ranks,
            sizes,
            backends,
            algorithms,
            rounds=3 if given.lab else 9,
            warmup=1,
            lab="switch:4,rate=100Mb/s" if given.lab else None,
            timeout_s=120,
        )
        try:
            found = bench(question)
        except RingwrightError as error:
            print(f"{library:9}{op:15}{error.what.splitlines()[0]}", flush=True)
            continue
        _lines(found, sizes)
    return 0


def _lines(found: dict[str, object], sizes: list[int]) -> None:
    ratios: dict[tuple[str, str, str], dict[int, float]] = {}
    for each in found["ratios"]:  # type: ignore[attr-defined]
        key = (each["native"], each["algorithm"], each["backend"])
        ratios.setdefault(key, {})[each["size_bytes"]] = each["ratio"]
    for (native, algorithm, ours), by_size in ratios.items():
        cells = "".join(f"{by_size[size]:8.2f}" if size in by_size else f"{'-':>8}" for size in sizes)
        mean = math.exp(sum(map(math.log, by_size.values())) / len(by_size))
        print(f"{native:9}{found['collective']!s:15}{algorithm:20}{ours:20}{cells}{mean:9.2f}", flush=True)
    if found["verdict"]:
        print(f"          limit: {found['verdict']}", flush=True)


def _size(size: int) -> str:
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K" if size >= 1 << 10 else f"{size}"


if __name__ == "__main__":
    sys.exit(main())
