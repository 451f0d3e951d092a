"""A matrix product in 16-bit numbers by a library: turns of tiles, the memory behind them, and what starting takes.

A tile takes the multiply-adds of its k at the full rate of the tensor cores, or its operands' bytes where these take longer, and
some cycles besides. A product is never faster than its operands and its result pass the memory once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ringwright.costs.contention.multiprocessors import Multiprocessors
from ringwright.costs.contention.waves import TileKernel, turns
from ringwright.ground.errors import UsageError

FLOP_A_CYCLE = 4096  # of a multiprocessor's tensor cores, dense, 16 bits: the data sheet's peak
TILE_CYCLES = 2000  # of a tile besides: filling the pipeline, writing the result
FETCHED_A_CYCLE = 70  # bytes of operands
START_S = 5e-6  # of a kernel in a queue, first loads included
REACHED = 0.86  # share of the memory's peak that reads and writes together reach
# The same where the old result is read as well: little of that is hidden, both add up as the sides of a right angle.
ACCUMULATING = 0.7
WIDTH = 2  # bytes of a number
# Share of operand loads that the cache does not answer while others stream through it.
MISSED = 0.25
# Tiles among which a library chooses, rows x columns of the result.
KERNELS = tuple(
    TileKernel(rows, columns)
    for rows, columns in (
        *((128, 256), (128, 320), (192, 192), (192, 128), (128, 176), (128, 168), (160, 128), (128, 144)),
        *((128, 128), (128, 112), (96, 128), (64, 128), (64, 64), (32, 64)),
    )
)


@dataclass(frozen=True)
class Product:
    """C[m, n] = A[m, k] B[k, n]; ``accumulates`` where it adds to what C held. UsageError for a side below 1."""

    m: int
    n: int
    k: int
    accumulates: bool = False

    def __post_init__(self) -> None:
        """Refuse sides below 1: UsageError."""
        if min(self.m, self.n, self.k) < 1:
            raise UsageError(f"no product is {self.m} x {self.n} x {self.k}", remedy="m, n and k of 1 and more")

    @property
    def result_bytes(self) -> int:
        """Bytes of the result that pass the memory."""
        return WIDTH * self.m * self.n * (2 if self.accumulates else 1)

    @property
    def operand_bytes(self) -> int:
        """Bytes of both operands, each once."""
        return WIDTH * self.k * (self.m + self.n)

    def loads(self, kernel: TileKernel) -> int:
        """Return the bytes of operands that all tiles load together."""
        return WIDTH * self.k * kernel.tiles(self.m, self.n) * (kernel.rows + kernel.columns)

    def traffic(self, kernel: TileKernel, *, streaming: bool) -> float:
        """Return bytes of the memory; more where a neighbour that is ``streaming`` leaves no operand in the cache for long."""
        missed = MISSED * self.loads(kernel) if streaming else 0.0
        return self.result_bytes + max(self.operand_bytes, missed)


def computing_s(product: Product, kernel: TileKernel, on: Multiprocessors, held: int = 0) -> float:
    """Return seconds of the turns alone, ``held`` multiprocessors being another kernel's; UsageError where none is left."""
    multiplied = 2 * kernel.rows * kernel.columns * product.k / FLOP_A_CYCLE
    fetched = WIDTH * (kernel.rows + kernel.columns) * product.k / FETCHED_A_CYCLE
    cycles = max(multiplied, fetched) + TILE_CYCLES
    return turns(kernel, product.m, product.n, on.sms, held) * cycles / on.clock_hz


@lru_cache(1 << 14)
def chosen(product: Product, on: Multiprocessors) -> TileKernel:
    """Return the kernel of a library that takes least; the first of the list where several do."""
    return min(KERNELS, key=lambda kernel: computing_s(product, kernel, on))


def product_s(product: Product, on: Multiprocessors, held: int = 0, kernel: TileKernel | None = None) -> float:
    """Return seconds of a product beside ``held`` multiprocessors that do nothing to the memory.

    The kernel is the one chosen for the whole GPU: a library does not know what is held. UsageError where none is left.
    """
    kernel = kernel or chosen(product, on)
    passing = product.traffic(kernel, streaming=False) / on.memory
    computing = computing_s(product, kernel, on, held)
    if product.accumulates:
        return START_S + math.hypot(computing, passing / ACCUMULATING)
    return START_S + max(computing, passing / REACHED)
