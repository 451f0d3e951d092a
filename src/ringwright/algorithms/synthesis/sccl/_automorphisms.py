"""Permutations of the ranks that map a machine onto itself and leave no rank where it is.

Ranks are told apart by refinement (what leaves and enters each, by the classes of the other ends, until nothing changes);
a search then maps them one by one along the edges. Of what it finds, a group is grown in which each pair of ranks is
joined by at most one permutation, so that what is decided for one rank of an orbit is decided for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.bounds.round_limits import UnitLinks

Permutation = tuple[int, ...]
MOST_TRIES = 4000  # ranks mapped in the search for what takes rank 0 to one other rank
MOST_GROUPS = 400  # groups that are looked at
MOST_EACH = 4  # permutations that take rank 0 to one other rank


@lru_cache(256)
def free_group(wires: UnitLinks) -> tuple[Permutation, ...]:
    """Return generators of a group of automorphisms in which only the identity fixes a rank; none where none is seen."""
    search = _Search(wires)
    taking = [search.taking(target) if target else [] for target in range(wires.p)]
    best, tries = tuple[Permutation, ...](), MOST_GROUPS
    waiting = [(best, frozenset({tuple(range(wires.p))}))]
    largest = 1
    while waiting and tries and largest < wires.p:
        chosen, elements = waiting.pop()
        reached = {each[0] for each in elements}
        grown = []
        for each in (each for target in range(wires.p) if target not in reached for each in taking[target]):
            tries -= 1
            group = frozenset(closed(wires.p, [*chosen, each]))
            if _is_free(group):
                grown.append(((*chosen, each), group))
            if not tries:
                break
        waiting += sorted(grown, key=lambda pair: len(pair[1]))  # the largest is grown first
        if grown and len(waiting[-1][1]) > largest:
            best, largest = waiting[-1][0], len(waiting[-1][1])
    return best


def closed(p: int, generators: Sequence[Permutation]) -> set[Permutation]:
    """Return the group of the generators, or as much of it as shows that it is larger than ``p``."""
    identity = tuple(range(p))
    group, front = {identity}, [identity]
    while front and len(group) <= p:
        one = front.pop()
        for each in generators:
            made = tuple(each[rank] for rank in one)
            if made not in group:
                group.add(made)
                front.append(made)
    return group


def _is_free(group: frozenset[Permutation]) -> bool:
    p = len(next(iter(group)))
    fixed = sum(any(each[rank] == rank for rank in range(p)) for each in group)
    return len(group) <= p and fixed == 1


class _Search:
    """Automorphisms of one machine, found by mapping ranks in the order of a walk along its edges."""

    def __init__(self, wires: UnitLinks) -> None:
        self.p = wires.p
        self.of_edges = {pair: number for number, pair in enumerate(wires.edges)}
        self.wires = wires
        self.limits = sorted((limit.edges, limit.chunks) for limit in wires.limits)
        self.kind = self._kinds()
        self.classes = self._refined()
        self.order = self._walk()

    def _kinds(self) -> list[list[int]]:
        """Return the kind of edge from each rank to each, 0 for none: by the limits that it falls under."""
        under: list[list[tuple[int, int]]] = [[] for _ in self.wires.edges]
        for limit in self.wires.limits:
            for edge in limit.edges:
                under[edge].append((limit.chunks, len(limit.edges)))
        kinds = {key: number for number, key in enumerate(sorted({tuple(sorted(each)) for each in under}), 1)}
        table = [[0] * self.p for _ in range(self.p)]
        for (here, there), each in zip(self.wires.edges, under, strict=True):
            table[here][there] = kinds[tuple(sorted(each))]
        return table

    def _refined(self) -> list[int]:
        classes, count = [0] * self.p, 1
        while True:
            seen = [
                (
                    classes[a],
                    tuple(sorted((self.kind[a][b], self.kind[b][a], classes[b]) for b in range(self.p) if b != a)),
                )
                for a in range(self.p)
            ]
            numbers = {each: number for number, each in enumerate(sorted(set(seen)))}
            classes = [numbers[each] for each in seen]
            if len(numbers) == count:
                return classes
            count = len(numbers)

    def _walk(self) -> list[int]:
        order, rest = [0], list(range(1, self.p))
        while rest:
            nearest = max(rest, key=lambda a: (sum(1 for b in order if self.kind[a][b] or self.kind[b][a]), -a))
            order.append(nearest)
            rest.remove(nearest)
        return order

    def taking(self, target: int) -> list[Permutation]:
        """Return a few permutations that take rank 0 to ``target``."""
        if self.classes[target] != self.classes[0]:
            return []
        self.tries = 0
        kept: list[Permutation] = []
        for each in self._mapped({0: target}):
            kept.append(each)
            if len(kept) >= MOST_EACH:
                break
        return kept

    def _mapped(self, image: dict[int, int]) -> Iterator[Permutation]:
        if len(image) == self.p:
            made = tuple(image[rank] for rank in range(self.p))
            if self._keeps_limits(made):
                yield made
            return
        rank, used = self.order[len(image)], set(image.values())
        for there in range(self.p):
            if self.tries > MOST_TRIES:
                return
            if there == rank or there in used or self.classes[there] != self.classes[rank]:
                continue
            self.tries += 1
            if all(
                self.kind[rank][a] == self.kind[there][b] and self.kind[a][rank] == self.kind[b][there]
                for a, b in image.items()
            ):
                yield from self._mapped({**image, rank: there})

    def _keeps_limits(self, made: Permutation) -> bool:
        edges = edge_images(self.wires, made)
        return self.limits == sorted(
            (tuple(sorted(edges[edge] for edge in limit.edges)), limit.chunks) for limit in self.wires.limits
        )


def edge_images(wires: UnitLinks, made: Permutation) -> list[int]:
    """Return where each edge goes."""
    number = {pair: at for at, pair in enumerate(wires.edges)}
    return [number[made[here], made[there]] for here, there in wires.edges]


def limit_orbits(wires: UnitLinks, generators: tuple[Permutation, ...]) -> list[int]:
    """Return a number for each limit, the same for those that the group maps onto each other."""
    number = {(limit.edges, limit.chunks): at for at, limit in enumerate(wires.limits)}
    images = []
    for made in generators:
        edges = edge_images(wires, made)
        images.append([number[tuple(sorted(edges[e] for e in limit.edges)), limit.chunks] for limit in wires.limits])
    return orbits(len(wires.limits), images)


def orbits(n: int, images: list[list[int]]) -> list[int]:
    """Return of each of ``n`` things the least one that the images take it to."""
    least = [-1] * n
    for start in range(n):
        if least[start] >= 0:
            continue
        least[start], front = start, [start]
        while front:
            one = front.pop()
            for image in images:
                if least[image[one]] < 0:
                    least[image[one]] = start
                    front.append(image[one])
    return least
