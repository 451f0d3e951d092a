"""What is laid out of one candidate of a search serves the next: its tasks, and its operations up to the first that differs.

A step is written down in order, and what is written of an operation depends on the tasks, on parts of the policy, on what it
costs and on the operations before it. So a step whose beginning is the same begins with a copy of what was written. Nothing is
believed: all that is read is compared, by value, and the cost model is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringwright.engines.job.groups import OperationGroups
from ringwright.engines.job.rank_classes import RankClasses, rank_classes
from ringwright.engines.job.sending import Sending, asked
from ringwright.engines.job.step import StepBuilder, StepMark
from ringwright.engines.job.tasks import Tasks
from ringwright.model.rewrites import Operation
from ringwright.model.stages import Costs
from ringwright.model.workload import Queue, Workload

if TYPE_CHECKING:
    import numpy as np

    from ringwright.engines.job.layout import Laid

MOST_KEPT, MOST_ALIKE = 6, 2  # steps, the latest, and of those with the same tasks: a few MB
MOST_LAID = 1 << 19  # instances of what is remembered as arrays: some 100 MB


@dataclass(frozen=True)
class WrittenStep:
    """A step as it was written down, and all that was read for it."""

    read: tuple[Any, ...]
    rank_classes: RankClasses
    step: StepBuilder
    tasks: Tasks
    behind_tasks: StepMark
    sending: Sending

    def alike(self, operations: list[Operation]) -> int:
        """Return how many operations are the same, and cost the same, from the first one on."""
        sending, alike = self.sending, 0
        if self.read[-1] == "index" and any(
            len({each.name for each in listed}) < len(listed) for listed in (sending.operations, operations)
        ):
            return 0  # turns go by name
        for old, new in zip(sending.operations, operations, strict=False):
            if old is not new and old != new:
                break
            alike += 1
        known = sending.marks[alike - 1].phases if alike else 0
        for at, each in enumerate(sending.phases.values()):
            if at == known:
                break
            if asked(sending.costs, *each.question) != each.phases:
                return 0
        return alike


@dataclass(frozen=True)
class LaidStep:
    """A step as arrays, what it was laid out from, and what else was asked for: steps, interference, links that are watched."""

    workload: Workload
    written: WrittenStep
    laid: Laid
    asked: tuple[Any, ...]


class Layouts:
    """The latest steps that were laid out of a job, for the next; copies begin with none."""

    def __init__(self) -> None:
        self._kept: tuple[WrittenStep, ...] = ()
        self._laid: tuple[LaidStep, ...] = ()
        self._classes: tuple[tuple[Any, RankClasses], ...] = ()

    def __reduce__(self) -> tuple[type[Layouts], tuple[()]]:
        return Layouts, ()

    def rank_classes(
        self,
        workload: Workload,
        slowdowns: Mapping[int, float] | None,
        marked: Iterable[int],
        *,
        folded: bool,
        places: np.ndarray | None = None,
    ) -> RankClasses:
        """Return the rank classes, the same object for the same question; see ``rank_classes``."""
        marked = tuple(marked)
        read = (
            workload.mesh,
            _classes(workload),
            dict(slowdowns or {}),
            marked,
            folded,
            None if places is None else places.tobytes(),
        )
        for known, classes in self._classes:
            if known == read:
                return classes
        made = rank_classes(workload, slowdowns, marked=marked, folded=folded, places=places)
        self._classes = ((read, made), *self._classes)[:MOST_KEPT]
        return made

    def begun(self, workload: Workload, costs: Costs, classes: RankClasses, operations: list[Operation]) -> WrittenStep:
        """Return a step, with its tasks and with as many of its operations as were written before."""
        read = _read(workload)
        same = [
            each
            for each in self._kept
            if each.rank_classes is classes and each.sending.costs is costs and each.read == read
        ]
        if not same:
            step, groups = StepBuilder(), OperationGroups(workload, classes)
            tasks = Tasks(workload, groups)
            tasks.lay(step)
            sending = Sending(workload, costs, groups, tasks, operations)
            return WrittenStep(read, classes, step, tasks, step.mark(), sending)
        counts = [each.alike(operations) for each in same]
        before, first = same[counts.index(max(counts))], max(counts)
        step = before.step.until(before.sending.marks[first - 1].step if first else before.behind_tasks)
        sending = before.sending.resumed(workload, operations, first)
        return WrittenStep(read, classes, step, before.tasks, before.behind_tasks, sending)

    def laid(
        self, workload: Workload, classes: RankClasses, operations: list[Operation], asked: tuple[Any, ...]
    ) -> tuple[Laid, WrittenStep] | None:
        """Return the latest layout of the same workload by the same question, whatever its costs were, and its step."""
        for each in self._laid:
            known = each.workload is workload and each.written.rank_classes is classes and each.asked == asked
            if known and each.written.read == _read(workload) and each.laid.operations == operations:
                return each.laid, each.written
        return None

    def keep(self, written: WrittenStep, workload: Workload, laid: Laid, asked: tuple[Any, ...]) -> None:
        """Remember a step of which all is written; its edges without a rule are let go. A small one stays as arrays too."""
        if laid.flat.n <= MOST_LAID:
            self._laid = (LaidStep(workload, written, laid, asked), *self._laid)[:MOST_ALIKE]
        written.step.joined.clear()
        kept, alike = [written], 1
        for each in self._kept:
            same = each.tasks is written.tasks
            alike += same
            if not same or alike <= MOST_ALIKE:
                kept.append(each)
        self._kept = tuple(kept[:MOST_KEPT])


def _read(workload: Workload) -> tuple[Any, ...]:
    """Return what tasks and operations are laid out from, but operations and costs; of what can be changed in place, a copy."""
    policy = workload.policy
    return (
        workload.name,
        workload.mesh,
        _classes(workload),
        workload.tasks,
        workload.edges,
        workload.micro_batches,
        dict(workload.order),
        dict(policy.order or {}),
        {role: unit for role, (_, unit) in (policy.queue or Queue()).windows.items()},
        policy.boundary,
        policy.agreement,
    )


def _classes(workload: Workload) -> tuple[tuple[str, dict[str, int]], ...]:
    return tuple((each.name, dict(each.at)) for each in workload.classes)
