"""NCCL's rings: one a channel, through all GPUs of a host and on to the next, each in an order of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.compose import beside
from ringwright.algorithms.offers import is_even
from ringwright.algorithms.pipelined_tree import PipelinedTree
from ringwright.model.program import Affine, Block, Cost, Op, Program, Step, Term, cut, explicit

if TYPE_CHECKING:
    from ringwright.algorithms.libraries.nccl_2_4.orders import Orders
    from ringwright.model.collective import Collective

CHAIN_BYTES = 512 << 10  # bytes of a segment of a broadcast or reduce along a ring
MOST_SEGMENTS = 64
MOST_KEPT = 1 << 17  # blocks of rounds
LARGE_NODE = 16  # GPUs; of a larger node a program does not list the moves GPU by GPU


@dataclass(frozen=True, slots=True)
class LoopCounts:
    """A ring's share travels in ``loops``, one after the other; their chunks are cut into ``slices`` that follow each other."""

    loops: int = 1
    slices: int = 1


def rings(collective: Collective, orders: Orders, channels: int, counts: LoopCounts = LoopCounts()) -> Program:
    """Return the program of all-reduce, reduce-scatter or all-gather over ``channels`` rings of equal share."""
    p, op = collective.p, collective.op
    parts = channels * counts.loops * counts.slices
    cuts = parts * (p if op == "all-reduce" else 1)
    rounds = (p - 1) * (2 if op == "all-reduce" else 1)
    largest = float(cut(collective, cuts).chunk_bytes.max(initial=0)) * parts
    orders_of = [np.array(orders.ring(channel)) for channel in range(channels)]
    regular = 0 < orders.block < p and counts.loops == 1
    in_large = orders.block > LARGE_NODE and bool(orders.firsts)
    phases = [(Op.REDUCE, -1, "reduce-scatter")] if op != "all-gather" else []
    phases += [(Op.SEND, 0, "all-gather")] if op != "reduce-scatter" else []

    def made() -> Iterator[Step]:
        ends = [_ends(order, orders.block) for order in orders_of] if regular and not in_large else []
        for loop in range(counts.loops):
            for kind, shift, label in phases:
                for step, piece in product(range(p - 1), range(counts.slices)):
                    places = [(channel * counts.loops + loop) * counts.slices + piece for channel in range(channels)]
                    if regular and in_large:
                        yield Step(_in_large(kind, orders, p, places, parts, shift - step), label, loop)
                    elif regular:
                        yield Step(_regular(kind, ends, places, parts, shift - step), label, loop)
                    else:
                        yield Step(_listed(kind, orders_of, places, parts, shift - step), label, loop)

    def steps() -> Iterator[Step]:
        """Rounds do not depend on bytes: those of small rings are kept for the next size."""
        if not regular or in_large or rounds * parts * orders.block > MOST_KEPT:
            return made()
        return iter(_KEPT.of((orders, op, channels, counts), made))

    knobs = {"loops": counts.loops, "slices": counts.slices} if parts > channels else {}
    return Program(
        "ring",
        collective,
        cut(collective, cuts),
        steps,
        rounds * counts.loops * counts.slices,
        Cost(
            (Term(rounds * counts.loops, rounds * largest),), float(collective.size_bytes) * rounds, largest * (p - 1)
        ),
        channels=channels,
        knobs=knobs,
    )


class _KeptRounds:
    """The rounds of the rings that were asked for last, as long as they are few blocks together."""

    def __init__(self) -> None:
        self._steps: dict[tuple[Orders, str, int, LoopCounts], tuple[Step, ...]] = {}

    def of(self, key: tuple[Orders, str, int, LoopCounts], made: Callable[[], Iterator[Step]]) -> tuple[Step, ...]:
        """Return the rounds of rings, made where they are not known."""
        steps = self._steps.pop(key, None) or tuple(made())
        self._steps[key] = steps
        while len(self._steps) > 1 and sum(map(_blocks, self._steps.values())) > MOST_KEPT:
            del self._steps[next(iter(self._steps))]
        return steps


def _blocks(steps: tuple[Step, ...]) -> int:
    return sum(len(step.blocks) for step in steps)


_KEPT = _KeptRounds()


def _ends(order: np.ndarray, block: int) -> tuple[list[int], list[tuple[Affine, Affine]], int]:
    """Return the first places of a ring, senders and receivers of every round that begin with each of them, and how many."""
    first, n = order[:block].tolist(), len(order) // block
    ends = [
        (Affine(((1, 0, n, block),), first[j]), Affine(((1, (j + 1) // block, n, block),), first[(j + 1) % block]))
        for j in range(block)
    ]
    return first, ends, n


def _regular(
    op: Op, rings: list[tuple[list[int], list[tuple[Affine, Affine]], int]], places: list[int], parts: int, by: int
) -> tuple[Block, ...]:
    """One round as patterns: what a rank does, all ranks do that lie a whole number of ``block`` places further."""
    blocks = []
    for channel, ((first, ends, n), position) in enumerate(zip(rings, places, strict=True)):
        block = len(first)
        for j, (here, following) in enumerate(ends, by):
            owner = Affine(((1, j // block, n, block * parts),), first[j % block] * parts + position)
            blocks.append(Block(op, (n,), here, following, owner, channel=channel))
    return tuple(blocks)


def _in_large(op: Op, orders: Orders, p: int, places: list[int], parts: int, by: int) -> tuple[Block, ...]:
    """One round of rings through large nodes in the order of their ranks, as patterns over nodes and the GPUs of each.

    The GPUs are one pattern as far as the ring stays in the node and the part's rank in another one.
    """
    n, g = p // orders.block, orders.block
    blocks, ends = [], sorted({0, g - 1, g, -by % g})
    for channel, (first, position) in enumerate(zip(orders.firsts, places, strict=True)):
        for j, end in pairwise(ends):
            span = (n, g, end - j)
            here = _along(span, 0, first + j)
            following = _along(span, (j + 1) // g, first + j + 1)
            owner = _along(span, (j + by) // g, first + j + by, parts, position)
            shape = (n, end - j) if end - j > 1 else (n,)
            blocks.append(Block(op, shape, here, following, owner, channel=channel))
    return tuple(blocks)


def _along(span: tuple[int, int, int], hosts: int, gpu: int, stride: int = 1, base: int = 0) -> Affine:
    """Return the number of GPU ``gpu``, so many hosts further, in each of n hosts of g, and of as many GPUs after it."""
    n, g, width = span
    host = (1, hosts, n, g * stride)
    if width > 1:
        return Affine((host, (1, gpu % g, g, stride)), base)
    return Affine((host,), gpu % g * stride + base)


def _listed(op: Op, rings: list[np.ndarray], places: list[int], parts: int, by: int) -> tuple[Block, ...]:
    """One round of rings of any order, listed rank by rank."""
    blocks = []
    for channel, (ring, position) in enumerate(zip(rings, places, strict=True)):
        twice, first = np.concatenate((ring, ring)), by % len(ring)
        owner = twice[first : first + len(ring)]
        blocks.append(explicit(op, ring, twice[1 : 1 + len(ring)], owner * parts + position, channel=channel))
    return tuple(blocks)


def chains(collective: Collective, orders: Orders, channels: int) -> Program:
    """Return broadcast or reduce in segments along ``channels`` rings, from or to the root."""
    share = collective.size_bytes / channels
    segments = max(1, min(MOST_SEGMENTS, round(share / CHAIN_BYTES)))
    up = collective.op == "reduce"
    trees = [PipelinedTree(_chain(orders.ring(channel), collective.root, up)) for channel in range(channels)]
    n_steps = trees[0].n_steps(segments, up=up, down=not up)

    def steps() -> Iterator[Step]:
        return beside(
            *(
                tree.steps(segments, i * segments, up=up, down=not up, channel=i, label="chain")
                for i, tree in enumerate(trees)
            )
        )

    sent = float(collective.size_bytes) * (collective.p - 1)
    return Program(
        "chain",
        collective,
        cut(collective, segments * channels),
        steps,
        n_steps,
        Cost(
            (Term(n_steps + channels - 1, n_steps * share / segments + share * (channels - 1)),),
            sent,
            share * channels if up else 0.0,
            is_even=is_even(collective, segments * channels),
        ),
        channels=channels,
        knobs={"segments": segments},
    )


def _chain(ring: list[int], root: int, up: bool) -> list[int]:
    """Return the parents of a chain along the ring: it starts at the root (down) or ends there (up)."""
    start = ring.index(root)
    turned = ring[start:] + ring[:start]
    if up:
        turned = [turned[0], *reversed(turned[1:])]
    parents = [-1] * len(ring)
    for above, below in pairwise(turned):
        parents[below] = above
    return parents
