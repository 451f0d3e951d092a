"""What each system does for a job: a simulated step with its algorithm or its policy in the baseline's place, and the best pair.

Every pair is simulated once. The best pair is looked for by exchanging one of its parts at a time until nothing is shorter, in
both orders at once; with ``exhaustive`` every pair is tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ringwright.executors.fan_out import FanOut
from ringwright.executors.shared import share, shared
from ringwright.ground.errors import InfeasibleError, RingwrightError, UsageError, WorkloadError
from ringwright.ground.stepwise import Advance
from ringwright.jobs import model_job, study
from ringwright.jobs.model_workload import WorkloadSpec
from ringwright.jobs.pricing.wire import wire_bytes
from ringwright.model.rewrites import is_sent_whole, operations
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright_lab.survey.survey_job import Asked, JobRecipe

if TYPE_CHECKING:
    from ringwright.costs.probable_time import Probable

Pair = tuple[str, str]  # algorithm, policy
Choices = tuple[Sequence[str], Sequence[str]]
FAMILIES = ("algorithm", "policy")
LIKELY = ("step_us_p05", "step_us_p50", "step_us_p95")


@dataclass(frozen=True)
class StepOutcome:
    """One pair's step: times in us, bytes that a rank puts on wires, or why there are none in ``declined``.

    ``step_us`` is the simulated step, ``likely_us`` 5, 50 and 95 % of the most probable one, as simulate answers (None: no such
    steps were measured). ``left`` says what the algorithm left to the library; ``equal_bits`` whether every gradient travels
    as it is.
    """

    step_us: float | None
    exposed_us: float | None
    wire_bytes: float | None
    declined: str = ""
    left: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()
    equal_bits: bool | None = None
    healthy: StepOutcome | None = None  # on the machine without its faults; None: it has none
    likely_us: tuple[float | None, float | None, float | None] = (None, None, None)
    took_s: float = field(default=0.0, compare=False)  # to simulate it


@dataclass
class Runs:
    """Simulated pairs of a job, each once. ``told`` is called before each; ``expected`` is how many there will be, at least."""

    asked: Asked
    told: Advance | None = None
    expected: int = 0
    fan: FanOut | None = None
    outcomes: dict[Pair, StepOutcome] = field(default_factory=dict)
    jobs: dict[str, study.Job] = field(default_factory=dict, repr=False)

    def ahead(self, pairs: Iterable[Pair]) -> None:
        """Simulate pairs that will be asked for, by all who work; what nobody else can make is simulated when it is asked for."""
        left, recipe = self._costliest_first(dict.fromkeys(pairs)), self.asked.again
        if self.fan is None or recipe is None or not left:
            return
        share(self, _of_recipe, recipe)
        done = len(self.outcomes)
        self.expected = max(self.expected, done + len(left))

        def progress(more: int, _of: int, name: str) -> None:
            if self.told:
                self.told(done + more, self.expected, name)

        given = [(recipe, *pair) for pair in left]
        files = [str(recipe.job)] if recipe.spec is None else []
        outcomes = self.fan.map(
            outcome_of, given, title=lambda _, *pair: " + ".join(pair), progress=progress, paths=files
        )
        self.outcomes |= dict(zip(left, outcomes, strict=True))

    def _costliest_first(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Return pairs not simulated yet; an algorithm that takes long with the baseline's policy takes long with others too."""
        algorithm, policy = self.asked.baseline

        def cost(pair: Pair) -> float:
            parts = [self.outcomes.get(each) for each in ((pair[0], policy), (algorithm, pair[1]))]
            return -math.prod(part.took_s for part in parts if part is not None)

        return sorted((pair for pair in pairs if pair not in self.outcomes), key=cost)

    def job(self, algorithm: str) -> study.Job:
        """Return the job with the collectives of one algorithm."""
        if algorithm not in self.jobs:
            self.jobs[algorithm] = self.asked.jobs(algorithm)
        return self.jobs[algorithm]

    def outcome(self, algorithm: str, policy: str) -> StepOutcome:
        """Return the outcome of a pair."""
        key = (algorithm, policy)
        if key not in self.outcomes:
            if self.told:
                done = len(self.outcomes)
                self.told(done, max(self.expected, done + 1), f"{algorithm} + {policy}")
            self.outcomes[key] = self.simulated(algorithm, policy)
        return self.outcomes[key]

    def simulated(self, algorithm: str, policy: str) -> StepOutcome:
        """Simulate a pair."""
        job = self.job(algorithm)
        try:
            answer = study.answer(job, policy)
        except (WorkloadError, InfeasibleError, UsageError) as error:
            return StepOutcome(None, None, None, declined=error.what)
        sent = self.asked.fabric_costs(job, algorithm).sent_bytes
        return StepOutcome(
            answer.account.step_s * 1e6,
            answer.account.exposed_s * 1e6,
            wire_bytes(answer.workload, answer.run, sent),
            left=tuple(job.remarks()),
            decided=answer.decided,
            equal_bits=is_sent_whole(answer.run.laid.operations),
            healthy=None if answer.healthy is None else _healthy(answer.healthy),
            likely_us=_likely(answer.probable),
        )

    def step_us(self, pair: Pair) -> float:
        """Return a pair's step, infinite where it declines."""
        us = self.outcome(*pair).step_us
        return float("inf") if us is None else us


def outcome_of(recipe: JobRecipe, algorithm: str, policy: str) -> StepOutcome:
    """Return the outcome of one pair of a job; a process makes the job once."""
    runs, began_s = shared(_of_recipe, recipe), time.monotonic()
    known = runs.outcomes.get((algorithm, policy))
    return known or replace(runs.simulated(algorithm, policy), took_s=time.monotonic() - began_s)


def _of_recipe(recipe: JobRecipe) -> Runs:
    return Runs(recipe.asked())


def _likely(said: Probable | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if said is None else (said.p05_us, said.p50_us, said.p95_us)


def untouched_by(scheduler: Callable[..., Workload]) -> bool | None:
    """Say the same of a scheduler on the usual small job, VGG-16 on four ranks; None where it declines that."""
    job = model_job.workload(model_job.GeneratedJobSpec(WorkloadSpec("vgg16", gpus=4)))
    try:
        return is_sent_whole(operations(scheduler(job, LinkCosts(1e10))))
    except RingwrightError:
        return None


def scene(asked: Asked) -> Workload:
    """Return the workload that needs are looked up in."""
    return asked.jobs("").workload


def best(runs: Runs, algorithms: Sequence[str], policies: Sequence[str], *, exhaustive: bool = False) -> dict[str, Any]:
    """Return the pair with the shortest step, how many of all pairs were simulated, and each of its parts.

    Both orders of exchange begin at the baseline; of equals the first in the order given is taken.
    """
    choices = (list(algorithms), list(policies))
    runs.expected = max(runs.expected, _pairs_to_try(len(algorithms), len(policies), exhaustive=exhaustive))
    if exhaustive:
        pairs = [(algorithm, policy) for algorithm in choices[0] for policy in choices[1]]
        runs.ahead(pairs)
        found = min(pairs, key=runs.step_us)
    else:
        start = runs.asked.baseline
        found = min(
            _ended(runs, [_exchanges(runs, start, choices, order) for order in ((0, 1), (1, 0))]), key=runs.step_us
        )
    tried = sum(1 for algorithm, policy in runs.outcomes if algorithm in choices[0] and policy in choices[1])
    return {
        **dict(zip(FAMILIES, found, strict=True)),
        **figures(runs.outcome(*found)),
        "tried": tried,
        "pairs": len(choices[0]) * len(choices[1]),
        "exhaustive": exhaustive,
        "equal_bits": runs.outcome(*found).equal_bits,
        "command": runs.asked.command(*found),
    }


def _pairs_to_try(algorithms: int, policies: int, *, exhaustive: bool) -> int:
    """Return how many pairs a search simulates: all, or each algorithm and each policy beside two others at least."""
    return algorithms * policies if exhaustive else 2 * (algorithms + policies)


def _exchanges(runs: Runs, start: Pair, choices: Choices, order: Sequence[int]) -> Generator[list[Pair], None, Pair]:
    """Yield the pairs that each exchange chooses from; return where no algorithm or policy alone makes the step shorter."""
    pair, before = start, None
    while pair != before:
        before = pair
        for part in order:
            options = [(each, pair[1]) if part == 0 else (pair[0], each) for each in choices[part]]
            yield options
            pair = min([pair, *options], key=runs.step_us)
    return pair


def _ended(runs: Runs, searches: Sequence[Generator[list[Pair], None, Pair]]) -> list[Pair]:
    """Return where searches end, in their order; what they choose from next is simulated together."""
    ends: dict[int, Pair] = {}
    while len(ends) < len(searches):
        wanted: list[Pair] = []
        for number, each in enumerate(searches):
            if number not in ends:
                try:
                    wanted += next(each)
                except StopIteration as end:
                    ends[number] = end.value
        runs.ahead(wanted)
    return [ends[number] for number in range(len(searches))]


def _healthy(answer: study.PolicyResult) -> StepOutcome:
    """Return the times of a step alone."""
    return StepOutcome(
        answer.account.step_s * 1e6, answer.account.exposed_s * 1e6, None, likely_us=_likely(answer.probable)
    )


def figures(outcome: StepOutcome) -> dict[str, Any]:
    """Return an outcome's figures as keys of a row."""
    own = {
        "step_us": outcome.step_us,
        "exposed_us": outcome.exposed_us,
        "wire_bytes": outcome.wire_bytes,
        "healthy": None if outcome.healthy is None else figures(outcome.healthy),
    }
    return own | dict(zip(LIKELY, outcome.likely_us, strict=True))
