"""Programs in the language in which each rank has something of its own for others: all-to-all, and all-to-next."""

from __future__ import annotations

from ringwright.algorithms.language import ChunkScript, Reference
from ringwright.algorithms.synthesis.gc3.programs import Plan


def direct_exchange(script: ChunkScript, plan: Plan) -> None:
    """Every rank sends each other one its chunk."""
    p = script.ranks
    for distance in range(p):
        for rank in range(p):
            other = (rank + distance) % p
            script.chunk(rank, "input", other).copy(other, "output", rank, channel=plan.channel(distance))


def two_step(script: ChunkScript, plan: Plan) -> None:
    """What a node has for one rank of another node is gathered at the rank of the same number, and crosses as one message."""
    p, g = script.ranks, plan.node
    for rank in range(p):
        for target in range(p):
            ref, node = script.chunk(rank, "input", target), target // g
            if node == rank // g:
                ref.copy(target, "output", rank, channel=plan.channel(target))
            else:
                relay = rank // g * g + target % g
                ref.copy(relay, f"to node {node}", rank % g, channel=plan.channel(node))
    for rank in range(p):
        for node in range(p // g):
            if node != rank // g:
                ref = script.chunk(rank, f"to node {node}", 0, g)
                ref.copy(node * g + rank % g, "output", rank // g * g, channel=plan.channel(node))


def three_step(script: ChunkScript, plan: Plan) -> None:
    """All that one node has for another is gathered at one rank, crosses as one message, and is scattered there."""
    p, g = script.ranks, plan.node
    gathered: dict[tuple[int, int], Reference] = {}
    for rank in range(p):
        for target in range(0, p, g):
            pair = rank // g, target // g
            ref = script.chunk(rank, "input", target, g)
            if pair[0] == pair[1]:
                for k, each in enumerate(ref.split(g)):
                    each.copy(target + k, "output", rank, channel=plan.channel(k))
                continue
            here = pair[0] * g + _gateway(*pair, g)
            share = ref.copy(here, f"to node {pair[1]}", rank % g * g, channel=plan.channel(pair[1]))
            gathered[pair] = gathered[pair].group(share) if pair in gathered else share
    for (node, other), ref in gathered.items():
        there = other * g + _gateway(other, node, g)
        come = ref.copy(there, f"from node {node}", 0, channel=plan.channel(other))
        for k, each in enumerate(come.split(g * g)):
            each.copy(other * g + k % g, "output", node * g + k // g, channel=plan.channel(node))


def _gateway(node: int, other: int, g: int) -> int:
    """Return which rank of a node speaks with another node: neighbours among the nodes get different ones."""
    return (other if node > other else other - 1) % g


def all_to_next(script: ChunkScript, plan: Plan) -> None:
    """Each rank's vector goes to the next one; where that is in another node, over the NICs of all ranks of both nodes."""
    p, g = script.ranks, plan.node
    for rank in range(p):
        after = (rank + 1) % p
        if after // g == rank // g:
            script.chunk(rank, "input", 0, script.chunks).copy(after, "output", 0)
            continue
        for index in range(script.chunks):
            _across(script, index, (rank, after), plan)


def _across(script: ChunkScript, index: int, ends: tuple[int, int], plan: Plan) -> None:
    """Send a chunk from one node to the next over the NICs of rank ``index`` of both."""
    g, (rank, after) = plan.node, ends
    channel, k = plan.channel(index), index % plan.node
    ref = script.chunk(rank, "input", index)
    if k != rank % g:
        ref = ref.copy(rank // g * g + k, "leaving", channel=channel)
    if k != after % g:
        ref = ref.copy(after // g * g + k, "coming", channel=channel)
    ref.copy(after, "output", index, channel=channel)
