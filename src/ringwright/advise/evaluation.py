"""What a setup makes of a step: simulated, or the least that it can take; each counted as the work that it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ringwright.advise.settings import Setup
from ringwright.advise.situation import PLANNED_BY, SituationRecipe
from ringwright.advise.unmeasured_operations import told_unmeasured, too_small
from ringwright.algorithms.searching import in_time
from ringwright.engines.job.reuse import Layouts
from ringwright.executors.fan_out import FanOut
from ringwright.executors.shared import share, shared
from ringwright.graph.memory import peak_bytes
from ringwright.ground.errors import InfeasibleError, RingwrightError, UsageError
from ringwright.ground.stepwise import tallied
from ringwright.jobs.memory import fits
from ringwright.jobs.rows import NOT_EQUAL, told_equal
from ringwright.jobs.step_bound import LeastStep
from ringwright.jobs.study import DECLINES, answer

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation
    from ringwright.jobs.study import Job, PolicyResult
    from ringwright.model.workload import Workload

ANEW = 50  # work, beside its ranks, of an operation of a plan, or by a system, that is asked about first
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
class EvaluatorRecipe:
    """What makes an Evaluator in another process."""

    situation: SituationRecipe
    memory_bytes: int | None
    inexact: bool


@dataclass
class Evaluator:
    """Simulates setups of one situation and remembers them. ``work`` counts instances of tasks and operations.

    It is counted here, by what is asked and never by who answers or what they knew: a run all instances of all its steps, a
    bound its operations and once its plan. With ``fan`` others work too, where the situation can be made again.
    """

    situation: Situation
    memory_bytes: int | None = None
    inexact: bool = False  # whether gradients may be other numbers afterwards
    fan: FanOut | None = None
    work: int = 0
    runs: int = 0
    known: dict[object, Evaluation] = field(default_factory=dict)
    undrawn: dict[object, float] = field(default_factory=dict)  # steps in s of (setup, iteration), with nothing drawn
    _plans: dict[tuple[object, ...], Workload | RingwrightError] = field(default_factory=dict)
    _least: dict[tuple[object, ...], LeastStep] = field(default_factory=dict)
    _peaks: dict[int, tuple[Workload, int | None]] = field(default_factory=dict)
    _layouts: Layouts = field(default_factory=Layouts)
    _counted: set[object] = field(default_factory=set)
    _planning: dict[object, int] = field(default_factory=dict)

    def each(
        self, function: Callable[..., Any], given: Sequence[tuple[Any, ...]], take: Callable[[int, Any], None]
    ) -> None:
        """Call a function with an evaluator like this one and what is given, by all who work.

        ``take`` gets the number of a call and its result as they come; what it raises, or a block's last second, ends them all.
        """

        def taken(at: int, result: Any) -> None:
            take(at, result)
            in_time()

        if self.fan is None or self.situation.again is None:
            for at, one in enumerate(given):
                taken(at, function(self, *one))
            return
        recipe = EvaluatorRecipe(self.situation.again, self.memory_bytes, self.inexact)
        share(self, _evaluator, recipe)
        try:
            self.fan.map(function, [(recipe, *one) for one in given], each=taken, paths=recipe.situation.paths)
        except BaseException:
            self.fan.close(at_once=True)  # else what was begun holds up what is asked next
            raise

    def ahead(self, setups: Iterable[Setup]) -> None:
        """Simulate setups that will be asked for, by all who work; they are remembered in this order, whoever is done first."""
        fresh = list({each.key: each for each in setups if each.key not in self.known}.values())
        done: dict[int, Evaluation] = {}
        try:
            if fresh:
                self.each(evaluated, [(each,) for each in fresh], done.__setitem__)
        finally:
            for at in sorted(done):
                self.known[done[at].setup.key] = done[at]
                self.runs, self.work = self.runs + 1, self.work + done[at].instances

    def run(self, setup: Setup) -> Evaluation:
        """Return the simulated step of a setup, from memory where it was asked for before."""
        self.ahead([setup])
        return self.known[setup.key]

    def result(self, setup: Setup, iteration: int = 0) -> PolicyResult:
        """Return the whole run of a setup, in an iteration, and count its work; raise why it is refused."""
        result = self.answered(self.situation.job(setup, iteration), self.plan(setup, iteration))
        self.runs, self.work = self.runs + 1, self.work + instances_of(result)
        return result

    def answered(self, job: Job, plan: Workload) -> PolicyResult:
        """Return the run of a job by a plan."""
        result = answer(replace(job, layouts=self._layouts), lambda _workload, _costs: plan)
        if self.memory_bytes is not None:
            fits(self._held(plan), self.memory_bytes)
        if not self.inexact and told_equal(result) == NOT_EQUAL:
            raise InfeasibleError(NOT_EQUAL, remedy="--inexact")
        return result

    def least_s(self, setup: Setup) -> float:
        """Return seconds that no step of a setup is shorter than; inf where it is refused."""
        try:
            return self._least_step(setup).seconds(self.situation.job(setup).costs)
        except REFUSALS:
            return math.inf

    def bounds(self, setups: Sequence[Setup]) -> tuple[list[float], int]:
        """Return the bounds of setups of one plan, and how much work they are where nothing of that was asked before."""
        least, key = [self.least_s(each) for each in setups], self.planned(setups[0])
        sent = self._least[key].sent if key in self._least else 0
        return least, 1 + self._planning.get(key, 0) + sent * (ANEW + self.situation.workload.mesh.size)

    def count_bounds(self, setups: Sequence[Setup], work: int) -> None:
        """Count the work of bounds of one plan: little where the plan, and the systems of its operations, were counted."""
        for each in setups:
            parts = {self.planned(each), *each.algorithms.items()}
            self.work += 1 if parts <= self._counted else work
            self._counted |= parts

    def plan(self, setup: Setup, iteration: int = 0) -> Workload:
        """Return what the policy of a setup makes of the job, with the costs of today; raise why it is refused."""
        key = self.planned(setup, iteration)
        if key not in self._plans:
            self._plans[key] = self._scheduled(setup, iteration)
        plan = self._plans[key]
        if isinstance(plan, RingwrightError):
            raise plan
        return plan

    def _scheduled(self, setup: Setup, iteration: int) -> Workload | RingwrightError:
        """Return what the first scheduler of a setup makes that declines nothing; the last refusal where all do."""
        try:
            job = self.situation.job(Setup(tuple(each for each in setup if each.slot in PLANNED_BY)), iteration)
            *others, last = self.situation.schedulers(setup)
            with tallied(self._planning, self.planned(setup, iteration)):
                for schedule in others:
                    with suppress(*REFUSALS):
                        return schedule(job.workload, job.costs)
                return last(job.workload, job.costs)
        except REFUSALS as error:
            return error

    def _least_step(self, setup: Setup) -> LeastStep:
        key = self.planned(setup, 0)
        if key not in self._least:
            self._least[key] = LeastStep(self.plan(setup))
        return self._least[key]

    def _held(self, plan: Workload) -> int | None:
        """Return the most that a rank holds by a plan, whatever its operations take; None where that is not known."""
        if id(plan) not in self._peaks:
            self._peaks[id(plan)] = plan, peak_bytes(plan)
        return self._peaks[id(plan)][1]

    @staticmethod
    def planned(setup: Setup, iteration: int = 0) -> tuple[object, ...]:
        """Return what setups share that have one plan."""
        return setup.policies, tuple(setup.spelling(slot) for slot in PLANNED_BY), iteration

    def evaluation(self, setup: Setup) -> Evaluation:
        """Return the simulated step of a setup, whether or not it is known."""
        try:
            job, plan = self.situation.job(setup), self.plan(setup)
            unknown = too_small(job.costs, plan)  # before it is simulated: runs are few
            result = None if unknown else self.answered(job, plan)
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


def evaluator_of(recipe: Evaluator | EvaluatorRecipe) -> Evaluator:
    """Return the evaluator of a recipe, which a process makes once."""
    return shared(_evaluator, recipe) if isinstance(recipe, EvaluatorRecipe) else recipe


def _evaluator(recipe: EvaluatorRecipe) -> Evaluator:
    return Evaluator(recipe.situation.situation(), recipe.memory_bytes, recipe.inexact)


def evaluated(recipe: Evaluator | EvaluatorRecipe, setup: Setup) -> Evaluation:
    """Return the simulated step of a setup."""
    return evaluator_of(recipe).evaluation(setup)


def plan_bounds(recipe: Evaluator | EvaluatorRecipe, setups: tuple[Setup, ...]) -> tuple[list[float], int]:
    """Return the bounds of setups of one plan, and how much work they are."""
    return evaluator_of(recipe).bounds(setups)
