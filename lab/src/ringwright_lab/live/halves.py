"""Training on torch.distributed whose gradients are summed whole, or in halves: one beside backward, one beside forward.

``python -m ringwright_lab.live.halves '[{"mode": "halves", ...}]'`` is one rank (MASTER_ADDR, RANK, WORLD_SIZE say which) and
prints one line of JSON. The halves are those of ``half_sums``. Layers sleep instead of computing; gradients are whole numbers
that depend on step, rank, layer and the signs of the weights, so that sums are the same in whichever order they are taken.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ringwright.execute.torch_ranks import require_torch
from ringwright.ground.errors import UsageError
from ringwright_lab.live.half_sums import HalfSums

MODES = ("whole", "halves", "sliced")
OPTIMIZERS = ("sgd", "adam")
RATE, MOMENTUM, BETAS, EPSILON = 0.125, 0.5, (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class HalvesJob:
    """What ranks train: equal ``layers`` of ``elements`` numbers each, for ``steps`` steps.

    ``mode``: "whole" sums by all-reduces beside backward, "halves" is DeAR, "sliced" updates slices and gathers parameters
    within the step. ``ahead`` gathers are under way at a time: with 1 a link idles until its rank has noticed the last one.
    ``forward_s`` and ``backward_s`` are what a layer sleeps.
    """

    mode: str = "whole"
    optimizer: str = "sgd"
    layers: int = 16
    elements: int = 1 << 12
    steps: int = 4
    ahead: int = 2
    forward_s: float = 0.0
    backward_s: float = 0.0

    def __post_init__(self) -> None:
        if (
            self.mode not in MODES
            or self.optimizer not in OPTIMIZERS
            or min(self.layers, self.elements, self.steps, self.ahead) < 1
        ):
            raise UsageError(
                f"{self.mode} with {self.optimizer}, {self.layers} layers of {self.elements}, {self.steps} steps",
                remedy=f"mode: {', '.join(MODES)}; optimizer: {', '.join(OPTIMIZERS)}; numbers of 1 or more",
            )


@dataclass(frozen=True)
class HalvesResult:
    """What one rank measured: seconds of each step, process seconds in training and in updates, updates by layer, a hash."""

    rank: int
    times_s: list[float]
    cpu_s: float
    update_s: float
    updates: list[int]
    weights: str


@dataclass
class LayerState:
    """A layer on one rank: weights, states of the optimizer (of a slice, where slices are updated), what is under way."""

    weights: Any
    states: list[Any]
    gradient: Any = None
    work: Any = None
    updates: int = 0


@dataclass
class HalvesRun:
    """One rank's training; ``update_s`` is process time in updates, ``made_s`` in making gradients."""

    job: HalvesJob
    torch: Any
    layers: list[LayerState] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    update_s: float = 0.0
    made_s: float = 0.0
    drawn: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sums = HalfSums(self.torch.distributed)
        self.rank, self.ranks = self.sums.rank, self.sums.ranks
        if self.job.elements % self.ranks:
            raise UsageError(f"{self.job.elements} elements on {self.ranks} ranks", remedy="a multiple of the ranks")
        size = self.job.elements // (self.ranks if self.job.mode == "sliced" else 1)
        for at in range(self.job.layers):
            weights = (self.torch.arange(self.job.elements) * 7 + at * 3) % 11 - 5
            states = [self.torch.zeros(size) for _ in range(2 if self.job.optimizer == "adam" else 1)]
            weights = weights.to(self.torch.float32)
            self.layers.append(LayerState(weights, states))
            self.drawn.append(self._draw(at))

    # -------------------------------------------------------------------------------------------------------- one step
    def run(self) -> None:
        """Take all steps, and the update that is left."""
        for step in range(self.job.steps):
            began = time.perf_counter()
            self._forward()
            self._backward(step)
            self._ended()
            self.times_s.append(time.perf_counter() - began)
        self._flush()

    def _forward(self) -> None:
        halves = self.job.mode == "halves" and bool(self.times_s)
        if halves:
            self._begin()
        for at in range(self.job.layers):
            if halves:
                self._arrived(at)
            time.sleep(self.job.forward_s)

    def _backward(self, step: int) -> None:
        for at in reversed(range(self.job.layers)):
            time.sleep(self.job.backward_s)
            layer = self.layers[at]
            layer.gradient = self._gradient(step, at, layer.weights)
            if self.job.mode == "whole":
                layer.work = self.torch.distributed.all_reduce(layer.gradient, async_op=True)
            else:
                layer.work = self.sums.scatter(layer.gradient)

    def _ended(self) -> None:
        """Wait for all sums, or all scatters; what can be updated in this step is."""
        for layer in self.layers:
            layer.work.wait()
            if self.job.mode == "whole":
                self._update(layer, layer.weights, layer.gradient)
        if self.job.mode == "sliced":
            for layer in self.layers:
                self._update(layer, self.sums.own(layer.weights), self.sums.own(layer.gradient))
                layer.work = self.sums.gather(layer.weights)
            for layer in self.layers:
                layer.work.wait()

    def _begin(self) -> None:
        for at in range(min(self.job.ahead, self.job.layers)):
            self._gather(at)

    def _gather(self, at: int) -> None:
        """Begin the gather of a layer's sums."""
        self.layers[at].work = self.sums.gather(self.layers[at].gradient)

    def _arrived(self, at: int) -> None:
        """Wait for a layer's sums, begin the gather of the next one, and update the layer."""
        self.layers[at].work.wait()
        if at + self.job.ahead < self.job.layers:
            self._gather(at + self.job.ahead)
        self._update(self.layers[at], self.layers[at].weights, self.layers[at].gradient)

    def _flush(self) -> None:
        if self.job.mode == "halves":
            self._begin()
            for at in range(self.job.layers):
                self._arrived(at)

    # ----------------------------------------------------------------------------------------------------- arithmetic
    def _gradient(self, step: int, at: int, weights: Any) -> Any:
        """Return a layer's gradient: whole numbers drawn once a layer, turned by the step, and the signs of the weights."""
        began = time.process_time()
        made = self.torch.sign(weights).add_(self.drawn[at], alpha=1 - 2 * (step % 2))
        self.made_s += time.process_time() - began
        return made

    def _draw(self, at: int) -> Any:
        each = self.torch.arange(self.job.elements)
        return ((each * 3 + 5 * at + 7 * self.rank) % 9 - 4).to(self.torch.float32)

    def _update(self, layer: LayerState, weights: Any, total: Any) -> None:
        began = time.process_time()
        layer.updates += 1
        mean = total / self.ranks
        if self.job.optimizer == "sgd":
            layer.states[0].mul_(MOMENTUM).add_(mean)
            weights.sub_(layer.states[0], alpha=RATE)
        else:
            first, second = layer.states
            first.mul_(BETAS[0]).add_(mean, alpha=1 - BETAS[0])
            second.mul_(BETAS[1]).addcmul_(mean, mean, value=1 - BETAS[1])
            scale = (1 - BETAS[1] ** layer.updates) ** 0.5 / (1 - BETAS[0] ** layer.updates)
            weights.addcdiv_(first, second.sqrt().add_(EPSILON), value=-RATE * scale)
        self.update_s += time.process_time() - began

    def digest(self) -> str:
        """Return a hash of all weights, bit by bit."""
        told = hashlib.sha256()
        for layer in self.layers:
            told.update(layer.weights.numpy().tobytes())
        return told.hexdigest()


def measured(jobs: Sequence[HalvesJob]) -> list[HalvesResult]:
    """Be one rank of jobs, one after another, and return of each the seconds of its steps and a hash of its weights."""
    torch = require_torch()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    try:
        return [_measured(HalvesRun(job, torch)) for job in jobs]
    finally:
        torch.distributed.destroy_process_group()


def _measured(run: HalvesRun) -> HalvesResult:
    run.torch.distributed.barrier()
    began = time.process_time()
    run.run()
    spent = time.process_time() - began - run.made_s
    run.torch.distributed.barrier()
    updates = [layer.updates for layer in run.layers]
    return HalvesResult(run.rank, run.times_s, spent, run.update_s, updates, run.digest())


def main() -> int:
    """Be one rank of the jobs that the first argument lists, and print what it measured."""
    jobs = [HalvesJob(**each) for each in json.loads(sys.argv[1])]
    sys.stdout.write(json.dumps([asdict(each) for each in measured(jobs)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
