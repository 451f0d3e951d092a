"""Open MPI's fixed decisions as the files of dynamic rules that its tuned component reads.

``open-mpi:algorithm=ring`` makes rules for one collective alone, which force it; what no rule is for stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.algorithms.libraries.open_mpi import mpi_op
from ringwright.costs.open_mpi import fixed_table, number_of
from ringwright.costs.selection import RanksRule, RuleTable, SizeRule
from ringwright.formats.settings.ompi_rules import to_rules_json, to_rules_text
from ringwright.model.registry import algorithm

if TYPE_CHECKING:
    from ringwright.calls.simulation_spec import SimulationSpec

EXPORTS = {"ompi-rules": "text", "ompi-rules-json": "json"}


def text(question: SimulationSpec, spelling: str) -> bytes:
    """Return the classic text's bytes."""
    return to_rules_text(_table(question, spelling))


def json(question: SimulationSpec, spelling: str) -> bytes:
    """Return the bytes of version 3."""
    return to_rules_json(_table(question, spelling))


def _table(question: SimulationSpec, spelling: str) -> RuleTable:
    slug, _, knobs = algorithm(spelling)
    if slug != "open-mpi" or not knobs.get("algorithm"):
        return fixed_table()
    op = mpi_op(question.collective(0))
    rule = SizeRule(0, None, number_of(op, knobs["algorithm"]))
    return RuleTable({op: (RanksRule(0, None, (rule,)),)})
