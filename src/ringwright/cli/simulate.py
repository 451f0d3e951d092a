"""``ringwright simulate``: what a collective takes on a fabric, by each algorithm, over a range of sizes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import reading
from ringwright.cli.fabrics import Machine, group
from ringwright.cli.sizes import Sizes

EVERYWHERE, FROM_1K = Machine(), Sizes(begin="1K")


def simulate(
    collective: str,
    *,
    algorithm: str = "ring",
    machine: Machine = EVERYWHERE,
    sizes: Sizes = FROM_1K,
    engine: str = "auto",
    alpha: str = "pipelined",
    root: int = 0,
    dtype: str = "float32",
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    trace: Path | None = None,
    force: bool = False,
    json: bool = False,
) -> int:
    """Simulate a collective on a fabric and print an nccl-tests table, each time beside its bound.

    Parameters
    ----------
    collective
        all-reduce, reduce-scatter, all-gather, broadcast, reduce, gather, scatter, all-to-all, barrier or send-recv.
    algorithm
        Systems, comma separated: ring,blueconnect:factors=8x16,nccl-2-4@2.27 (see ringwright systems).
    engine
        auto, closed-form, recurrence, events or flows.
    alpha
        Whether a link is free during its latency (pipelined) or busy (busy).
    root
        Place of the root in the group.
    dtype
        Element type.
    output
        Write one HTML page with the table, the steps and the links' load.
    trace
        Save the first algorithm's run at the largest size as a Trace.
    force
        Overwrite the page and the Trace.
    json
        Print one JSON object instead (schema ringwright.simulate/1).
    """
    from ringwright.studies import simulate as study

    topology, names = machine.build(), algorithm.split(",")
    question = study.Question(collective, topology, engine, alpha, group(machine.ranks, topology), dtype, root=root)
    wanted = sizes.listed()
    with reading.busy("simulating"):
        result = study.sweep(question, names, wanted)
    if trace:
        from ringwright.studies.traced import trace as traced

        first = study.detail(question, names[0], wanted[-1])
        traced(first.program, topology, first.run).save(trace, force=force)
    if json:
        reading.print_json(result)
        return 0
    from ringwright.reports import simulated, simulated_page

    simulated.write(result, sys.stdout)
    if output:
        details = [study.detail(question, name, wanted[-1]) for name in names]
        reading.write_page(output, simulated_page.page(result, details, reading.command_line()), force=force)
    return 0
