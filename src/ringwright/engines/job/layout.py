"""Lay a scheduled Workload out as instances: one step of every rank class first, then as many steps as are simulated.

A task becomes one instance per rank class and micro-batch; an operation one instance per group of rank classes, piece and phase.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ringwright.engines.job.arrays import flatten
from ringwright.engines.job.contention_factors import measured
from ringwright.engines.job.flat import FlatJob, Interference
from ringwright.engines.job.rank_classes import RankClasses
from ringwright.engines.job.reuse import Layouts
from ringwright.engines.job.step import Band, Instances
from ringwright.engines.job.timed_anew import timed_anew
from ringwright.ground.errors import InfeasibleError
from ringwright.model.rewrites import Operation, operations
from ringwright.model.stages import Costs
from ringwright.model.workload import Workload

MOST_INSTANCES = 40_000_000


@dataclass(frozen=True)
class Laid:
    """The laid-out job, and how to read its times: bands of one step, instances a step, steps."""

    flat: FlatJob
    bands: list[Band]
    per_step: int
    steps: int
    rank_classes: RankClasses
    operations: list[Operation]
    resource_of: dict[int, int] = field(default_factory=dict)  # of the links that are watched and somebody loads

    @cached_property
    def of(self) -> np.ndarray:
        """Return the band of each instance of one step, by its place. int64 of shape (per_step,)."""
        return np.repeat(np.arange(len(self.bands)), [band.instances for band in self.bands])

    @cached_property
    def rows(self) -> list[Instances]:
        """The rows of one step, those of a band one after another."""
        return [row for band in self.bands for row in band.each()]


def lay_out(
    workload: Workload,
    costs: Costs,
    rank_classes: RankClasses,
    steps: int,
    interference: Interference | None = None,
    layouts: Layouts | None = None,
    watched: Iterable[int] = (),
) -> Laid:
    """Return the job laid out; raise UsageError for what cannot be, InfeasibleError for what no memory holds.

    ``watched``: links that outages will hit, so that all who use them must be known. What ``layouts`` remembers of other
    layouts is not done again, and this one is remembered.
    """
    found_operations, layouts, watched = operations(workload), layouts or Layouts(), tuple(watched)
    interference = interference or Interference()
    asked = (steps, interference, watched)
    known = layouts.laid(workload, rank_classes, found_operations, asked)
    anew = None if known is None else timed_anew(known[0], known[1], workload, costs, watched)
    if anew is not None:
        return anew
    written = layouts.begun(workload, costs, rank_classes, found_operations)
    step = written.step
    written.sending.lay(step)
    if step.n * steps > MOST_INSTANCES:
        raise InfeasibleError(
            f"{step.n:,} tasks and pieces a step, {steps} steps: more than {MOST_INSTANCES:,}",
            where=workload.name,
            remedy="larger pieces, or a policy that does not slice",
        )
    numbers = {link: step.resources.get((-1, f"link {link}")) for link in watched}
    resource_of = {link: number for link, number in numbers.items() if number is not None}
    flat = flatten(workload, step, steps, written.tasks, interference, resource_of.values())
    if flat.interference.model == "measured":
        model, rows = measured(flat.interference, workload, (band.name for band in step.bands))
        rows = np.repeat(rows, [band.instances for band in step.bands])
        flat = replace(flat, interference=model, tiles=np.tile(rows, steps))
    laid = Laid(flat, step.bands, step.n, steps, rank_classes, found_operations, resource_of)
    layouts.keep(written, workload, laid, asked)
    return laid
