"""MPICH's selection as the JSON tree that it reads; ``mpich2:algorithm=ring`` forces one collective's algorithm in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.algorithms.libraries.mpich2.rules import forced, selection
from ringwright.algorithms.libraries.open_mpi import mpi_op
from ringwright.costs.mpi_names import mpi_name
from ringwright.costs.selection import Branch, Test, Tree
from ringwright.formats.settings.mpich_json import to_mpich_json
from ringwright.model.registry import algorithm

if TYPE_CHECKING:
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.costs.selection import Choice

EXPORTS = {"mpich-json": "tree"}


def tree(question: SimulationSpec, spelling: str) -> bytes:
    """Return the file's bytes: the tests that MPICH ships, of a collective whose algorithm is named that one alone."""
    slug, _, knobs = algorithm(spelling)
    if slug != "mpich2" or not knobs.get("algorithm"):
        return to_mpich_json(selection())
    op = mpi_op(question.collective(0))
    return to_mpich_json(_forcing(mpi_name(op), forced(op, knobs["algorithm"])))


def _forcing(name: str, choice: Choice) -> Tree:
    """Return the tests with one collective's algorithm forced, but between two groups, which have others."""
    listed = []
    for branch in selection():
        if branch.test.value == name and isinstance(branch.then, tuple):
            between = tuple(each for each in branch.then if str(each.test) == "comm_type=inter")
            listed.append(Branch(branch.test, (*between, Branch(Test("comm_type", "=", "any"), choice))))
        else:
            listed.append(branch)
    return tuple(listed)
