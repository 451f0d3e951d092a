"""NCCL's own choices on a fabric, as rules of its example tuner: a start for rules of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.algorithms.libraries.nccl_2_4 import NEWEST
from ringwright.algorithms.libraries.nccl_2_4.system import system_of
from ringwright.costs.nccl import rules_from_choices, sweep
from ringwright.exports.nccl_tuner_csv import nccl_tuner_csv

if TYPE_CHECKING:
    from ringwright.studies.simulation_spec import SimulationSpec

EXPORTS = {"nccl-tuner-csv": "tuner"}
SIZES = tuple(1 << power for power in range(3, 34))


def tuner(question: SimulationSpec, spelling: str) -> bytes:
    """Return the CSV's bytes; ``spelling`` may name a release, as nccl-2-4@2.20.5."""
    system = system_of(question.collective(0), question.topology)
    choices = sweep(question.op, SIZES, system, spelling.partition("@")[2] or NEWEST)
    return nccl_tuner_csv(rules_from_choices(choices))
