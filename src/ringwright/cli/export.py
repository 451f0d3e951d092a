"""``ringwright export``: an algorithm as a file that other systems run."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.cli.fabrics import MachineOptions, group
from ringwright.ground.units import parse_size

EVERYWHERE = MachineOptions()


def export(
    collective: str,
    *,
    to: str,
    output: options.NeededTarget,
    algorithm: str = "ring",
    machine: MachineOptions = EVERYWHERE,
    size: Annotated[str, Parameter(name=["--size", "-b"])] = "1M",
    root: int = 0,
    force: options.Force = False,
    json: options.Json = False,
) -> int:
    """Write a program for MSCCL, MSCCL++, LogGOPSim or ASTRA-sim, or a library's choices as its own rules.

    Parameters
    ----------
    collective
        all-reduce, all-gather, ...
    to
        msccl-xml, goal, chakra, nccl-tuner-csv, nccl-env, ompi-rules, ...: all of them stand below.
    output
        The file; a folder for chakra, which has one file per rank.
    algorithm
        A system with its knobs, such as blueconnect:factors=8x2, or a library for its rules.
    size
        Bytes, the size column of nccl-tests.
    root
        Place of the root in the group.
    force
        Overwrite the output.
    json
        Print what was written as one JSON object (schema ringwright.export/1).

    Examples
    --------
    ringwright export all-reduce --fabric switch:8 --algorithm ring --to msccl-xml -o ring.xml --force
    """
    from ringwright.calls import export_files

    topology = machine.build()
    files = export_files.export(
        to, collective, topology, algorithm, parse_size(size), group(machine.ranks, topology), root
    )
    written = export_files.write(files, output, force=force)
    if json:
        reading.print_json({"schema": "ringwright.export/1", "to": to, "files": [str(path) for path in written]})
    else:
        print(f"wrote {written[0]}" + (f" and {len(written) - 1} more" if len(written) > 1 else ""))
    return 0


def every_export() -> str:
    """Return the names that --to takes."""
    from ringwright.calls import export_files

    return "Exports: " + ", ".join(export_files.known())
