"""``ringwright lab``: a command as every rank of a network of namespaces, with faults by script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import reading
from ringwright.errors import UsageError
from ringwright.units import parse_time


def lab(
    fabric: str | None = None,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    fault: tuple[str, ...] = (),
    seed: int = 0,
    tcp: str = "reno",
    timeout: str = "60s",
    ready: str = "",
    out: Path | None = None,
    rootless: bool = False,
    force: bool = False,
    list: bool = False,  # noqa: A002 (the option's name)
    json: bool = False,
) -> int:
    """Build a star, tree or ring of network namespaces, run a command on each rank, apply faults, and clean up.

    Parameters
    ----------
    fabric
        switch:4,rate=100Mb/s, leaf-spine:8,spines=1,rate=100Mb/s or ring:4,rate=100Mb/s.
    command
        What every rank runs, behind --; RANK, WORLD_SIZE, MASTER_ADDR and the like are set.
    fault
        A line of the fault script, such as 'link rank3 loss 1% at 2s for 1s'; may be repeated.
    seed
        Draws what the script leaves open, and which frames are lost.
    tcp
        Congestion control: reno, cubic or bbr.
    timeout
        Ranks that still run by then are ended.
    ready
        Start the fault script's clock when every rank has printed this text, instead of at once.
    out
        Folder of the capture (ringwright-lab-N in this folder, unless given).
    rootless
        Use a user namespace although this is root.
    force
        Overwrite a capture.
    list
        List the labs that live, or that were killed and not yet cleaned up.
    json
        Print one JSON object instead (schema ringwright.lab/1).
    """
    from ringwright.lab import leftovers, ranks
    from ringwright.reports import lab as report

    if list:
        labs = leftovers.found()
        reading.print_json({"schema": "ringwright.labs/1", "labs": labs}) if json else report.labs(labs, sys.stdout)
        return 0
    if fabric is None:
        raise UsageError("no fabric is named", remedy="ringwright lab switch:4,rate=100Mb/s -- COMMAND")
    outcome = ranks.run(
        fabric,
        command,
        faults=fault,
        seed=seed,
        tcp=tcp,
        timeout_s=parse_time(timeout),
        ready=ready,
        out=out or ranks.free_folder(Path.cwd()),
        rootless=rootless or None,
        force=force,
    )
    if json:
        reading.print_json(outcome.full())
    else:
        report.write(outcome.full(), sys.stdout)
    return outcome.code
