"""Tile-triggered copies on threads: GPUs that store tiles of a product, trackers, and copy engines that are paced like a link.

A GPU is a thread that rests for each tile and stores it in its memory, an array; a store that is the last update of what a copy
carries hands it to the GPU's copy engine, another thread, which rests as long as a link would need and adds it at the next GPU.
A copy carries ``grain`` tiles: few start sooner, many take fewer starts.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from heapq import heappop, heappush
from queue import SimpleQueue

import numpy as np

from ringwright.algorithms.blocks.ring import ring
from ringwright.ground.errors import UsageError
from ringwright.model.collective import Collective
from ringwright_lab.judges.tile_addresses import MappedChunk, address_map
from ringwright_lab.judges.tile_tracker import Tile, Tracker


@dataclass(frozen=True)
class TriggeredProduct:
    """``ranks`` GPUs, each of whose chunks has ``tiles`` of ``width`` numbers; seconds of a tile's product and of its copy.

    A copy carries ``grain`` tiles of a chunk, and takes ``start_s`` besides. UsageError for fewer than two GPUs, times below
    0, or a grain that does not divide the tiles.
    """

    ranks: int = 4
    tiles: int = 8
    width: int = 16
    tile_s: float = 0.01
    copy_s: float = 0.01
    seed: int = 0
    grain: int = 1
    start_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be: UsageError."""
        if self.ranks < 2 or min(self.tiles, self.width) < 1 or min(self.tile_s, self.copy_s, self.start_s) < 0:
            raise UsageError(
                f"{self.ranks} GPUs with {self.tiles} tiles of {self.width}",
                remedy="2 GPUs, a tile and a number, and more",
            )
        if self.grain < 1 or self.tiles % self.grain:
            raise UsageError(f"copies of {self.grain} tiles of {self.tiles}", remedy="a grain that divides the tiles")

    @property
    def copies(self) -> int:
        """Copies that a GPU starts."""
        return (self.ranks - 1) * self.tiles // self.grain

    @property
    def carried_s(self) -> float:
        """Seconds of one copy."""
        return self.start_s + self.grain * self.copy_s

    @property
    def product_s(self) -> float:
        """Seconds of a GPU's product alone."""
        return self.ranks * self.tiles * self.tile_s

    @property
    def copies_s(self) -> float:
        """Seconds of a GPU's copies alone."""
        return self.copies * self.carried_s


def expected_s(job: TriggeredProduct) -> float:
    """Return what a run takes where nothing holds threads up: GPUs are alike, so what one sends is what arrives at it.

    A copy is ready when its tiles have been made and, but for those of the first chunk, as many have arrived; copies go one by
    one in the order in which they are ready.
    """
    parts, last = job.tiles // job.grain, job.ranks - 1

    def made_s(turn: int, part: int) -> float:
        return (turn * job.tiles + (part + 1) * job.grain) * job.tile_s

    ready = [(made_s(0, part), 0, part) for part in range(parts)]
    free_s, end_s = 0.0, job.product_s
    while ready:
        at_s, turn, part = heappop(ready)
        free_s = max(free_s, at_s) + job.carried_s
        if turn + 1 < last:
            heappush(ready, (max(free_s, made_s(turn + 1, part)), turn + 1, part))
        else:
            end_s = max(end_s, free_s)
    return end_s


@dataclass(frozen=True)
class TriggeredRun:
    """Seconds until every GPU had its sums; whether they were right; of the shorter of product and copies, the share hidden.

    ``copies`` that were made, those of all GPUs.
    """

    seconds: float
    equal: bool
    hidden: float
    copies: int


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
    hidden = (job.product_s + job.copies_s - took) / shorter if shorter else 1.0
    return TriggeredRun(took, equal, hidden, sum(gpu.carried for gpu in gpus))


@dataclass
class _Gpu:
    """One GPU: its memory with a tracker, and the copies that are ready."""

    job: TriggeredProduct
    terms: np.ndarray
    mapped: tuple[MappedChunk, ...]
    others: list[_Gpu] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory, self.lock = np.zeros_like(self.terms), threading.Lock()
        counted = {each.chunk: each.updates * self.job.grain for each in self.mapped if each.kind != "kept"}
        self.tracker, self.carried = Tracker(counted), 0
        self.ready: SimpleQueue[tuple[int, Tile, np.ndarray]] = SimpleQueue()
        self.to = {each.chunk: each.to for each in self.mapped}

    def compute(self) -> None:
        """Make one tile after another, in the order of the map."""
        for each in self.mapped:
            for tile in range(self.job.tiles):
                time.sleep(self.job.tile_s)
                self.update((each.chunk, tile), self.terms[each.chunk, tile : tile + 1])

    def update(self, first: Tile, values: np.ndarray) -> None:
        """Add to tiles that lie together; if that was the last update of those that a copy carries, it is ready."""
        chunk, tile = first
        part = tile // self.job.grain
        with self.lock:
            self.memory[chunk, tile : tile + len(values)] += values
            starts = sum(self.tracker.update((chunk, part)) for _ in values) > 0
            summed = self.memory[chunk, part * self.job.grain : (part + 1) * self.job.grain].copy()
        if starts:
            self.ready.put((self.to[chunk], (chunk, part * self.job.grain), summed))

    def copy(self) -> None:
        """Carry what is ready, one copy after another, each for as long as the link takes."""
        for _ in range(self.job.copies):
            to, first, values = self.ready.get()
            time.sleep(self.job.carried_s)
            self.others[to].update(first, values)
            self.carried += 1
