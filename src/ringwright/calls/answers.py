"""The most probable time of a collective, its interval, and what several models say: the answer where no engine is asked for.

A call of NCCL on GPUs takes what is learnt from open tables, or from the calibration's own, on the fabric as it comes; the event
engine says how many times longer it takes on the fabric that is asked about (its knobs, faults, late ranks). What has no table
takes what the engine says, corrected by how far off engines were on GPUs: with the library's own software where the program has
it, else on links with the usual message costs and shares of their transport.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.algorithms.libraries.nccl_2_4.system import node_type
from ringwright.calls.asked_fabric import AskedFabric, lasting, without_rates
from ringwright.calls.library_calls import LIBRARY, is_of, library_call, measured_calls
from ringwright.calls.lossy_times import LossyTime, LossyTimes, Seconds
from ringwright.costs.learnt import Expected, expected, rising
from ringwright.costs.learnt.engines import CALIBRATED, CALIBRATED_LIBRARY, OF_LIBRARY, USUAL, factors
from ringwright.costs.learnt.trusted import chance, joint
from ringwright.costs.probable_time import CLOSED, CORRECTED, LEARNT, NINETY, PACKETS, PRIOR, Probable
from ringwright.ground.errors import RingwrightError, UsageError

if TYPE_CHECKING:
    from ringwright.calls.arguments import Algorithm
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.costs.calibration import Calibration
    from ringwright.costs.learnt import LibraryCall
    from ringwright.costs.learnt.trusted import MeasuredCall
    from ringwright.engines.result import Run
    from ringwright.model.collective import Collective
    from ringwright.model.program import Program
    from ringwright.model.topology import Topology

XGMI = "xgmi"
FAR_APART = 2.0  # between two models, from which on it is said
LEAST_SIGMA = 1e-3  # of two answers: what differs by less is told apart by nobody


@dataclass(frozen=True)
class Answered:
    """An answer with the knobs of the system that was asked about."""

    knobs: Mapping[str, Any]
    said: Probable


class Answers:
    """The most probable times of one question, algorithm by algorithm; ``sizes_bytes``: which sizes will be asked about."""

    def __init__(
        self, question: SimulationSpec, sizes_bytes: Sequence[int], machine: AskedFabric | None = None
    ) -> None:
        healthy = question.healthy or dataclasses.replace(question.topology, faults=())
        late = question.arrivals is not None
        self._question, self._sizes = question, sizes_bytes
        self.machine = machine or AskedFabric(question.topology, healthy, question.calibration, late=late)
        self._learnt: dict[str, dict[int, Expected]] = {}
        self._lossy = LossyTimes(question)

    def shown_on(self, program: Program) -> Topology:
        """Return the fabric on which a program's run is shown: the one asked about, where an engine's own time is asked for."""
        return self.machine.topology if self._question.asks_engine else self.priced_on(program)

    def priced_on(self, program: Program) -> Topology:
        """Return the fabric of which a program's time is corrected."""
        return self.machine.priced_on(program)

    def of(self, algorithm: Algorithm, program: Program, run: Run, ran_on: Topology) -> Probable:
        """Return the answer for the program that an algorithm made and an engine ran on a fabric."""
        collective = program.collective
        if self._question.beside:
            return self._beside(algorithm, program, run, ran_on)
        if self._question.uncorrected:
            return self._by_engine(self._lossy.of(algorithm, program, run, ran_on), run, "fabric")
        call = self._expected(algorithm, collective)
        stretched = None if call is None else self._stretched(algorithm, program, run)
        if call is None or stretched is None:
            on = self.priced_on(program)
            return self._unlearnt(algorithm, program, run if on is ran_on else self._question.run(program, on), on)
        ratio, beside_s, is_drawn = stretched
        quantiles = (call.quantile_s(deviations) * ratio for deviations in (-NINETY, 0.0, NINETY, 0.0))
        low, middle, high, mean = (1e6 * (more_s + time_s) for more_s, time_s in zip(beside_s, quantiles, strict=True))
        witnesses = {LEARNT: middle, CLOSED: call.closed_form_s * 1e6, run.engine: run.time_s * 1e6}
        away = tuple(dict.fromkeys((*call.outside, *self._strange(collective))))
        said = Probable(low, middle, high, _name(self._trusted(collective)), away, witnesses, model=LEARNT)
        return dataclasses.replace(said, mean_us=mean if is_drawn else None)

    def of_call(self, algorithm: Algorithm, program: Program) -> Probable | None:
        """Return the answer for a call of the library on the fabric as it comes, without a run; None for any other call."""
        call = self._expected(algorithm, program.collective) if self.machine.is_standard else None
        if call is None or self._question.beside:
            return None
        low, middle, high = (1e6 * call.quantile_s(deviations) for deviations in (-NINETY, 0.0, NINETY))
        away = tuple(dict.fromkeys((*call.outside, *self._strange(program.collective))))
        witnesses = {LEARNT: middle, CLOSED: call.closed_form_s * 1e6}
        return Probable(low, middle, high, _name(self._trusted(program.collective)), away, witnesses, model=LEARNT)

    def _beside(self, algorithm: Algorithm, program: Program, run: Run, ran_on: Topology) -> Probable:
        """Return the answer beside other jobs: as many times what it is alone as an engine says that shares links fairly.

        Where an engine is asked for, that engine's own time.
        """
        time_us = run.time_s * 1e6
        if not self._question.composes:
            return Probable(None, time_us, None, "", ("beside",), {run.engine: time_us})
        alone = dataclasses.replace(self._question, beside=())
        answers = Answers(alone, self._sizes)
        machine = answers.shown_on(program)
        said = answers.of(algorithm, program, alone.run(program, machine), machine)
        before_s = self._question.without_others(program, ran_on).time_s
        middle_us = said.p50_us * (run.time_s / before_s if before_s else 1.0)
        away = tuple(dict.fromkeys((*said.outside, "beside")))
        witnesses = {**said.witnesses, run.engine: time_us}
        return Probable(None, middle_us, None, said.calibration, away, witnesses, model=run.engine)

    def _expected(self, algorithm: Algorithm, collective: Collective) -> Expected | None:
        """Return what is learnt of a call; None for what is no call of the library, or one that it has no model of."""
        knobs = algorithm.knobs
        if algorithm.slug != LIBRARY or knobs.get("tuning") is False or not collective.size_bytes:
            return None
        key = f"{sorted(knobs.items())}"
        if key not in self._learnt:
            unit = collective.p * collective.unit_bytes
            below = (unit << power for power in range(max(self._sizes).bit_length()))
            sizes = sorted(
                {size for size in (*self._sizes, *below) if 0 < size <= max(self._sizes)} | {collective.size_bytes}
            )
            self._learnt[key] = {each.size_bytes: each for each in self._of_call(knobs, collective, sizes)}
        return self._learnt[key].get(collective.size_bytes)

    def _calls(
        self, collective: Collective, sizes: Sequence[int], all_knobs: Sequence[Mapping[str, Any]]
    ) -> tuple[list[LibraryCall], Sequence[MeasuredCall]]:
        """Return the calls of NCCL with some knobs each, and what was measured on the machine."""
        trusted = self._trusted(collective)
        calls = [library_call(collective, self.machine.standard, knobs, sizes, trusted) for knobs in all_knobs]
        measured = () if trusted is None else measured_calls(trusted, self.machine.standard.transport)
        return [call for call in calls if call is not None], measured

    def _of_call(self, knobs: Mapping[str, Any], collective: Collective, sizes: Sequence[int]) -> Sequence[Expected]:
        calls, measured = self._calls(collective, sizes, [knobs])
        try:
            return rising(expected(calls, measured)[0]) if calls else ()
        except UsageError:  # of what the closed form has no stages, such as CollNet
            return ()

    def faster(self, collective: Collective, one: Answered, other: Answered) -> float | None:
        """Return the chance that the first of two answers to a collective is the shorter; None where one has no interval.

        Two calls of the library err by much in common, which cancels; of other programs nothing is known to.
        """
        above = math.log(other.said.p50_us / one.said.p50_us) if one.said.p50_us else 0.0
        sigmas = [each.said.sigma for each in (one, other)]
        if sigmas[0] is None or sigmas[1] is None:
            return None
        sigma = math.hypot(sigmas[0], sigmas[1])
        if one.said.model == other.said.model == LEARNT:
            calls, measured = self._calls(collective, [collective.size_bytes], [one.knobs, other.knobs])
            sigma = float(joint(calls, measured).apart(np.arange(2))[1][0, 1])
        return float(chance(above, max(sigma, LEAST_SIGMA)))

    def _trusted(self, collective: Collective) -> Calibration | None:
        """Return the calibration where it was measured on GPUs like these."""
        given = self.machine.calibration
        return given if given is not None and is_of(given, collective, self.machine.topology) else None

    def _strange(self, collective: Collective) -> tuple[str, ...]:
        """Return what is said of other GPUs than the fabric's: by a calibration, by NCCL's tables of those of AMD."""
        given = self.machine.calibration
        others = given is not None and self._trusted(collective) is None
        return (*(["calibration"] if others else []), *(["gpu"] if XGMI in self.machine.topology.classes else []))

    def _parts(self, program: Program, told: LossyTime) -> tuple[float, Seconds]:
        """Return the seconds of a run that are longer on a slower machine, and those that are not.

        What lasts (faults from the start to the end) makes a program longer; what comes and goes adds its time, as late ranks do
        and as packets do that are lost and sent again.
        """
        if self.machine.late:
            longer_s = told.run.after_last_s
        else:
            slowed = lasting(told.calm)
            same = slowed.faults == told.calm.faults and told.run.packets is None
            longer_s = told.run.time_s if same else self._together_s(program, slowed)
        low, middle, high, mean = (max(0.0, time_s - longer_s) for time_s in told.times_s)
        return longer_s, (low, middle, high, mean)

    def _together_s(self, program: Program, on: Topology) -> float:
        """Return an engine's seconds where all ranks come together."""
        return self._question.run(program, on, late=False, calm=True).time_s

    def _stretched(self, algorithm: Algorithm, program: Program, run: Run) -> tuple[float, Seconds, bool] | None:
        """Return how many times longer the call takes than on the standard fabric, and seconds that it waits besides.

        Third, whether these are drawn. None where the library has no program for the standard fabric.
        """
        machine = self.machine
        if machine.is_standard:
            return 1.0, (0.0, 0.0, 0.0, 0.0), False
        try:
            usual_s = self._together_s(algorithm(program.collective, machine.standard), machine.standard)
        except RingwrightError:
            return None
        if not usual_s:
            return None
        told = self._lossy.of(algorithm, program, run, machine.topology)
        longer_s, beside_s = self._parts(program, told)
        return longer_s / usual_s, beside_s, told.is_drawn

    def _unlearnt(self, algorithm: Algorithm, program: Program, run: Run, on: Topology) -> Probable:
        """Return an engine's time, corrected by what engines were off by on GPUs; as it is where ranks are none, or one alone."""
        collective, given = program.collective, self.machine.calibration
        told = self._lossy.of(algorithm, program, run, on)
        if collective.p < 2 or node_type(collective, self.machine.topology) is None:
            return self._by_engine(told, run, "fabric" if collective.p > 1 else "ranks")
        own = program.software.is_library
        longer_s, beside_s = self._parts(program, told)
        latency_s = self._together_s(program, without_rates(on))
        learnt = (OF_LIBRARY if own else USUAL) if given is None else (CALIBRATED_LIBRARY if own else CALIBRATED)
        mean, sigma = factors(learnt).at(longer_s, latency_s)
        spread = (longer_s * math.exp(mean + each * NINETY * sigma) for each in (-1, 0, 1, 0))
        low, middle, high, all_of = (1e6 * (more_s + time_s) for more_s, time_s in zip(beside_s, spread, strict=True))
        witnesses = {CORRECTED: middle, run.engine: run.time_s * 1e6}
        said = Probable(low, middle, high, _name(given), ("program",), witnesses, model=CORRECTED, own_software=own)
        return dataclasses.replace(said, mean_us=all_of if told.is_drawn else None)

    def _by_engine(self, told: LossyTime, run: Run, outside: str) -> Probable:
        """Return an engine's time as it is; with an interval where losses are drawn."""
        low, middle, high, mean = (1e6 * each for each in told.times_s)
        if told.is_drawn:
            return Probable(low, middle, high, "", (outside,), {PACKETS: middle}, model=PACKETS, mean_us=mean)
        model = "" if told.run is run else told.run.engine
        return Probable(None, middle, None, "", (outside,), {told.run.engine: middle}, model=model)


def _name(calibration: Calibration | None) -> str:
    return PRIOR if calibration is None else calibration.name or "calibration"
