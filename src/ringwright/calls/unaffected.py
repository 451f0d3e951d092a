"""Why a fault costs a collective nothing: read off the run with it and the run without it, never guessed.

The reasons are in ``unaffected_reasons``. Where none of them holds, nobody knows why, and that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ringwright.calls.unaffected_reasons import REASONS, UNKNOWN, FaultPair, of_hash
from ringwright.engines.background_programs import BY_CHANCE
from ringwright.engines.flat import flatten
from ringwright.engines.switch_slots import machines
from ringwright.ground.units import format_time, format_us

if TYPE_CHECKING:
    from ringwright.calls.asked_faults import AskedFaults
    from ringwright.calls.simulation_spec import SimulationSpec
    from ringwright.calls.without_faults import SaidTime
    from ringwright.engines.result import Run
    from ringwright.fabrics._fault_lines import FaultEffect
    from ringwright.model.topology import Topology

BY_LUCK = "with it messages meet in another order, which by chance takes {:.2%} less: the time without it is told"


@dataclass(frozen=True)
class Unaffected:
    """A fault that changes the time by less than a per mille (``more_us``), and why."""

    fault: str
    why: str
    more_us: float


def is_harm(effects: Sequence[FaultEffect], top: Topology) -> bool:
    """Return whether all effects only take something away: rate, speed, packets, time."""
    for each in effects:
        if each.field in ("rate_factor", "compute_factor") and each.value > 1:
            return False
        if each.field == "latency_s" and (top.latency_s[list(each.targets)] > each.value).any():
            return False
    return True


def why(question: SimulationSpec, faults: AskedFaults, well: SaidTime, ill: SaidTime) -> str:
    """Return in words why these faults change the time of an answer by nothing, from both answers' runs."""
    top = question.topology if question.healthy is None else question.healthy
    effects, end_s = faults.effects(top), ill.run.time_s
    if question.come() is None:
        began = tuple(each for each in effects if each.start_s < end_s)
        if not began and (effects or not _is_hash(faults)):
            return _later(faults, effects, ill)
    else:
        began = tuple(effects)
    same = _same_program(question, well, ill)
    more_us, late_us = ill.time_us - well.time_us, ill.said.p95_us or 0.0
    if not effects:
        return of_hash(FaultPair(same, ill.run, ill.machine, (), more_us, late_us))
    told: list[str] = []
    for field in dict.fromkeys((each.kind, each.field) for each in began):
        mine = tuple(each for each in began if (each.kind, each.field) == field)
        pair = FaultPair(same, ill.run, ill.machine, mine, more_us, late_us)
        told.append(next(filter(None, (reason(pair) for reason in REASONS)), UNKNOWN))
    if UNKNOWN not in told and len(began) < len(effects) and len({each.field for each in effects}) > 1:
        following = min(each.start_s for each in effects if each not in began)
        told.append(f"what comes later begins at {format_time(following)}, when the collective has ended")
    return "; ".join(dict.fromkeys(told))


def _is_hash(faults: AskedFaults) -> bool:
    return not any(line.split()[:1] not in ([], ["ecmp"]) for line in faults.lines)


def _same_program(question: SimulationSpec, well: SaidTime, ill: SaidTime) -> Run:
    """Return a healthy run whose messages are those of the run with the fault, where that can be had."""
    if len(well.run.end_ps) == len(ill.run.end_ps) and well.run.folded == ill.run.folded:
        return well.run
    calm = question.with_faults(None)
    return calm.run(ill.program, well.machine, folded=ill.run.folded)


def _later(faults: AskedFaults, effects: Sequence[FaultEffect], ill: SaidTime) -> str:
    """Return when a fault begins that the collective does not live to see."""
    begins = min((each.start_s for each in effects), default=None)
    if begins is None:
        return UNKNOWN
    first = "its first outage" if "flap" in " ".join(faults.lines).split() else "it"
    end_s = ill.time_us / 1e6
    ends = f"the collective ends after {format_time(end_s)}"
    if begins < end_s:
        ends = f"the {ill.run.engine} engine's run of it ends after {format_time(ill.run.time_s)}"
    return f"{first} begins at {format_time(begins)}, {ends}"


def of_neighbours(question: SimulationSpec, ill: SaidTime, most: float) -> tuple[Unaffected, ...]:
    """Return the other jobs on the fabric where all of them cost nothing, and why."""
    from ringwright.calls.other_jobs import programs

    alone = question.without_others(ill.program, ill.machine)
    more_us = (ill.run.time_s - alone.time_s) * 1e6
    if more_us > most * alone.time_s * 1e6 or ill.run.flat is None:
        return ()
    others = programs(question.beside, ill.machine)
    made = machines([ill.program, *others], ill.machine, question.alpha)
    mine = np.unique(ill.run.flat.hops)
    told = []
    for other, program, machine in zip(question.beside, others, made[1:], strict=True):
        shared = np.intersect1d(mine, flatten(program, machine).hops)
        shared = shared[shared < ill.machine.n_links]
        same = np.array_equal(alone.end_ps, ill.run.end_ps)
        told.append(Unaffected(f"congestion from {other.text}", _shared(ill, shared, more_us, same=same), more_us))
    return tuple(told)


def _shared(ill: SaidTime, shared: np.ndarray, more_us: float, *, same: bool) -> str:
    if not len(shared):
        return "it shares no link with this program"
    if more_us * 1e6 > 1:
        return f"it adds {format_us(more_us / 1e6)}, less than a thousandth of the time"
    link = int(shared[ill.run.busy_ps[shared].argmax()])
    share, top = float(ill.run.busy_ps[link]) / max(ill.run.time_ps, 1), ill.machine
    name = f"{top.label(int(top.src[link]))} > {top.label(int(top.dst[link]))}"
    if any(each.startswith(BY_CHANCE.partition("{")[0]) for each in ill.run.left_out):
        return "beside it messages meet in another order, which by chance takes no longer"
    if same and len(ill.run.end_ps):
        return "no message comes later: both jobs begin at once, and where they meet this one is in front"
    if share < 0.5:
        return f"of what both use, this program keeps {name} busiest, for {share:.0%} of the time"
    return UNKNOWN
