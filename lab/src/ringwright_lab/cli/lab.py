"""``ringwright lab``: a command as every rank of a network of namespaces, with faults by script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.cli.networks import AS_IT_IS, NetworkOptions
from ringwright.ground.errors import UsageError
from ringwright.ground.units import parse_time


def lab(
    fabric: str | None = None,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    network: NetworkOptions = AS_IT_IS,
    ready: str = "",
    output: options.Folder = None,
    rootless: bool = False,
    force: options.Force = False,
    list: bool = False,  # noqa: A002 (the option's name)
    json: options.Json = False,
) -> int:
    """Build a star, tree or ring of network namespaces, run a command on each rank, apply faults, and clean up.

    Parameters
    ----------
    fabric
        switch:4,rate=100Mb/s, leaf-spine:8,spines=1,rate=100Mb/s or ring:4,rate=100Mb/s.
    command
        What every rank runs, behind --; RANK, WORLD_SIZE, MASTER_ADDR and the like are set.
    ready
        Start the fault script's clock when every rank has printed this text, instead of at once.
    output
        Folder of the capture (ringwright-lab-N in this folder, unless given).
    rootless
        Use a user namespace although this is root.
    force
        Overwrite a capture.
    list
        List the labs that live, or that were killed and not yet cleaned up.
    json
        Print one JSON object instead (schema ringwright.lab/1).

    Examples
    --------
    ringwright lab switch:2,rate=100Mb/s --fault 'link rank1 loss 1%' -- python3 -c "print('a rank')"
    """
    from ringwright_lab.network import leftovers, ranks
    from ringwright_lab.reports.lab import labs, write

    if list:
        left = leftovers.found()
        reading.print_json({"schema": "ringwright.labs/1", "labs": left}) if json else labs(left, sys.stdout)
        return 0
    if fabric is None:
        raise UsageError("no fabric is named", remedy="ringwright lab switch:4,rate=100Mb/s -- COMMAND")
    outcome = ranks.run(
        fabric,
        command,
        faults=network.fault,
        seed=network.seed,
        tcp=network.tcp,
        timeout_s=parse_time(network.timeout),
        ready=ready,
        out=output or ranks.free_folder(Path.cwd()),
        rootless=rootless or None,
        force=force,
    )
    if json:
        reading.print_json(outcome.full())
    else:
        write(outcome.full(), sys.stdout)
    return outcome.code
