"""Does a scheduler gain on real ranks what the simulator predicts? With simulated layers, an emulated link, and gloo.

Each case is predicted from what its first policy's run measured of itself. Processors that compute nothing keep the ranks apart
from each other; what they share are the wake-ups, so four ranks get slower steps and a slower link than two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright_lab.live.on_ranks import named

if TYPE_CHECKING:
    from ringwright_lab.live.bench import LiveRow

REVERSED = "reversed "
POLICIES = (
    "pytorch-ddp:bucket_cap_mb=0",
    "p3",
    "bytescheduler:partition_mb=0.25:credit_mb=0.25",
    REVERSED + "p3",
)


@dataclass(frozen=True)
class GainsSpec:
    """Models of simulated layers (``vgg``, ``transformer``), numbers of ranks, policies of which the first is the baseline.

    Two ranks compute ``step_s`` a step and send ``elements`` float32 over ``link_rate`` B/s; n ranks take n / 2 as long for
    both. Every run is made ``rounds`` times, turn by turn.
    """

    models: Sequence[str] = ("vgg", "transformer")
    ranks: Sequence[int] = (2, 4)
    policies: Sequence[str] = POLICIES
    step_s: float = 0.9
    link_rate: float = 12e6
    elements: int = 3_000_000
    steps: int = 8
    rounds: int = 2
    timeout_s: float = 120.0


def cases(question: GainsSpec) -> Iterator[tuple[str, int, list[LiveRow]]]:
    """Yield (model, ranks, a row per policy); needs PyTorch."""
    from ringwright_lab.live.bench import LiveJob, compare

    for model in question.models:
        for ranks in question.ranks:
            slower, jobs = ranks / 2, {}
            for policy in question.policies:
                function, knobs = named(policy.removeprefix(REVERSED))
                jobs[policy] = LiveJob(
                    model,
                    function,
                    ranks,
                    question.link_rate / slower,
                    0,
                    question.step_s * slower,
                    question.elements,
                    question.steps,
                    knobs,
                    reverse=policy.startswith(REVERSED),
                    timeout_s=question.timeout_s,
                )
            yield model, ranks, compare(jobs, rounds=question.rounds)
