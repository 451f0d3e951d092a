"""ASTRA-sim's congestion-aware column, stated by the event engine: whole messages, stored and forwarded at every hop.

    python benchmarks/astra_column.py FOLDER             # with the peers' astra.csv and astra_more.csv

Its network hands a chunk on when all of it has come, links serve chunks in the order in which they come (50 x 2^30 B/s, 500 ns a
hop), and a rank adds at the bandwidth of its memory, three accesses a byte. ADD_RATE is the one number that was read off a row
(the ring of 8 ranks, 64 MiB); all else is a prediction. Its double binary tree sends each chunk whole through a tree that is not
pipelined, its direct exchange sends on all links at once: programs that this product does not have, and which are left out.
"""

from __future__ import annotations

import csv
import dataclasses
import sys
from pathlib import Path

from ringwright.engines import events
from ringwright.engines.flat import flatten
from ringwright.engines.switch_slots import machines
from ringwright.fabrics import fabric
from ringwright.model.collective import Collective
from ringwright.model.registry import algorithm

FABRICS = {"Ring": "ring", "Switch": "switch", "FullyConnected": "full"}
ALGORITHMS = {"ring": "ring", "hd": "halving-doubling"}
ADD_RATE = 1.6e12 / 3  # bytes/s
MOST_RANKS = 64


def time_ns(topology: str, name: str, ranks: int, size_bytes: int) -> float:
    """Return what an all-reduce takes where every link takes in a message whole before it passes it on."""
    top = fabric(f"{FABRICS[topology]}:{ranks},rate={50 * 2**30},latency_s=0.5us")
    top = dataclasses.replace(top, reduce_rate=ADD_RATE)
    _, build, knobs = algorithm(ALGORITHMS[name])
    program = build(Collective("all-reduce", range(ranks), size_bytes), top, **knobs)
    (made,) = machines([program], top)
    whole = made.whole.copy()
    whole[: top.n_links] = True
    made = dataclasses.replace(made, whole=whole)
    return events.run(flatten(program, made), made.carrying(program)).time_ps / 1e3


def main() -> int:
    """Print theirs, ours and the difference of each row."""
    if len(sys.argv) != 2:
        print("usage: python benchmarks/astra_column.py FOLDER", file=sys.stderr)
        return 2
    asked: dict[tuple[str, str, int, int], float] = {}
    for name in ("astra.csv", "astra_more.csv"):
        with (Path(sys.argv[1]) / name).open(newline="") as file:
            for row in csv.DictReader(file):
                known = row["topology"] in FABRICS and row["algorithm"] in ALGORITHMS and row["splits"] == "1"
                if row["backend"] == "aware" and known and int(row["ranks"]) <= MOST_RANKS:
                    key = (row["topology"], row["algorithm"], int(row["ranks"]), int(row["bytes"]))
                    asked[key] = float(row["sim_ns"])
    for key, theirs in asked.items():
        ours = time_ns(*key)
        topology, name, ranks, size_bytes = key
        print(
            f"{topology:14} {name:4} {ranks:3} ranks {size_bytes >> 20:5} MiB"
            f" {theirs / 1e3:11,.1f} us, here {ours / 1e3:11,.1f} us {ours / theirs - 1:+.2%}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
