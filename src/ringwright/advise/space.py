"""Everything that may be set in a situation, slot by slot, and why a layer has nothing to set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ringwright.advise.layers.algorithm import program_settings
from ringwright.advise.layers.ddp import bucket_settings
from ringwright.advise.layers.fabric import bought_settings
from ringwright.advise.layers.fsdp import prefetch_settings
from ringwright.advise.layers.nccl import forced_settings
from ringwright.advise.layers.operations import main_operations
from ringwright.advise.layers.parallel import form_settings
from ringwright.advise.layers.placement import placed_settings
from ringwright.advise.layers.policy import order_settings
from ringwright.advise.layers.repair import repair_settings
from ringwright.advise.layers.rewrites import graph_settings
from ringwright.advise.layers.switch import switch_settings
from ringwright.advise.settings import FORM, GRAPH, LAYERS, MACHINE, PLACED, Setting
from ringwright.errors import RingwrightError, UsageError

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation
    from ringwright.studies.jobs.study import PolicyResult

# What costs neither money nor another program.
USUAL = tuple(each for each in LAYERS if each not in ("parallel", "fabric"))


@dataclass(frozen=True)
class Space:
    """Settings by slot, in the order in which they were found; ``refused``: (layer, why, what to do)."""

    slots: dict[str, tuple[Setting, ...]]
    refused: tuple[tuple[str, str, str], ...]

    @property
    def setups(self) -> int:
        """How many setups there are, today's among them."""
        count = 1
        for listed in self.slots.values():
            count *= 1 + len(listed)
        return count


def asked_layers(text: str | None) -> tuple[str, ...]:
    """Return the layers of ``nccl,ddp``, those that cost nothing for None; UsageError for one that there is not."""
    if text is None:
        return USUAL
    listed = tuple(dict.fromkeys(each.strip() for each in text.split(",")))
    for each in listed:
        if each not in LAYERS:
            raise UsageError(f"there is no layer '{each}'", where="--may", remedy=f"--may {','.join(LAYERS)}")
    return listed


def space(situation: Situation, result: PolicyResult, layers: Iterable[str], release: str = "") -> Space:
    """Return what may be set of some layers; ``result`` is the step as it is today."""
    operations = main_operations(result)
    refused: list[tuple[str, str, str]] = []
    makers: dict[str, Callable[[], list[Setting]]] = {
        "repair": partial(repair_settings, situation),
        "nccl": partial(forced_settings, situation, operations, release),
        "algorithm": partial(program_settings, situation, operations, refused),
        "ddp": partial(bucket_settings, situation),
        "fsdp": partial(prefetch_settings, situation),
        "policy": partial(order_settings, situation),
        "rewrites": partial(graph_settings, situation),
        "placement": partial(placed_settings, situation),
        "parallel": partial(form_settings, situation),
        "switch": partial(switch_settings, situation, operations),
        "fabric": partial(bought_settings, situation),
    }
    slots: dict[str, list[Setting]] = {}
    for layer in layers:
        try:
            offered = makers[layer]()
        except RingwrightError as error:
            refused.append((layer, error.what, error.remedy or ""))
            continue
        if not offered:
            refused.append(
                (layer, "nothing is quicker alone than today", "ringwright bound says what the machine allows")
            )
        for each in offered:
            slots.setdefault(each.slot, []).append(each)
    # What takes longest to plan is asked about last, should the seconds run out.
    ordered = sorted(slots, key=lambda slot: (slot == GRAPH, slot in (PLACED, FORM, MACHINE)))
    return Space({slot: tuple(slots[slot]) for slot in ordered}, tuple(refused))
