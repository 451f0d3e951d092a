"""What an MPI library may be told: the algorithm of an operation, of those that the library has for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.advise.layers.operations import MOST_SYSTEMS, LeftOut, MainOperation, quickest, slot_of, timed
from ringwright.advise.settings import Setting
from ringwright.algorithms.libraries.mpich2.rules import names
from ringwright.costs import open_mpi
from ringwright.ground.errors import RingwrightError

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

RISK = "a rule holds for every communicator of the job; one that cannot do a case falls back"
WHERE = {
    "open-mpi": "mpirun --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_dynamic_rules_filename FILE",
    "mpich2": "environment: MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE=FILE",
}


def chosen_settings(situation: Situation, operations: list[MainOperation], left: LeftOut) -> list[Setting]:
    """Return, for each operation, the algorithms of the job's library by which it is quicker alone, the quickest first."""
    library = situation.mpi
    asked = [(each, _setting(library, each, name)) for each in operations for name in _names(library, each.op)]
    return quickest(operations, timed(situation, asked, left), MOST_SYSTEMS)


def _setting(library: str, operation: MainOperation, name: str) -> Setting:
    return Setting(
        "algorithm",
        slot_of(operation),
        f"{library}:algorithm={name}",
        f"{operation.op} by {name} of {library}",
        WHERE[library],
        RISK,
        size_bytes=operation.size_bytes,
        ranks=operation.ranks,
    )


def _names(library: str, op: str) -> tuple[str, ...]:
    """Return the algorithms that a library has for an operation, without its word for none in particular."""
    asked = "reduce-scatter-block" if op == "reduce-scatter" else op
    try:
        return open_mpi.names(asked)[1:] if library == "open-mpi" else names(asked)
    except RingwrightError:
        return ()
