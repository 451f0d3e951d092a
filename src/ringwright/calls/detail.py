"""One run of a question in full, for pictures, Traces and bursts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.calls import arguments
from ringwright.calls.answers import Answers

if TYPE_CHECKING:
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.engines.result import Run
    from ringwright.model.program import Program

MOST_WHOLE = 200_000  # messages simulated one by one; with more, equal ones stay folded


@dataclass(frozen=True)
class Detail:
    """One run in full, for pictures: its program, the load of links (name, share of the time busy, bytes), the critical path."""

    name: str
    program: Program
    load: list[tuple[str, float, float]]
    path: str
    run: Run


def detail(question: SimulationSpec, spelling: str, size_bytes: int, *, whole: bool = False) -> Detail:
    """Return the engine's run of one algorithm at one size, on the machine that its row was run on.

    ``whole``: each message by itself, up to MOST_WHOLE of them, so that it is known whose each is.
    """
    program = arguments.algorithm(spelling)(question.collective(size_bytes), question.topology)
    machine = Answers(question, [size_bytes]).shown_on(program)
    run = question.run(program, machine, folded=not (whole and count_messages(program) <= MOST_WHOLE))
    return Detail(spelling, program, run.load(), run.path(), run)


def count_messages(program: Program) -> int:
    """Return how many messages a program has at the least that is more than MOST_WHOLE, else exactly."""
    count = 0
    for step in program.steps():
        count += sum(move.count * move.span for move in step.blocks)
        if count > MOST_WHOLE:
            break
    return count
