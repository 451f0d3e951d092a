"""The checks of the contract of algorithms: each takes a Program and its machine, and says what is wrong, or nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ringwright.model import interpreter, validity
from ringwright_lab.contracts.closed_form import closed_form
from ringwright_lab.contracts.outcome import DECLINED

if TYPE_CHECKING:
    from ringwright.bounds.lower_bounds import Bound
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program, Step
    from ringwright.model.topology import Topology

MOST_MOVES = 400_000


def moves(program: Program, most: int) -> int:
    """Return the moves of a program, counted until they are more than ``most``."""
    count = program.n_steps
    if count > most:
        return count
    count = 0
    for step in program.steps():
        count += step.count
        if count > most:
            break
    return count


def legal(program: Program, topology: Topology) -> str | None:
    """The table of rules, the declared bytes and number of steps among them, and what the machine's switches can do."""
    violations = validity.check(program, topology=topology)
    return "; ".join(map(str, violations[:3])) or None


def right(program: Program, topology: Topology) -> str | None:
    """Real data through the interpreter equal NumPy over all ranks at once."""
    del topology
    if moves(program, MOST_MOVES) > MOST_MOVES:
        return f"{DECLINED}more than {MOST_MOVES:,} moves"
    given = interpreter.inputs(program.collective, seed=program.p)
    wanted = interpreter.expected(program.collective, given)
    for rank, (have, want) in enumerate(zip(interpreter.run(program, given), wanted, strict=True)):
        if have.keys() != want.keys():
            return f"rank {rank} holds blocks {sorted(have)[:5]}, not {sorted(want)[:5]}"
        wrong = [block for block in want if not np.array_equal(have[block], want[block])]
        if wrong:
            return f"rank {rank} has the wrong data in block {wrong[0]}"
    return None


def with_steps_kept(program: Program) -> Program:
    """Return the program with its steps made once, so that no check makes them anew; ``same_again`` makes them again."""
    steps: list[Step] = []

    def kept() -> list[Step]:
        if not steps:
            steps.extend(list(program.steps()))  # all of them, or none where one raises
        return steps

    return dataclasses.replace(program, make_steps=kept)


def same_again(program: Program, kept: Program) -> str | None:
    """Two generations are the same, move by move: a new one, and that which all other checks look at."""
    for number, (one, two) in enumerate(zip(program.steps(), kept.steps(), strict=True)):
        for left, right_ in zip(one.blocks, two.blocks, strict=True):
            if not all(map(np.array_equal, left.arrays(), right_.arrays())):
                return f"step {number} differs from one time to the next"
    return None


def timed(program: Program, topology: Topology) -> str | None:
    """It ends on the fabric, and not before the bounds of physics allow."""
    from ringwright.engines.choose import simulate

    run = simulate(program, topology, engine="events")
    least = _least(program.collective, _Same(topology), bool(program.aggregators))
    if run.time_s < least.time_s * (1 - 1e-9):
        return f"{run.time_s * 1e6:.3f} us is less than the bound {least.time_s * 1e6:.3f} us ({least.kind})"
    return None


@dataclass(frozen=True)
class _Same:
    """A machine that is equal to itself alone: what was worked out on it is kept by it."""

    topology: Topology

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.topology is self.topology

    def __hash__(self) -> int:
        return id(self.topology)


@lru_cache(1 << 14)
def _least(collective: Collective, machine: _Same, in_network: bool) -> Bound:
    """Return the bound of a collective on a machine; a campaign asks for the same ones with every system."""
    from ringwright.bounds.lower_bounds import bound

    return bound(collective, machine.topology, exact=False, in_network=in_network)


CHECKS: dict[str, Callable[[Program, Topology], str | None]] = {
    "legal": legal,
    "right": right,
    "timed": timed,
    "closed-form": closed_form,
}
