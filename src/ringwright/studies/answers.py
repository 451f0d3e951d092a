"""The most probable time of a collective, its interval, and what several models say: the answer where no engine is asked for.

A call of NCCL on GPUs takes what is learnt from open tables, or from the calibration's own, on the fabric as it comes; the event
engine says how many times longer it takes on the fabric that is asked about (its knobs, faults, late ranks). What no library
runs takes what the engine says on links with the usual message costs and shares of their transport, corrected by how far off
engines were on GPUs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.algorithms.libraries.nccl_2_4.system import node_type
from ringwright.costs.calibration import Calibration, LinkClassCosts, calibrated
from ringwright.costs.learnt import Expected, expected, rising
from ringwright.costs.learnt.call import usual
from ringwright.costs.learnt.engines import factors
from ringwright.costs.learnt.trusted import chance, joint
from ringwright.costs.probable import NINETY, Probable
from ringwright.errors import RingwrightError, UsageError
from ringwright.studies.library_calls import LIBRARY, USUAL_TRANSPORT, is_of, library_call, measured_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringwright.collective import Collective
    from ringwright.costs.learnt import LibraryCall
    from ringwright.costs.learnt.trusted import MeasuredCall
    from ringwright.engines.result import Run
    from ringwright.program import Program
    from ringwright.studies.simulation_spec import SimulationSpec
    from ringwright.topology import Topology

ENDLESS = 1e18  # bytes/s
PRIOR, XGMI = "prior", "xgmi"
LEARNT, CORRECTED, CLOSED = "library", "corrected", "closed-form"
FAR_APART = 2.0  # between two models, from which on it is said
LEAST_SIGMA = 1e-3  # of two answers: what differs by less is told apart by nobody
MILD = {"rate_factor": max, "compute_factor": max, "latency_s": min, "loss": min}


@dataclass(frozen=True)
class Ran:
    """What an engine says of one program: seconds in all, and of them after the last rank came."""

    engine: str
    time_s: float
    after_last_s: float

    @classmethod
    def of(cls, run: Run) -> Ran:
        """Return what matters of an engine's run."""
        return cls(run.engine, run.time_s, run.after_last_s)


@dataclass(frozen=True)
class AskedFabric:
    """A fabric that is asked about, as it comes (``standard``) and with what was done to it; ``late``: ranks come one by one."""

    topology: Topology
    healthy: Topology
    calibration: Calibration | None = None
    late: bool = False

    @cached_property
    def standard(self) -> Topology:
        """The product that the fabric is made of, without its knobs and faults; itself where it is none."""
        from ringwright.fabrics import fabric

        try:
            plain = fabric(self.healthy.name.partition(",")[0])
        except RingwrightError:
            return dataclasses.replace(self.healthy, faults=())
        if plain.n_ranks != self.healthy.n_ranks:
            return dataclasses.replace(self.healthy, faults=())
        plain = dataclasses.replace(plain, transport=self.healthy.transport)
        return plain if self.calibration is None else calibrated(plain, self.calibration)

    @cached_property
    def is_standard(self) -> bool:
        """Whether it is as it comes, healthy, and all ranks come together."""
        return not self.late and not self.topology.faults and _alike(self.topology, self.standard)

    def usual(self, collective: Collective) -> Topology:
        """Return the fabric with the usual message costs and shares of its transport; a calibrated one has its own.

        One whose ranks are no GPUs stays as it is. What was changed on it (knobs, faults) stays: a class of links is slowed by
        as much as that of the standard fabric would be.
        """
        kind = node_type(collective, self.topology)
        if kind is None or self.calibration is not None or self.topology.message_s:
            return self.topology
        numbers = usual(kind, self.topology.transport or USUAL_TRANSPORT)
        all_nics = self.standard.nics_per_domain / kind.nics  # those of GPUs that take no part too
        inside, outside = (
            LinkClassCosts(hop_s, message_s, share / byte_s)
            for (hop_s, message_s, byte_s), share in ((numbers[:3], 1.0), (numbers[3:], all_nics))
        )
        calibration = Calibration(PRIOR, "", "", inside, outside, "", "")
        return _slowed(self.topology, self.standard, calibrated(self.standard, calibration))


def _slowed(topology: Topology, before: Topology, after: Topology) -> Topology:
    """Return a fabric whose classes of links became as much slower as those of another did; none becomes faster."""
    rate, latency_s = topology.rate.copy(), topology.latency_s.copy()
    for number, name in enumerate(topology.classes):
        if name not in before.classes:
            continue
        there = before.link_class == before.classes.index(name)
        here = topology.link_class == number
        rate[here] *= min(1.0, float((after.rate[there] / before.rate[there]).mean()))
        latency_s[here] += max(0.0, float((after.latency_s[there] - before.latency_s[there]).mean()))
    return dataclasses.replace(
        topology, rate=rate, latency_s=latency_s, message_s=after.message_s, occupying=after.occupying
    )


def lasting(topology: Topology) -> Topology:
    """Return a fabric with what lasts of its faults: the mildest value of each from the start to the end."""
    series: dict[tuple[str, int, str], list[float]] = {}
    for each in topology.faults:
        series.setdefault((each.kind, each.target, each.field), []).append(each.value)
    kept = (each for each in topology.faults if each.time_s <= 0)
    mild = (
        dataclasses.replace(each, value=MILD[each.field](series[each.kind, each.target, each.field])) for each in kept
    )
    return dataclasses.replace(topology, faults=tuple(mild))


def without_rates(topology: Topology) -> Topology:
    """Return a fabric of the same latencies, healthy, whose links take no time for bytes."""
    return dataclasses.replace(topology, rate=topology.rate * 0 + ENDLESS, groups=(), faults=(), reduce_rate=math.inf)


def answers_to(question: SimulationSpec, sizes_bytes: Sequence[int]) -> Answers:
    """Return who answers a question with most probable times."""

    def run(program: Program, on: Topology, late: bool) -> Ran:
        return Ran.of(question.run(program, on, late=late))

    healthy = question.healthy or dataclasses.replace(question.topology, faults=())
    machine = AskedFabric(question.topology, healthy, question.calibration, late=question.arrivals is not None)
    return Answers(machine, sizes_bytes, run)


@dataclass(frozen=True)
class Answered:
    """An answer with the knobs of the system that was asked about."""

    knobs: Mapping[str, Any]
    said: Probable


class Answers:
    """The most probable times of one question, algorithm by algorithm."""

    def __init__(
        self, machine: AskedFabric, sizes_bytes: Sequence[int], run: Callable[[Program, Topology, bool], Ran]
    ) -> None:
        """``run(program, topology, late)`` asks an engine; ``late``: with the arrivals of the question."""
        self.machine, self._sizes, self._run = machine, sizes_bytes, run
        self._learnt: dict[str, dict[int, Expected]] = {}

    def machine_of(self, program: Program) -> Topology:
        """Return the fabric on which an engine runs a program: with usual costs where it has no software of its own."""
        own = program.software.message_s or program.software.base_s
        return self.machine.topology if own else self.machine.usual(program.collective)

    def of(
        self, slug: str, knobs: Mapping[str, Any], make: Callable[..., Program], program: Program, ran: Ran
    ) -> Probable:
        """Return the answer for a program that an engine ran on the fabric asked about."""
        collective = program.collective
        call = self._expected(slug, knobs, collective)
        stretched = None if call is None else self._stretched(program, lambda on: make(collective, on, **knobs), ran)
        if call is None or stretched is None:
            return self._unlearnt(program, ran)
        ratio, beside_s = stretched
        times = [beside_s + call.quantile_s(deviations) * ratio for deviations in (-NINETY, 0.0, NINETY)]
        low, middle, high = (time_s * 1e6 for time_s in times)
        witnesses = {LEARNT: middle, CLOSED: call.closed_form_s * 1e6, ran.engine: ran.time_s * 1e6}
        away = tuple(dict.fromkeys((*call.outside, *self._strange(collective))))
        return Probable(low, middle, high, self._ground(collective), away, witnesses, model=LEARNT)

    def _expected(self, slug: str, knobs: Mapping[str, Any], collective: Collective) -> Expected | None:
        """Return what is learnt of a call; None for what is no call of the library, or one that it has no model of."""
        if slug != LIBRARY or knobs.get("tuning") is False or not collective.size_bytes:
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

    def _ground(self, collective: Collective) -> str:
        trusted = self._trusted(collective)
        return PRIOR if trusted is None else trusted.name or "calibration"

    def _strange(self, collective: Collective) -> tuple[str, ...]:
        """Return what is said of other GPUs than the fabric's: by a calibration, by NCCL's tables of those of AMD."""
        given = self.machine.calibration
        others = given is not None and self._trusted(collective) is None
        return (*(["calibration"] if others else []), *(["gpu"] if XGMI in self.machine.topology.classes else []))

    def _parts(self, program: Program, on: Topology, ran: Ran) -> tuple[float, float]:
        """Return the seconds of a run that are longer on a slower machine, and those that are not.

        What lasts (faults from the start to the end) makes a program longer; what comes and goes adds its time, as late ranks do.
        """
        if self.machine.late:
            return ran.after_last_s, ran.time_s - ran.after_last_s
        slowed = lasting(on)
        if slowed.faults == on.faults:
            return ran.time_s, 0.0
        lasting_s = self._run(program, slowed, False).time_s
        return lasting_s, max(0.0, ran.time_s - lasting_s)

    def _stretched(
        self, program: Program, again: Callable[[Topology], Program], ran: Ran
    ) -> tuple[float, float] | None:
        """Return how many times longer the call takes than on the standard fabric, and seconds that it waits besides.

        None where the library has no program for the standard fabric.
        """
        machine = self.machine
        if machine.is_standard:
            return 1.0, 0.0
        try:
            usual_s = self._run(again(machine.standard), machine.standard, False).time_s
        except RingwrightError:
            return None
        if not usual_s:
            return None
        longer_s, beside_s = self._parts(program, machine.topology, ran)
        return longer_s / usual_s, beside_s

    def _unlearnt(self, program: Program, ran: Ran) -> Probable:
        """Return an engine's time, corrected by what engines were off by on GPUs; as it is where ranks are none."""
        collective, time_us = program.collective, ran.time_s * 1e6
        given = self.machine.calibration
        witnesses = {ran.engine: time_us}
        if node_type(collective, self.machine.topology) is None or collective.p < 2:
            return Probable(None, time_us, None, "", ("fabric",), witnesses)
        ground = PRIOR if given is None else given.name or "calibration"
        on = self.machine_of(program)
        longer_s, beside_s = self._parts(program, on, ran)
        latency_s = self._run(program, without_rates(on), False).time_s
        mean, sigma = factors(calibrated=given is not None).at(longer_s, latency_s)
        times = (beside_s + longer_s * math.exp(mean + each * NINETY * sigma) for each in (-1, 0, 1))
        low, middle, high = (time_s * 1e6 for time_s in times)
        return Probable(low, middle, high, ground, ("program",), {CORRECTED: middle, **witnesses}, model=CORRECTED)


def _alike(one: Topology, other: Topology) -> bool:
    """Return whether two fabrics have the same links, of the same rates and latencies."""
    import numpy as np

    columns = ("src", "dst", "rate", "latency_s")
    same = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)
    return same and one.loss is None and other.loss is None and one.aggregators.keys() == other.aggregators.keys()
