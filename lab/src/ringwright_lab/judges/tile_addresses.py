"""What becomes of what a product stores, chunk by chunk: the map that a reduce-scatter's program asks of each GPU.

A chunk that a GPU sends before anything of it has arrived is stored straight at the other GPU. One that it sends later is stored
locally, and a copy forwards each tile when the local store and all that arrives have been added. One that it never sends stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ringwright.ground.errors import UsageError
from ringwright.model.program import Program

Kind = Literal["remote", "forwarded", "kept"]


@dataclass(frozen=True)
class MappedChunk:
    """A chunk of one GPU: where its tiles go, and how many updates of a tile, its own store among them, come before that."""

    chunk: int
    kind: Kind
    to: int
    updates: int


def address_map(program: Program) -> tuple[tuple[MappedChunk, ...], ...]:
    """Return, for each rank, its chunks in the order in which its product should make them.

    UsageError for a program in which a rank sends a chunk twice, sends it before what still arrives, or nothing of one.
    """
    p = program.p
    arrived = np.zeros((p, program.layout.n_chunks), int)
    sent: list[dict[int, MappedChunk]] = [{} for _ in range(p)]
    for moves in _moves(program):
        before = arrived.copy()
        for src, dst, chunk in moves:
            if chunk in sent[src]:
                raise UsageError(
                    f"rank {src} sends chunk {chunk} twice",
                    where=program.name,
                    remedy="a reduce-scatter round a ring, or direct",
                )
            if chunk in sent[dst]:
                raise UsageError(
                    f"chunk {chunk} arrives at rank {dst} after it was sent on",
                    where=program.name,
                    remedy="another program",
                )
            count = int(before[src, chunk])
            sent[src][chunk] = MappedChunk(chunk, "forwarded" if count else "remote", dst, count + 1)
            arrived[dst, chunk] += 1
    maps = []
    for rank in range(p):
        kept = [
            MappedChunk(chunk, "kept", rank, int(arrived[rank, chunk]) + 1)
            for chunk in range(program.layout.n_chunks)
            if chunk not in sent[rank]
        ]
        maps.append((*sent[rank].values(), *kept))
    return tuple(maps)


def _moves(program: Program) -> Iterator[list[tuple[int, int, int]]]:
    """Yield the moves of each step as (from, to, chunk)."""
    for step in program.steps():
        moves: list[tuple[int, int, int]] = []
        for block in step.blocks:
            src, dst, chunk, _ = block.arrays()
            moves += zip(src.tolist(), dst.tolist(), chunk.tolist(), strict=True)
        yield moves
