"""A recorded job with another algorithm, policy or network: the recording is replayed, then changed.

Without a change the replay keeps the measured times of its operations, and how far it is from the measured step says how far
to trust it. With one, an operation takes its measured time multiplied by what the engines say of the change: simulated with it
on the fabric named, over simulated without it on the fabric that the recording ran on. A simulated job tells that one; of another
it is the fabric named, unless it is said. A log without times gives the communication alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import mean
from typing import TYPE_CHECKING, Any, TypedDict

from ringwright.calls.provenance import asked_of
from ringwright.engines.job.run import simulate
from ringwright.fabrics import fabric
from ringwright.ground.errors import RingwrightError, UsageError
from ringwright.jobs import faults
from ringwright.jobs.explained.outages import PassingFault
from ringwright.jobs.pricing.costs import LIBRARY, FabricCosts, on_fabric
from ringwright.jobs.study import Job
from ringwright.model.stages import Costs, Stage, seconds
from ringwright.workloads.recorded.finer import cuttable
from ringwright.workloads.replay import GROUNDS, Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from ringwright.costs.measured_costs import MeasuredCosts
    from ringwright.model.rewrites import Operation
    from ringwright.model.topology import Topology

ITS_OWN = "the network it ran on"
FAR = 0.1  # of the measured step, from which on a replay that changes nothing is warned of
FAR_BY_DEPENDENCIES = 0.01  # likewise where the source says who waits for whom
SMALLEST = 1 / 16  # of the smallest measured operation
LEFT_OUT = ("what the recording does not hold: host jitter of other steps, input pipeline, checkpoints",)


@dataclass(frozen=True)
class Changed:
    """Measured times, scaled operation by operation by what a change does to it in simulation.

    What packets lose adds its seconds and is no factor: a time-out is as long on a slow machine.
    """

    measured: Costs
    before: FabricCosts
    after: FabricCosts
    changes: dict[tuple[str, int, tuple[int, ...], str], tuple[float, float]] = field(default_factory=dict, repr=False)

    @property
    def places(self) -> np.ndarray | None:
        """As of the fabric that the change is simulated on: int64 of shape (ranks,), or None."""
        return self.after.places

    @property
    def topology(self) -> Topology:
        """The machine that the change is simulated on."""
        return self.after.topology

    @property
    def passing(self) -> tuple[PassingFault, ...]:
        """The outages of that machine."""
        return self.after.passing

    def stages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> tuple[Stage, ...]:
        """Return the measured phases, longer or shorter; they use those links with outages that the simulated ones use."""
        key = (op, size_bytes, ranks, role)
        if key not in self.changes:
            calm = self.after.calm
            was, now = (seconds(each, op, size_bytes, ranks, role) for each in (self.before, calm))
            more = 0.0 if calm is self.after else seconds(self.after, op, size_bytes, ranks, role) - now
            self.changes[key] = now / was if was else 1.0, max(0.0, more)
        factor, more = self.changes[key]
        links = tuple(dict.fromkeys(self._with_outages(op, size_bytes, ranks, role)))
        longer = [
            replace(stage, wire_s=stage.wire_s * factor, latency_s=stage.latency_s * factor, links=links)
            for stage in self.measured.stages(op, size_bytes, ranks, role)
        ]
        if more and longer:
            longer[-1] = replace(longer[-1], wire_s=longer[-1].wire_s + more)
        return tuple(longer)

    def _with_outages(self, op: str, size_bytes: int, ranks: tuple[int, ...], role: str) -> list[tuple[int, float]]:
        if not self.passing:
            return []
        asked = self.after.stages(op, size_bytes, ranks, role)
        return [each for stage in asked for each in stage.links if each[0] in self.after.watched]


@dataclass(frozen=True)
class Counterfactual:
    """What is to be different: the algorithm ("" as recorded), and the fabric, healthy and with its faults.

    ``ran_on`` is the fabric that the recording ran on; None: as the recording tells, else ``healthy``.
    """

    algorithm: str = ""
    healthy: Topology | None = None
    faulty: Topology | None = None
    ran_on: Topology | None = None

    def is_any(self, ran_on: Topology | None) -> bool:
        """Whether operations take another time than measured on the fabric that the recording ran on."""
        is_faulty = self.faulty is not None and self.faulty is not self.healthy
        moved = self.healthy is not None and ran_on is not None and self.healthy.name != ran_on.name
        return bool(self.algorithm) or is_faulty or moved


def ran_on(replay: Replay) -> Topology | None:
    """Return the fabric, without faults, that a simulated job's recording says it ran on; None where nothing tells."""
    named = ((replay.trace.meta.get("asked") or {}) if replay.trace is not None else {}).get("fabric")
    try:
        return fabric(named) if named else None
    except RingwrightError:  # of a file, or of a plug-in that is not here
        return None


def ground(replay: Replay) -> dict[str, Any]:
    """Return what a document says of a replay besides: ``ground``, ``step``, ``baseline`` where there are times, ``warnings``."""
    beside = _baseline(replay)
    far = FAR_BY_DEPENDENCIES if replay.ground == GROUNDS[0] else FAR
    return {"ground": replay.ground, "step": replay.step, "baseline": beside, "warnings": _warnings(beside, far)}


def _warnings(beside: ReplayBaseline | None, far: float) -> list[str]:
    """Say of a replay that misses its own recording, by more than a share of it, how little its answers mean."""
    if beside is None or abs(beside["error"]) <= far:
        return []
    off = f"{abs(beside['error']):.0%} {'longer' if beside['error'] > 0 else 'shorter'} than the recording"
    missing = "something of the job is missing in it, and smaller differences between policies are not told by it"
    return [f"the replay, unchanged, is {off}: {missing}"]


def below_recorded(
    sent: Sequence[Operation], measured: MeasuredCosts, stands_for: Callable[[str], str | None] = lambda op: op
) -> str:
    """Say that most bytes of a step go in pieces far below all that was recorded, of which nothing tells what one takes; else "".

    What any piece takes, however small, is added up over all of them: a step of many may last many times as long. ``stands_for``
    returns whose times an operation takes.
    """
    least = {op: line[2] for op, line in measured.lines.items()}
    whole = below = 0
    for each in sent:
        smallest = least.get(stands_for(each.op) or "", 0)
        whole += sum(each.sizes())
        below += sum(size for size in each.sizes() if size < SMALLEST * smallest)
    if 2 * below <= whole:
        return ""
    return (
        f"{below / whole:.0%} of its bytes go in pieces of less than 1/{1 / SMALLEST:.0f} of the smallest operation that was "
        "recorded: what each of them takes is not known"
    )


def job(replay: Replay, change: Counterfactual) -> Job:
    """Return the replayed job as the change makes it; UsageError where operations need a fabric and none is given."""
    measured = replay.costs if replay.ground != GROUNDS[2] else None
    workload = replay.workload if measured is None else cuttable(replay.workload)
    on, was = change.faulty or change.healthy, change.ran_on or ran_on(replay)
    if measured is not None and not change.is_any(was):
        told = (
            *workload.assumptions,
            "operations take their measured times; pieces of other sizes a line through them",
            *([_taken(on)] if on is not None and was is None else []),
        )
        return Job(workload, measured, assumptions=told, fabric=ITS_OWN, left_out=LEFT_OUT, asked=asked_of(None))
    if on is None:
        raise UsageError("no fabric is named", where=workload.name, remedy=f"--fabric switch:{workload.mesh.size}")
    after, name = on_fabric(on, workload, change.algorithm), change.algorithm or LIBRARY
    said = [f"times of operations: {name} on {on.name}, simulated"]
    costs: Costs = after
    if measured is not None:
        before = was or change.healthy or on
        costs = Changed(measured, on_fabric(before, workload), after)
        faulty = " with faults" * (on is not change.healthy)
        without = f"{LIBRARY}{f' on {before.name}' * (before.name != on.name)} without"
        said = [
            f"an operation takes its measured time x simulated with {name} on {on.name}{faulty} / simulated with {without}"
        ]
        said += [] if was is not None else [_taken(on)]
    return Job(
        workload,
        costs,
        faults.slowdowns(after.topology),
        after.marked,
        assumptions=(*workload.assumptions, *said),
        fabric=on.name,
        left_out=LEFT_OUT,
        remarks=after.told,
        asked=asked_of(on, (name,)),
    )


def _taken(on: Topology) -> str:
    return (
        f"the network that it ran on is taken to be {on.name}, which so changes nothing by itself (--ran-on names it)"
    )


class ReplayBaseline(TypedDict):
    """What the replay, unchanged, is held against, in us.

    ``measured_us`` is the mean of so many steady ``steps``, as in advice; ``step_us`` the one that is replayed, of
    which ``error`` is the share that ``replayed_us`` is off.
    """

    measured_us: float
    steps: int
    step_us: float
    replayed_us: float
    error: float


def _baseline(replay: Replay) -> ReplayBaseline | None:
    """Return measured and replayed step and their distance; None without times."""
    if replay.costs is None or replay.measured_s is None:
        return None
    own = simulate(replay.workload, replay.costs).step_s
    return {
        "measured_us": mean(replay.steps_s) * 1e6,
        "steps": len(replay.steps_s),
        "step_us": replay.measured_s * 1e6,
        "replayed_us": own * 1e6,
        "error": round(own / replay.measured_s - 1, 9) + 0.0 if replay.measured_s else 0.0,  # picoseconds are no error
    }
