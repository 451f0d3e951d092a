"""What a setup makes of a step: simulated, or the least that it can take; each counted as the work that it was."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ringwright.advise.settings import Setup
from ringwright.advise.situation import PLANNED_BY
from ringwright.advise.unmeasured_operations import told_unmeasured, too_small
from ringwright.engines.job.reuse import Layouts
from ringwright.graph.memory import peak_bytes
from ringwright.ground.errors import InfeasibleError, RingwrightError, UsageError
from ringwright.jobs.memory import fits
from ringwright.jobs.pricing.cost_cache import KnownOperations
from ringwright.jobs.rows import NOT_EQUAL, told_equal
from ringwright.jobs.step_bound import LeastStep
from ringwright.jobs.study import DECLINES, answer
from ringwright.jobs.switch_gains import fabric_costs

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation
    from ringwright.jobs.study import Job, PolicyResult
    from ringwright.model.workload import Workload

MANY_TASKS = 400  # of a step
REFUSALS = (*DECLINES, UsageError)


@dataclass(frozen=True)
class Evaluation:
    """A setup's step in seconds and the bytes that a rank holds at its peak (None: not known), or why it was refused.

    ``instances`` of tasks and operations were simulated; ``decided`` is what its policies say of themselves. ``exact``: whether
    gradients stay the same numbers. ``unmeasured``: in words, which of its operations the recording does not have.
    """

    setup: Setup
    step_s: float | None
    peak_bytes: int | None = None
    refused: str = ""
    instances: int = 0
    decided: tuple[str, ...] = ()
    exact: bool = True
    unmeasured: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoundedSetup:
    """What another process knows of a setup: its bound, its plan (or why there is none), and what its operations take."""

    setup: Setup
    least_s: float
    work: int
    plan: Workload | RingwrightError | None = field(repr=False)
    operations: KnownOperations = field(repr=False)


@dataclass
class Evaluator:
    """Simulates setups of one situation and remembers them. ``work`` counts instances of tasks and operations.

    A bound counts the operations that it asks about; a run all instances of all its steps.
    """

    situation: Situation
    memory_bytes: int | None = None
    inexact: bool = False  # whether gradients may be other numbers afterwards
    work: int = 0
    runs: int = 0
    known: dict[object, Evaluation] = field(default_factory=dict)
    _plans: dict[tuple[object, ...], Workload | RingwrightError] = field(default_factory=dict)
    _least: dict[tuple[object, ...], LeastStep] = field(default_factory=dict)
    _peaks: dict[int, tuple[Workload, int | None]] = field(default_factory=dict)
    _layouts: Layouts = field(default_factory=Layouts)

    def run(self, setup: Setup) -> Evaluation:
        """Return the simulated step of a setup, from memory where it was asked for before."""
        if setup.key not in self.known:
            self.known[setup.key] = self._run(setup)
        return self.known[setup.key]

    def result(self, setup: Setup, iteration: int = 0) -> PolicyResult:
        """Return the whole run of a setup, in an iteration; raise why it is refused."""
        self.runs += 1
        return self.answered(self.situation.job(setup, iteration), self.plan(setup, iteration))

    def answered(self, job: Job, plan: Workload) -> PolicyResult:
        """Return the run of a job by a plan, and count its work."""
        result = answer(replace(job, layouts=self._layouts), lambda _workload, _costs: plan)
        if self.memory_bytes is not None:
            fits(self._held(plan), self.memory_bytes)
        if not self.inexact and told_equal(result) == NOT_EQUAL:
            raise InfeasibleError(NOT_EQUAL, remedy="--inexact")
        self.work += instances_of(result)
        return result

    def least_s(self, setup: Setup) -> float:
        """Return seconds that no step of a setup is shorter than; inf where it is refused."""
        try:
            least = self._least_step(setup)
            self.work += least.sent
            return least.seconds(self.situation.job(setup).costs)
        except REFUSALS:
            return math.inf

    def plan(self, setup: Setup, iteration: int = 0) -> Workload:
        """Return what the policy of a setup makes of the job, with the costs of today; raise why it is refused."""
        key = self._planned(setup, iteration)
        if key not in self._plans:
            self._plans[key] = self._scheduled(setup, iteration)
        plan = self._plans[key]
        if isinstance(plan, RingwrightError):
            raise plan
        return plan

    def tell(self, setup: Setup) -> BoundedSetup:
        """Return the bound of a setup with all that was learnt on the way, for another process."""
        try:
            on = fabric_costs(self.situation.job(setup))
        except REFUSALS:
            on = None
        known, began = (KnownOperations() if on is None else on.met.copy()), self.work
        least_s = self.least_s(setup)
        plan = self._plans.get(self._planned(setup, 0))
        learnt = KnownOperations() if on is None else on.met.since(known)
        return BoundedSetup(setup, least_s, self.work - began, plan, learnt)

    def learn(self, told: BoundedSetup) -> None:
        """Take in what another process knows of a setup."""
        self.work += told.work
        if told.plan is not None:
            self._plans.setdefault(self._planned(told.setup, 0), told.plan)
        if told.operations.timed:
            on = fabric_costs(self.situation.job(told.setup))
            if on is not None:
                on.met.update(told.operations)

    @property
    def is_large(self) -> bool:
        """Whether planning takes longer than copying a process."""
        return len(self.situation.workload.tasks) >= MANY_TASKS

    def _scheduled(self, setup: Setup, iteration: int) -> Workload | RingwrightError:
        """Return what the first scheduler of a setup makes that declines nothing; the last refusal where all do."""
        try:
            job = self.situation.job(Setup(tuple(each for each in setup if each.slot in PLANNED_BY)), iteration)
            *others, last = self.situation.schedulers(setup)
            for schedule in others:
                with suppress(*REFUSALS):
                    return schedule(job.workload, job.costs)
            return last(job.workload, job.costs)
        except REFUSALS as error:
            return error

    def _least_step(self, setup: Setup) -> LeastStep:
        key = self._planned(setup, 0)
        if key not in self._least:
            self._least[key] = LeastStep(self.plan(setup))
        return self._least[key]

    def _held(self, plan: Workload) -> int | None:
        """Return the most that a rank holds by a plan, whatever its operations take; None where that is not known."""
        if id(plan) not in self._peaks:
            self._peaks[id(plan)] = plan, peak_bytes(plan)
        return self._peaks[id(plan)][1]

    @staticmethod
    def _planned(setup: Setup, iteration: int) -> tuple[object, ...]:
        return setup.policies, tuple(setup.spelling(slot) for slot in PLANNED_BY), iteration

    def _run(self, setup: Setup) -> Evaluation:
        try:
            unknown = too_small(
                self.situation.job(setup).costs, self.plan(setup)
            )  # before it is simulated: runs are few
            result = None if unknown else self.result(setup)
        except REFUSALS as error:
            return Evaluation(setup, None, refused=error.what)
        if result is None:
            return Evaluation(setup, None, refused=unknown)
        return Evaluation(
            setup,
            result.step_s,
            self._held(result.workload),
            instances=instances_of(result),
            decided=result.decided,
            exact=told_equal(result) != NOT_EQUAL,
            unmeasured=told_unmeasured(result),
        )


def instances_of(result: PolicyResult) -> int:
    """Return how many instances of tasks and operations a run simulated."""
    laid = result.undisturbed.laid
    return laid.per_step * laid.steps
