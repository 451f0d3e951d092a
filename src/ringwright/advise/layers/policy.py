"""The order of communication: schedulers of the fifo and the priority class, as they ship and over their knobs."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

from ringwright.advise.settings import ORDER, Setting
from ringwright.jobs.auto import spelled_words
from ringwright.jobs.tune import SPACES, spelled
from ringwright.model.registry import System, schedulers

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation

ORDERING = ("fifo", "priority")
OWN_LAYER = ("pytorch-ddp",)
STEPS = 4  # values of an axis that is a number
RISK = "another order of operations; every rank needs the same schedule"


def order_settings(situation: Situation) -> list[Setting]:
    """Return one setting a scheduler, one a word of its knobs, and a grid over those knobs that are numbers."""
    known = [each for each in schedulers() if each.problem is None and not each.hardware]
    listed = [each for each in known if each.kind in ORDERING and each.slug not in OWN_LAYER]
    return [setting for each in listed for setting in _of(each)]


def _of(system: System) -> list[Setting]:
    plain = [
        system.slug,
        *(f"{system.slug}:{word}" for knob in system.knobs().values() for word in spelled_words(system.slug, knob)),
    ]
    settings = [_setting(system, each, {}) for each in plain]
    space = SPACES.get(system.slug, {})
    axes = {name: _spread(*ends) for name, ends in space.items()}
    for values in product(*axes.values()) if axes else ():
        knobs = dict(zip(axes, values, strict=True))
        settings.append(
            _setting(system, spelled(system.slug, knobs), {name: math.log2(each) for name, each in knobs.items()})
        )
    return settings


def _spread(least: float, most: float) -> list[float]:
    return [least * (most / least) ** ((at + 0.5) / STEPS) for at in range(STEPS)]


def _setting(system: System, spelling: str, numbers: dict[str, float]) -> Setting:
    where = f"ringwright.schedule(model, optimizer, {spelling!r})"
    return Setting("policy", ORDER, spelling, f"order of communication: {spelling}", where, RISK, numbers)
