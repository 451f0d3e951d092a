"""``ringwright library``: what a library would choose, size by size."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from ringwright.cli import reading
from ringwright.units import parse_size


def library(
    spelling: str,
    *,
    collective: str = "all-reduce",
    ranks: int = 8,
    nodes: int = 1,
    fabric: str | None = None,
    begin: Annotated[str, Parameter(name=["--begin", "-b"])] = "8",
    end: Annotated[str, Parameter(name=["--end", "-e"])] = "1G",
    factor: Annotated[float, Parameter(name=["--factor", "-f"])] = 2,
    json: bool = False,
) -> int:
    """List the algorithm, protocol and channels that a library chooses, and the time it predicts.

    Parameters
    ----------
    spelling
        Slug and release: nccl-2-4@2.27, open-mpi, mpich2, mvapich.
    collective
        all-reduce, all-gather, ...
    ranks
        Ranks in all.
    nodes
        Nodes they lie on, equally.
    fabric
        For NCCL the kind of node: dgx-a100, dgx-h100, p4d, gb200-nvl72, ...
    begin
        Smallest size.
    end
        Largest size.
    factor
        From one size to the next.
    json
        Print one JSON object instead (schema ringwright.library/1).
    """
    from ringwright.studies import library as study

    wanted = study.sizes(parse_size(begin), parse_size(end), factor)
    result = study.choices(spelling, collective, ranks, nodes, wanted, fabric)
    if json:
        reading.print_json(result)
        return 0
    from ringwright.reports import choices

    choices.write(result, sys.stdout)
    return 0
