"""Bytes that each algorithm puts on each edge, from the operation's size and the paths.

All ranks are ranks in the communicator; ``size_bytes`` is the nccl-tests size column. A value is bytes per operation.
Formulas: ring all-reduce 2(p-1)/p n per edge, all-gather and reduce-scatter (p-1)/p n, broadcast and reduce n along the
chain, tree n up and n down each edge, all-to-all n/p to each other rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Edges = dict[tuple[int, int], float]

RING_OPS = frozenset({"all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce"})
DIRECT_OPS = frozenset({"all-to-all", "gather", "scatter"})
_RING_SHARE = {"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0}


def ring_edges(op: str, size_bytes: float, rings: Sequence[Sequence[int]], root: int = 0) -> Edges:
    """Return bytes per directed edge when ``op`` runs on ``rings`` (one order of ranks per channel, equal shares)."""
    edges: Edges = {}
    for ring in rings:
        p = len(ring)
        if p < 2:
            continue
        share = size_bytes / len(rings)
        per_edge = share * _RING_SHARE[op] * (p - 1) / p if op in _RING_SHARE else share
        for position, src in enumerate(ring):
            dst = ring[(position + 1) % p]
            if (op == "broadcast" and dst == root) or (op == "reduce" and src == root):
                continue  # the chain ends before it comes round
            edges[src, dst] = edges.get((src, dst), 0.0) + per_edge
    return edges


def tree_edges(op: str, size_bytes: float, trees: Mapping[int, Iterable[tuple[int, int]]]) -> Edges:
    """Return bytes per directed edge of trees given as (child, parent) per channel; all-reduce goes up and down."""
    edges: Edges = {}
    channels = {channel: list(tree) for channel, tree in trees.items() if tree}
    for tree in channels.values():
        share = size_bytes / len(channels)
        for child, parent in tree:
            if op in ("all-reduce", "reduce"):
                edges[child, parent] = edges.get((child, parent), 0.0) + share
            if op in ("all-reduce", "broadcast"):
                edges[parent, child] = edges.get((parent, child), 0.0) + share
    return edges


def pairwise_edges(op: str, size_bytes: float, p: int, root: int = 0) -> Edges:
    """Return bytes per pair of all-to-all, gather and scatter: ``size_bytes``/p from each to each, or with the root."""
    share = size_bytes / max(p, 1)
    if op == "all-to-all":
        return {(src, dst): share for src in range(p) for dst in range(p) if src != dst}
    if op == "gather":
        return {(src, root): share for src in range(p) if src != root}
    return {(root, dst): share for dst in range(p) if dst != root}


def sent_total(op: str, size_bytes: float, p: int) -> float:
    """Return the bytes that all ranks together send, whatever the order of the ring: the check of conservation."""
    if p < 2:
        return 0.0
    if op in _RING_SHARE:
        return size_bytes * _RING_SHARE[op] * (p - 1)
    if op in ("broadcast", "reduce"):
        return size_bytes * (p - 1)
    if op == "all-to-all":
        return size_bytes * (p - 1)
    return size_bytes * (p - 1) / p


def legal_range(op: str, size_bytes: float, p: int) -> tuple[float, float]:
    """Return the least and the most bytes on wires over the algorithms that the library may choose.

    Ring and tree move the same total for all-reduce (each of p-1 edges n up and n down); in-network reduction (NVLS,
    CollNet) moves n up and n down per rank at the most and lets p ranks share one copy, direct all-gather the ring's total.
    """
    total = sent_total(op, size_bytes, p)
    if op == "all-reduce" and p > 1:
        return size_bytes * p, max(total, 2 * size_bytes * (p - 1))
    if op in ("all-gather", "reduce-scatter", "broadcast") and p > 1:
        return min(total, size_bytes), total
    return total, total
