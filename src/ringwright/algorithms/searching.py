"""What searches for programs share: a budget that does nothing but stop them, the model of links, what they say of their find.

Work is counted in units that every machine counts alike (iterations, a solver's own deterministic time, seeds): without a
budget in seconds, or within it, the same question gets the same program.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Annotated, Literal

from ringwright.errors import InfeasibleError
from ringwright.knobs import Range

if TYPE_CHECKING:
    from ringwright.program import Program

Budget = Annotated[float, Range(0.001, 86_400, "s")]
Pieces = Annotated[int, Range(1, 4096)]
LinkModel = Literal["pipelined", "blocking"]
ALPHA_OF = {"pipelined": "pipelined", "blocking": "busy"}  # what engines and bounds call the two models of a link


class Deadline:
    """A budget of seconds, from now on; None never ends. ``stopped`` says that it ended a search, or that a person did."""

    def __init__(self, budget_s: float | None) -> None:
        self._ends_s = None if budget_s is None else time.monotonic() + budget_s
        self.stopped = False

    @property
    def left_s(self) -> float:
        """Seconds that are left, 0 at the least; inf without a budget."""
        return float("inf") if self._ends_s is None else max(0.0, self._ends_s - time.monotonic())

    def passed(self) -> bool:
        """Return whether the search must stop now, and remember that it did."""
        if self.left_s <= 0:
            self.stopped = True
        return self.stopped

    def interrupted(self) -> None:
        """Remember that a person stopped the search (Ctrl-C): it ends with the best that it has."""
        self.stopped = True


def nothing_yet(name: str, program: str) -> InfeasibleError:
    """Return the error of a search that its budget ended before it found anything."""
    return InfeasibleError(
        f"{name} found no {program} within its budget",
        remedy="a larger --budget, or none: the work is bounded without it",
    )


def told(program: Program, **facts: object) -> Program:
    """Return the program with what a search says of it, in ``knobs``: chunks, trees, height, stopped and the like."""
    return dataclasses.replace(program, knobs={**program.knobs, **facts})
