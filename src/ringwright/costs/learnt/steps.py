"""How far simulated training steps are from measured ones on GPUs: factors for the middle and the ends of a 90 % interval.

``steps.json`` is made by ``scripts/learn-steps`` from open tables of training steps (Megatron on 2 to 1,024 GPUs). There are four
kinds: dense models and mixtures of experts, each with the fit of its generation (judged on steps that the fit has not seen) and
with the figures of data sheets alone. Devices of one kind weigh the same.
"""

from __future__ import annotations

from functools import cache

import msgspec

from ringwright.costs.learnt.packaged import learnt_file
from ringwright.costs.probable_time import CORRECTED, PRIOR, Probable

SCHEMA = "ringwright.step-factors/1"
DENSE, EXPERTS = "dense", "experts"


class StepFactors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured over simulated: 5 % of steps are below ``low``, half below ``middle``, 95 % below ``high``; of so many steps."""

    low: float
    middle: float
    high: float
    steps: int
    devices: tuple[str, ...]
    gpus: tuple[int, int]


def named(*, experts: bool, fitted: bool) -> str:
    """Return the kind of a job's step."""
    return f"{EXPERTS if experts else DENSE}, {'fitted' if fitted else 'data sheet'}"


@cache
def factors(kind: str) -> StepFactors:
    """Return the factors of one kind (see ``named``)."""
    return msgspec.convert(learnt_file("steps.json", SCHEMA)["kinds"][kind], StepFactors)


def probable(step_us: float, kind: str, fit: str, device: str, gpus: int) -> Probable:
    """Return the most probable time of a step that was simulated, and its interval.

    ``fit`` names the fit it was simulated with, empty without one; ``device`` and ``gpus`` say what is extrapolated.
    """
    learnt = factors(kind)
    least, most = learnt.gpus
    away = {"gpu": device not in learnt.devices, "gpus": not least <= gpus <= most}
    low, middle, high = (step_us * factor for factor in (learnt.low, learnt.middle, learnt.high))
    outside = tuple(name for name, is_away in away.items() if is_away)
    witnesses = {CORRECTED: middle, "simulated": step_us}
    return Probable(low, middle, high, fit or PRIOR, outside, witnesses, model=CORRECTED)
