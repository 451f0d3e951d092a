"""``ringwright bound``: what no algorithm can beat on this fabric, and the cut that proves it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import fabrics, reading
from ringwright.units import parse_size


def bound(
    collective: str,
    *,
    fabric: str | None = None,
    topology: Path | None = None,
    size: Annotated[str, Parameter(name=["--size", "-b"])] = "1G",
    ranks: str | None = None,
    root: int = 0,
    json: bool = False,
) -> int:
    """Print the latency and bandwidth bounds of a collective, with and without in-network reduction.

    Parameters
    ----------
    collective
        all-reduce, all-gather, ...
    fabric
        Family and size, such as dgx-a100:2.
    topology
        A file instead.
    size
        Bytes, the size column of nccl-tests.
    ranks
        The group: a count, or ranks and ranges.
    root
        Place of the root in the group.
    json
        Print one JSON object instead (schema ringwright.bound/1).
    """
    from ringwright.studies import bounds

    machine = fabrics.machine(fabric, topology)
    result = bounds.bounds(collective, machine, parse_size(size), fabrics.group(ranks, machine), root)
    if json:
        reading.print_json(result)
        return 0
    from ringwright.reports import bounded

    bounded.write(result, sys.stdout)
    return 0
