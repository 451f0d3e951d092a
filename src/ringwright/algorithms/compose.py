"""Programs made of programs: one for a small group run in every row of a mesh, or on any ranks; delayed, or side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from ringwright.model.program import Affine, Block, Step

if TYPE_CHECKING:
    from ringwright.model.program import Program

Algorithm = Callable[..., "Program"]
# Another axis of a mesh: its size, and what a step along it adds to the rank and to the chunk.
Axis = tuple[int, int, int]


def later(steps: Iterable[Step], by: int) -> Iterator[Step]:
    """Yield ``by`` steps in which nothing moves, then the given ones."""
    yield from (Step(()) for _ in range(by))
    yield from steps


def beside(*phases: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps of several programs side by side: their first steps together, then their second, ..."""
    for steps in zip_longest(*phases):
        present = [step for step in steps if step is not None]
        label = next((step.label for step in present if step.blocks), present[0].label)
        yield Step(tuple(block for step in present for block in step.blocks), label)


def lift(
    steps: Iterable[Step],
    rank_weight: int,
    chunk_weight: int,
    axes: Sequence[Axis],
    label: str = "",
    channel: int = 0,
    at: tuple[int, ...] = (0, 0),
) -> Iterator[Step]:
    """Run steps of a small group in every row of a mesh at once.

    In the first row rank i of the group is rank ``i * rank_weight``, and its chunk c the ``chunk_weight`` chunks from
    ``c * chunk_weight`` on. Each of ``axes`` repeats the rows and says what that adds to ranks and chunks; ``at`` is added to
    all of them.
    """
    for step in steps:
        blocks = tuple(_lift(block, rank_weight, chunk_weight, axes, channel, at) for block in step.blocks)
        yield Step(blocks, label or step.label)


def _lift(
    block: Block, rank_weight: int, chunk_weight: int, axes: Sequence[Axis], channel: int, at: tuple[int, ...]
) -> Block:
    def index(value: Affine | np.ndarray, weight: int, column: int) -> Affine | np.ndarray:
        if isinstance(value, Affine):
            further = ((1 if axis[column] else 0, 0, axis[0], axis[column]) for axis in axes)
            return value.scaled(weight, at[column - 1]).over(len(block.shape), *further)
        grown = value * weight + at[column - 1]
        for axis in axes:
            grown = (grown[:, None] + np.arange(axis[0]) * axis[column]).reshape(-1)
        return grown

    return Block(
        block.op,
        (*block.shape, *(axis[0] for axis in axes)),
        index(block.src, rank_weight, 1),
        index(block.dst, rank_weight, 1),
        index(block.chunk, chunk_weight, 2),
        None if block.to is None else index(block.to, chunk_weight, 2),
        block.span * chunk_weight,
        block.channel + channel,
    )


def embed(
    steps: Iterable[Step],
    ranks: Sequence[int] | np.ndarray,
    slots: Sequence[int] | np.ndarray | None = None,
    label: str = "",
    channel: int = 0,
) -> Iterator[Step]:
    """Run steps of a small group on any ranks: rank i becomes ``ranks[i]``, slot c becomes ``slots[c]``."""
    who = np.asarray(ranks, np.int64)
    where = None if slots is None else np.asarray(slots, np.int64)
    for step in steps:
        yield Step(tuple(_embed(block, who, where, channel) for block in step.blocks), label or step.label)


def _embed(block: Block, who: np.ndarray, where: np.ndarray | None, channel: int) -> Block:
    src, dst, chunk, to = block.arrays()
    span = block.span
    if where is not None:
        if span > 1:
            further = np.arange(span)
            chunk, to = ((start[:, None] + further).reshape(-1) for start in (chunk, to))
            src, dst, span = np.repeat(src, span), np.repeat(dst, span), 1
        chunk, to = where[chunk], where[to]
    fields: dict[str, Any] = {"shape": (len(src),), "src": who[src], "dst": who[dst], "chunk": chunk, "to": to}
    return dataclasses.replace(block, **fields, span=span, channel=block.channel + channel)


def shift(steps: Iterable[Step], slots: int, channel: int = 0) -> Iterator[Step]:
    """Run steps on slots that are ``slots`` higher, and channels ``channel`` higher; affine blocks stay affine."""

    def later(value: Affine | np.ndarray) -> Affine | np.ndarray:
        return value.scaled(1, slots) if isinstance(value, Affine) else value + slots

    for step in steps:
        moved = (
            dataclasses.replace(
                block,
                chunk=later(block.chunk),
                to=None if block.to is None else later(block.to),
                channel=block.channel + channel,
            )
            for block in step.blocks
        )
        yield Step(tuple(moved), step.label)
