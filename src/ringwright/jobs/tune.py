"""Which knobs of a policy make the shortest step? Bayesian optimisation over logarithmic axes, by simulation or by real runs.

``tune`` asks any function of knobs that returns seconds, so a measured step of a live job serves like a simulated one. The
samples are chosen by expected improvement under a Gaussian process (library ``bayesian-optimization``, extra ``tune``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ringwright.ground.errors import MissingExtraError, UsageError
from ringwright.jobs.study import Job, answer

Knobs = dict[str, float]
Space = Mapping[str, tuple[float, float]]
# Axes of each policy in MiB: from a fraction of a message's cost to more than any model's gradients at once.
SPACES: dict[str, Space] = {
    "pytorch-ddp": {"bucket_cap_mb": (0.25, 1024.0)},
    "bytescheduler": {"partition_mb": (0.0625, 128.0), "credit_mb": (0.25, 512.0)},
    "dear": {"threshold_mb": (1.0, 256.0)},  # as its own tuner is called
}
STARTS = {  # what their authors ship, tried first
    "pytorch-ddp": {"bucket_cap_mb": 25.0},
    "bytescheduler": {"partition_mb": 30.5, "credit_mb": 61.0},
    "dear": {"threshold_mb": 25.0},
}
MOST_SAMPLES = 200
EAGERNESS = 0.01  # of expected improvement, in powers of e: a gain of one percent is worth a sample


@dataclass(frozen=True)
class Trial:
    """Knobs and the seconds of a step with them."""

    knobs: Knobs
    seconds: float


@dataclass(frozen=True)
class Tuned:
    """All trials in their order; ``best`` is the shortest, the earliest of equals."""

    trials: tuple[Trial, ...]
    policy: str = ""

    @property
    def best(self) -> Trial:
        """The trial of the shortest step."""
        return min(self.trials, key=lambda each: each.seconds)

    @property
    def spelling(self) -> str:
        """The policy with its best knobs, as ``--policy`` takes it."""
        return spelled(self.policy, self.best.knobs)


def tune(
    measure: Callable[[Knobs], float],
    space: Space,
    samples: int = 15,
    *,
    start: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Tuned:
    """Return the trials of ``samples`` calls of ``measure`` (knobs -> seconds above 0) within ``space`` (name -> least, most).

    ``start`` is tried first, then the middle and both ends of the diagonal, then what promises most. The same seed and the
    same measurements give the same trials. UsageError for a space or a number of samples that makes no sense;
    MissingExtraError without the library.
    """
    _check(space, samples)
    search = _Search(space, seed)
    trials: list[Trial] = []
    for number in range(samples):
        knobs = search.fixed(number, start) or search.promising()
        seconds = float(measure(dict(knobs)))
        if not 0 < seconds < math.inf:
            raise UsageError(f"a step took {seconds} s", where=str(knobs), remedy="measure must return seconds above 0")
        trials.append(Trial(knobs, seconds))
        search.learn(knobs, seconds)
    return Tuned(tuple(trials))


def tuned(job: Job, policy: str, samples: int = 15, *, seed: int = 0) -> Tuned:
    """Return the trials of a policy's knobs on a simulated job; UsageError for one that has no knobs to tune."""
    if policy not in SPACES:
        raise UsageError(f"'{policy}' has no knobs that are tuned here", remedy=f"one of: {', '.join(SPACES)}")
    seen: dict[str, float] = {}

    def measure(knobs: Knobs) -> float:
        spelling = spelled(policy, knobs)
        if spelling not in seen:
            seen[spelling] = answer(job, spelling).account.step_s
        return seen[spelling]

    return Tuned(tune(measure, SPACES[policy], samples, start=STARTS[policy], seed=seed).trials, policy)


def spelled(policy: str, knobs: Mapping[str, float]) -> str:
    """Return ``slug:knob=value:knob=value``, values to four digits."""
    return ":".join([policy, *(f"{name}={value:.4g}" for name, value in knobs.items())])


def document(tuned: Tuned) -> dict[str, Any]:
    """Return what was tried, in microseconds, for the object of schema ``ringwright.simulate-job/1``."""
    return {
        "policy": tuned.policy,
        "best": tuned.spelling,
        "knobs": tuned.best.knobs,
        "step_us": tuned.best.seconds * 1e6,
        "first_step_us": tuned.trials[0].seconds * 1e6,
        "trials": [{"knobs": each.knobs, "step_us": each.seconds * 1e6} for each in tuned.trials],
    }


def _check(space: Space, samples: int) -> None:
    if not space or not 1 <= samples <= MOST_SAMPLES:
        raise UsageError(
            f"{samples} samples over {len(space)} knobs", remedy=f"1 to {MOST_SAMPLES} samples, a knob or more"
        )
    for name, (least, most) in space.items():
        if not 0 < least < most < math.inf:
            raise UsageError(f"{name} from {least} to {most} is no range", remedy="0 < least < most")


@dataclass
class _Search:
    """The library behind axes that run from 0 to 1 in the logarithm of each knob."""

    space: Space
    seed: int
    optimizer: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            from bayes_opt import BayesianOptimization
            from bayes_opt.acquisition import ExpectedImprovement
        except ImportError as error:
            raise MissingExtraError("tuning needs bayesian-optimization", extra="tune") from error
        self.optimizer = BayesianOptimization(
            f=None,
            pbounds=dict.fromkeys(self.space, (0.0, 1.0)),
            verbose=0,
            random_state=self.seed,
            allow_duplicate_points=True,
            acquisition_function=ExpectedImprovement(xi=EAGERNESS),
        )

    def fixed(self, number: int, start: Mapping[str, float] | None) -> Knobs | None:
        """Return one of the first trials, None after them."""
        places = [0.5, 0.15, 0.85]
        if start:
            if not number:
                return {name: min(max(start[name], least), most) for name, (least, most) in self.space.items()}
            number -= 1
        return self._knobs(dict.fromkeys(self.space, places[number])) if number < len(places) else None

    def promising(self) -> Knobs:
        """Return the trial of the greatest expected improvement."""
        return self._knobs(self.optimizer.suggest())

    def learn(self, knobs: Knobs, seconds: float) -> None:
        """Tell the library what a trial gave."""
        places = {
            name: math.log(knobs[name] / least) / math.log(most / least) for name, (least, most) in self.space.items()
        }
        self.optimizer.register(params=places, target=-math.log(seconds))

    def _knobs(self, places: Mapping[str, float]) -> Knobs:
        knobs = {}
        for name, (least, most) in self.space.items():
            knobs[name] = least * (most / least) ** min(max(float(places[name]), 0.0), 1.0)
        return knobs
