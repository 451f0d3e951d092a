"""``ringwright simulate``: what a collective takes on a fabric, by each algorithm, over a range of sizes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import fabrics, reading
from ringwright.units import parse_size


def simulate(
    collective: str,
    *,
    fabric: str | None = None,
    topology: Path | None = None,
    algorithm: str = "ring",
    begin: Annotated[str, Parameter(name=["--begin", "-b"])] = "1K",
    end: Annotated[str | None, Parameter(name=["--end", "-e"])] = None,
    factor: Annotated[float, Parameter(name=["--factor", "-f"])] = 2,
    step: Annotated[str | None, Parameter(name=["--step", "-i"])] = None,
    fault: list[str] | None = None,
    engine: str = "auto",
    alpha: str = "pipelined",
    ranks: str | None = None,
    root: int = 0,
    dtype: str = "float32",
    seed: int = 0,
    calibration: str | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    force: bool = False,
    json: bool = False,
) -> int:
    """Simulate a collective on a fabric and print an nccl-tests table, each time beside its bound.

    Parameters
    ----------
    collective
        all-reduce, reduce-scatter, all-gather, broadcast, reduce, gather, scatter, all-to-all, barrier or send-recv.
    fabric
        Family and size: switch:8, torus:8x8, dgx-h100:16 (16 nodes), leaf-spine:512.
    topology
        A file instead: NCCL topology XML, our JSON, TACCL, ASTRA-sim yml, nvidia-smi topo -m.
    algorithm
        Systems, comma separated: ring,blueconnect:factors=8x16,nccl-2-4@2.27 (see ringwright systems).
    begin
        Smallest size, as -b of nccl-tests.
    end
        Largest size (-e); only the smallest if left out.
    factor
        From one size to the next (-f).
    step
        Bytes from one size to the next (-i), instead of a factor.
    fault
        What goes wrong, for example 'link node3/nic2 flap 100ms every 2s'; may be repeated.
    engine
        auto, closed-form, recurrence, events or flows.
    alpha
        Whether a link is free during its latency (pipelined) or busy (busy).
    ranks
        The group: a count, or ranks and ranges such as 0-7,16.
    root
        Place of the root in the group.
    dtype
        Element type.
    seed
        For faults that are drawn.
    calibration
        Name or file of measured link parameters (see ringwright calibrate).
    output
        Write one HTML page with the table, the steps and the links' load.
    force
        Overwrite the page.
    json
        Print one JSON object instead (schema ringwright.simulate/1).
    """
    from ringwright.studies import simulate as study

    machine = fabrics.machine(fabric, topology, faults=fault or [], seed=seed, calibration=calibration)
    question = study.Question(collective, machine, engine, alpha, fabrics.group(ranks, machine), dtype, root=root)
    wanted = study.sizes(parse_size(begin), parse_size(end or begin), factor, parse_size(step) if step else 0)
    with reading.busy("simulating"):
        result = study.sweep(question, algorithm.split(","), wanted)
    if json:
        reading.print_json(result)
        return 0
    from ringwright.reports import simulated

    simulated.write(result, sys.stdout)
    if output:
        from ringwright.reports.simulated_page import page

        details = [study.detail(question, name, wanted[-1]) for name in algorithm.split(",")]
        reading.write_page(output, page(result, details, reading.command_line()), force=force)
    return 0
