"""Synthesis beside its bounds and the figures of others, published and measured: CPU seconds, and times of the event engine.

    python benchmarks/bench_synthesis.py FOLDER              # machines of up to 64 ranks: about ten minutes
    python benchmarks/bench_synthesis.py FOLDER --large      # 1,024 and 4,096 ranks, faults, all-to-all of 512
    python benchmarks/bench_synthesis.py FOLDER --only mesh8x8,dgx-a100:2 --sizes 1M

FOLDER holds topologies as ``{"name", "n", "edges": [[src, dst, GiB/s, us], ...]}`` named as in ``BOUNDS_US``; boxes on switches
are made here. Each row is what ``ringwright synthesise`` answers without ``--method``. A row ends with what it was asked to
reach and whether it did; the bound of each machine is compared with the published one first.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import synthesis_greedy as greedy
from published_bounds import BOUNDS_US

from ringwright.bounds.certificates import certificate, proved_s
from ringwright.bounds.lower_bounds import lowest
from ringwright.calls.asked_faults import AskedFaults
from ringwright.fabrics import fabric
from ringwright.formats.sources.topology import read_topology
from ringwright.ground.errors import RingwrightError
from ringwright.ground.units import parse_size
from ringwright.model.collective import Collective
from ringwright.model.topology import RANK, SWITCH, Topology
from ringwright.search.question import SynthesisSpec
from ringwright.search.study import synthesise

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
# us that all-gather was asked to stay below, links that block, beside TACOS's own times.
ASKED_US = {
    ("torus8x8", MIB): 9.0,
    ("torus:16x16", MIB): 13.0,
    ("mesh8x8", MIB): 17.5,
    ("torus8x8", 64 * KIB): 4.4,
    ("ndv2x2", MIB): 55.0 * 1.048576,
}
NEAR, FAR = 0.01, {("dgx-a100:16", "blocking"): 0.04}
OPS = ("all-gather", "reduce-scatter", "all-reduce")
FAULTS = ("link rank5 rate 50%", "link rank77 rate 25%", "link rank300 rate 50%")
HEADER = ("machine", "operation", "bytes", "links", "by", "us", "over bound", "CPU s", "search", "asked")
WIDE = (16, 14, 11, 9, 16, 12, 10, 7, 7, 30)


@dataclass(frozen=True)
class Question:
    """One row: a machine, a collective, a model of links, and what the row was asked to reach."""

    name: str
    topology: Topology
    op: str
    size: int
    model: str
    most_s: float

    def asked(self, us: float, gap: float, spent_s: float) -> str:
        """Return what was asked and whether it was reached, in words."""
        said = []
        if self.size >= GIB and self.op != "all-to-all":
            most = FAR.get((self.name, self.model), NEAR)
            said.append(f"{'ok' if gap <= most else 'NOT'} {most:.0%}")
        if self.op == "all-gather" and self.model == "blocking":
            other = dict(zip(greedy.SIZES, greedy.OTHERS.get(self.name, ()), strict=False)).get(self.size)
            limit = ASKED_US.get((self.name, self.size))
            if limit is not None:
                said.append(f"{'ok' if us <= limit else 'NOT'} {limit:.4g} us")
            if other is not None:
                said.append(f"{'ok' if us <= other else 'NOT'} TACOS {other:.5g}")
        said.append(f"{'ok' if spent_s <= self.most_s else 'NOT'} {self.most_s:g} s")
        return ", ".join(said)


def switched(boxes: int) -> Topology:
    """Return boxes of 16 ranks on a switch at 125 GB/s; two are joined by eight links of 12.5 GB/s."""
    if boxes == 2:
        return greedy.two_switches()
    rows = [(rank, 16) for rank in range(16)]
    rows += [(16, rank) for rank in range(16)]
    src, dst = np.array(rows).T
    rate, late, none = np.full(32, 125e9), np.full(32, 0.35e-6), np.zeros(32, np.int64)
    kinds = np.repeat(np.array([RANK, SWITCH], np.uint8), [16, 1])
    return Topology("dgx2x1", 16, kinds, src, dst, rate, late, none, ("link",), hosts=np.zeros(16, np.int64))


def machine(name: str, folder: Path) -> Topology | None:
    """Return a machine by the name of its row; None where its file is not there."""
    if name.startswith("dgx2x"):
        return switched(int(name[-1]))
    if ":" in name:
        return fabric(name)
    path = folder / f"{name}.json"
    return read_topology(path) if path.exists() else None


def small(folder: Path, only: list[str], sizes: list[int]) -> Iterator[Question]:
    """Yield the rows of machines of up to 64 ranks, and the largest that were asked for by name."""
    for name in only or [*BOUNDS_US, "torus:16x16", "dgx-a100:8", "dgx-a100:16"]:
        topology = machine(name, folder)
        if topology is None:
            continue
        most_s = 1.0 if topology.n_ranks <= 64 else 10.0
        for size in sizes:
            for op in OPS if size >= GIB else OPS[:1]:
                for model in ("pipelined", "blocking"):
                    yield Question(name, topology, op, size, model, most_s)


def large() -> Iterator[Question]:
    """Yield 1,024 and 4,096 ranks, three faults, and all-to-all of 512."""
    for name in ("torus:32x32", "dgx-a100:128"):
        yield Question(name, fabric(name), "all-gather", GIB, "pipelined", 10.0)
        broken = AskedFaults(FAULTS).on(fabric(name))
        yield Question(f"{name} 3 faults", broken, "all-gather", GIB, "pipelined", 60.0)
    for name in ("torus:64x64", "dgx-a100:512"):
        yield Question(name, fabric(name), "all-gather", GIB, "pipelined", 30.0)
    for name in ("torus:8x8x8", "dgx-h100:64"):
        yield Question(name, fabric(name), "all-to-all", GIB, "pipelined", 60.0)


def bounded(folder: Path) -> None:
    """Print the bound of each machine beside the published one, and whether its certificate proves it."""
    print(f"{'machine':16} {'bound us':>10} {'published':>10} {'differs':>8} {'CPU s':>7} {'proved us':>10}")
    for name, published in BOUNDS_US.items():
        topology = machine(name, folder)
        if topology is None:
            continue
        collective = Collective("all-gather", range(topology.n_ranks), GIB)
        begin = time.process_time()
        bound = lowest(collective, topology)
        spent_s = time.process_time() - begin
        proved = proved_s(certificate(bound), collective, topology)
        us = bound.time_s * 1e6
        print(f"{name:16} {us:10.1f} {published:10.1f} {us / published - 1:8.2%} {spent_s:7.3f} {proved * 1e6:10.1f}")


def answered(question: Question, method: str | None) -> None:
    """Print one row."""
    spec = SynthesisSpec(question.op, question.topology, link_model=question.model, fresh=True)
    begin = time.process_time()
    try:
        found = synthesise(spec, [question.size], *([method] if method else []), rivals=False)
    except RingwrightError as error:
        print(
            f"{question.name:16} {question.op:14} {question.size:>11} {question.model:9} NOT: {error.what}", flush=True
        )
        return
    spent_s = time.process_time() - begin
    row = found.largest
    searched_s = sum(each.synthesis_s for each in found.rows)
    values = (
        question.name,
        question.op,
        f"{question.size}",
        question.model,
        row.method,
        f"{row.time_us:.3f}",
        f"{row.gap:+.2%}",
        f"{spent_s:.2f}",
        f"{searched_s:.2f}",
        question.asked(row.time_us, row.gap, searched_s),
    )
    print(" ".join(f"{value:{width}}" for value, width in zip(values, WIDE, strict=True)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--only", default="", help="machines, separated by commas")
    parser.add_argument("--sizes", default="1G,1M,64K")
    parser.add_argument("--method")
    given = parser.parse_args()
    only = [each for each in given.only.split(",") if each]
    sizes = [parse_size(each) for each in given.sizes.split(",")]
    if not only and not given.large:
        bounded(given.folder)
    print(" ".join(f"{name:{width}}" for name, width in zip(HEADER, WIDE, strict=True)))
    for question in large() if given.large else small(given.folder, only, sizes):
        answered(question, given.method)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB at most")


if __name__ == "__main__":
    main()
