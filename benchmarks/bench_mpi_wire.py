#!/usr/bin/env python3
"""What messages over MPI cost from Python, and a ring all-reduce made of them beside the library's own, forced to its ring.

    python benchmarks/bench_mpi_wire.py [--library open-mpi] [--ranks 4] [--transport default] [--rounds 9] [--quick] [--json]

Times are medians over rounds of the slowest rank, in us; ours and the library's take turns within a round, so that other
work on the machine meets both. ``call`` is one message to the next rank and one from the one before, 8 bytes. ``ring
exchange`` is the same with much to carry, whole or in pieces. ``all-reduce`` is float32, sum, in place: ours adds each piece as
it arrives and sends it on. ``ratio`` is ours over the library's; the last line is the geometric mean of the best piece.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from ringwright.execute.mpi_forced import forced  # noqa: E402
from ringwright.execute.mpi_runtime import TRANSPORTS, command, runtime  # noqa: E402
from ringwright.execute.mpi_wire import WAITS, MpiWire  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
PIECES = (0, MIB, 256 * KIB, 64 * KIB)  # 0: whole
MOST_PIECES = 300
Run = Callable[[], object]


class RingAllReduce:
    """The ring all-reduce of one rank, prepared once: every message a persistent request, pieces sent on as they arrive."""

    def __init__(self, wire: MpiWire, data: Any, piece_bytes: int) -> None:
        import numpy as np

        self.p, self.add = wire.p, np.add
        p = wire.p
        after, before = (wire.rank + 1) % p, (wire.rank - 1) % p
        ends = [len(data) * each // p for each in range(p + 1)]
        self.receives: list[list[Any]] = []  # by step: (message, where it belongs, where it arrives)
        self.sends: list[list[Any]] = []
        sent = received = 0
        for step in range(2 * (p - 1)):
            adds = step < p - 1
            out = _cut(data, ends, (wire.rank - step + (not adds)) % p, piece_bytes)
            into = _cut(data, ends, (wire.rank - step - adds) % p, piece_bytes)
            arrive = [np.empty_like(each) if adds else each for each in into]
            self.sends.append(
                [wire.prepare_send(after, sent + number, each.view(np.uint8)) for number, each in enumerate(out)]
            )
            self.receives.append(
                [
                    (wire.prepare_recv(before, received + number, at.view(np.uint8)), each, at)
                    for number, (each, at) in enumerate(zip(into, arrive, strict=True))
                ]
            )
            sent, received = sent + len(out), received + len(into)

    def run(self) -> None:
        """Do it once. The receives of the next step are posted before anything of this one is waited for."""
        for message, _, _ in self.receives[0]:
            message.start()
        for message in self.sends[0]:
            message.start()
        last = len(self.receives) - 1
        for step, arrivals in enumerate(self.receives):
            following = self.sends[step + 1] if step < last else []
            if step < last:
                for message, _, _ in self.receives[step + 1]:
                    message.start()
            self._take(arrivals, following, step < self.p - 1)
        for messages in self.sends:
            for message in messages:
                message.wait()

    def _take(self, arrivals: list[Any], following: list[Any], adds: bool) -> None:
        for number, (message, mine, arrived) in enumerate(arrivals):
            message.wait()
            if adds:
                self.add(mine, arrived, mine)
            if following:
                following[number].start()


def _cut(data: Any, ends: list[int], block: int, piece_bytes: int) -> list[Any]:
    begin, end = ends[block], ends[block + 1]
    count = max(1, -(-(end - begin) * data.itemsize // piece_bytes)) if piece_bytes else 1
    edges = [begin + (end - begin) * each // count for each in range(count + 1)]
    return [data[low:high] for low, high in itertools.pairwise(edges)]


def exchange(wire: MpiWire, size: int, piece_bytes: int) -> Run:
    """Return one message, in pieces, to the next rank and one from the one before."""
    import numpy as np

    out, into = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    after, before = (wire.rank + 1) % wire.p, (wire.rank - 1) % wire.p
    pieces = [_cut(each, [0, size], 0, piece_bytes) for each in (out, into)]
    sends = [wire.prepare_send(after, turn, each) for turn, each in enumerate(pieces[0])]
    receives = [wire.prepare_recv(before, turn, each) for turn, each in enumerate(pieces[1])]

    def run() -> None:
        for message in (*receives, *sends):
            message.start()
        for message in (*receives, *sends):
            message.wait()

    return run


def fresh_call(wire: MpiWire) -> Run:
    """Return a small exchange with new requests each time."""
    import numpy as np

    out, into = np.zeros(8, np.uint8), np.zeros(8, np.uint8)

    def run() -> None:
        handles = (wire.recv((wire.rank - 1) % wire.p, 0, into), wire.send((wire.rank + 1) % wire.p, 0, out))
        wire.wait_all(handles)

    return run


# ----------------------------------------------------------------------------------------------------------- in each rank
def timed(runs: dict[str, Run], rounds: int, repeats: int, reset: Callable[[], None] | None = None) -> dict[str, float]:
    """Return the median over rounds, in us, of each run's slowest rank; runs take turns."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    found: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 2):
        for name, run in runs.items():
            if reset:
                reset()
            comm.Barrier()
            start_s = time.perf_counter()
            for _ in range(repeats):
                run()
            mean_us = (time.perf_counter() - start_s) / repeats * 1e6
            slowest = comm.allreduce(mean_us, MPI.MAX)
            if number >= 2:  # the first two touch the pages
                found[name].append(slowest)
    return {name: statistics.median(times) for name, times in found.items()}


def in_rank(given: argparse.Namespace) -> None:
    """Measure everything; rank 0 prints JSON."""
    from mpi4py import MPI

    comm, rows = MPI.COMM_WORLD, []
    wire = MpiWire(waits=given.waits)
    calls = {"new requests": fresh_call(wire), "persistent": exchange(wire, 8, 0)}
    rows.append({"what": "call", "size": 8, **timed(calls, given.rounds, 100)})
    wire.close()
    sizes = SIZES[1:2] if given.quick else SIZES
    for size in sizes:
        wire = MpiWire(waits=given.waits)
        fitting = [piece for piece in PIECES if not piece or piece * 2 <= size <= piece * MOST_PIECES]
        runs = {_label(piece): exchange(wire, size, piece) for piece in fitting}
        rows.append({"what": "ring exchange", "size": size, **timed(runs, given.rounds, 3)})
        wire.close()
    rows += [all_reduces(given, size) for size in sizes]
    if comm.rank == 0:
        Path(given.result).write_text(json.dumps({"library": MPI.Get_library_version().split(",")[0], "rows": rows}))


def all_reduces(given: argparse.Namespace, size: int) -> dict[str, Any]:
    """Time our ring, in pieces of each size, beside the library's."""
    import numpy as np
    from mpi4py import MPI

    wire, data = MpiWire(waits=given.waits), np.ones(size // 4, np.float32)
    share = size // wire.p
    fitting = [piece for piece in PIECES if not piece or piece < share <= piece * MOST_PIECES]
    runs: dict[str, Run] = {_label(piece): RingAllReduce(wire, data, piece).run for piece in fitting}
    runs["native"] = partial(MPI.COMM_WORLD.Allreduce, MPI.IN_PLACE, data)
    row = {"what": "all-reduce", "size": size, **timed(runs, given.rounds, 1, lambda: data.fill(1))}
    if not (data == wire.p).all():
        raise SystemExit(f"wrong sums at {size} B")
    wire.close()
    return row


def _label(piece: int) -> str:
    return f"{piece // KIB} KiB" if piece else "whole"


# -------------------------------------------------------------------------------------------------------------- outside
def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Start the ranks and return what they found."""
    found = runtime(given.library)
    settings = forced(found.name, "all-reduce", "ring").settings
    result = Path(given.result or f"/tmp/bench_mpi_wire.{os.getpid()}.json")
    argv = [sys.executable, str(Path(__file__).resolve()), "--in-rank", "--result", str(result)]
    argv += ["--rounds", str(given.rounds), "--waits", given.waits, *(["--quick"] * given.quick)]
    line, environment = command(
        found, given.ranks, argv, {**os.environ, **settings}, transport=given.transport, oversubscribed=True
    )
    subprocess.run(line, env=environment, check=True, timeout=600)
    document: dict[str, Any] = json.loads(result.read_text())
    result.unlink()
    ratios = []
    for row in document["rows"]:
        if row["what"] == "all-reduce":
            ours = [value for key, value in row.items() if key == "whole" or key.endswith("KiB")]
            row["ratio"] = min(ours) / row["native"]
            ratios.append(row["ratio"])
    return {**document, "ranks": given.ranks, "geometric_mean_ratio": statistics.geometric_mean(ratios)}


def show(document: dict[str, Any]) -> None:
    """Print the table."""
    print(f"{document['library'].splitlines()[0]}, {document['ranks']} ranks, {os.cpu_count()} cores")
    for row in document["rows"]:
        times = "  ".join(
            f"{key} {value:.2f}" if key == "ratio" else f"{key} {value:.1f}"
            for key, value in row.items()
            if key not in {"what", "size"}
        )
        print(f"{row['what']:14} {row['size']:>10,} B  {times}")
    print(f"ours / native ring all-reduce, geometric mean: {document['geometric_mean_ratio']:.2f}")


def main() -> None:
    """Take the side that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="open-mpi")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--transport", choices=TRANSPORTS, default="default")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--waits", choices=WAITS, default="block")
    parser.add_argument("--quick", action="store_true", help="one size, one round: whether it works")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--result", default="")
    parser.add_argument("--in-rank", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.rounds = 1
    if given.in_rank:
        in_rank(given)
        return
    document = measure(given)
    print(json.dumps(document, indent=1)) if given.json else show(document)


if __name__ == "__main__":
    main()
