"""Trackers at work: GPUs store tiles in any order, copies arrive at any time, and every sum is in the memory where it belongs.

The definition of what an address map means: tile by tile on whole numbers, one happening after another, drawn by a seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ringwright_lab.judges.tile_addresses import MappedChunk
from ringwright_lab.judges.tile_tracker import ENTRIES, Tile, Tracker

Map = Sequence[tuple[MappedChunk, ...]]


@dataclass
class CarriedOut:
    """What is in each GPU's memory in the end, int64 of shape (GPUs, chunks, tiles, width), and how often each copy started.

    ``early`` counts updates from elsewhere that came before the GPU's own store of the tile.
    """

    memory: np.ndarray
    started: Counter[tuple[int, Tile]] = field(default_factory=Counter)
    early: int = 0


def carry_out(
    maps: Map, terms: np.ndarray, *, seed: int = 0, entries: int = ENTRIES, staggered: bool = True
) -> CarriedOut:
    """Return what is left of ``terms``, each GPU's own product: integers of shape (GPUs, chunks, tiles, width).

    Each GPU makes its chunks in the order of its map (``staggered``) or from the first one on, tiles within a chunk in any
    order; what has been sent arrives some time later. InfeasibleError of a tracker without a free entry.
    """
    draw, tiles = random.Random(seed), range(terms.shape[2])  # noqa: S311 - a schedule, no secret
    done = CarriedOut(np.zeros_like(terms))
    mapped = [{each.chunk: each for each in listed} for listed in maps]
    trackers = [
        Tracker({each.chunk: each.updates for each in listed if each.kind == "forwarded"}, entries) for listed in maps
    ]
    making = []
    for listed in maps:
        chunks = [each.chunk for each in listed] if staggered else sorted(each.chunk for each in listed)
        making.append([(chunk, tile) for chunk in chunks for tile in draw.sample(tiles, len(tiles))][::-1])
    flying: list[tuple[int, Tile, np.ndarray]] = []

    def update(gpu: int, tile: Tile, value: np.ndarray) -> None:
        done.memory[gpu][tile] += value
        if trackers[gpu].update(tile):
            done.started[gpu, tile] += 1
            flying.append((mapped[gpu][tile[0]].to, tile, done.memory[gpu][tile].copy()))

    while flying or any(making):
        ready = [gpu for gpu, left in enumerate(making) if left]
        if flying and (not ready or draw.random() < 0.5):
            to, arrived, value = flying.pop(draw.randrange(len(flying)))
            done.early += arrived in making[to]
            update(to, arrived, value)
            continue
        gpu = draw.choice(ready)
        tile = making[gpu].pop()
        where = mapped[gpu][tile[0]]
        if where.kind == "remote":
            done.started[gpu, tile] += 1
            flying.append((where.to, tile, terms[gpu][tile]))
        else:
            update(gpu, tile, terms[gpu][tile])
    return done
