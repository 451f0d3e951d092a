"""A recorded job as a Workload: one of its steps, with the computation as measured and every assumption named.

What the recording holds decides how: dependencies of execution traces are taken as they are; with times of calls they are
inferred; without times there is communication only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ringwright.costs.measured_costs import MeasuredCosts, MeasuredOperation
from ringwright.engines.job.run import simulate
from ringwright.ground.errors import InputError
from ringwright.model.validity.workloads import require
from ringwright.workloads.recorded import dependent, timeline
from ringwright.workloads.recorded.alike import same_order
from ringwright.workloads.recorded.build import Built, build, with_notes
from ringwright.workloads.recorded.grid import RecordedMesh, grid
from ringwright.workloads.recorded.lines import ChosenStep, chosen, steady_steps
from ringwright.workloads.recorded.plan import PAIRS, Line, RankStep, RecordedCall

if TYPE_CHECKING:
    from ringwright.model.trace import Trace
    from ringwright.model.workload import Workload

GROUNDS = ("dependencies", "times", "communication-only")
COMMUNICATION_ONLY = "communication only: the source has no times, so computation is left out"
STEPS_UNKNOWN = "communication only: calls have times, but where a step begins and ends the source does not mark"
ONE_RANK_NOTE = "a call takes as long as its kernel did, which includes waiting for other ranks"


@dataclass(frozen=True)
class Replay:
    """A replayed step. ``ground`` is one of ``GROUNDS``; ``costs`` and ``measured_s``, its own time, are None without times."""

    workload: Workload
    ground: str
    step: str
    costs: MeasuredCosts | None
    measured_s: float | None
    trace: Trace | None = field(default=None, repr=False, compare=False)

    @cached_property
    def steps_s(self) -> tuple[float, ...]:
        """How long the steady steps of the recording lasted, of which this one is the steadiest, s; empty without times."""
        timed = self.trace is not None and self.ground != GROUNDS[2]
        return lasted_s(steady_steps(self.trace) if timed and self.trace is not None else {}, [self])


def lasted_s(steps: Mapping[int, float | None], replays: Sequence[Replay]) -> tuple[float, ...]:
    """Return how long recorded steps lasted, s: all of them, as ``steady_steps`` has them, else those that are replayed."""
    lasted = tuple(seconds for seconds in steps.values() if seconds is not None)
    return lasted or tuple(each.measured_s for each in replays if each.measured_s)


def replay(trace: Trace, *, step: int | None = None, assumptions: Sequence[str] = ()) -> Workload:
    """Return one step of a recorded job as a Workload.

    Parameters
    ----------
    trace
        A Trace of a job; without times there is communication only, which ``assumptions`` says.
    step
        Which iteration; None: the steadiest one.
    assumptions
        Words that are added to those that replaying makes.

    Returns
    -------
    Workload
        Computation as measured, in seconds; the operations with their sizes in bytes, on the mesh of their communicators.

    Raises
    ------
    InputError
        No call can be used.
    UsageError
        A step that is not there.
    WorkloadError
        Ranks of a group issued different operations (it names rank, position, and both).

    Examples
    --------
    >>> import ringwright
    >>> step = ringwright.replay(ringwright.read(ringwright.sample()))
    >>> step.assumptions[0]
    'communication only: the source has no times, so computation is left out'
    """
    return replayed(trace, step=step, assumptions=assumptions).workload


def replayed(trace: Trace, *, step: int | None = None, assumptions: Sequence[str] = ()) -> Replay:
    """Return the workload of ``replay`` with what was measured: the step's seconds, and costs of its operations."""
    picked = chosen(trace, step)
    used = {call.communicator for line in picked.lines.values() for call in line.calls}
    where = grid(trace, used, list(picked.lines))
    for line in picked.lines.values():
        _without_groups_of_one(line, where)
        _number(line)
    same_order(picked.lines, where)
    ground = _ground(trace, picked)
    plans = _plans(trace, picked, where, ground)
    built = build(
        f"{trace.meta.get('source') or 'recording'}, {picked.label}",
        plans,
        where,
        timed=ground != GROUNDS[2],
        explicit=ground == GROUNDS[0],
    )
    built = with_notes(built, (*assumptions, *_notes(picked, where, plans, ground)))
    measured = [plan.measured_s for plan in plans.values() if plan.measured_s]
    # Without the begin of the next step, ranks that began early have waited for the last one: it has waited for none.
    closed = all(line.is_closed for line in picked.lines.values())
    lasted = (max if closed else min)(measured, default=None)
    costs = None if ground == GROUNDS[2] else _costs(built)
    workload = built.workload if costs is None else _disturbed(built, costs)
    return Replay(require(workload), ground, picked.label, costs, lasted, trace)


def baseline(trace: Trace, *, step: int | None = None) -> tuple[float, float]:
    """Return (measured, replayed) seconds of a step: the replay with its own measured calls. Their distance is its trust.

    Raises InputError where the recording has no times of steps and calls.
    """
    found = replayed(trace, step=step)
    if found.costs is None or found.measured_s is None:
        raise InputError(
            "the recording has no times of its steps to compare with",
            where=found.step,
            remedy="record with a profiler, or on a backend whose calls have an end",
        )
    return found.measured_s, simulate(found.workload, found.costs).step_s


def _without_groups_of_one(line: Line, where: RecordedMesh) -> None:
    """Leave out what a rank of several does in a group of its own; of a job of one rank all is kept."""
    if where.mesh.size > 1:
        line.calls = [call for call in line.calls if where.sizes[call.communicator] > 1 or call.op in PAIRS]


def _number(line: Line) -> None:
    """Number the calls of each communicator; sends and receives per peer and direction."""
    turns: dict[tuple[int, int, str], int] = {}
    for call in line.calls:
        key = (call.communicator, call.peer, call.op) if call.op in PAIRS else (call.communicator, -1, "")
        call.turn = turns.get(key, 0)
        turns[key] = call.turn + 1


def _ground(trace: Trace, picked: ChosenStep) -> str:
    lines = picked.lines.values()
    if any(line.works for line in lines) and not trace.scan("edges").head(1).collect().is_empty():
        return GROUNDS[0]
    calls = [call for line in lines for call in line.calls]
    timed = sum(call.duration_s is not None and call.start_s is not None for call in calls)
    if all(line.begin_s is not None and line.end_s is not None for line in lines) and 2 * timed >= len(calls):
        return GROUNDS[1]
    return GROUNDS[2]


def _plans(trace: Trace, picked: ChosenStep, where: RecordedMesh, ground: str) -> dict[int, RankStep]:
    if ground == GROUNDS[2]:
        return {rank: dependent.bare(line) for rank, line in picked.lines.items()}
    if ground == GROUNDS[1]:
        for line in picked.lines.values():
            _timed_only(line, picked)
        return timeline.plans(picked.lines, where.roles)
    edges = trace.table("edges").select("src_event", "dst_event").iter_rows()
    within = dependent.receive(picked, edges, where)
    return {rank: dependent.plan(line, within[rank]) for rank, line in picked.lines.items()}


def _timed_only(line: Line, picked: ChosenStep) -> None:
    """Leave out the few calls without times among many with."""
    untimed = [call for call in line.calls if call.end_s is None]
    if untimed:
        picked.assumptions.append(f"{len(untimed)} calls of rank {line.rank} have no time and are left out")
        line.calls = [call for call in line.calls if call.end_s is not None]


def _notes(picked: ChosenStep, where: RecordedMesh, plans: dict[int, RankStep], ground: str) -> list[str]:
    notes = [*picked.assumptions, *where.assumptions]
    if any(
        call.op in PAIRS and _is_away(call, line, where, plans) for line in picked.lines.values() for call in line.calls
    ):
        notes.append("the peers of some sends were not recorded: what comes from them is there when the step begins")
    if ground == GROUNDS[2]:
        return [
            STEPS_UNKNOWN if _has_times(picked) else COMMUNICATION_ONLY,
            "the calls of a communicator run one after another, communicators beside each other",
            *notes,
        ]
    if ground == GROUNDS[0]:
        return [*notes, "nothing of the next step begins on a stream before the step is over on it"]
    host = any(work.stream == "host" for line in picked.lines.values() for work in line.works)
    notes += [timeline.HOST_NOTE, timeline.NOTES[1]] if host else timeline.NOTES
    if len(plans) == 1 and where.mesh.size > 1:
        notes.append(ONE_RANK_NOTE)
    return notes


def _has_times(picked: ChosenStep) -> bool:
    return any(call.duration_s is not None for line in picked.lines.values() for call in line.calls)


def _is_away(call: RecordedCall, line: Line, where: RecordedMesh, plans: dict[int, RankStep]) -> bool:
    return where.rank_of(call.communicator, call.peer, line.rank) not in plans


def _costs(built: Built) -> MeasuredCosts | None:
    """Return the measured operations; None where none was."""
    samples = [
        MeasuredOperation(each.op, each.size_bytes, each.role, time_s, built.communicators[each.name])
        for each in built.workload.payloads
        if (time_s := built.own_s.get(each.name)) is not None
    ]
    return MeasuredCosts.of(samples) if samples else None


def _disturbed(built: Built, costs: MeasuredCosts) -> Workload:
    """Return the workload whose payloads say how far each took longer than the mean of its like, which is what it costs."""
    payloads = []
    for each in built.workload.payloads:
        own_s, mean_s = built.own_s.get(each.name), costs.exact.get((each.op, each.size_bytes, each.role))
        payloads.append(replace(each, disturbed=own_s / mean_s) if own_s and mean_s else each)
    return replace(built.workload, payloads=tuple(payloads))


__all__ = ["GROUNDS", "Replay", "baseline", "lasted_s", "replay", "replayed"]
