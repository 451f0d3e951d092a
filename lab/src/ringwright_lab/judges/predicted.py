"""What a policy that is named would make of a job: its step, and its gain with the interval that advice has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

from ringwright.advise.evaluation import Evaluator
from ringwright.advise.interval import MOST_DRAWS, Draws
from ringwright.advise.settings import ORDER, Setting, Setup

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

NEVER = 1.0  # share of the draws


@dataclass(frozen=True)
class PredictedPolicy:
    """A policy's step, s, and 5, 50 and 95 % of its gain, shares of the step of today. ``refused``: why neither is known."""

    policy: str
    step_s: float | None
    gain: tuple[float, float, float] | None
    refused: str = ""


def predicted(
    situation: Situation, policies: Sequence[str], seed: int = 0, most: int = MOST_DRAWS
) -> Iterator[PredictedPolicy]:
    """Yield what each policy would make of a job.

    Parameters
    ----------
    situation
        The job as it runs today, as ``of_recording`` or ``of_model`` returns it.
    policies
        As simulate takes them, ``p3`` or ``pytorch-ddp:bucket_cap_mb=5:first_bucket_mb=5``, each in place of today's.
    seed, most
        Of the draws, and how many of them there are at the most.

    Yields
    ------
    PredictedPolicy
        Steps as long as the recorded ones are on average, shortened by half of the draws.
    """
    evaluator = Evaluator(situation)
    replayed_s = mean(evaluator.result(Setup(), at).step_s for at in range(situation.iterations))
    measured_s = mean(situation.measured_s) if situation.measured_s else replayed_s
    draws = Draws(evaluator, replayed_s / measured_s - 1, seed, most=most)
    for policy in policies:
        setup = Setup((Setting("policy", ORDER, policy, policy, ""),))
        refused = evaluator.run(setup).refused
        gain = None if refused else draws.gain(setup)
        if gain is None or gain.declined == NEVER:
            yield PredictedPolicy(policy, None, None, refused or "it cannot be done in any of the recorded steps")
        else:
            yield PredictedPolicy(policy, measured_s * (1 - gain.ends[1]), gain.ends)
