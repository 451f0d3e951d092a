"""What the collective verb says of an operation, beside what an engine does: a job's operation takes the former.

An engine knows which links operations share. How long one takes alone is the most probable time that every verb tells: a call
of NCCL as learnt from open tables, any other program on links with usual costs, by what engines were off by on GPUs. Beside its
siblings, other jobs and faults an operation takes as many times longer as the engine says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.algorithms.libraries.nccl_2_4.system import node_type
from ringwright.calls.answers import Answers
from ringwright.calls.arguments import algorithm
from ringwright.calls.asked_fabric import AskedFabric
from ringwright.calls.floors import Floors
from ringwright.calls.simulation_spec import SimulationSpec
from ringwright.costs.calibration import Calibration
from ringwright.engines.packets.carriage import acts_on_packets, without_losses

if TYPE_CHECKING:
    from ringwright.engines.result import Run
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology


class SaidOperations:
    """What operations on one machine are said to take; ``healthy`` is the machine without faults."""

    def __init__(self, machine: Topology, healthy: Topology) -> None:
        given = machine.calibration if isinstance(machine.calibration, Calibration) else None
        self._machine = AskedFabric(machine, healthy, given)
        calm = without_losses(machine) if acts_on_packets(machine) else machine
        self._calm = self._machine if calm is machine else AskedFabric(calm, healthy, given)
        self._asked: dict[tuple[str, tuple[int, ...]], AskedOperation] = {}

    def priced_on(self, program: Program) -> Topology:
        """Return the fabric on which a program is timed, losses and all."""
        return self._machine.priced_on(program)

    def longer(self, by: str, program: Program, run: Run | None) -> float:
        """Return how many times as long as an engine says a program is said to take; 1 where its ranks are no GPUs.

        ``by`` is the spelling of what made it, ``run`` its run alone on the fabric without losses, where there is one.
        """
        collective = program.collective
        if collective.p < 2 or not collective.size_bytes or node_type(collective, self._calm.topology) is None:
            return 1.0
        key = collective.op, tuple(collective.group)
        if key not in self._asked:
            self._asked[key] = AskedOperation(*key, self._calm)
        return self._asked[key].longer(by, program, run)


@dataclass(eq=False)
class AskedOperation:
    """One operation among ranks as the collective verb is asked about it."""

    op: str
    ranks: tuple[int, ...]
    machine: AskedFabric

    @cached_property
    def _question(self) -> SimulationSpec:
        on = self.machine
        return SimulationSpec(self.op, on.topology, group=self.ranks, healthy=on.healthy, calibration=on.calibration)

    @cached_property
    def _floors(self) -> Floors:
        return Floors(self._question)

    def longer(self, by: str, program: Program, run: Run | None) -> float:
        """Return how many times as long as an engine says a program is said to take."""
        answers, made = Answers(self._question, [program.collective.size_bytes], self.machine), algorithm(by)
        on = answers.priced_on(program)
        run = run or self._question.run(program, on)
        if not run.time_s:
            return 1.0
        said_s = 1e-6 * (answers.of_call(made, program) or answers.of(made, program, run, on)).p50_us
        if said_s < run.time_s:  # which is not below the bound
            said_s = max(said_s, self._floors.under(program)[0])
        # In whole picoseconds, as engines count: last bits of a learnt time follow how many threads BLAS has, and no plan may.
        return round(said_s, 12) / run.time_s
