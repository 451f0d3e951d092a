"""Programs in the language whose ranks all hold the same vector, or gather or scatter one: rings, trees, all pairs.

Each function writes into a script; ``plan`` says what it may use of the machine. In place input and output are one memory there,
so that a copy from one to the other is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ringwright.algorithms.language import ChunkScript, Reference

NO_CHANNEL = -1


@dataclass(frozen=True)
class Plan:
    """``node`` ranks of one node follow each other; with more than one of ``channels`` the work is dealt out to them."""

    node: int
    channels: int

    def channel(self, number: int) -> int:
        """Return the channel of piece ``number`` of the work; one alone is left to the compiler."""
        return number % self.channels if self.channels > 1 else NO_CHANNEL


Write = Callable[[ChunkScript, Plan], None]


def ring(script: ChunkScript, plan: Plan) -> None:
    """Every chunk travels once round to be summed, and once to be told; a broadcast goes down the ring from its root."""
    p, op = script.ranks, script.collective.op
    if op == "send-recv":
        for rank in range(p):
            script.chunk(rank, "input", 0, script.chunks).copy((rank + 1) % p, "output", 0)
        return
    if op == "broadcast":
        for index in range(script.chunks):
            root = script.collective.root
            _travel(
                _own(script, root, index), "output", index, [(root + k) % p for k in range(1, p)], plan.channel(index)
            )
        return
    sums = {}
    if op != "all-gather":
        late = 0 if op == "all-reduce" else 1  # block b is whole at rank b - 1, or at b where that owns it
        sums = _summed(script, range(p), range(p), late, plan)
    for index in range(p):
        ref = sums[index] if sums else script.chunk(index, "input", 0)
        if op == "reduce-scatter":
            ref.copy(index, "output", 0)
            continue
        at = ref.rank
        ref = ref.copy(at, "output", index)
        _travel(ref, "output", index, [(at + k) % p for k in range(1, p)], plan.channel(index))


def _own(script: ChunkScript, root: int, index: int) -> Reference:
    """Return the root's own result of a broadcast."""
    return script.chunk(root, "input", index).copy(root, "output", index)


def _travel(ref: Reference, buffer: str, index: int, ranks: Iterable[int], channel: int) -> None:
    """Pass a chunk on from rank to rank."""
    for rank in ranks:
        ref = ref.copy(rank, buffer, index, channel=channel)


def _summed(
    script: ChunkScript, ranks: Sequence[int], indices: Sequence[int], late: int, plan: Plan
) -> dict[int, Reference]:
    """Sum chunk ``indices[k]`` round a ring of ``ranks``, beginning at rank k + late of it; return the sums."""
    size, sums = len(ranks), {}
    for k, index in enumerate(indices):
        sums[index] = script.chunk(ranks[(k + late) % size], "input", index)
    for step in range(1, size):
        for k, index in enumerate(indices):
            here = script.chunk(ranks[(k + late + step) % size], "input", index)
            sums[index] = here.reduce(sums[index], channel=plan.channel(index))
    return sums


def all_pairs(script: ChunkScript, plan: Plan) -> None:
    """Every rank sends each other one its block directly, sums its own, and sends that to all."""
    p, op = script.ranks, script.collective.op
    if op == "broadcast":
        root = script.collective.root
        for index in range(script.chunks):
            ref = _own(script, root, index)
            for rank in range(p):
                if rank != root:
                    ref.copy(rank, "output", index, channel=plan.channel(index))
        return
    own = script.chunks // p
    if op != "all-gather":
        _exchange_and_sum(script, own, plan)
    for rank in range(p):
        for channel in range(plan.channels):
            each, first = own // plan.channels, own // plan.channels * channel
            begin = first if op == "all-gather" else rank * own + first
            ref = script.chunk(rank, "input", begin, each)
            if op == "reduce-scatter":
                ref.copy(rank, "output", first)
                continue
            ref = ref.copy(rank, "output", rank * own + first)
            for other in range(p):
                if other != rank:
                    ref.copy(other, "output", rank * own + first, **_between(rank, other, channel, p))


def _between(rank: int, other: int, channel: int, p: int) -> dict[str, int]:
    """Return the hints of a message: each rank has a thread block for each other one and channel."""
    return {"channel": channel, "send_tb": channel * p + other, "recv_tb": channel * p + rank}


def _exchange_and_sum(script: ChunkScript, own: int, plan: Plan) -> None:
    p, each = script.ranks, own // plan.channels
    for rank in range(p):
        for other in range(p):
            for channel in range(plan.channels if other != rank else 0):
                ref = script.chunk(rank, "input", other * own + channel * each, each)
                at = (rank - (rank > other)) * own + channel * each
                ref.copy(other, "others", at, **_between(rank, other, channel, p))
    for rank in range(p):
        for at in range((p - 1) * own):
            target = script.chunk(rank, "input", rank * own + at % own)
            target.reduce(script.chunk(rank, "others", at), send_tb=at % own % (p * plan.channels))


def hierarchical(script: ChunkScript, plan: Plan) -> None:
    """Rings within each node, and between those of the nodes that have the same number there; chunks lie node by node."""
    op, g, p = script.collective.op, plan.node, script.ranks
    nodes = [range(first, first + g) for first in range(0, p, g)]
    if op == "all-gather":
        whole = [script.chunk(rank, "input", 0).copy(rank, "output", rank) for rank in range(p)]
    else:
        for ranks in nodes:
            for same in nodes:
                _summed(script, ranks, same, 1, plan)
        whole = []
        for k in range(g):
            whole += _summed(script, range(k, p, g), range(k, p, g), 1, plan).values()
        whole = [ref.copy(ref.rank, "output", 0 if op == "reduce-scatter" else ref.rank) for ref in whole]
    if op == "reduce-scatter":
        return
    for ref in whole:
        _travel(ref, "output", ref.rank, [(ref.rank + j) % p for j in range(g, p, g)], plan.channel(ref.rank))
    for ranks in nodes:
        for index in range(p):
            at = index % g
            here = script.chunk(ranks[at], "output", index)
            _travel(here, "output", index, [ranks[(at + j) % g] for j in range(1, g)], plan.channel(index))


def recursive_doubling(script: ChunkScript, plan: Plan) -> None:
    """Pairs at a distance of 1, 2, 4, ... exchange all that they have: blocks that double, or the whole vector, summed."""
    p, op = script.ranks, script.collective.op
    if op == "all-gather":
        for rank in range(p):
            script.chunk(rank, "input", 0).copy(rank, "output", rank)
    distance = 1
    while distance < p:
        _doubled(script, distance, plan) if op == "all-gather" else _summed_in_pairs(script, distance, plan)
        distance *= 2
    if op == "all-reduce":
        for rank in range(p):
            script.chunk(rank, "input", 0, script.chunks).copy(rank, "output", 0)


def _doubled(script: ChunkScript, distance: int, plan: Plan) -> None:
    for rank in range(script.ranks):
        first = rank // distance * distance
        ref = script.chunk(rank, "output", first, distance)
        ref.copy(rank ^ distance, "output", first, channel=plan.channel(distance.bit_length() - 1))


def _summed_in_pairs(script: ChunkScript, distance: int, plan: Plan) -> None:
    for rank in range(script.ranks):
        for index in range(script.chunks):
            ref = script.chunk(rank, "input", index)
            ref.copy(rank ^ distance, f"from {distance} away", index, channel=plan.channel(index))
    for rank in range(script.ranks):
        for index in range(script.chunks):
            script.chunk(rank, "input", index).reduce(script.chunk(rank, f"from {distance} away", index))


def halving_doubling(script: ChunkScript, plan: Plan) -> None:
    """Pairs at a distance of p/2, p/4, ... exchange halves of what is left and sum them; then the reverse, gathering."""
    p, op = script.ranks, script.collective.op
    distance = p // 2
    while distance:
        halves = []
        for rank in range(p):
            other = rank ^ distance
            first = other // distance * distance
            halves.append((other, script.chunk(rank, "input", first, distance)))
        for other, ref in halves:
            script.chunk(other, "input", ref.index, distance).reduce(ref, channel=plan.channel(distance.bit_length()))
        distance //= 2
    for rank in range(p):
        script.chunk(rank, "input", rank).copy(rank, "output", rank if op == "all-reduce" else 0)
    distance = 1
    while distance < p and op == "all-reduce":
        _doubled(script, distance, plan)
        distance *= 2


def binomial_tree(script: ChunkScript, plan: Plan) -> None:
    """A tree in which whoever has the data sends them on to one more rank in every round; sums go up it first."""
    p, root, adds = script.ranks, script.collective.root, script.collective.reduces
    rounds = [1 << k for k in range((p - 1).bit_length())]
    root = 0 if adds else root
    for index in range(script.chunks):
        channel = plan.channel(index)
        for distance in reversed(rounds) if adds else ():
            for k in range(distance, min(2 * distance, p)):
                script.chunk(k - distance, "input", index).reduce(script.chunk(k, "input", index), channel=channel)
        _own(script, root, index)
        for distance in rounds:
            for k in range(min(distance, p - distance)):
                ref = script.chunk((root + k) % p, "output", index)
                ref.copy((root + k + distance) % p, "output", index, channel=channel)
