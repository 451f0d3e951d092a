"""``ringwright calibrate``: link numbers of a system from nccl-tests tables."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from ringwright.cli import options, progress, reading
from ringwright.ground.errors import UsageError


def calibrate(
    *tables: str,
    fabric: str,
    sample: Annotated[bool, Parameter(group=options.QUESTION)] = False,
    release: str | None = None,
    collective: str | None = None,
    name: str = "",
    source: str = "",
    date: str = "",
    transport: Literal["infiniband", "roce", "efa", "slingshot", "tcp"] | None = None,
    system: str = "",
    output: options.Target = None,
    force: options.Force = False,
    json: options.Json = False,
) -> int:
    """Fit three numbers per link class to measured times, and say how well they fit.

    Parameters
    ----------
    tables
        Output of nccl-tests or rccl-tests, JSON lines of mscclpp, or nccl_times.csv; several give one calibration.
    fabric
        Box and nodes: dgx-a100:2 (2 boxes), dgx-h100:2x4 (4 GPUs of each); {n} is the nodes that a table names.
    sample
        Read the table that ships with ringwright instead, of two nodes of eight H100.
    release
        NCCL release, if the tables do not name it.
    collective
        Operation, if the tables do not name it.
    name
        What to call the calibration.
    source
        Where the tables come from.
    date
        When they were measured.
    transport
        What joins the nodes, if the tables do not name it; by it times of NCCL are expected.
    system
        Which system, where tables of several stand in nccl_times.csv.
    output
        Write the calibration here (JSON), for --calibration of other verbs.
    force
        Overwrite the file.
    json
        Print the calibration as JSON (schema ringwright.calibration/1).

    Examples
    --------
    ringwright calibrate --sample --fabric dgx-h100:2 --release 2.20
    """
    from ringwright.calls import calibrate as study
    from ringwright.formats.sources.sample import measured_table

    if sample and tables:
        raise UsageError(
            "--sample reads the sample alone", remedy="ringwright calibrate --sample --fabric dgx-h100:2 --release 2.20"
        )
    with progress.busy("fitting"):
        calibration, judged = study.calibrate(
            [str(measured_table())] if sample else [*tables],
            fabric,
            release=release,
            collective=collective,
            name=name or (output.stem if output else ""),
            source=source,
            date=date,
            transport=transport or "",
            system=system,
        )
    if output:
        from ringwright.costs.calibration import save
        from ringwright.formats.exports.placement import claim_file

        save(calibration, claim_file(output, force=force))
    if json:
        reading.print_json(study.document(calibration))
        return 0
    from ringwright.reports.calls import calibrated

    calibrated.write(calibration, judged, sys.stdout, output)
    return 0
