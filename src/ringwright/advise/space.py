"""Everything that may be set in a situation, slot by slot, and why a layer has nothing to set."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.advise.layers.algorithm import program_settings
from ringwright.advise.layers.ddp import bucket_settings
from ringwright.advise.layers.fabric import bought_settings
from ringwright.advise.layers.fsdp import prefetch_settings
from ringwright.advise.layers.nccl import forced_settings
from ringwright.advise.layers.operations import LATE, LONGER, LeftOut, main_operations
from ringwright.advise.layers.parallel import form_settings
from ringwright.advise.layers.placement import placed_settings
from ringwright.advise.layers.policy import order_settings
from ringwright.advise.layers.repair import repair_settings
from ringwright.advise.layers.rewrites import graph_settings
from ringwright.advise.layers.switch import switch_settings
from ringwright.advise.settings import FORM, GRAPH, LAYERS, MACHINE, PLACED, Setting
from ringwright.algorithms.searching import OutOfTimeError, limited
from ringwright.ground.errors import RingwrightError, UsageError

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation
    from ringwright.jobs.study import PolicyResult

Maker = Callable[[LeftOut], list[Setting]]
# What costs neither money nor another program.
USUAL = tuple(each for each in LAYERS if each not in ("parallel", "fabric"))
SEARCHED = "algorithm"  # the layer that searches for programs: it is made last
ALLOWED = "ringwright bound says what the machine allows"
MOST_SAID = 4  # things of a layer that came too late


@dataclass(frozen=True)
class Space:
    """Settings by slot, in the order of their layers; ``refused``: (layer, why, what to do); ``stopped``: seconds ended."""

    slots: dict[str, tuple[Setting, ...]]
    refused: tuple[tuple[str, str, str], ...]
    stopped: bool = False

    @property
    def setups(self) -> int:
        """How many setups there are, today's among them."""
        return math.prod(1 + len(listed) for listed in self.slots.values())


def asked_layers(text: str | None) -> tuple[str, ...]:
    """Return the layers of ``nccl,ddp``, those that cost nothing for None; UsageError for one that there is not."""
    if text is None:
        return USUAL
    listed = tuple(dict.fromkeys(each.strip() for each in text.split(",")))
    for each in listed:
        if each not in LAYERS:
            raise UsageError(f"there is no layer '{each}'", where="--may", remedy=f"--may {','.join(LAYERS)}")
    return listed


def space(
    situation: Situation, result: PolicyResult, layers: Sequence[str], release: str = "", until: float = math.inf
) -> Space:
    """Return what may be set of some layers; ``result`` is the step as it is today.

    What is not made ``until`` then, of the monotonic clock, is refused, and the space is ``stopped``.
    """
    operations = main_operations(result)
    makers: dict[str, Maker] = {
        "repair": lambda _left: repair_settings(situation),
        "nccl": lambda left: forced_settings(situation, operations, left, release),
        "algorithm": lambda left: program_settings(situation, operations, left),
        "ddp": lambda _left: bucket_settings(situation),
        "fsdp": lambda _left: prefetch_settings(situation),
        "policy": lambda _left: order_settings(situation),
        "rewrites": lambda _left: graph_settings(situation),
        "placement": lambda _left: placed_settings(situation),
        "parallel": lambda _left: form_settings(situation),
        "switch": lambda left: switch_settings(situation, operations, left),
        "fabric": lambda _left: bought_settings(situation),
    }
    made: dict[str, tuple[list[Setting], LeftOut]] = {}
    with limited(until):
        for layer in sorted(layers, key=lambda each: each == SEARCHED):
            made[layer] = _made(layer, makers[layer])
    slots: dict[str, list[Setting]] = {}
    for each in (one for layer in layers for one in made[layer][0]):
        slots.setdefault(each.slot, []).append(each)
    refused = tuple(why for layer in layers for why in made[layer][1].refused)
    # What takes longest to plan is asked about last, should the seconds run out.
    ordered = sorted(slots, key=lambda slot: (slot == GRAPH, slot in (PLACED, FORM, MACHINE)))
    return Space({slot: tuple(slots[slot]) for slot in ordered}, refused, any(left.late for _, left in made.values()))


def _made(layer: str, make: Maker) -> tuple[list[Setting], LeftOut]:
    """Return the settings of a layer, and what of it is left out."""
    offered: list[Setting] = []
    left = LeftOut()
    try:
        offered = make(left)
        if not offered and not left.late:
            left.refused.append((layer, "nothing is quicker alone than today", ALLOWED))
    except OutOfTimeError:
        left.late.append("all of it")
    except RingwrightError as error:
        left.refused.append((layer, error.what, error.remedy or ""))
    if left.late:
        left.refused.append(_late(layer, left.late))
    return offered, left


def _late(layer: str, what: Sequence[str]) -> tuple[str, str, str]:
    """Return the refusal of what came too late, what is searched for first: that is asked about last."""
    more = f" and {len(what) - MOST_SAID} more" if len(what) > MOST_SAID else ""
    return f"{layer}: {', '.join(what[::-1][:MOST_SAID])}{more}", LATE, LONGER
