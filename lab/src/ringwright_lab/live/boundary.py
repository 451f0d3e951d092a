"""The updates of a step that was marked: taken layer by layer, each when the next forward pass comes to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ringwright_lab.live.exchange import GradientExchange
from ringwright_lab.live.measuring import StepTimer
from ringwright_lab.live.updates import Updates


@dataclass
class Pending:
    """A marked step: which gradients' updates are still to come, with which settings, and who has zeroed them since."""

    round: int
    gradients: dict[str, Any]
    settings: list[dict[str, Any]]
    unused_here: set[str]
    zeroed: dict[str, str] = field(default_factory=dict)


class Later:
    """What step() leaves for later."""

    def __init__(
        self, exchange: GradientExchange, parameters: Mapping[str, Any], optimizer: Any, clock: StepTimer
    ) -> None:
        self._exchange, self._parameters, self._clock = exchange, parameters, clock
        self._updates = Updates(optimizer)
        self.pending: Pending | None = None

    def owes(self, name: str) -> bool:
        """Say whether a parameter's update is still to come."""
        return self.pending is not None and name in self.pending.gradients

    def mark(self, round_: int, gradients: Mapping[str, Any], used_here: set[str]) -> None:
        """Take in a step, with the optimiser's settings of now."""
        self.flush()
        self.pending = Pending(round_, dict(gradients), self._updates.settings(), set(self._parameters) - used_here)

    def apply(self, names: Iterable[str], layer: str) -> None:
        """Wait for parameters of the marked step, and update them."""
        pending = self.pending
        if pending is None:
            return
        names = list(names)
        with self._clock.waiting(layer):
            self._exchange.wait(pending.round, names)
            lacking = pending.unused_here & set(names)
            used = self.used(pending.round, lacking) if lacking else set(names)
        with self._clock.updating(layer), torch.inference_mode(False):
            for name in names:
                if name in used:
                    self.write(name, pending.gradients[name])
                else:
                    self._parameters[name].grad = pending.gradients[name]  # none, or what was left from before
            members = [self._parameters[name] for name in names]
            self._updates.apply([each for each in members if each.grad is not None], pending.settings)
            for name in names:
                del pending.gradients[name]
                self._as_zeroed(self._parameters[name], pending.zeroed.get(name))
        if not pending.gradients:
            self.pending = None

    def _as_zeroed(self, parameter: Any, how: str | None) -> None:
        if how == "none":
            parameter.grad = None
        elif how == "zero" and parameter.grad is not None:
            parameter.grad.zero_()

    def flush(self) -> None:
        """Update all that is left."""
        if self.pending is not None:
            self.apply(list(self.pending.gradients), "flush")

    def zero(self, *, set_to_none: bool) -> None:
        """Zero the gradients of pending updates once these are taken; out of sight they are at once."""
        if self.pending is not None:
            for name in self.pending.gradients:
                self.pending.zeroed[name] = "none" if set_to_none else "zero"
                self._parameters[name].grad = None

    def used(self, round_: int, unused_here: set[str]) -> set[str]:
        """Return what any rank has used; the others are asked only for what this one has not."""
        if not unused_here:
            return set(self._parameters)
        return self._exchange.used(round_) | (set(self._parameters) - unused_here)

    def write(self, name: str, gradient: Any) -> None:
        """Put what came back into a parameter's gradient (None: it had none)."""
        parameter = self._parameters[name]
        value = self._exchange.value(name).view(parameter.shape)
        if gradient is None:
            parameter.grad = value.clone().to(parameter.dtype)
            return
        with torch.no_grad():
            gradient.copy_(value)
        parameter.grad = gradient
