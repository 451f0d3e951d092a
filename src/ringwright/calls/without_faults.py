"""An answer beside the same question without its faults, and with each of them alone: which of them cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.calls import unaffected
from ringwright.calls.answers import Answers
from ringwright.calls.floors import Floors
from ringwright.ground.errors import RingwrightError

if TYPE_CHECKING:
    from ringwright.calls.arguments import Algorithm
    from ringwright.calls.asked_faults import AskedFaults
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.calls.unaffected import Unaffected
    from ringwright.costs.probable_time import Probable
    from ringwright.engines.result import Run
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

PER_MILLE = 1e-3  # of the time, below which a fault has no effect on it
MOST_ALONE = 16  # lines that are each simulated alone


@dataclass(frozen=True)
class SaidTime:
    """The answer for one program: the machine that it ran on, its run, and what the models make of that."""

    program: Program
    machine: Topology
    run: Run
    said: Probable
    time_us: float


@dataclass(frozen=True)
class HealthyTime:
    """The time without faults, with its interval where there is one; names as in a row."""

    time_us: float
    time_us_p05: float | None
    time_us_p50: float | None
    time_us_p95: float | None

    @classmethod
    def of(cls, well: SaidTime) -> HealthyTime:
        """Return the time of an answer on the machine without faults."""
        return cls(well.time_us, well.said.p05_us, well.said.p50_us, well.said.p95_us)


@dataclass(frozen=True)
class BesideHealthy:
    """The time without faults (None: no line of faults was given), the least that it can be with them, what costs nothing."""

    healthy_us: float | None = None
    least_us: float = 0.0
    unaffected: tuple[Unaffected, ...] = ()
    healthy: HealthyTime | None = None


class AskedOnce:
    """One question with what is looked up once for all of its answers."""

    def __init__(self, question: SimulationSpec, sizes_bytes: Sequence[int]) -> None:
        self.question, self.sizes_bytes = question, sizes_bytes
        self.floors, self.answers = Floors(question), Answers(question, sizes_bytes)
        self._longer: dict[float, AskedOnce] = {}

    def lasting(self, time_s: float) -> AskedOnce:
        """Return the question with outages for as long as an answer of ``time_s``; itself where they last so long."""
        longer = self.question.lasting(time_s)
        if longer is self.question or longer.faults is None:
            return self
        return self._longer.setdefault(longer.faults.horizon_s, AskedOnce(longer, self.sizes_bytes))

    @cached_property
    def without_faults(self) -> WithoutFaults:
        """The same question without faults, and with one of them."""
        return WithoutFaults(self)

    def on(self, program: Program) -> Topology:
        """Return the fabric on which a program is run."""
        return self.answers.shown_on(program)

    def of(self, algorithm: Algorithm, program: Program, run: Run, machine: Topology) -> SaidTime:
        """Return the answer for a program that ran on a machine."""
        bound_us = self.floors.under(program)[0] * 1e6
        said = self.answers.of(algorithm, program, run, machine).at_least(bound_us)
        return SaidTime(program, machine, run, said, said.p50_us if self.question.shows(said) else run.time_s * 1e6)

    def answer(self, algorithm: Algorithm, size_bytes: int) -> SaidTime:
        """Return the answer of an algorithm at one size."""
        program = algorithm(self.question.collective(size_bytes), self.question.topology)
        machine = self.on(program)
        return self.of(algorithm, program, self.question.run(program, machine), machine)


class WithoutFaults:
    """The same questions without faults, and with one line of faults alone."""

    def __init__(self, asked: AskedOnce) -> None:
        self._question, self._sizes = asked.question, asked.sizes_bytes
        self._others: dict[int, AskedOnce] = {}

    def healthy(self, algorithm: Algorithm, size_bytes: int) -> SaidTime:
        """Return the answer without faults."""
        return self._asked(-1, None).answer(algorithm, size_bytes)

    def beside(self, algorithm: Algorithm, ill: SaidTime) -> BesideHealthy:
        """Return what an answer is beside that without faults, and beside that with each of them alone."""
        faults, size = self._question.faults, ill.program.collective.size_bytes
        jobs = unaffected.of_neighbours(self._question, ill, PER_MILLE) if self._question.beside else ()
        if faults is None:
            return BesideHealthy(unaffected=jobs)
        well = self.healthy(algorithm, size)
        healthy = self._question.healthy or self._question.topology
        least_us = well.time_us if unaffected.is_harm(faults.effects(healthy), healthy) else 0.0
        lines = {number: line for number, text in enumerate(faults.lines) if (line := text.partition("#")[0].strip())}
        told: list[Unaffected] = []
        for number, line in lines.items():
            alone = ill
            if 1 < len(lines) <= MOST_ALONE:
                try:
                    alone = self._asked(number, faults.only(number)).answer(algorithm, size)
                except RingwrightError:  # this one ends the job by itself
                    continue
            more_us = alone.time_us - well.time_us
            if least_us and more_us < -PER_MILLE * well.time_us:
                why = unaffected.BY_LUCK.format(-more_us / well.time_us)
                told.append(unaffected.Unaffected(line, why, 0.0))
            elif abs(more_us) <= PER_MILLE * well.time_us:
                why = unaffected.why(self._question, faults.only(number), well, alone)
                told.append(unaffected.Unaffected(line, why, more_us))
        return BesideHealthy(well.time_us, least_us, (*told, *jobs), HealthyTime.of(well))

    def _asked(self, number: int, faults: AskedFaults | None) -> AskedOnce:
        if number not in self._others:
            self._others[number] = AskedOnce(self._question.with_faults(faults), self._sizes)
        return self._others[number]
