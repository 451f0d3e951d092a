"""``ringwright verify``: is this program legal, and does it do what it says?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.ground.errors import EXIT_GOOD, EXIT_INPUT, EXIT_PROGRAM, UsageError


def verify(
    file: Path,
    *,
    fabric: Annotated[str | None, Parameter(group=options.MACHINE)] = None,
    topology: Annotated[Path | None, Parameter(group=options.MACHINE)] = None,
    json: options.Json = False,
) -> int:
    """Check an MSCCL XML or MSCCL++ JSON program: rules, deadlock, races, result; exit 4 when it is not legal, 3 without any.

    Parameters
    ----------
    file
        The program.
    fabric, topology
        A machine, by name or file: what the program does in switches is held to what those can do.
    json
        Print one JSON object instead (schema ringwright.verify/1).

    Examples
    --------
    ringwright export all-reduce --fabric switch:8 --to msccl-xml -o ring.xml --force && ringwright verify ring.xml
    ringwright export all-reduce --fabric dgx-h100:1 --algorithm nvls --to mscclpp-json -o plan.json --force
    ringwright verify plan.json --fabric dgx-h100:1
    """
    from ringwright.calls import arguments
    from ringwright.calls.switch_assignment import seated
    from ringwright.formats.sources.programs.program_files import verify_file

    if fabric is not None and topology is not None:
        raise UsageError("a machine is named or given as a file", remedy="--fabric dgx-h100:1, or --topology FILE")
    machine = topology or fabric
    result = verify_file(file, None if machine is None else arguments.machine(machine), seated)
    if json:
        reading.print_json(result)
    else:
        from ringwright.reports.calls import verified

        verified.write(result, sys.stdout)
    if any(row["rule"] == "scope" for row in result["errors"]):
        return EXIT_INPUT
    return EXIT_GOOD if result["valid"] else EXIT_PROGRAM
