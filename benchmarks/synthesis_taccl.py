"""TACCL's published inputs: times and CPU seconds here, beside the public tool's with an open solver and TE-CCL's tables.

    python benchmarks/synthesis_taccl.py shared/data          # the folder that holds real/taccl-inputs and real/msccl-xml

Times are those of the event engine with links that are busy during their latency, on the links that a sketch leaves.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ringwright.algorithms.synthesis.taccl import taccl
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.formats.sources.programs.program_files import read_program
from ringwright.formats.sources.topology.taccl import read_taccl_model
from ringwright.ground.errors import RingwrightError
from ringwright.model.collective import Collective
from ringwright.model.program import Program
from ringwright.model.sketches import Sketch, read_sketch
from ringwright.model.topology import Topology
from ringwright.model.validity import check
from ringwright_lab.papers.figures.taccl import OF_TECCL, SK1, machine_of

MB, KB = 1 << 20, 1 << 10


@dataclass(frozen=True)
class Case:
    """A profile, a sketch, what is asked of them, the bytes over the busiest link (us) and what the public tool did."""

    profile: str
    sketch: str
    op: str
    size_bytes: int
    bound_us: float | None = None
    public: str = ""
    chunks: int | None = None
    paths: str = "relayed"


CASES = (
    Case("topo-ndv2-1MB", "sk1-ndv2-n2", "all-gather", 16 * MB, 842.6, "970.6 us, 31 s"),
    Case("topo-ndv2-1MB", "sk1-ndv2-n2", "all-gather", 16 * MB, 842.6, "970.6 us, 31 s", 16),
    Case("topo-ndv2-1MB", "sk1-ndv2-n2", "all-to-all", 16 * MB, 6722.6, "6881.2 us, 85 s"),
    Case("topo-ndv2-1MB", "sk1-ndv2-n2", "reduce-scatter", 16 * MB, 842.6),
    Case("topo-ndv2-1MB", "sk1-ndv2-n2", "all-reduce", 16 * MB, 1685.2),
    Case("topo-ndv2-1MB", "sk1-ndv2-n4", "all-gather", 32 * MB, 2522.6, "none in 900 s"),
    Case("topo-ndv2-1MB", "sk1-ndv2-n4", "all-gather", 32 * MB, 2522.6, "none in 900 s", 8),
    Case("topo-ndv2-1KB", "sk2-ndv2-n2", "all-gather", 16 * KB, None, "none in 340 s"),
    Case("topo-ndv2-1KB", "sk2-ndv2-n4", "all-gather", 32 * KB),
    Case("topo-dgx2-1MB", "sk1-dgx2-n2", "all-gather", 64 * MB),
    Case("topo-dgx2-1MB", "sk1-dgx2-n2", "all-to-all", 32 * MB, None, "infeasible"),
    Case("topo-dgx2-1MB", "sk1-dgx2-n2", "all-to-all", 32 * MB, None, "infeasible", None, "hops"),
    Case("topo-dgx2-1KB", "sk2-dgx2-n2", "all-gather", 32 * KB),
)
OF_TACCL = ((1_000_000_000, 53766.7, 7.0), (256_000_000, 12494.6, 6.6), (1_000_000, 62.15, 62.7), (1024, 10.16, 3.0))
FILES = (
    "azure-ndv4-ag-1k-512k",
    "azure-ndv4-ag-1m",
    "azure-ndv4-ag-16m",
    "azure-ndv4-ag-32m-1g",
    "azure-ndv4-a2a2ll",
    "azure-ndv4-a2a4ll",
    "rccl-alltoall-8n-190kb-512kb",
)


def taken(program: Program, machine: Topology) -> float:
    """Return the microseconds of a legal program on a machine."""
    broken = check(program)
    if broken:
        raise SystemExit(f"{program.name}: {broken[0]}")
    return simulate(program, machine, engine="events", alpha="busy").time_s * 1e6


def row(inputs: Path, case: Case) -> str:
    """Return the line of one case."""
    sketch = read_sketch(inputs / f"{case.sketch}.json")
    machine = read_taccl_model((inputs / f"{case.profile}.json").read_text(), case.profile, sketch)
    begin = time.process_time()
    said = f"{case.profile[5:]:9} {case.sketch:15} {case.op:14}"
    try:
        program = made(case, machine, sketch)
    except RingwrightError as error:
        return f"{said} {error.what}"
    spent = time.process_time() - begin
    us = taken(program, machine)
    over = f"{us / case.bound_us - 1:+7.2%}" if case.bound_us else " " * 7
    return f"{said} {program.knobs['chunks']:>3} {us:10.2f} us {over} {spent:6.1f} s   {case.public}"


def made(case: Case, machine: Topology, sketch: Sketch) -> Program:
    """Return the program of a case."""
    asked = Collective(case.op, range(machine.n_ranks), case.size_bytes)
    paths = "hops" if case.paths == "hops" else "relayed"
    return taccl(asked, machine, sketch=sketch, chunks=case.chunks, paths=paths, link_model="blocking")


def of_teccl() -> None:
    """Print all-gathers on TE-CCL's two NDv2 boxes beside the times that it published of TACCL."""
    machine = machine_of(OF_TECCL, 1_000_000)
    for size, other_us, other_s in OF_TACCL:
        for chunks in (1, 2, 16):
            begin = time.process_time()
            asked = Collective("all-gather", range(16), size)
            program = taccl(asked, machine, sketch=SK1, chunks=chunks, effort=0.9, link_model="blocking")
            spent = time.process_time() - begin
            ours = f"{taken(program, machine):10.2f} us {spent:5.1f} s"
            print(f"{size:>13,} B, {chunks:>2} chunks {ours}; published of TACCL {other_us:10.2f} us {other_s:5.1f} s")


def beside_files(folder: Path) -> None:
    """Print published programs for eight A100 beside ours; their files do not say who made them, none says TACCL."""
    machine = fabric("dgx-a100:1")
    for name in FILES:
        program = read_program(folder / f"{name}.xml")
        begin = time.process_time()
        ours = taccl(program.collective, machine, link_model="blocking")
        spent = time.process_time() - begin
        theirs_us = taken(program, machine)
        print(
            f"{name:30} {program.collective.label:45} {theirs_us:9.2f} us, ours {taken(ours, machine):9.2f} us {spent:5.1f} s"
        )


def main() -> None:
    """Print the three tables."""
    data = Path(sys.argv[1] if len(sys.argv) > 1 else "shared/data")
    print("machine   sketch          collective     chunks    time      over the link    CPU   public tool")
    for case in CASES:
        print(row(data / "real" / "taccl-inputs", case), flush=True)
    of_teccl()
    beside_files(data / "real" / "msccl-xml")


if __name__ == "__main__":
    main()
