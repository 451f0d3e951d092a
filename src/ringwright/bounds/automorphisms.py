"""Turns of a machine that declares no axes: permutations of its nodes that keep all links, found by search.

A permutation is put together node by node, from the first rank outwards: every node goes to one of its colour whose links to
what is placed already are the same. First those are sought that move every rank equally far, as a shift of a torus does. What
is found is joined to a group as long as none of its permutations keeps a rank where it is: then each takes trees of one root to
trees of another, and no link gets more of them than its like.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.topology import Topology

MOST_NODES = 160
MOST_TRIES = 20_000  # nodes put somewhere, of one search
MOST_OF_ONE = 4  # permutations that take the first rank to one other, in whatever way


class _Graph:
    """The machine as sets of neighbours with a mark for each pair of nodes, both directions in one."""

    def __init__(self, topology: Topology) -> None:
        import numpy as np

        n = topology.n_nodes
        facts = np.stack((topology.rate, topology.latency_s, topology.link_class.astype(float)))
        marks = np.unique(facts, axis=1, return_inverse=True)[1].ravel() + 1
        self.mark = np.zeros((n, n), np.int64)
        np.add.at(self.mark, (topology.src, topology.dst), 1 << np.minimum(3 * marks, 60))
        self.near = [np.flatnonzero(self.mark[node] | self.mark[:, node]).tolist() for node in range(n)]
        self.colour = self._colours(topology)
        self.far = _hops(self.near, topology.n_ranks)
        self.order = _outwards(self.near)

    def _colours(self, topology: Topology) -> list[int]:
        """Return a colour for each node by refinement: its kind, then the colours and links around it."""
        colour = [int(kind) for kind in topology.kinds]
        for _ in range(len(colour)):
            seen = [
                (
                    colour[node],
                    tuple(
                        sorted((colour[o], int(self.mark[node, o]), int(self.mark[o, node])) for o in self.near[node])
                    ),
                )
                for node in range(len(colour))
            ]
            numbers = {each: number for number, each in enumerate(sorted(set(seen)))}
            fresh = [numbers[each] for each in seen]
            if len(numbers) == len(set(colour)):
                return fresh
            colour = fresh
        return colour

    def maps(self, image: int, *, uniform: bool, most: int) -> Iterator[np.ndarray]:
        """Yield permutations that take node 0 to ``image``; ``uniform``: every rank as far as that."""
        import numpy as np

        n, order = len(self.near), self.order
        if self.colour[image] != self.colour[0]:
            return
        step = int(self.far[0, image])
        to, used, tries, made = [-1] * n, [False] * n, 0, 0
        stack: list[Iterator[int]] = [iter((image,))]
        while stack:
            node = order[len(stack) - 1]
            if to[node] >= 0:
                used[to[node]] = False
                to[node] = -1
            there = next(stack[-1], -1)
            if there < 0:
                stack.pop()
                continue
            tries += 1
            if tries > MOST_TRIES:
                return
            to[node], used[there] = there, True
            if len(stack) == n:
                yield np.array(to, np.int64)
                made += 1
                if made >= most:
                    return
                continue
            stack.append(iter(self._choices(order[len(stack)], to, used, step if uniform else -1)))

    def _choices(self, node: int, to: list[int], used: list[bool], step: int) -> list[int]:
        """Return where a node may go: next to where its neighbours went, over the same links."""
        placed = [other for other in self.near[node] if to[other] >= 0]
        around = self.near[to[placed[0]]] if placed else range(len(to))
        ranks = len(self.far)
        return [
            there
            for there in around
            if not used[there]
            and self.colour[there] == self.colour[node]
            and (step < 0 or node >= ranks or (there < ranks and int(self.far[node, there]) == step))
            and all(
                self.mark[node, other] == self.mark[there, to[other]]
                and self.mark[other, node] == self.mark[to[other], there]
                for other in placed
            )
        ]


def free_group(topology: Topology) -> list[np.ndarray]:
    """Return generators, permutations of all nodes (int64 of shape (nodes,)), of a group that keeps no rank where it is.

    The largest that was found; empty where there is none, or the machine is too large or joined in several parts.
    """
    if topology.n_nodes > MOST_NODES or topology.n_ranks < 2:
        return []
    graph = _Graph(topology)
    if len(graph.order) < topology.n_nodes:
        return []
    generators: list[np.ndarray] = []
    reached = {0}
    for image in sorted(range(1, topology.n_ranks), key=lambda rank: (int(graph.far[0, rank]), rank)):
        if image in reached:
            continue
        tried = (
            nodes
            for uniform, most in ((True, 2), (False, MOST_OF_ONE))
            for nodes in graph.maps(image, uniform=uniform, most=most)
        )
        for nodes in tried:
            larger = closure([*generators, nodes], topology.n_ranks)
            if larger is not None:
                generators.append(nodes)
                reached = {int(each) for each in larger[:, 0]}
                break
        if len(reached) == topology.n_ranks:
            break
    return generators


def closure(generators: list[np.ndarray], n_ranks: int) -> np.ndarray | None:
    """Return all permutations of the ranks that generators make, int64 of shape (permutations, ranks), that of nothing first.

    None where one but that keeps a rank in its place, or they are more than ranks.
    """
    import numpy as np

    start = np.arange(n_ranks)
    known = {start.tobytes(): start}
    queue = [start]
    while queue:
        here = queue.pop(0)
        for each in generators:
            there = np.ascontiguousarray(each[:n_ranks][here])
            if there.tobytes() in known:
                continue
            if (there == start).any() or len(known) >= n_ranks:
                return None
            known[there.tobytes()] = there
            queue.append(there)
    return np.stack(list(known.values()))


def _hops(near: list[list[int]], ranks: int) -> np.ndarray:
    """Return the links between ranks, -1 where there is no way. int64 of shape (ranks, ranks)."""
    import numpy as np

    far = np.full((ranks, ranks), -1, np.int64)
    for start in range(ranks):
        seen, front, depth = {start}, [start], 0
        while front:
            for node in front:
                if node < ranks:
                    far[start, node] = depth
            front = sorted({other for node in front for other in near[node]} - seen)
            seen.update(front)
            depth += 1
    return far


def _outwards(near: list[list[int]]) -> list[int]:
    """Return the nodes from the first one outwards."""
    order, seen = [0], {0}
    for node in order:
        for other in near[node]:
            if other not in seen:
                seen.add(other)
                order.append(other)
    return order
