"""How long a product and the reduce-scatter behind it take, stage by stage: waves of tiles, and what their memory still gives.

A stage computes one tile a compute unit; it reads operands meanwhile and writes its tiles when it ends. What is sent of stages
before goes beside it. Each byte sent is read once and added once at its memory (near-memory sums), or, by a kernel, read twice
and written once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ringwright.ground.errors import UsageError

Arbitration = Literal["none", "ideal", "shared", "compute-first"]
WIDTH = 2  # bytes of a number
TILE = 128  # rows and columns of a tile of the result
NEAR, BY_KERNEL = 2, 3  # touches of the memory for each byte sent: summed near it, or by a kernel


@dataclass(frozen=True)
class RingGpu:
    """A GPU and its ring: compute units, their clock and operations a cycle, bytes/s of memory and of the link, seconds a hop."""

    units: int = 80
    clock_hz: float = 1.4e9
    unit_flops: int = 1024
    reached: float = 0.85
    memory: float = 1e12
    link: float = 150e9
    hop_s: float = 500e-9


@dataclass(frozen=True)
class SummedProduct:
    """A product (m x k)(k x n) whose terms ``ranks`` GPUs add up. UsageError for sides below 1, or fewer than 2 GPUs."""

    m: int
    n: int
    k: int
    ranks: int

    def __post_init__(self) -> None:
        """Refuse what is no product of several GPUs: UsageError."""
        if min(self.m, self.n, self.k) < 1 or self.ranks < 2:
            raise UsageError(
                f"no product of {self.m} x {self.n} x {self.k} on {self.ranks} GPUs is summed up",
                remedy="sides of 1 and more, 2 GPUs and more",
            )

    @property
    def tiles(self) -> int:
        """Tiles of the result."""
        return -(-self.m // TILE) * -(-self.n // TILE)

    @property
    def size_bytes(self) -> int:
        """Bytes of the result."""
        return WIDTH * self.m * self.n

    @property
    def sent_bytes(self) -> float:
        """Bytes that a GPU sends of it in a reduce-scatter."""
        return (self.ranks - 1) / self.ranks * self.size_bytes


@dataclass(frozen=True)
class _Stage:
    computing_s: float
    read_bytes: float
    written_bytes: float

    def seconds(self, memory: float) -> float:
        """Return its time with so many bytes/s of the memory."""
        return max(self.computing_s, self.read_bytes / memory) + self.written_bytes / memory


def _stage(product: SummedProduct, gpu: RingGpu) -> _Stage:
    rows = max(1, math.isqrt(gpu.units))
    columns = gpu.units / rows
    rate = gpu.unit_flops * gpu.clock_hz * gpu.reached
    computing_s = 2 * TILE * TILE * product.k / rate
    read = WIDTH * product.k * TILE * (rows + columns)
    return _Stage(computing_s, read, WIDTH * TILE * TILE * gpu.units)


def product_s(product: SummedProduct, gpu: RingGpu, units: int = 0) -> float:
    """Return seconds of the product alone, on all compute units or on ``units`` of them."""
    waves = -(-product.tiles // (units or gpu.units))
    return waves * _stage(product, gpu).seconds(gpu.memory)


def scatter_s(product: SummedProduct, gpu: RingGpu, touches: int = BY_KERNEL) -> float:
    """Return seconds of its reduce-scatter round a ring alone: of the link, or of the memory where that takes longer."""
    return product.sent_bytes * max(1 / gpu.link, touches / gpu.memory) + (product.ranks - 1) * gpu.hop_s


def gather_s(product: SummedProduct, gpu: RingGpu) -> float:
    """Return seconds of the all-gather behind it, as many bytes the same way."""
    return product.sent_bytes / gpu.link + (product.ranks - 1) * gpu.hop_s


def triggered_s(product: SummedProduct, gpu: RingGpu, arbitration: Arbitration) -> float:
    """Return seconds of product and reduce-scatter where each stage's tiles are sent as they are stored.

    ``none``: one after the other, by a kernel. ``ideal``: the longer of both. ``shared``: copies have what they ask for, up to
    half of the memory, and the product the rest. ``compute-first``: copies have what the product leaves: much while it computes,
    nothing while it writes.
    """
    if arbitration == "none":
        return product_s(product, gpu) + scatter_s(product, gpu)
    if arbitration == "ideal":
        return max(product_s(product, gpu), scatter_s(product, gpu, NEAR))
    stage, waves = _stage(product, gpu), -(-product.tiles // gpu.units)
    made_a_stage = product.sent_bytes / waves
    wanted, now, made, sent = NEAR * gpu.link, 0.0, 0.0, 0.0
    for _ in range(waves):
        busy = made > sent
        given = max(gpu.memory / 2, gpu.memory - wanted) if busy and arbitration == "shared" else gpu.memory
        took = stage.seconds(given)
        free = 1.0 if arbitration == "shared" else _left(stage, gpu, wanted)
        sent = min(made, sent + took * free * gpu.link)
        now, made = now + took, made + made_a_stage
    return now + (made - sent) / gpu.link + (product.ranks - 1) * gpu.hop_s


def _left(stage: _Stage, gpu: RingGpu, wanted: float) -> float:
    """Return the share of their rate that copies have beside a stage, which the memory serves first."""
    reading_s = max(stage.computing_s, stage.read_bytes / gpu.memory)
    spare = gpu.memory - stage.read_bytes / reading_s
    return min(1.0, spare / wanted) * reading_s / stage.seconds(gpu.memory)


def shared_units_s(product: SummedProduct, gpu: RingGpu, units: int, slower: float) -> float:
    """Return seconds of product and all-reduce of another one at once: ``units`` for the latter, which makes it ``slower``."""
    both_s = scatter_s(product, gpu) + gather_s(product, gpu)
    return max(product_s(product, gpu, gpu.units - units), both_s * slower)


@dataclass(frozen=True)
class Touched:
    """Chunks of the result that pass a GPU's memory: read and written by a reduce-scatter, its product's stores with it."""

    read: int
    written: int


def touched(ranks: int, *, triggered: bool) -> Touched:
    """Return what ``ranks`` GPUs read and write of chunks, by a kernel round a ring, or triggered and summed near the memory.

    A kernel reads its first chunk, then its own and the received one for each that it sends or keeps, and writes what it
    receives and keeps. Triggered, the first chunk is stored at the neighbour and the last one stays: those between are read once.
    """
    if triggered:
        return Touched(ranks - 2, (ranks - 1) + (ranks - 1))
    return Touched(1 + 2 * (ranks - 1), ranks + (ranks - 1) + 1)
