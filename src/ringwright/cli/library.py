"""``ringwright library``: what a library would choose, size by size."""

from __future__ import annotations

import sys

from ringwright.cli import options, reading
from ringwright.cli.sizes import Sizes

EVERY_SIZE = Sizes(begin="8", end="1G")


def library(
    spelling: str,
    *,
    collective: str = "all-reduce",
    ranks: int = 8,
    nodes: int = 1,
    fabric: str | None = None,
    sizes: Sizes = EVERY_SIZE,
    json: options.Json = False,
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
    json
        Print one JSON object instead (schema ringwright.library/1).

    Examples
    --------
    ringwright library nccl-2-4@2.27 --ranks 64 --nodes 8 --fabric dgx-h100
    """
    from ringwright.calls import library as study

    result = study.choices(spelling, collective, ranks, nodes, sizes.listed(collective), fabric)
    if json:
        reading.print_json(result)
        return 0
    from ringwright.calls.library_document import LibraryChoices
    from ringwright.ground.documents import read_json
    from ringwright.reports.calls import choices

    choices.write(read_json(LibraryChoices, result), sys.stdout)
    return 0
