"""Tile-triggered copies on threads: GPUs that store tiles of a product, trackers, and copy engines that are paced like a link.

A GPU is a thread that rests for each tile and stores it in its memory, an array; a store that is the last update of a tile hands
it to the GPU's copy engine, another thread, which rests as long as a link would carry it and adds it at the next GPU.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np

from ringwright.algorithms.blocks.ring import ring
from ringwright.collective import Collective
from ringwright.errors import UsageError
from ringwright.schedulers.decompose.t3.address_map import MappedChunk, address_map
from ringwright.schedulers.decompose.t3.tracker import Tile, Tracker


@dataclass(frozen=True)
class TriggeredProduct:
    """``ranks`` GPUs, each of whose chunks has ``tiles`` of ``width`` numbers; seconds of a tile's product and of its copy.

    UsageError for fewer than two GPUs or times below 0.
    """

    ranks: int = 4
    tiles: int = 8
    width: int = 16
    tile_s: float = 0.01
    copy_s: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be: UsageError."""
        if self.ranks < 2 or min(self.tiles, self.width) < 1 or min(self.tile_s, self.copy_s) < 0:
            raise UsageError(
                f"{self.ranks} GPUs with {self.tiles} tiles of {self.width}",
                remedy="2 GPUs, a tile and a number, and more",
            )

    @property
    def product_s(self) -> float:
        """Seconds of a GPU's product alone."""
        return self.ranks * self.tiles * self.tile_s

    @property
    def copies_s(self) -> float:
        """Seconds of a GPU's copies alone."""
        return (self.ranks - 1) * self.tiles * self.copy_s


@dataclass(frozen=True)
class TriggeredRun:
    """Seconds until every GPU had its sums; whether they were right; of the shorter of product and copies, the share hidden."""

    seconds: float
    equal: bool
    hidden: float


def measure(job: TriggeredProduct) -> TriggeredRun:
    """Return what a run on threads took."""
    maps = address_map(ring(Collective("reduce-scatter", range(job.ranks), 4 * job.ranks * job.tiles * job.width)))
    shape = (job.ranks, job.ranks, job.tiles, job.width)
    terms = np.random.default_rng(job.seed).integers(-4, 5, shape)
    gpus = [_Gpu(job, terms[rank], maps[rank]) for rank in range(job.ranks)]
    for gpu in gpus:
        gpu.others = gpus
    threads = [threading.Thread(target=work) for gpu in gpus for work in (gpu.compute, gpu.copy)]
    begin_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begin_s
    equal = all(
        np.array_equal(gpu.memory[maps[rank][-1].chunk], terms[:, maps[rank][-1].chunk].sum(axis=0))
        for rank, gpu in enumerate(gpus)
    )
    shorter = min(job.product_s, job.copies_s)
    return TriggeredRun(took, equal, (job.product_s + job.copies_s - took) / shorter if shorter else 1.0)


@dataclass
class _Gpu:
    """One GPU: its memory with a tracker, and the copies that are ready."""

    job: TriggeredProduct
    terms: np.ndarray
    mapped: tuple[MappedChunk, ...]
    others: list[_Gpu] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory, self.lock = np.zeros_like(self.terms), threading.Lock()
        self.tracker = Tracker({each.chunk: each.updates for each in self.mapped if each.kind == "forwarded"})
        self.ready: SimpleQueue[tuple[int, Tile, np.ndarray]] = SimpleQueue()
        self.to = {each.chunk: each.to for each in self.mapped}

    def compute(self) -> None:
        """Make one tile after another, in the order of the map; a remote tile leaves as it is made."""
        for each in self.mapped:
            for tile in range(self.job.tiles):
                time.sleep(self.job.tile_s)
                value = self.terms[each.chunk, tile]
                if each.kind == "remote":
                    self.ready.put((each.to, (each.chunk, tile), value))
                else:
                    self.update((each.chunk, tile), value)

    def update(self, tile: Tile, value: np.ndarray) -> None:
        """Add to a tile; if that was the last update, its copy is ready."""
        with self.lock:
            self.memory[tile] += value
            starts = self.tracker.update(tile)
            summed = self.memory[tile].copy()
        if starts:
            self.ready.put((self.to[tile[0]], tile, summed))

    def copy(self) -> None:
        """Carry tiles one after another, each for as long as the link takes."""
        for _ in range((self.job.ranks - 1) * self.job.tiles):
            to, tile, value = self.ready.get()
            time.sleep(self.job.copy_s)
            self.others[to].update(tile, value)
