"""The two loops: training steps, and a prefill with decoded tokens after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from ringwright_lab.models.families import ModelFamily
from ringwright_lab.models.label import NOW, phase
from ringwright_lab.models.spec import ExperimentSpec

RATE = 0.05


@dataclass
class Done:
    """What one rank found: seconds of each step, its loss where it is known, and the logits of each answer."""

    times_s: list[float] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)
    logits: list[list[float]] = field(default_factory=list)


def announce(spec: ExperimentSpec, step: int) -> None:
    """Print that the warm-up is over, before step ``step``."""
    if spec.warm and step == spec.warm:
        print("warm", flush=True)  # noqa: T201 - what starts a fault script's clock


def number(value: torch.Tensor) -> float | None:
    """Return a scalar; None for a fake one, which has no value."""
    from torch._subclasses.fake_tensor import FakeTensor

    return None if isinstance(value, FakeTensor) else float(value.detach())


def train(model: nn.Module, family: ModelFamily, spec: ExperimentSpec, part: int, parts: int) -> Done:
    """Run ``spec.steps`` steps of plain gradient descent on part ``part`` of the data."""
    done = Done()
    optimiser = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], RATE, foreach=False)
    for step in range(spec.steps):
        inputs, targets = family.tokens(spec, step, part, parts)
        if inputs.is_floating_point():
            inputs = inputs.to(next(model.parameters()).dtype)
        announce(spec, step)
        NOW.iteration = step
        started = time.perf_counter()
        with phase("forward"):
            loss = family.loss(family.logits(model, inputs), targets)
        with phase("backward"):
            loss.backward()
        with phase("optimiser"):
            optimiser.step()
            optimiser.zero_grad()
        done.times_s.append(time.perf_counter() - started)
        done.losses.append(number(loss))
    return done


def serve(answer: Callable[[torch.Tensor], torch.Tensor], prompt: torch.Tensor, spec: ExperimentSpec) -> Done:
    """Ask for the logits after the prompt, then ``spec.steps`` times for those after the likeliest next token."""
    done = Done()
    tokens = prompt
    with torch.no_grad():
        for turn in range(spec.steps + 1):
            announce(spec, turn)
            NOW.iteration = turn
            started = time.perf_counter()
            with phase("decode" if turn else "prefill"):
                logits = answer(tokens)
            done.times_s.append(time.perf_counter() - started)
            tokens = logits.argmax(dim=-1, keepdim=True)
            if spec.fake is None:
                done.logits.append(logits.float().flatten().tolist())
    return done
