"""Chosen trees as forests: who gets what from whom and when, in whole parts; and the trees of one hop that a switch allows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ringwright.bounds.forests import Forest, whole_shares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringwright.algorithms.synthesis.blink._packing import Tree
    from ringwright.bounds.arcs import Arcs

FINE = 1 << 40
NEARLY = 1.0005  # time of whole parts over that of any, which is good enough


def forests_of(
    made: Arcs, trees: Sequence[tuple[Tree, float]], blocks: np.ndarray, *, duplex: bool
) -> tuple[Forest, ...]:
    """Return trees with parts of their root's block (those of a root add up to 1) as forests, one a phase.

    ``blocks``: bytes of each place, float64 of shape (places,); ``duplex``: data are collected along the same trees first.
    """
    parents = np.full((len(trees), made.p), -1, np.int64)
    arrivals = np.zeros((len(trees), made.p), np.int64)
    for number, ((root, arcs), _) in enumerate(trees):
        parents[number, made.dst[list(arcs)]] = arcs
        arrivals[number] = depths(made, root, arcs)
    roots = np.array([root for (root, _), _ in trees], np.int64)
    parts = np.array([part for _, part in trees])
    one = Forest(made, roots, parents, arrivals, np.ones(len(trees), np.int64), 1, blocks, 0.0, 0.0)
    exact = _time_s(one, parts, duplex)
    shares, of = whole_shares(parts, roots, lambda whole: _time_s(one, whole, duplex) <= exact * NEARLY)
    kept = shares > 0
    one = dataclasses.replace(
        one, roots=roots[kept], parents=parents[kept], arrivals=arrivals[kept], shares=shares[kept], of=of
    )
    return tuple(dataclasses.replace(each, time_s=each.rounds.time_s()) for each in _phases(one, duplex))


def _phases(one: Forest, duplex: bool) -> tuple[Forest, ...]:
    collecting = one.mirrored() if duplex else None
    return (one,) if collecting is None else (collecting, one)


def _time_s(one: Forest, parts: np.ndarray, duplex: bool) -> float:
    """Return the seconds of the most loaded resource where trees have these parts of their blocks."""
    shares = np.round(parts * FINE).astype(np.int64)
    return busy_s(_phases(dataclasses.replace(one, shares=shares, of=FINE), duplex))


def depths(made: Arcs, root: int, arcs: Sequence[int]) -> np.ndarray:
    """Return how many arcs of a tree lie between its root and each place, int64 of shape (places,)."""
    children: dict[int, list[int]] = {}
    for arc in arcs:
        children.setdefault(int(made.src[arc]), []).append(int(made.dst[arc]))
    depth = np.zeros(made.p, np.int64)
    front, far = [root], 0
    while front:
        front, far = [child for rank in front for child in children.get(rank, ())], far + 1
        depth[front] = far
    return depth


def busy_s(phases: Sequence[Forest]) -> float:
    """Return the seconds of the most loaded resource over all phases together."""
    return float(np.sum([each.rounds.seconds.sum(axis=0) for each in phases], axis=0).max(initial=0.0))


def one_hop(number: Mapping[tuple[int, int], int], p: int, root: int | None) -> list[tuple[Tree, float]] | None:
    """Return the trees of a switch: each rank sends its part straight to all others; None where two ranks have no arc.

    With one ``root`` it first gives each other rank an equal part; else all ranks are roots of their own.
    """
    if len(number) < p * (p - 1):
        return None
    if root is None or p == 2:
        roots = range(p) if root is None else (root,)
        return [((each, tuple(number[each, other] for other in range(p) if other != each)), 1.0) for each in roots]
    trees: list[tuple[Tree, float]] = []
    for relay in range(p):
        if relay != root:
            further = (number[relay, other] for other in range(p) if other not in (relay, root))
            trees.append(((root, (number[root, relay], *further)), 1 / (p - 1)))
    return trees


def hung_up(made: Arcs, tree: Sequence[int], number: Mapping[tuple[int, int], int]) -> dict[int, tuple[int, ...]]:
    """Return a tree that data go up and down, hung up at each of its ranks: its arcs by root."""
    beside: dict[int, list[int]] = {}
    for arc in tree:
        for here, there in ((made.src[arc], made.dst[arc]), (made.dst[arc], made.src[arc])):
            beside.setdefault(int(here), []).append(int(there))
    hung: dict[int, tuple[int, ...]] = {}
    for root in beside:
        arcs: list[int] = []
        seen, front = {root}, [root]
        while front:
            pairs = [(here, there) for here in front for there in beside[here] if there not in seen]
            front = [there for _, there in pairs]
            seen.update(front)
            arcs += [number[pair] for pair in pairs]
        hung[root] = tuple(sorted(arcs))
    return hung
