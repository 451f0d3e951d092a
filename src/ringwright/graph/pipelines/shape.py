"""Where the stages of a pipeline lie on its devices, and what one device does in a step, as slots.

In a loop, chunk c of device r is stage c p + r along the model. Folded, the second chunk goes back: it is stage 2 p - 1 - r, so
the first device has both ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FORWARD, BACKWARD, INPUTS, WEIGHTS = PHASES = ("F", "B", "I", "W")  # B is I (gradients of inputs) and W (of weights)
Slot = tuple[str, int, int]  # phase, chunk, micro-batch
Order = tuple[Slot, ...]


@dataclass(frozen=True)
class Shape:
    """Devices of a pipeline, chunks of the model on each, micro-batches of a step; ``folded``: the second chunk goes back."""

    devices: int
    micro_batches: int
    chunks: int = 1
    folded: bool = False

    @property
    def stages(self) -> int:
        """Number of stages along the model."""
        return self.devices * self.chunks

    def stage(self, device: int, chunk: int) -> int:
        """Return the place along the model of a chunk of a device."""
        if self.folded and chunk % 2:
            return (chunk + 1) * self.devices - 1 - device
        return chunk * self.devices + device

    def seat(self, stage: int) -> tuple[int, int]:
        """Return (device, chunk) of a stage."""
        chunk, at = divmod(stage, self.devices)
        return (self.devices - 1 - at if self.folded and chunk % 2 else at), chunk


@dataclass(frozen=True)
class PipelineSchedule:
    """A schedule: the order of one device, and what it asks of a pipeline.

    ``splits`` backward passes into gradients of inputs and of weights; ``folded`` pipelines go there and back; ``chunks`` of a
    device that it is made for (0: any); micro-batches for each device that it needs at the least; ``grouped``: by a number
    of micro-batches behind a colon; ``versions`` of the parameters that are there at a time; ``sides`` of the pipeline at
    which micro-batches enter, each into a copy of the model of its own; ``held``: for how many micro-batches and chunks a device
    holds the inputs at the most, of a shape (as ``halved``) and a group (0: its own); its contract asks for it.
    """

    name: str
    of: Callable[..., Order]
    chunks: int = 0
    splits: bool = False
    folded: bool = False
    least: int = 0
    grouped: bool = False
    versions: int = 1
    sides: int = 1
    held: Callable[[Shape, int], int] | None = None

    def halved(self, devices: int, micro_batches: int, chunks: int) -> Shape:
        """Return the shape of the pipeline as one side has it: a pair of devices is one device with two chunks."""
        sides = self.sides
        return Shape(devices // sides, micro_batches // sides, chunks * sides, self.folded or sides > 1)
