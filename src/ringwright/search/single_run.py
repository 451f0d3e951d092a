"""One collective with each of its messages by itself, and the load of links over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.calls import arguments
from ringwright.calls.library_calls import usual_algorithm
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.calls.switch_assignment import seated
from ringwright.ground.errors import InfeasibleError
from ringwright.model.program import Program
from ringwright.search.best_run import MOST_HOPS, load_over_time

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.result import Run
    from ringwright.model.collective import Collective
    from ringwright.model.topology import Topology

DRAWN_ENGINE = "events"  # the one that follows each message


@dataclass(frozen=True)
class UnfoldedRun:
    """A program on a machine, and its run, in which each message stands for itself."""

    program: Program
    topology: Topology
    run: Run

    def load(self) -> np.ndarray:
        """Return the share of each part of the time in which a resource passes bytes: float64 of shape (resources, parts)."""
        flat, machine = self.run.flat, self.run.machine
        if flat is None or machine is None or self.run.folded or flat.n_hops > MOST_HOPS:
            raise InfeasibleError(
                f"the messages of {self.program.name} are too many to follow one by one",
                where=self.topology.name,
                remedy="draw a smaller machine, or pictures.machine(run), which needs the links' sums only",
            )
        return load_over_time(flat, machine, self.run.time_ps - self.run.base_ps)


def program_on(
    what: Program | Collective | str,
    on: arguments.Machine,
    *,
    algorithm: str | None = None,
    size: int | str | None = None,
    faults: Iterable[str] = (),
) -> tuple[Program, Topology]:
    """Return the program that is meant and the machine, with its faults; raise as ``simulate`` does."""
    topology = arguments.machine(on, faults)
    if isinstance(what, Program):
        return seated(what, topology), topology
    wanted = arguments.collective(what, topology, size)
    return arguments.algorithm(algorithm or usual_algorithm(wanted, topology, None))(wanted, topology), topology


def unfolded(program: Program, topology: Topology) -> UnfoldedRun:
    """Return a program's run on a machine, each message by itself."""
    question = SimulationSpec(program.collective.op, topology, DRAWN_ENGINE, group=program.collective.group)
    return UnfoldedRun(program, topology, question.run(program, topology, folded=False))
