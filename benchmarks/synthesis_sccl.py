"""CPU seconds of SCCL's queries, beside those of the paper's own tool (z3, same table): ``python benchmarks/synthesis_sccl.py``.

Each query is asked in a process of its own, so that nothing is known from the one before; loading libraries is not counted.
"""

from __future__ import annotations

import multiprocessing
import time

from ringwright.algorithms.synthesis.sccl import sccl
from ringwright.fabrics import fabric
from ringwright.ground.errors import InfeasibleError
from ringwright.model.collective import Collective

# fabric, collective, (chunks a block, steps, rounds), seconds of the tool's query with z3 5.4 (wall where it says so)
QUERIES = [
    ("dgx-1:1", "all-gather", (1, 2, 2), "0.13"),
    ("dgx-1:1", "all-gather", (2, 2, 3), "0.48"),
    ("dgx-1:1", "all-gather", (3, 3, 4), "1.7"),
    ("dgx-1:1", "all-gather", (4, 3, 5), "4.0"),
    ("dgx-1:1", "all-gather", (5, 3, 6), "26 wall"),
    ("dgx-1:1", "all-gather", (6, 3, 7), "85 wall"),
    ("dgx-1:1", "all-gather", None, "127.9 wall"),
    ("dgx-1:1", "broadcast", (2, 2, 2), "0.03"),
    ("dgx-1:1", "broadcast", (6, 3, 3), "0.15"),
    ("dgx-1:1", "broadcast", (12, 4, 4), "1.1"),
    ("dgx-1:1", "broadcast", (18, 5, 5), "13.8"),
    ("dgx-1:1", "broadcast", (6, 3, 5), "0.15"),
    ("dgx-1:1", "gather", (1, 2, 2), "0.13"),
    ("dgx-1:1", "gather", (2, 2, 3), "0.36"),
    ("dgx-1:1", "all-to-all", (1, 2, 3), "5.5"),
    ("dgx-1:1", "all-to-all", (1, 3, 3), "7.7"),
    ("dgx-1:1", "all-to-all", (3, 8, 8), "133.7 (paper)"),
    ("ring:8", "all-gather", (1, 4, 4), "0.10"),
    ("ring:8", "all-gather", (2, 4, 7), "0.25"),
    ("ring:8", "all-gather", (2, 7, 7), "0.30"),
    ("ring:8", "all-gather", (1, 3, 3), "0.07"),
    ("hypercube:8", "all-gather", (1, 3, 3), "0.12"),
    ("hypercube:8", "all-gather", (2, 3, 5), "0.55"),
    ("hypercube:8", "all-gather", (3, 3, 7), "1.5"),
    ("hypercube:8", "all-gather", (1, 2, 3), "-"),
    ("torus:4x4", "all-gather", (1, 4, 4), "27.4"),
    ("torus:4x4", "all-gather", None, "-"),
    ("torus:8x4", "all-gather", (1, 6, 8), "-"),
]


def asked(on: str, op: str, query: tuple[int, int, int] | None) -> tuple[str, float]:
    """Return the answer in words, and the CPU seconds of this process."""
    topology = fabric(on)
    collective = Collective(op, range(topology.n_ranks), 1 << 26)
    sccl(Collective("all-gather", range(2), 64), fabric("ring:2"))  # loads the solvers
    chunks, steps, rounds = query or (None, None, None)
    begun_s = time.process_time()
    try:
        answer = str(sccl(collective, topology, chunks=chunks, steps=steps, rounds=rounds).knobs["frontier"])
    except InfeasibleError as error:
        answer = f"none: {error.what.split(': ')[1]}"
    return answer, time.process_time() - begun_s


def main() -> None:
    """Print the table."""
    print(f"{'fabric':12} {'collective':11} {'(C,S,R)':12} {'answer':24} {'CPU s':>7} {'the tool, s':>13}")
    for on, op, query, tool in QUERIES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            answer, seconds = pool.apply(asked, (on, op, query))
        named = "frontier" if query is None else "({},{},{})".format(*query)
        print(f"{on:12} {op:11} {named:12} {answer:24} {seconds:7.2f} {tool:>13}", flush=True)


if __name__ == "__main__":
    main()
