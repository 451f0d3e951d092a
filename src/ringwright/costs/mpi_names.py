"""How MPI libraries spell the collectives that we spell ``all-reduce``; the numbers Open MPI gives them in a rules file.

Source: open-mpi/ompi ``docs/tuning-apps/collectives/tuned.rst``, table "Collectives".
"""

from __future__ import annotations

from ringwright.ground.errors import UsageError

MPI_NAMES = {
    "all-gather": "allgather",
    "all-gather-v": "allgatherv",
    "all-reduce": "allreduce",
    "all-to-all": "alltoall",
    "all-to-all-v": "alltoallv",
    "all-to-all-w": "alltoallw",
    "barrier": "barrier",
    "broadcast": "bcast",
    "exscan": "exscan",
    "gather": "gather",
    "gather-v": "gatherv",
    "reduce": "reduce",
    "reduce-scatter": "reduce_scatter",
    "reduce-scatter-block": "reduce_scatter_block",
    "scan": "scan",
    "scatter": "scatter",
    "scatter-v": "scatterv",
}
OUR_NAMES = {theirs: ours for ours, theirs in MPI_NAMES.items()}
RULES_FILE_IDS = {op: number for number, op in enumerate(MPI_NAMES)}  # the order above is Open MPI's enumeration
RULES_FILE_OPS = {number: op for op, number in RULES_FILE_IDS.items()}


def mpi_name(op: str) -> str:
    """Return MPI's name of a collective (``all-reduce`` -> ``allreduce``); UsageError for one that MPI does not have."""
    if op not in MPI_NAMES:
        raise UsageError(f"MPI has no collective '{op}'", remedy=f"one of {', '.join(MPI_NAMES)}")
    return MPI_NAMES[op]
