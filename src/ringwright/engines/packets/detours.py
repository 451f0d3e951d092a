"""Detours: further paths of the same length between two ends, over which packets are sprayed or routed by load."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ringwright.model.topology import Topology

MOST_PATHS = 16  # of a connection, its own among them
MOST_SEARCHED = 1 << 15  # pairs of switches between which paths are searched


def detours(
    top: Topology, own: tuple[np.ndarray, np.ndarray], reliable: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all paths of connections, each its own first: starts and links of paths, and the first path of each connection.

    Starts and first paths are int64 of shapes (paths + 1,) and (connections + 1,), links int32 of shape (links on all paths,).
    Only between the second and the last node but one of a path is another way searched; ends keep their ports.
    """
    import numpy as np

    starts, links = (each.tolist() for each in own)
    search = _Search(top)
    path_starts, first = [0], [0]
    path_links: list[int] = []
    for number in range(len(starts) - 1):
        path = links[starts[number] : starts[number + 1]]
        for each in search.paths(path) if reliable[number] else [path]:
            path_links += each
            path_starts.append(len(path_links))
        first.append(len(path_starts) - 1)
    return np.array(path_starts, np.int64), np.array(path_links, np.int32), np.array(first, np.int64)


class _Search:
    def __init__(self, top: Topology) -> None:
        self.top, self.n_links = top, top.n_links
        self.src, self.dst = top.src.tolist(), top.dst.tolist()
        self.out: dict[int, list[int]] = {}
        for link in range(top.n_links):
            if top.rate[link] > 0:
                self.out.setdefault(self.src[link], []).append(link)
        self.known: dict[tuple[int, ...], list[list[int]]] = {}
        self.distances: dict[int, dict[int, int]] = {}

    def paths(self, path: list[int]) -> list[list[int]]:
        """Return a path and its detours."""
        middle = path[1:-1]
        if len(middle) < 1 or any(link >= self.n_links for link in path):
            return [path]
        key = (*middle,)
        if key not in self.known:
            if len(self.known) >= MOST_SEARCHED:
                return [path]
            self.known[key] = self._between(middle)
        return [[path[0], *each, path[-1]] for each in self.known[key]]

    def _between(self, middle: list[int]) -> list[list[int]]:
        """Return the ways as long as ``middle`` between its ends, itself first."""
        begin, end = self.src[middle[0]], self.dst[middle[-1]]
        near = self._distance_to(end)
        paths = [middle]
        if near.get(begin) != len(middle):
            return paths
        stack: list[tuple[int, list[int]]] = [(begin, [])]
        while stack and len(paths) < MOST_PATHS:
            node, taken = stack.pop()
            if node == end:
                if taken != middle:
                    paths.append(taken)
                continue
            further = [link for link in self.out.get(node, ()) if near.get(self.dst[link], -1) == near[node] - 1]
            stack += [(self.dst[link], [*taken, link]) for link in reversed(further)]
        return paths

    def _distance_to(self, end: int) -> dict[int, int]:
        """Return the hops from each node to one."""
        if end not in self.distances:
            into: dict[int, list[int]] = {}
            if not self.distances:
                self._into = into
                for link in range(self.n_links):
                    into.setdefault(self.dst[link], []).append(self.src[link])
            hops, front = {end: 0}, [end]
            while front:
                later = []
                for node in front:
                    for before in self._into.get(node, ()):
                        if before not in hops:
                            hops[before] = hops[node] + 1
                            later.append(before)
                front = later
            self.distances[end] = hops
        return self.distances[end]
