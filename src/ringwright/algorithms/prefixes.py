"""Prefix sums, with the own contribution (scan) or without (exscan): one rank after the other, or by recursive doubling.

Slot 0 is what a rank hands on, slot 1 its result, slot 2 what comes in; a scan down the line needs slot 0 alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ringwright.algorithms.compose import beside, embed
from ringwright.model.collective import Collective
from ringwright.model.program import Cost, Layout, Op, Program, Step, Term, explicit, nothing

HANDED, RESULT, COMING = 0, 1, 2
NODES, BEFORE = (
    (3, 4, 5),
    6,
)  # NODES: those three for the sums of whole hosts, at leaders; BEFORE: the sum of all hosts before


def in_line(name: str, collective: Collective) -> Program:
    """Return the program in which each rank waits for the one before and adds its own: p-1 (alpha + n beta + n gamma)."""
    p, n = collective.p, float(collective.size_bytes)
    if p == 1:
        return nothing(name, collective)
    exclusive = collective.op == "exscan"
    steps = 2 * p - 3 if exclusive else p - 1
    cost = Cost((Term(p - 1, (p - 1) * n),), (p - 1) * n, (p - 2 if exclusive else p - 1) * n)
    return Program(name, collective, _layout(collective, 2), lambda: _line(p, exclusive=exclusive), steps, cost)


def _line(p: int, *, exclusive: bool) -> Iterator[Step]:
    for rank in range(p - 1):
        if not exclusive:
            yield Step((explicit(Op.REDUCE, rank, rank + 1, HANDED),), "scan")
            continue
        yield Step((explicit(Op.SEND, rank, rank + 1, HANDED, RESULT),), "exscan")
        if rank < p - 2:
            yield Step((explicit(Op.REDUCE, rank + 1, rank + 1, RESULT, HANDED),), "add")


def doubled(name: str, collective: Collective) -> Program:
    """Return the program in which, in round k, ranks that differ in bit k exchange the sums of their blocks of 2**k ranks.

    The higher of the two adds what it receives to its result as well. A rank whose partner does not exist waits a round.
    """
    p, n = collective.p, float(collective.size_bytes)
    if p == 1:
        return nothing(name, collective)
    rounds = (p - 1).bit_length()
    messages = sum(len(_partners(p, bit)[0]) for bit in range(rounds))
    cost = Cost((Term(rounds, rounds * n),), messages * n, rounds * n)
    return Program(name, collective, _layout(collective, 3), lambda: _rounds(collective.op, p), 2 * rounds, cost)


def _partners(p: int, bit: int) -> tuple[np.ndarray, np.ndarray]:
    rank = np.arange(p)
    there = rank ^ (1 << bit)
    return rank[there < p], there[there < p]


def _rounds(op: str, p: int) -> Iterator[Step]:
    for bit in range((p - 1).bit_length()):
        ranks, partners = _partners(p, bit)
        yield Step((explicit(Op.SEND, ranks, partners, HANDED, COMING),), "exchange")
        higher = ranks[ranks > partners]
        blocks = [explicit(Op.REDUCE, ranks, ranks, COMING, HANDED)]
        # The result of an exscan begins with the first sum that a rank receives: in the round of its lowest set bit.
        begun = higher if op == "scan" else higher[higher & ((1 << bit) - 1) > 0]
        first = np.setdiff1d(higher, begun)
        blocks += [
            explicit(kind, who, who, COMING, RESULT) for kind, who in ((Op.REDUCE, begun), (Op.COPY, first)) if len(who)
        ]
        yield Step(tuple(blocks), "add")


def by_hosts(name: str, collective: Collective, nodes: list[list[int]]) -> Program:
    """Return MPICH's scan in two levels: inside each host, among their leaders (the first of each), and broadcast inside.

    After the scan inside, a host's last rank has its total and sends it to the leader; after the leaders' scan each leader
    sends its prefix to the next. ``nodes``: ranks by host, in rank order.
    """
    p, n = collective.p, float(collective.size_bytes)
    if p == 1:
        return nothing(name, collective)
    steps = list(_by_hosts(nodes))
    across = [(block, *block.arrays()) for step in steps for block in step.blocks]
    sent = sum(int((src != dst).sum()) for _, src, dst, _, _ in across)
    longest, leaders = (max(map(len, nodes)) - 1).bit_length(), (len(nodes) - 1).bit_length()
    handed = (1 if longest else 0) + 1 if leaders else 0
    rounds = longest * (2 if leaders else 1) + leaders + handed
    cost = Cost((Term(rounds, rounds * n),), sent * n, (longest + leaders + (1 if leaders else 0)) * n)
    return Program(name, collective, _layout(collective, 7), lambda: iter(steps), len(steps), cost)


def _by_hosts(nodes: list[list[int]]) -> Iterator[Step]:
    yield from beside(*(embed(_rounds("scan", len(node)), node) for node in nodes))
    if len(nodes) == 1:
        return
    roots = np.array([node[0] for node in nodes])
    last = np.array([node[-1] for node in nodes])
    same = last == roots
    away = (explicit(Op.SEND, last[~same], roots[~same], RESULT, NODES[0]),) if not same.all() else ()
    kept = (explicit(Op.COPY, roots[same], roots[same], RESULT, NODES[0]),) if same.any() else ()
    yield Step((*away, *kept), "host's sum")
    yield Step((explicit(Op.COPY, roots, roots, NODES[0], NODES[1]),), "host's sum")
    yield from embed(_rounds("scan", len(nodes)), roots, NODES)
    yield Step((explicit(Op.SEND, roots[:-1], roots[1:], NODES[1], BEFORE),), "next host")
    yield from beside(*(embed(_spread(len(node)), node) for node in nodes[1:]))
    behind = np.array([index for node in nodes[1:] for index in node])
    yield Step((explicit(Op.REDUCE, behind, behind, BEFORE, RESULT),), "add")


def _spread(p: int) -> Iterator[Step]:
    for bit in range((p - 1).bit_length()):
        there = np.arange(1 << bit, min(2 << bit, p))
        yield Step((explicit(Op.SEND, there - (1 << bit), there, BEFORE),), "broadcast")


def _layout(collective: Collective, slots: int) -> Layout:
    """Return the slots: a scan's result begins as the rank's own contribution, an exscan's is missing (at rank 0 for good)."""
    only = np.array([0])
    if collective.op == "scan" and slots == 2:
        return Layout(1, collective.block_bytes)
    both = (np.array([HANDED, RESULT]), np.array([0, 0]))
    own, result, none = (np.array([HANDED]), only), (np.array([RESULT]), only), (only[:0], only[:0])
    before = both if collective.op == "scan" else own
    after = [result] * collective.p
    if collective.op == "exscan":
        after[0] = none
    template = np.zeros(slots, np.int64)
    return Layout(1, collective.block_bytes, 1, slots, template, (before,) * collective.p, tuple(after))
