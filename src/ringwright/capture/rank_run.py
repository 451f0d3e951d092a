"""A program on real ranks of this machine: run, checked against the interpreter, and recorded as a Trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.execute import batch, check, record
from ringwright.execute.executors import executor as named
from ringwright.execute.plan import plans
from ringwright.ground.errors import InfeasibleError, UsageError
from ringwright.ground.notebook import card, line
from ringwright.ground.units import format_us
from ringwright.model import validity
from ringwright.model.program import Program
from ringwright.model.trace import claim_folder

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.trace import Trace

EXECUTOR = "sockets"
TIMEOUT_S = 60.0
MOST_NODES = 256  # processes on one machine


@dataclass(frozen=True, repr=False)
class Executed:
    """What came of a program on real ranks. It is true where every rank ended with what it must hold.

    ``results``: of each rank its blocks (number: elements as stored, shape (elements,)). ``wrong`` says what differs from the
    interpreter's result for the same input, empty where nothing does. ``trace``: a run after that, whose results were checked
    too, with the times of each message.
    """

    program: Program
    executor: str
    results: tuple[Mapping[int, np.ndarray], ...]
    wrong: str
    trace: Trace

    @property
    def correct(self) -> bool:
        """Whether every rank ended with what it must hold."""
        return not self.wrong

    def __bool__(self) -> bool:
        return self.correct

    @cached_property
    def time_s(self) -> float:
        """Seconds of the recorded run, from the first rank's begin to the last one's end."""
        import polars as pl

        ends = self.trace.scan("events").filter(pl.col("kind") == "collective").select(pl.col("start_s", "duration_s"))
        return float(ends.select((pl.col("start_s") + pl.col("duration_s")).max()).collect().item())

    def __repr__(self) -> str:
        what = self.program.collective.label
        said = f"right, {format_us(self.time_s)}" if self.correct else f"wrong, {self.wrong}"
        return line(f"Executed({self.program.name}, {what} on real ranks, {self.executor}: {said})")

    def _repr_html_(self) -> str:
        facts = {
            "collective": self.program.collective.label,
            "executor": self.executor,
            "results": self.wrong or "right",
            "time": format_us(self.time_s),
            "events": len(self.trace.df),
        }
        return card(f"{self.program.name} on real ranks", facts)


def execute(
    program: Program,
    executor: str = EXECUTOR,
    *,
    timeout_s: float = TIMEOUT_S,
    seed: int = 0,
    out: Path | None = None,
    force: bool = False,
) -> Executed:
    """Run a legal program twice on real ranks of this machine, checked both times, recorded the second time.

    Raises UsageError for an executor that is not there, ProgramError for a program that is not legal, InfeasibleError for one
    of too many nodes, RanksFailedError where ranks did not come to an end.
    """
    chosen = named(executor)
    if reason := chosen.missing():
        raise UsageError(f"the executor {executor} cannot run here", where=" ".join(reason.split()), remedy="'sockets'")
    if program.n_nodes > MOST_NODES:
        what = f"{program.name} needs {program.n_nodes:,} processes; at most {MOST_NODES} are started on one machine"
        raise InfeasibleError(what, remedy="the same algorithm on fewer ranks, or ringwright.simulate")
    validity.require(program)
    if out is not None:
        claim_folder(out, force=force)
    [answers] = batch.run_all(chosen, [program], timeout_s=timeout_s, seed=seed, record=True)
    results = tuple(check.gathered(answer, program.collective) for answer in answers[: program.p])
    trace = record.trace(program, plans(program), answers, executor=executor)
    if out is not None:
        trace.save(out, force=force)
    return Executed(program, executor, results, batch.wrong(program, answers, seed=seed), trace)
