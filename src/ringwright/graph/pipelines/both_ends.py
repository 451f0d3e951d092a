"""The folded half of a pipeline that is fed from both ends: DualPipeV, of DualPipe (DeepSeek-V3, arXiv 2412.19437).

In DualPipe every device has a stage of each of two copies of the model that run in opposite directions, and half of the
micro-batches enter at each end. DualPipeV cuts that in half: two devices that hold the same stages become one, the model is
folded, and all micro-batches enter at the first device. In the middle a forward pass of one direction and a backward pass of the
other run beside each other, each hiding what the other sends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ringwright.graph.pipelines.shape import BACKWARD, FORWARD, INPUTS, WEIGHTS, Order, PipelineSchedule, Shape, Slot


def dualpipe_v(shape: Shape, device: int) -> Order:
    """Return the eight phases of a device: chunk 0 is the direction that enters at the first one, 1 the one that comes back."""
    behind, passes = shape.devices - device - 1, _Passes()
    passes.go(2 * behind, "F0")
    passes.go(device + 1, "F0 F1")
    passes.go(behind, "I1 W F1")
    passes.go(shape.micro_batches - 2 * shape.devices + device + 1, "F0 B1 F1 B0")
    passes.go(behind, "B1 F1 B0")
    whole = (device + 1) // 2
    passes.go(whole, "B1 B0")
    if device % 2:
        passes.go(device + 1 - whole, "I1 I0")
    else:
        passes.go(1, "B1 I0")
        passes.go(device - whole, "I1 I0")
    passes.go(behind, "W I0")
    passes.go(device + 1, "W")
    return tuple(passes.slots)


@dataclass
class _Passes:
    """Slots one after another; gradients of weights that were put off are made up for in the order in which they came."""

    slots: list[Slot] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    owed: deque[Slot] = field(default_factory=deque)

    def go(self, times: int, names: str) -> None:
        """Do these so many times: a phase and a chunk, or W for what is owed."""
        for name in names.split() * times:
            if name == WEIGHTS:
                self.slots.append(self.owed.popleft())
                continue
            phase, chunk = name[0], int(name[1])
            turn = f"{FORWARD if phase == FORWARD else BACKWARD}{chunk}"
            batch = self.done.get(turn, 0)
            self.done[turn] = batch + 1
            self.slots.append((phase, chunk, batch))
            if phase == INPUTS:
                self.owed.append((WEIGHTS, chunk, batch))


def _held(shape: Shape, group: int) -> int:
    """Return one more than both directions of a folded pipeline are long."""
    del group
    return 2 * shape.devices + 1


SCHEDULES = (
    PipelineSchedule("dualpipe-v", dualpipe_v, 2, splits=True, folded=True, least=2, held=_held),
    PipelineSchedule("dualpipe", dualpipe_v, 1, splits=True, least=2, sides=2, held=_held),
)
