"""What ``expand`` and ``flow-all-to-all`` reach, in how many CPU seconds, beside the figures of others.

    python benchmarks/synthesis_greedy.py FOLDER [--large]

FOLDER holds topologies as ``{"name", "n", "edges": [[src, dst, GiB/s, us], ...]}`` named as in ``OTHERS``; machines that are not
there are left out. Figures of others: TACOS and the schedulers of TE-CCL as published or measured on two shared cores; their
links block, those of TE-CCL do not. ``--large`` adds machines of 128 and 512 ranks.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.synthesis.expand import expand
from ringwright.algorithms.synthesis.flow_all_to_all import flow_all_to_all
from ringwright.bounds.lower_bounds import bound
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.formats.sources.topology import read_topology
from ringwright.model.collective import Collective
from ringwright.model.topology import RANK, SWITCH, Topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.model.program import Program

ALPHA = {"blocking": "busy", "pipelined": "pipelined"}
SIZES = (1 << 30, 1 << 20, 1 << 16)
# TACOS, best of chunk counts and seeds, us at these sizes; None where it was not measured.
OTHERS: dict[str, tuple[float | None, ...]] = {
    "ring8": (8901.6, 11.766, None),
    "hypercube8": (5896.9, 8.824, 1.958),
    "dgx1": (6386.6, 9.964, 2.055),
    "dgxa100_unwound": (3132.4, None, None),
    "mesh3x3": (8890.9, None, None),
    "torus4x4": (4717.5, 6.883, 2.305),
    "hypercube16": (4747.5, None, None),
    "mesh4x4": (9390.0, 13.766, 4.610),
    "mi250x16": (3454.1, 9.115, None),
    "torus8x8": (5024.4, 13.688, 8.824),
    "mesh8x8": (9906.8, 25.766, 16.610),
    "hypercube64": (3302.3, 8.857, 5.710),
}
# TE-CCL, decimal sizes: us and solver seconds of its finer epochs.
EPOCHS = {
    "ndv2x2": {10**3: (4.137, 573.8), 10**6: (48.75, 47.0), 16 * 10**6: (700.0, 44.7), 10**9: (43750.0, 43.4)},
    "dgx2x2": {10**3: (4.006, 18421.7), 10**6: (10.75, 8180.7), 16 * 10**6: (124.0, 1261.8), 10**9: (7750.0, 2699.9)},
}
FOLDED = ("torus:8x8", "dgx-a100:8")
LARGE = ("dgx-a100:16", "torus:8x8x8", "dgx-h100:64")


def two_switches() -> Topology:
    """Return two boxes of 16 ranks on a switch each, and eight links from odd ranks of one to even ranks of the other."""
    rows = [(rank, 32 + rank // 16, 125e9, 0.35e-6) for rank in range(32)]
    rows += [(switch, rank, rate, late) for rank, switch, rate, late in rows]
    rows += [(16 * at + 2 * i + 1, 16 * (1 - at) + 2 * i, 12.5e9, 2.6e-6) for at in (0, 1) for i in range(8)]
    src, dst, rate, late = (np.array(column) for column in zip(*rows, strict=True))
    kinds = np.repeat(np.array([RANK, SWITCH], np.uint8), [32, 2])
    none = np.zeros(len(src), np.int64)
    return Topology("dgx2x2", 32, kinds, src, dst, rate, late, none, ("link",), hosts=np.repeat([0, 1], 16))


def timed(make: Callable[[], Program]) -> tuple[Program, float]:
    begin = time.process_time()
    return make(), time.process_time() - begin


def row(name: str, topology: Topology, collective: Collective, model: str, other: str) -> None:
    program, spent_s = timed(lambda: expand(collective, topology, link_model=model))
    took_us = simulate(program, topology, alpha=ALPHA[model]).time_s * 1e6
    least = bound(collective, topology, alpha=ALPHA[model]).time_s * 1e6
    settings = " ".join(f"{key}={program.knobs[key]}" for key in ("chunks", "merge", "taper", "order", "yards", "runs"))
    over = f"{(took_us / least - 1) * 100:+.2f} %"
    asked = f"{name:16} {collective.op:14} {collective.size_bytes:>11} {model:9}"
    print(f"{asked} {took_us:12.3f} {over:>10} {spent_s:7.2f}  {other}  {settings}")


def gathered(folder: Path) -> None:
    """Print all-gathers beside TACOS and TE-CCL, and what is collected beside its bound."""
    for name, others in OTHERS.items():
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        topology = read_topology(path)
        for size, other in zip(SIZES, others, strict=True):
            told = f"TACOS {other}" if other else ""
            row(name, topology, Collective("all-gather", range(topology.n_ranks), size), "blocking", told)
    machines = {"dgx2x2": two_switches()}
    if (folder / "ndv2x2.json").exists():
        machines["ndv2x2"] = read_topology(folder / "ndv2x2.json")
    for name, topology in sorted(machines.items()):
        for size, (other, seconds) in EPOCHS[name].items():
            gather = Collective("all-gather", range(topology.n_ranks), size, dtype="uint8")
            for model in ("blocking", "pipelined"):
                row(name, topology, gather, model, f"TE-CCL {other} in {seconds} s")
    for name in ("torus:4x4", "mesh:4x4", "dgx-1:1", "dgx-a100:2"):
        topology = fabric(name)
        for op in ("reduce-scatter", "all-reduce", "broadcast"):
            row(name, topology, Collective(op, range(topology.n_ranks), 1 << 30), "pipelined", "")


def exchanged(folder: Path, *, large: bool) -> None:
    """Print all-to-alls beside the optimum of the concurrent flow, which its prices prove."""
    names = ("ring8", "dgx1", "ndv2x2", "mi250x16", "torus4x4", "mesh4x4", "hypercube64", "mesh8x8")
    machines = {name: read_topology(folder / f"{name}.json") for name in names if (folder / f"{name}.json").exists()}
    machines |= {name: fabric(name) for name in (*FOLDED, *(LARGE if large else ()))}
    for name, topology in machines.items():
        for model in ("pipelined", "blocking"):
            for size in (1 << 30, 1 << 20):
                exchange = Collective("all-to-all", range(topology.n_ranks), size)
                if topology.n_ranks > 64 and (model == "blocking" or size < 1 << 30):
                    continue
                program, spent_s = timed(lambda e=exchange, t=topology, m=model: flow_all_to_all(e, t, link_model=m))
                took_us = simulate(program, topology, alpha=ALPHA[model]).time_s * 1e6
                proved = program.knobs["proved_us"]
                over = f"{(took_us / proved - 1) * 100:+.2f} %"
                print(
                    f"{name:16} {'all-to-all':14} {size:>11} {model:9} {took_us:12.3f} {over:>10} {spent_s:7.2f}  proved {proved}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    print(f"{'machine':16} {'operation':14} {'bytes':>11} {'links':9} {'us':>12} {'over bound':>10} {'CPU s':>7}")
    gathered(given.folder)
    exchanged(given.folder, large=given.large)


if __name__ == "__main__":
    main()
