"""The parallel form of a job from a model: other degrees over the same GPUs and the same global batch, that fit in memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ringwright.advise.settings import FORM, IN, Setting
from ringwright.ground.errors import UsageError
from ringwright.jobs.model_workload import settled
from ringwright.workloads.models import model

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

MOST_TENSOR, MOST_STAGES = 8, 16
SHARED = ("", "zero1", "fsdp")
RISK = "another program: optimizer state and checkpoints are laid out anew"


def form_settings(situation: Situation) -> list[Setting]:
    """Return one setting a form; UsageError of a recording, whose computation cannot be cut in another way."""
    spec = situation.spec
    if spec is None:
        raise UsageError("a recorded step cannot be cut otherwise", remedy="advise --model, where the model is known")
    trained = model(spec.card.model, **spec.card.dims)
    step = settled(trained, spec.card)
    if trained.takes_samples or spec.card.mode != "training":
        raise UsageError("only language models in training are cut in other ways here", remedy="--may policy,nccl")
    gpus, batch = step.parallel.world, step.parallel.dp * step.micro_batches
    settings = []
    for tensor in _powers(MOST_TENSOR):
        for stages in _powers(MOST_STAGES):
            copies = gpus // (tensor * stages)
            if gpus % (tensor * stages) or batch % copies:
                continue
            experts = math.gcd(trained.dims.get("experts", 1), tensor * copies) if trained.is_mixture else 1
            for shared in SHARED:
                if shared and copies < 2:
                    continue
                words = [f"tp{tensor}"] * (tensor > 1) + [f"pp{stages}"] * (stages > 1) + [f"dp{copies}"] * (copies > 1)
                words += [f"ep{experts}"] * (experts > 1) + ["sp"] * (tensor > 1) + [shared] * bool(shared)
                settings.append(_setting(",".join(words) or "dp1", batch // copies))
    return settings


def _setting(form: str, micro_batches: int) -> Setting:
    return Setting(
        "parallel",
        FORM,
        f"{form}{IN}{micro_batches}",
        f"{form} in {micro_batches} micro-batches",
        "the launcher's degrees of parallelism (export: Megatron-LM, torchtitan)",
        RISK,
    )


def _powers(most: int) -> list[int]:
    return [1 << each for each in range(most.bit_length()) if 1 << each <= most]
