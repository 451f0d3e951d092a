"""``ringwright bound``: what no algorithm can beat on this fabric, and the cut that proves it."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import options, reading
from ringwright.cli.fabrics import MachineOptions, group
from ringwright.units import parse_size

EVERYWHERE = MachineOptions()


def bound(
    collective: str,
    *,
    machine: MachineOptions = EVERYWHERE,
    size: Annotated[str, Parameter(name=["--size", "-b"])] = "1G",
    root: int = 0,
    json: options.Json = False,
) -> int:
    """Print the latency and bandwidth bounds of a collective, with and without in-network reduction.

    Parameters
    ----------
    collective
        all-reduce, all-gather, ...
    size
        Bytes, the size column of nccl-tests.
    root
        Place of the root in the group.
    json
        Print one JSON object instead (schema ringwright.bound/1).

    Examples
    --------
    ringwright bound all-gather --fabric dgx-a100:2 -b 1G
    """
    from ringwright.studies import bounds

    topology = machine.build()
    result = bounds.bounds(collective, topology, parse_size(size), group(machine.ranks, topology), root)
    if json:
        reading.print_json(result)
        return 0
    from ringwright.reports import bounded

    bounded.write(result, sys.stdout)
    return 0
