"""Where the stages of a pipeline lie on its devices, and what one device does in a step, as slots.

In a loop, chunk c of device r is stage c p + r along the model. Folded, the second chunk goes back: it is stage 2 p - 1 - r, so
the first device has both ends.
"""

from __future__ import annotations

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
