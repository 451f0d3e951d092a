"""Seconds of a layer's work on a device, forward and both halves of backward.

Where the host issues kernels more slowly than the device works them off, the host's time counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.costs.gpus import Gpu
from ringwright.workloads.layer_work import Gemm, LayerWork, Load

# Bytes a parameter in a step of Adam with moments and master copy in 4 bytes: 30 of the step, 12 to unscale gradients
# and to take their norm. Read are gradient, copy and moments, then the gradient twice; written are copy, moments and the
# parameter itself, then the gradient.
UPDATE_READ, UPDATE_WRITTEN = 24, 18
UPDATE_BYTES = UPDATE_READ + UPDATE_WRITTEN
# Bytes an element of the logits, whose loss is computed in 4 bytes: copy, maximum, difference, exponential, sum, quotient.
LOSS_FORWARD, LOSS_BACKWARD = 36, 14
# Bytes an element that writing a narrow operand adds: with one scale a tensor it leaves the kernel before it in place of 16 bits,
# and a transposed copy besides; with block scales, which lie along the sum, a copy by rows and one by columns, each with its
# scales (1 byte per 32 in MXFP8, per 16 in NVFP4).
CASTS = {"fp8": 1.0, "mxfp8": 2 * (1 + 1 / 32), "fp4": 2 * (0.5 + 1 / 16)}
# Times that routed tokens are read or written to be sorted by expert and to be put back and added up.
ROUTED = 4
# Passes over all scores of attention outside of its products: softmax and dropout (with a mask of one byte).
PASSES_FORWARD, PASSES_BACKWARD = 4.5, 5.5


@dataclass(frozen=True)
class Seconds:
    """Forward, gradient of inputs, gradient of weights."""

    forward: float = 0.0
    inputs: float = 0.0
    weights: float = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.forward + other.forward, self.inputs + other.inputs, self.weights + other.weights)

    def __mul__(self, factor: float) -> Seconds:
        return Seconds(self.forward * factor, self.inputs * factor, self.weights * factor)

    def at_least(self, other: Seconds) -> Seconds:
        """Return the longer of both, part by part."""
        return Seconds(
            max(self.forward, other.forward), max(self.inputs, other.inputs), max(self.weights, other.weights)
        )


@dataclass(frozen=True)
class Roofline:
    """A device with an element type for matrix products; what lies in memory has ``width_bytes`` an element."""

    gpu: Gpu
    dtype: str = "bfloat16"
    width_bytes: int = 2

    def seconds(self, work: LayerWork, load: Load) -> Seconds:
        """Return the device's seconds of one layer; bias, activation and residual are one pass over a product's outputs."""
        if work.kind == "attention":
            return self._attention(work)
        if not work.gemms:
            moving = self.gpu.moving(work.moved_bytes) + (self.gpu.launch_s if work.moved_bytes else 0.0)
            weights = moving if work.kind == "lookup" else 0.0
            return Seconds(moving, 0.0 if work.kind == "lookup" else 2 * moving, weights)
        seconds = Seconds()
        # The logits stay in 16 bits where products do not: their errors would meet the loss at once.
        dtype = self._wide if work.kind == "logits" else self.dtype
        for gemm in work.gemms:
            after = self.gpu.moving(2 * self.width_bytes * gemm.m * gemm.n * gemm.times)
            summed = self.gpu.moving(
                2 * self.width_bytes * gemm.n * gemm.k * gemm.times
            )  # into those of earlier batches
            forward, inputs, weights = (
                self._gemm(each, dtype) for each in (gemm, gemm.for_inputs(), gemm.for_weights())
            )
            seconds += Seconds(
                forward + after + self._casting(dtype, gemm.m * gemm.k * gemm.times),
                inputs + after + self._casting(dtype, gemm.m * gemm.n * gemm.times),
                weights + summed,
            )
            if work.kind == "experts" and work.cut == "rows":  # what leaves them is as wide as what came
                sorting = self.gpu.moving(ROUTED * self.width_bytes * gemm.m * gemm.n * gemm.times)
                seconds += Seconds(sorting, sorting)
            if work.kind == "logits" and load.mode == "training":
                elements = gemm.m * gemm.n
                seconds += Seconds(self.gpu.moving(LOSS_FORWARD * elements), self.gpu.moving(LOSS_BACKWARD * elements))
        return seconds

    def issuing(self, work: LayerWork, load: Load) -> Seconds:
        """Return what the host needs to issue a layer's kernels: products with what follows them, passes over memory."""
        return _kernels(work, load, flash=self.gpu.flash) * self.gpu.issue_s

    def update(self, elements: float) -> float:
        """Return seconds of one step of Adam."""
        return self.gpu.moving(UPDATE_BYTES * elements)

    @property
    def _wide(self) -> str:
        return "bfloat16" if self.dtype in CASTS else self.dtype

    def _casting(self, dtype: str, elements: int) -> float:
        """Return seconds of casting an operand that was made in 16 bits; weights are cast once a step, which is little."""
        return self.gpu.moving(CASTS[dtype] * elements) if dtype in CASTS else 0.0

    def _gemm(self, gemm: Gemm, dtype: str) -> float:
        return self.gpu.gemm(gemm.m, gemm.n, gemm.k, gemm.times, dtype=dtype, width_bytes=self.width_bytes)

    def _attention(self, work: LayerWork) -> Seconds:
        dtype = self._wide  # attention stays in 16 bits where products do not
        if self.gpu.flash or work.scores is None:
            forward = max(self.gpu.attending(work.attention_flops, dtype), self.gpu.moving(work.moved_bytes))
            return Seconds(forward, 2.5 * forward)  # scores are computed once more
        first = work.scores
        second = Gemm(first.m, first.k, first.n, first.times)
        one_pass = self.gpu.moving(self.width_bytes * first.m * first.n * first.times)
        products = self._gemm(first, dtype), self._gemm(second, dtype)
        return Seconds(
            sum(products) + PASSES_FORWARD * one_pass, products[0] + 3 * products[1] + PASSES_BACKWARD * one_pass
        )


def _kernels(work: LayerWork, load: Load, *, flash: bool) -> Seconds:
    """Return how many kernels a layer is, in place of seconds."""
    if work.kind == "attention":
        return Seconds(2, 3) if flash else Seconds(9, 12)
    if not work.gemms:
        backward = Seconds(weights=1) if work.kind == "lookup" else Seconds(inputs=2)
        return Seconds(1) + backward if work.moved_bytes else Seconds()
    return Seconds(10, 6, 2) if work.kind == "logits" and load.mode == "training" else Seconds(2, 2, 2)
