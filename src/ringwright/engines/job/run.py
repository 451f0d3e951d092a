"""How long does a step of this job take? Lay it out, simulate it, and report what each rank did in that time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ringwright.engines.job.arrivals import awaiting, held, late_ranks
from ringwright.engines.job.flat import FlatJob, InstanceTimes, Interference
from ringwright.engines.job.layout import Laid, lay_out
from ringwright.engines.job.loop import Loop
from ringwright.engines.job.outages import Outage, held_up
from ringwright.engines.job.reuse import Layouts
from ringwright.engines.job.step import Instances
from ringwright.ground.errors import NeverEndsError
from ringwright.ground.units import PS
from ringwright.model.stages import Costs, PlacedCosts
from ringwright.model.workload import Workload
from ringwright.native import engine

STEPS = 4
COMPUTE = ("F", "B", "dO", "dW")


@dataclass(frozen=True)
class JobRun:
    """A simulated job: the laid-out instances and their times. Times are in ps, see ``InstanceTimes``."""

    laid: Laid = field(repr=False)
    times: InstanceTimes = field(repr=False)
    engine: str
    outages: tuple[Outage, ...] = field(default=(), repr=False)

    def window(self) -> tuple[int, int]:
        """Return from when to when the last step lasted: between the ends of the last two backward (or forward) passes."""
        marks = [self.finished(step) for step in range(self.laid.steps)]
        return (marks[-2] if len(marks) > 1 else 0), marks[-1]

    def finished(self, step: int) -> int:
        """Return when the last compute task of a step ended, over all ranks."""
        first = step * self.laid.per_step
        return int(self.times.end[first + self._computing].max(initial=0))

    def lasted(self, step: int) -> int:
        """Return how long a step was, from the end of the one before, in ps."""
        return self.finished(step) - (self.finished(step - 1) if step else 0)

    @cached_property
    def _computing(self) -> np.ndarray:
        """The places of compute tasks in a step."""
        mine = np.array([band.what == "task" and band.kind in COMPUTE for band in self.laid.bands], bool)
        return np.flatnonzero(mine[self.laid.of])

    def __repr__(self) -> str:
        counts = self.laid.rank_classes.counts
        return f"JobRun({self.step_s * 1e3:,.6g} ms a step, {len(counts):,} of {sum(counts):,} ranks simulated)"

    @property
    def step_s(self) -> float:
        """Seconds of the last step."""
        begin, end = self.window()
        return (end - begin) / PS

    @property
    def steady(self) -> bool:
        """Whether the last two steps took the same time, to a thousandth."""
        marks = [self.finished(step) for step in range(self.laid.steps)]
        if len(marks) < 3:
            return False
        return abs((marks[-1] - marks[-2]) - (marks[-2] - marks[-3])) <= 1e-3 * max(marks[-1] - marks[-2], 1)

    def span(self, row: Instances, step: int) -> slice:
        """Return where the instances of a row are in a step."""
        first = step * self.laid.per_step + row.first
        return slice(first, first + row.count)

    def starts(self, row: Instances, step: int) -> np.ndarray:
        """Return when they were started. int64 ps of shape (instances,)."""
        return self.times.start[self.span(row, step)]

    def ends(self, row: Instances, step: int) -> np.ndarray:
        """Return when they ended. int64 ps of shape (instances,)."""
        return self.times.end[self.span(row, step)]


def simulate(
    workload: Workload,
    costs: Costs,
    *,
    steps: int = STEPS,
    slowdowns: Mapping[int, float] | None = None,
    marked: Iterable[int] = (),
    folded: bool = True,
    interference: Interference | None = None,
    native: bool = True,
    layouts: Layouts | None = None,
    late: Mapping[int, float] | None = None,
    outages: Sequence[Outage] = (),
) -> JobRun:
    """Return the run of ``steps`` steps; ``slowdowns`` and ``marked`` ranks as in ``rank_classes``.

    ``outages`` hold up what is on their links, so far as the costs say which links an operation uses.

    ``late`` ranks (rank -> seconds) begin each step so much later than they could. ``layouts`` remembers what runs of like
    workloads have in common: the same answers, sooner.

    Raises NeverEndsError, naming who waits for whom, where the job cannot end.
    """
    layouts = layouts or Layouts()
    waited_for = late_ranks(late or {}, workload.mesh.size)
    if waited_for:
        workload, marked = awaiting(workload), (*marked, *waited_for)
    places = costs.places if isinstance(costs, PlacedCosts) else None
    classes = layouts.rank_classes(workload, slowdowns, marked, folded=folded, places=places)
    watched = {link for each in outages for link in each.links}
    beyond = int(_goes_on(workload))  # a last step behind which nothing comes would end sooner than others
    laid = lay_out(workload, costs, classes, steps + beyond, interference, layouts, watched)
    laid = held(laid, late or {}) if waited_for else laid
    times, engine = _run(held_up(laid.flat, outages, laid.resource_of), native=native)
    times = times.until(laid.flat.n)
    run = JobRun(replace(laid, steps=steps), times, engine, tuple(outages))
    stuck = np.flatnonzero(times.end < 0)
    if len(stuck):
        raise NeverEndsError(
            f"the job stops: {len(stuck):,} of {laid.flat.n:,} tasks and operations never end",
            where=_waits(laid, times, stuck),
            remedy="look for a cycle of edges, an order that contradicts them, or too few tokens",
        )
    return run


def _goes_on(workload: Workload) -> bool:
    """Whether passes of a step are left to run in the next one."""
    own, chosen = workload.order.values(), (workload.policy.order or {}).values()
    slots, tasks = (batch for line in own for _, _, batch in line), (batch for line in chosen for _, batch in line)
    return any(batch < 0 for each in (slots, tasks) for batch in each)


def _run(flat: FlatJob, *, native: bool) -> tuple[InstanceTimes, str]:
    compiled = engine if native else None
    if compiled is None or not hasattr(compiled, "job"):
        return Loop(flat).run(), "python"
    return InstanceTimes(*compiled.job(flat)), "native"


def _waits(laid: Laid, times: InstanceTimes, stuck: np.ndarray) -> str:
    """Say who waits for whom, following the first blocked instance up to the point where it goes no further."""
    flat, chain = laid.flat, [int(stuck[0])]
    by_target: dict[int, list[int]] = defaultdict(list)
    for source, target in zip(*(ends.tolist() for ends in flat.edges()), strict=True):
        if times.end[source] < 0:
            by_target[target].append(source)
    while len(chain) < 8:
        before = [source for source in by_target[chain[-1]] if source not in chain]
        ahead = _ahead(laid, times, chain[-1]) if not by_target[chain[-1]] else None
        following = before[0] if before else ahead
        if following is None or following in chain:
            break
        chain.append(following)
    return " waits for ".join(name(laid, instance) for instance in chain)


def _ahead(laid: Laid, times: InstanceTimes, instance: int) -> int | None:
    """Return what stands before a ready task in its stream and never ended."""
    flat, queue = laid.flat, int(laid.flat.queue[instance])
    if queue < 0 or not flat.queues.strict[queue]:
        return None
    same = np.flatnonzero((flat.queue == queue) & (times.end < 0) & (flat.key < flat.key[instance]))
    return int(same[np.argmin(flat.key[same])]) if len(same) else None


def name(laid: Laid, instance: int) -> str:
    """Return an instance's name: task or operation, rank, step, micro-batch or piece."""
    step, at = divmod(instance, laid.per_step)
    firsts = np.array([row.first for row in laid.rows])
    row = laid.rows[int(np.searchsorted(firsts, at, side="right")) - 1]
    rank = laid.rank_classes.ranks[row.rank_classes[0]]
    part = "piece" if row.what == "operation" else "micro-batch"
    return f"{row.name} (rank {rank}, step {step}" + (f", {part} {at - row.first})" if row.count > 1 else ")")
