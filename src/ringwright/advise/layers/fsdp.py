"""Fully sharded parameters: how many layers ahead they are gathered (``set_modules_to_forward_prefetch`` and ``_backward_``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.advise.prefetch import gathers
from ringwright.advise.settings import PREFETCH, Setting
from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

DEPTHS = (2, 3, 4, 8)  # layers ahead; one is what fully_shard does by itself
RISK = "so many layers' whole parameters are held at once"


def prefetch_settings(situation: Situation) -> list[Setting]:
    """Return one setting a number of layers; UsageError where no parameters are gathered layer by layer."""
    if not any(len(each) > DEPTHS[0] for each in gathers(situation.workload)):
        raise UsageError("no parameters are gathered layer by layer", remedy="a job with fsdp: --parallel fsdp")
    return [
        Setting(
            "fsdp",
            PREFETCH,
            str(depth),
            f"parameters gathered {depth} layers ahead",
            f"module.set_modules_to_forward_prefetch(the next {depth} layers), and for backward",
            RISK,
            {"depth": depth.bit_length() - 1.0},
        )
        for depth in DEPTHS
    ]
