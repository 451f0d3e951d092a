"""Fully sharded parameters: how many layers ahead they are gathered (``set_modules_to_forward_prefetch`` and ``_backward_``)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.advise.settings import PREFETCH, Setting
from ringwright.ground.errors import UsageError
from ringwright.model.workload import PHASES, Payload, Workload
from ringwright.schedulers.order import GRADIENTS

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


def gathers(workload: Workload) -> list[list[Payload]]:
    """Return the gathers of parameters of each class and pass, in the order in which they are needed."""
    at = {
        name: (turn, each.name)
        for each in workload.classes
        for turn, (name, _) in reversed(list(enumerate(workload.line(each.name))))
    }
    by_pass: dict[tuple[str, str], list[tuple[int, Payload]]] = defaultdict(list)
    for each in workload.payloads:
        consumers = [name for name, distance in each.consumers if name in at and distance == 0]
        if each.op == "all-gather" and each.role in GRADIENTS and consumers and each.producers:
            first = min(consumers, key=lambda name: at[name])
            phase = PHASES.get(workload.task[first].kind, "")
            by_pass[each.of, phase].append((at[first][0], each))
    return [[each for _, each in sorted(listed, key=lambda one: one[0])] for listed in by_pass.values()]


def ahead(workload: Workload, depth: int) -> Workload:
    """Return the workload with parameters gathered so many layers ahead: each begins when one so many before it does now."""
    producers = {
        each.name: listed[max(0, at - (depth - 1))].producers
        for listed in gathers(workload)
        for at, each in enumerate(listed)
    }
    payloads = tuple(
        replace(each, producers=producers[each.name]) if each.name in producers else each for each in workload.payloads
    )
    return replace(workload, payloads=payloads)
