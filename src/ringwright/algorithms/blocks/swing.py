"""Swing.

Idea: partners at distances 1, 1, 3, 5, 11, ... alternately to both sides, so that on rings and tori messages travel fewer hops
    than those of recursive doubling, in as many steps.
Cost: all-reduce 2 lg p alpha + 2(p-1)/p n beta (variant bandwidth), lg p (alpha + n beta) (variant latency).
Knobs: variant=bandwidth; dims (the topology's axes, else p alone); ports (1, or 2 per dimension: so many mirrored copies side by
    side, each on its share of the data).
Holds: after s steps each rank has heard from 2**s others; every chunk reaches its owner once.
Figure: up to 3 times over the best known all-reduce for 32 B to 128 MiB on tori (abstract).
Source: De Sensi, Bonato, Saam, Hoefler: Swing, NSDI 2024, arXiv 2401.09356.
Declines: groups, and dimensions, that are no power of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from ringwright.algorithms.compose import beside
from ringwright.algorithms.offers import is_even, require_commutative, require_op
from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Range, Ranks
from ringwright.model.collective import Collective
from ringwright.model.program import Block, Cost, Op, Program, Step, Term, cut, explicit, nothing

if TYPE_CHECKING:
    from ringwright.model.topology import Topology

OPS = ("all-reduce", "reduce-scatter", "all-gather")


def swing(
    collective: Collective,
    topology: Topology | None = None,
    *,
    variant: Literal["bandwidth", "latency"] = "bandwidth",
    dims: Sequence[Ranks] | None = None,
    ports: Annotated[int, Range(1, 16)] = 1,
) -> Program:
    """Return the Swing program of an all-reduce, reduce-scatter or all-gather."""
    require_op("swing", collective, OPS)
    require_commutative("swing", collective)
    if collective.p == 1:
        return nothing("swing", collective)
    sizes = _dims(collective.p, topology, dims)
    if variant == "latency" and collective.op == "all-reduce":
        return _latency(collective, Butterfly(sizes), ports)
    if variant not in ("bandwidth", "latency"):
        raise UsageError(f"swing has no variant '{variant}'", remedy="variant=bandwidth or variant=latency")
    return _bandwidth(collective, sizes, ports)


class Butterfly:
    """Partners of all ranks, step by step; ``turn`` is the dimension of the first step, ``mirror`` swaps the sides.

    ``reach[s]`` (p, 2**(steps-s)) are the ranks that hear from each rank in the steps from s on, itself first.
    """

    def __init__(self, sizes: Sequence[int], turn: int = 0, *, mirror: bool = False, far_first: bool = False) -> None:
        self.p = math.prod(sizes)
        steps = _order(sizes, turn)
        self.partners = [
            _partner(sizes, dim, step, mirror=mirror) for dim, step in (reversed(steps) if far_first else steps)
        ]
        ranks = np.arange(self.p)
        self.reach = [ranks[:, None]]
        for partner in reversed(self.partners):
            later = self.reach[0]
            self.reach.insert(0, np.concatenate((later, later[partner]), axis=1))

    def scatter(self, first: int, parts: int, channel: int = 0) -> Iterator[Step]:
        """Yield the reduce-scatter: in each step a rank sends the chunks that its partner's side will own."""
        for step, partner in enumerate(self.partners):
            yield self._exchange(
                Op.REDUCE, partner, self.reach[step + 1][partner], first, parts, channel, "reduce-scatter"
            )

    def gather(self, first: int, parts: int, channel: int = 0) -> Iterator[Step]:
        """Yield the all-gather: the same steps backwards, in which each rank sends all that it has."""
        for step in reversed(range(len(self.partners))):
            yield self._exchange(
                Op.SEND, self.partners[step], self.reach[step + 1], first, parts, channel, "all-gather"
            )

    def _exchange(
        self, op: Op, partner: np.ndarray, blocks: np.ndarray, first: int, parts: int, channel: int, label: str
    ) -> Step:
        ranks = np.arange(self.p)
        many = blocks.shape[1]
        src, dst = np.repeat(ranks, many), np.repeat(partner, many)
        return Step((explicit(op, src, dst, blocks.reshape(-1) * parts + first, channel=channel),), label)


def _dims(p: int, topology: Topology | None, dims: Sequence[int] | None) -> list[int]:
    if dims is None and topology is not None and topology.axes and math.prod(size for _, size in topology.axes) == p:
        dims = [size for _, size in topology.axes]
    sizes = [p] if dims is None else list(dims)
    if math.prod(sizes) != p or any(size & (size - 1) for size in sizes):
        raise UsageError(
            f"swing needs powers of two, not {'x'.join(map(str, sizes))} for {p} ranks", remedy="--algorithm ring"
        )
    return sizes


def _order(sizes: Sequence[int], turn: int) -> list[tuple[int, int]]:
    """Return (dimension, its own step) of each step: dimensions take turns until they are used up."""
    left = [size.bit_length() - 1 for size in sizes]
    used = [0] * len(sizes)
    order = []
    dim = turn % len(sizes)
    while sum(left):
        if left[dim]:
            order.append((dim, used[dim]))
            used[dim] += 1
            left[dim] -= 1
        dim = (dim + 1) % len(sizes)
    return order


def _partner(sizes: Sequence[int], dim: int, step: int, *, mirror: bool) -> np.ndarray:
    """Return each rank's partner: rho(step) = (1 - (-2)**(step+1)) / 3 along one dimension, even places up, odd ones down."""
    below, size = math.prod(sizes[:dim]), sizes[dim]
    ranks = np.arange(math.prod(sizes))
    coordinate = ranks // below % size
    rho = (1 - (-2) ** (step + 1)) // 3 * (-1 if mirror else 1)
    other = np.where(coordinate % 2 == 0, coordinate + rho, coordinate - rho) % size
    partner: np.ndarray = ranks + (other - coordinate) * below
    return partner


def _bandwidth(collective: Collective, sizes: Sequence[int], ports: int) -> Program:
    p, op = collective.p, collective.op
    butterflies = [Butterfly(sizes, port // 2, mirror=port % 2 == 1) for port in range(ports)]
    parts = ports
    rounds = len(butterflies[0].partners)
    halves = 2 if op == "all-reduce" else 1
    layout = cut(collective, parts * (p if op == "all-reduce" else 1))

    def steps() -> Iterator[Step]:
        if op != "all-gather":
            yield from beside(*(each.scatter(port, parts, port) for port, each in enumerate(butterflies)))
        if op != "reduce-scatter":
            yield from beside(*(each.gather(port, parts, port) for port, each in enumerate(butterflies)))

    path = float(layout.chunk_bytes.max(initial=0)) * parts * (p - 1)
    return Program(
        "swing",
        collective,
        layout,
        steps,
        rounds * halves,
        Cost(
            (Term(rounds * halves, path * halves),),
            float(collective.size_bytes) * (p - 1) * halves,
            path if collective.reduces else 0.0,
            is_even=is_even(collective, ports * (p if op == "all-reduce" else 1)),
        ),
        channels=ports,
        knobs={"variant": "bandwidth", "ports": ports, "dims": tuple(sizes)},
    )


def _latency(collective: Collective, butterfly: Butterfly, ports: int) -> Program:
    """Yield the steps in which partners exchange and add whole vectors."""
    p, rounds = collective.p, len(butterfly.partners)

    def steps() -> Iterator[Step]:
        for partner in butterfly.partners:
            yield Step((Block(Op.REDUCE, (p,), np.arange(p), partner, np.zeros(p, np.int64)),), "exchange")

    size = float(collective.size_bytes)
    return Program(
        "swing",
        collective,
        cut(collective),
        steps,
        rounds,
        Cost((Term(rounds, size * rounds),), size * p * rounds, size * rounds),
        knobs={"variant": "latency", "ports": ports},
    )
