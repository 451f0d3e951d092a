"""Gradients of inputs first (Oh et al., EuroSys 2022): those of weights run where they keep no one waiting.

All forward passes go first, chunk by chunk, then the backward ones; what a device hands on it makes as soon as it can. Gradients
of weights fill the gaps in which nothing has come yet, if they fit; on the first device, whose gradients of inputs nobody waits
for, they go before the next one, which frees what is kept in order; everywhere the rest comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringwright.graph.pipelines.alternating import breadth_first
from ringwright.graph.pipelines.shape import BACKWARD, FORWARD, INPUTS, WEIGHTS, Order, Shape, Slot
from ringwright.graph.pipelines.zero_bubble import delayed

ROUNDING = 1e-9  # of a time: what fits into a gap exactly does fit


@dataclass(frozen=True)
class PassTimes:
    """Seconds of the passes of one stage for one micro-batch."""

    forward_s: float = 1.0
    inputs_s: float = 1.0
    weights_s: float = 1.0


def fast_forward(shape: Shape, times: Callable[[int], PassTimes], message_s: float = 0.0) -> tuple[Order, ...]:
    """Return the order of every device; ``times`` of a stage along the model, and seconds of what it hands to the next."""
    urgent = [_urgent(shape, device) for device in range(shape.devices)]
    starts = _starts(shape, urgent, times, message_s)
    return tuple(_filled(shape, device, urgent[device], starts, times) for device in range(shape.devices))


def capped(shape: Shape, device: int, live: int) -> Order:
    """Return an order of one-stage devices that hold ``live`` micro-batches at the most: a new one enters behind W of the oldest.

    As many as devices are ZB-H1, twice as many less one ZB-H2.
    """
    live, left = min(live, 2 * shape.devices - 1), shape.devices - device
    more = min(max(0, live - shape.devices), shape.devices - 1)
    ahead = left + more * (left - 1) // max(1, shape.devices - 1)
    ahead = max(1, min(live, ahead, shape.micro_batches))
    return delayed(shape.micro_batches, ahead, live - ahead)


def _urgent(shape: Shape, device: int) -> list[Slot]:
    """Return what others wait for, in order: forward passes, then gradients of inputs."""
    slots = breadth_first(shape, device)
    return [(INPUTS if phase == BACKWARD else phase, chunk, batch) for phase, chunk, batch in slots]


def _starts(
    shape: Shape, urgent: list[list[Slot]], times: Callable[[int], PassTimes], message_s: float
) -> dict[tuple[str, int, int], float]:
    """Return when each urgent pass (phase, stage, micro-batch) starts where nothing else runs."""
    starts: dict[tuple[str, int, int], float] = {}
    ends: dict[tuple[str, int, int], float] = {}
    now, at = [0.0] * shape.devices, [0] * shape.devices
    going = True
    while going:
        going = False
        for device, slots in enumerate(urgent):
            while at[device] < len(slots):
                phase, chunk, batch = slots[at[device]]
                stage = shape.stage(device, chunk)
                needs = _needs(shape, phase, stage, batch)
                if any(each not in ends for each in needs):
                    break
                ready = [ends[each] + message_s * (shape.seat(each[1])[0] != device) for each in needs]
                begin = max([now[device], *ready])
                takes = times(stage).forward_s if phase == FORWARD else times(stage).inputs_s
                starts[phase, stage, batch] = begin
                now[device] = ends[phase, stage, batch] = begin + takes
                at[device] += 1
                going = True
    return starts


def _needs(shape: Shape, phase: str, stage: int, batch: int) -> list[tuple[str, int, int]]:
    if phase == FORWARD:
        return [(FORWARD, stage - 1, batch)] if stage else []
    behind = [(INPUTS, stage + 1, batch)] if stage + 1 < shape.stages else []
    return [(FORWARD, stage, batch), *behind]


def _filled(
    shape: Shape,
    device: int,
    urgent: list[Slot],
    starts: dict[tuple[str, int, int], float],
    times: Callable[[int], PassTimes],
) -> Order:
    """Return the order of a device with gradients of weights in its gaps, and behind all that others wait for."""
    order: list[Slot] = []
    owed: list[Slot] = []
    now = 0.0
    for phase, chunk, batch in urgent:
        stage = shape.stage(device, chunk)
        begin = starts[phase, stage, batch]
        while owed:
            weights_s = times(shape.stage(device, owed[0][1])).weights_s
            is_last = phase == INPUTS and stage == 0
            if not is_last and now + weights_s > begin * (1 + ROUNDING):
                break
            order.append(owed.pop(0))
            now += weights_s
        takes = times(stage).forward_s if phase == FORWARD else times(stage).inputs_s
        order.append((phase, chunk, batch))
        now = max(now, begin) + takes
        if phase == INPUTS:
            owed.append((WEIGHTS, chunk, batch))
    return (*order, *owed)
