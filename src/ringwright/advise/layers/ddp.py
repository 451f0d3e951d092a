"""Buckets of DistributedDataParallel: how many bytes of gradients are summed at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ringwright.advise.settings import ORDER, Setting
from ringwright.ground.errors import UsageError
from ringwright.ground.units import MIB

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

CAPS_MB = (0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0, 800.0)
RISK = "larger buckets hold more memory beside the gradients, smaller ones are more calls"


def bucket_settings(situation: Situation) -> list[Setting]:
    """Return one setting a cap, up to all gradients at once; UsageError where no gradient is summed once a step."""
    gradients = [each for each in situation.workload.gradients() if each.op == "all-reduce"]
    if not gradients:
        raise UsageError("no gradient is summed by an all-reduce once a step", remedy="--may fsdp,rewrites")
    total_mb = sum(each.size_bytes for each in gradients) / MIB
    caps = [cap for cap in CAPS_MB if cap < total_mb]
    caps.append(next((cap for cap in CAPS_MB if cap >= total_mb), math.ceil(total_mb)))
    return [_setting(cap) for cap in caps]


def _setting(cap_mb: float) -> Setting:
    return Setting(
        "ddp",
        ORDER,
        # A cap that is given is the first bucket's too.
        f"pytorch-ddp:bucket_cap_mb={cap_mb:g}:first_bucket_mb={cap_mb:g}",
        f"buckets of {cap_mb:g} MiB",
        f"DistributedDataParallel(model, bucket_cap_mb={cap_mb:g})",
        RISK,
        {"bucket_cap_mb": math.log2(cap_mb)},
    )
