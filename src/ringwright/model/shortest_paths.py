"""Routes where a fabric gives none: shortest paths over links that work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

UNREACHED = -1


class ShortestPaths:
    """Shortest paths in hops over links that work, ties to the widest, then to the first link; many sources at once."""

    MOST_KNOWN = 1 << 24  # nodes of all searches that are remembered
    MOST_AT_ONCE = 1 << 22  # nodes of searches that are made at once: what the processor's cache holds

    def __init__(self, n_nodes: int, src: np.ndarray, dst: np.ndarray, rate: np.ndarray) -> None:
        """``src``, ``dst`` and ``rate`` (bytes/s): of each link, arrays of shape (links,)."""
        import numpy as np

        order = np.lexsort((np.arange(len(src)), -rate, src))
        order = order[rate[order] > 0]
        self._starts = np.searchsorted(src[order], np.arange(n_nodes + 1))
        self._ends = np.asarray(dst, np.int64)[order]
        self._n = n_nodes
        self._neighbours = np.unique(np.asarray(src, np.int64)[order] * n_nodes + self._ends)
        self._known_before: dict[int, np.ndarray] = {}

    def paths(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes on the route, padded with -1; a pair without a route is all -1 behind its source.

        int64 of shape (pairs, longest).
        """
        import numpy as np

        src, dst = np.asarray(src, np.int64), np.asarray(dst, np.int64)
        far = ~self._linked(src, dst)
        if far.all():
            return self._search(src, dst)
        # Nothing is shorter than a link between the two.
        searched = self._search(src[far], dst[far]) if far.any() else np.zeros((0, 2), np.int64)
        nodes = np.full((len(src), max(searched.shape[1], 2)), UNREACHED, np.int64)
        nodes[far, : searched.shape[1]] = searched
        nodes[~far, 0], nodes[~far, 1] = src[~far], dst[~far]
        return nodes

    def _linked(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return which pairs are ends of one link that works, a node and itself being none. bool of shape (pairs,)."""
        import numpy as np

        wanted = src * self._n + dst
        at = np.searchsorted(self._neighbours, wanted)
        at[at == len(self._neighbours)] = 0
        linked = self._neighbours[at] == wanted if len(self._neighbours) else np.zeros(len(src), bool)
        told: np.ndarray = linked & (src != dst)
        return told

    def _search(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes on the routes of pairs, breadth first. int64 of shape (pairs, longest)."""
        import numpy as np

        sources, row = np.unique(src, return_inverse=True)
        many = max(1, self.MOST_AT_ONCE // max(self._n, 1))
        parts = []
        for begin in range(0, len(sources), many):
            here = np.flatnonzero((row >= begin) & (row < begin + many))
            rows, ends = row[here] - begin, dst[here]
            parts.append((here, self._walk(self._known(sources[begin : begin + many], rows, ends), rows, ends)))
        nodes = np.full((len(src), max((part.shape[1] for _, part in parts), default=1)), UNREACHED, np.int64)
        for here, part in parts:
            nodes[here, : part.shape[1]] = part
        nodes[:, 0] = src
        return nodes

    def _known(self, sources: np.ndarray, row: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the node before each node on the routes from each source, at least as far as to the targets.

        int32 of shape (sources, nodes).
        """
        import numpy as np

        blank = np.full(self._n, UNREACHED, np.int32)
        before = np.stack([self._known_before.get(source, blank) for source in sources.tolist()])
        fresh = np.unique(row[before[row, dst] < 0])
        if len(fresh):
            wanted = np.isin(row, fresh)
            before[fresh] = self._searched(sources[fresh], np.searchsorted(fresh, row[wanted]), dst[wanted])
            if (len(self._known_before) + len(sources)) * self._n > self.MOST_KNOWN:
                self._known_before.clear()
            self._known_before.update(zip(sources[fresh].tolist(), before[fresh], strict=True))
        return before

    def _searched(self, sources: np.ndarray, row: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Breadth first from all sources, whole fronts at once, each until its targets are met."""
        import numpy as np

        n = self._n
        before = np.full((len(sources), n), UNREACHED, np.int32)
        front = np.arange(len(sources)) * n + sources
        before.reshape(-1)[front] = sources
        while len(front):
            missing = np.zeros(len(sources), bool)
            missing[row[before[row, dst] < 0]] = True
            front = front[missing[front // n]]
            here = front % n
            counts = self._starts[here + 1] - self._starts[here]
            last = np.cumsum(counts)
            links = np.arange(last[-1] if len(last) else 0) + np.repeat(self._starts[here] - last + counts, counts)
            there = np.repeat(front - here, counts) + self._ends[links]
            fresh = before.reshape(-1)[there] < 0
            front, first = np.unique(there[fresh], return_index=True)
            before.reshape(-1)[front] = np.repeat(here, counts)[fresh][first]
        return before

    def _walk(self, before: np.ndarray, row: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes from each source to its target, padded with -1."""
        import numpy as np

        columns, at = [dst], dst
        while True:
            back = before[row, at].astype(np.int64)
            at = np.where(back < 0, at, back)
            if (at == columns[-1]).all():
                break
            columns.append(at)
        met = at == before[row, at]  # the source is the node before itself
        lengths = np.argmax(np.stack(columns) == at, axis=0) + 1
        inner = lengths[:, None] - 1 - np.arange(int(lengths.max(initial=1)))
        nodes = np.stack(columns, axis=1)[np.arange(len(dst))[:, None], np.maximum(inner, 0)]
        return np.where((inner >= 0) & met[:, None], nodes, UNREACHED)
