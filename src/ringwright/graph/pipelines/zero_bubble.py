"""Zero bubble (Qi et al., arXiv 2401.10241; V: arXiv 2405.15362): gradients of weights fill the gaps that passes in turns leave.

H1 holds as many micro-batches as 1F1B and leaves a third of its bubble; H2 holds nearly twice as many and leaves none where
forward and both halves of backward take alike. V folds the model, so that both of its ends are on the first device: no bubble
within the memory of 1F1B.
"""

from __future__ import annotations

from ringwright.graph.pipelines.shape import FORWARD, INPUTS, WEIGHTS, Order, PipelineSchedule, Shape, Slot


def h1(shape: Shape, device: int) -> Order:
    """Return 1F1B whose gradients of weights wait for as many micro-batches as devices lie before this one."""
    return delayed(shape.micro_batches, shape.devices - device, device)


def h2(shape: Shape, device: int) -> Order:
    """Return the same with nearly twice the warm-up; gradients of weights wait twice as long."""
    return delayed(shape.micro_batches, 2 * (shape.devices - device) - 1, 2 * device)


def delayed(micro_batches: int, ahead: int, late: int) -> Order:
    """Return ``ahead`` forward passes, then (I, W of ``late`` micro-batches before, F) in turns, then what is left."""
    ahead = min(ahead, micro_batches)
    slots: list[Slot] = [(FORWARD, 0, at) for at in range(ahead)]
    for at in range(micro_batches):
        slots.append((INPUTS, 0, at))
        if at >= late:
            slots.append((WEIGHTS, 0, at - late))
        if ahead + at < micro_batches:
            slots.append((FORWARD, 0, ahead + at))
    left = range(max(0, micro_batches - late), micro_batches)
    return (*slots, *((WEIGHTS, 0, at) for at in left))


def v_shape(shape: Shape, device: int) -> Order:
    """Return the order by hand of the V: both chunks in turns, every pass followed by the gradients of its weights."""
    turns, left = _Turns(shape.micro_batches), shape.devices - device
    turns.go(*[FORWARD + "0"] * (2 * left - 1), *[FORWARD + "1", FORWARD + "0"] * device)
    turns.go(*[FORWARD + "1", INPUTS + "1", WEIGHTS + "1"] * left)
    while turns.done[FORWARD, 1] < shape.micro_batches or turns.done[FORWARD, 0] < shape.micro_batches:
        turns.go(FORWARD + "0", INPUTS + "0", WEIGHTS + "0", FORWARD + "1", INPUTS + "1", WEIGHTS + "1")
    turns.go(*[INPUTS + "0", INPUTS + "1"] * device)
    turns.go(*[INPUTS + "0", WEIGHTS + "0"] * left)
    return turns.ended()


class _Turns:
    """Slots one after another: each phase of each chunk goes through the micro-batches, and does nothing behind the last."""

    def __init__(self, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self.done = {(phase, chunk): 0 for phase in (FORWARD, INPUTS, WEIGHTS) for chunk in (0, 1)}
        self.slots: list[Slot] = []

    def go(self, *names: str) -> None:
        """Take the next micro-batch of each of these (a phase and a chunk)."""
        for name in names:
            key = name[0], int(name[1])
            if self.done[key] < self.micro_batches:
                self.slots.append((*key, self.done[key]))
                self.done[key] += 1

    def ended(self) -> Order:
        """Return the slots with the gradients of weights that are left."""
        for chunk in (1, 0):
            left = self.micro_batches - self.done[WEIGHTS, chunk]
            self.go(*[f"{WEIGHTS}{chunk}"] * left)
        return tuple(self.slots)


SCHEDULES = (
    PipelineSchedule("zb-h1", h1, 1, splits=True, held=lambda shape, _: shape.devices),
    PipelineSchedule("zb-h2", h2, 1, splits=True, held=lambda shape, _: 2 * shape.devices - 1),
    PipelineSchedule("zb-v", v_shape, 2, splits=True, folded=True, least=2, held=lambda shape, _: 2 * shape.devices),
)
