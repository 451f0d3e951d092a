"""NCCL's rings: one a channel, through all GPUs of a host and on to the next; each enters a host at another GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ringwright.algorithms.blocks.pipelined_tree import PipelinedTree
from ringwright.algorithms.compose import beside
from ringwright.algorithms.hosts import is_regular
from ringwright.program import Affine, Block, Cost, Op, Program, Step, Term, cut, explicit

if TYPE_CHECKING:
    from ringwright.collective import Collective

CHAIN_BYTES = 512 << 10  # what travels at a time along a broadcast or reduce ring
MOST_SEGMENTS = 64


def order(hosts: list[list[int]], channel: int) -> list[int]:
    """Return the ring of a channel: host after host, each from another GPU on."""
    return [host[(channel + step) % len(host)] for host in hosts for step in range(len(host))]


def rings(collective: Collective, hosts: list[list[int]], channels: int) -> Program:
    """Return the program of all-reduce, reduce-scatter or all-gather over ``channels`` rings of equal share."""
    p, op = collective.p, collective.op
    parts = channels * (p if op == "all-reduce" else 1)
    rounds = (p - 1) * (2 if op == "all-reduce" else 1)
    largest = float(cut(collective, parts).chunk_bytes.max(initial=0)) * channels
    moves = _regular if is_regular(hosts) else _listed

    def steps() -> Iterator[Step]:
        if op != "all-gather":
            for step in range(p - 1):
                yield moves(Op.REDUCE, hosts, channels, -step - 1, "reduce-scatter")
        if op != "reduce-scatter":
            for step in range(p - 1):
                yield moves(Op.SEND, hosts, channels, -step, "all-gather")

    return Program(
        "ring", collective, cut(collective, parts), steps, rounds,
        Cost((Term(rounds, rounds * largest),), float(collective.size_bytes) * rounds, largest * (p - 1)),
        channels=channels,
    )  # fmt: skip


def _regular(op: Op, hosts: list[list[int]], channels: int, by: int, label: str) -> Step:
    """One round as patterns over the hosts: place j of every host hands on the block of the rank ``by`` along the ring."""
    n, g = len(hosts), len(hosts[0])
    blocks = []
    for channel in range(channels):
        for j in range(g):
            here = Affine(((1, 0, n, g),), (channel + j) % g)
            following = Affine(((1, (j + 1) // g, n, g),), (channel + (j + 1)) % g)
            owner = Affine(((1, (j + by) // g, n, g * channels),), (channel + j + by) % g * channels + channel)
            blocks.append(Block(op, (n,), here, following, owner, channel=channel))
    return Step(tuple(blocks), label)


def _listed(op: Op, hosts: list[list[int]], channels: int, by: int, label: str) -> Step:
    blocks = []
    for channel in range(channels):
        ring = np.array(order(hosts, channel))
        owner = np.roll(ring, -by)
        blocks.append(explicit(op, ring, np.roll(ring, -1), owner * channels + channel, channel=channel))
    return Step(tuple(blocks), label)


def chains(collective: Collective, hosts: list[list[int]], channels: int) -> Program:
    """Return broadcast or reduce in segments along ``channels`` rings, from or to the root."""
    share = collective.size_bytes / channels
    segments = max(1, min(MOST_SEGMENTS, round(share / CHAIN_BYTES)))
    up = collective.op == "reduce"
    trees = [PipelinedTree(_chain(order(hosts, channel), collective.root, up)) for channel in range(channels)]
    n_steps = trees[0].n_steps(segments, up=up, down=not up)

    def steps() -> Iterator[Step]:
        return beside(*(
            tree.steps(segments, i * segments, up=up, down=not up, channel=i, label="chain") for i, tree in enumerate(trees)
        ))  # fmt: skip

    sent = float(collective.size_bytes) * (collective.p - 1)
    return Program(
        "chain", collective, cut(collective, segments * channels), steps, n_steps,
        Cost((Term(n_steps + channels - 1, n_steps * share / segments + share * (channels - 1)),), sent,
             share * channels if up else 0.0),
        channels=channels, knobs={"segments": segments},
    )  # fmt: skip


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
