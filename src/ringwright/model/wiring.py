"""Putting a Topology together: links gathered as arrays, names made on demand, and products of simple dimensions.

A *lattice* is what tori, meshes, hypercubes, single switches and ASTRA-sim's multi-dimensional networks have in common:
ranks numbered in mixed radix, the first dimension fastest, and in each dimension a ring, a line, all pairs or a switch.
Messages go dimension by dimension, the first one first; a ring is walked the shorter way, upwards where both are equal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from ringwright.ground.errors import UsageError
from ringwright.model.shortest_paths import UNREACHED
from ringwright.model.topology import RANK, SWITCH, Capability, SharedCapacity, Topology

if TYPE_CHECKING:
    import numpy as np

LATTICE_KINDS = ("ring", "line", "full", "switch")
MOST_LINKS = 1 << 23
MOST_NODES = 1 << 24


class Names(Sequence[str]):
    """Names of numbered nodes, made when asked for: a million of them cost nothing.

    Each block is a template and its sizes, the slowest first; a size may be a tuple of words instead of a number:
    ``Names(("node{}/gpu{}", (16, 8)), ("node{}/{}", (16, ("nvswitch", "cpu0"))))``.
    """

    def __init__(self, *blocks: tuple[str, tuple[int | tuple[str, ...], ...]]) -> None:
        self._blocks = blocks
        self._sizes = [[size if isinstance(size, int) else len(size) for size in sizes] for _, sizes in blocks]
        self._lengths = [math.prod(sizes) for sizes in self._sizes]

    def __len__(self) -> int:
        return sum(self._lengths)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._name(one) for one in range(*index.indices(len(self)))]
        return self._name(index + len(self) if index < 0 else index)

    def _name(self, index: int) -> str:
        for (template, words), sizes, length in zip(self._blocks, self._sizes, self._lengths, strict=True):
            if index < length:
                digits: list[object] = []
                for word, size in zip(reversed(words), reversed(sizes), strict=True):
                    index, digit = divmod(index, size)
                    digits.append(digit if isinstance(word, int) else word[digit])
                return template.format(*reversed(digits))
            index -= length
        raise IndexError("no node of that number")

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the node of that name without a search; raise ValueError where there is none."""
        first = 0
        for (template, words), sizes, length in zip(self._blocks, self._sizes, self._lengths, strict=True):
            pattern = re.escape(template).replace(r"\{\}", r"(\w+)")
            match = re.fullmatch(pattern, str(value), re.ASCII)
            index = _position(match.groups(), words, sizes) if match else None
            if index is not None and self._name(first + index) == value and start <= first + index:
                if stop is None or first + index < stop:
                    return first + index
                break
            first += length
        raise ValueError(f"no node is named '{value}'")


def _position(found: Sequence[str], words: Sequence[int | tuple[str, ...]], sizes: Sequence[int]) -> int | None:
    index = 0
    for text, word, size in zip(found, words, sizes, strict=True):
        if isinstance(word, tuple):
            digit = word.index(text) if text in word else size
        else:
            digit = int(text) if text.isdecimal() and len(text) < 12 else size
        if digit >= size:
            return None
        index = index * size + digit
    return index


class Wires:
    """Links on their way to a Topology; each call adds an array of them, all of one class."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, Any, Any, Any, int]] = []
        self._classes: dict[str, int] = {}
        self.n_links = 0

    def one_way(self, src: Any, dst: Any, rate: Any, latency_s: Any, link_class: str) -> range:
        """Add links; src, dst, bytes/s and seconds are broadcast to one length. Return their numbers."""
        import numpy as np

        src, dst, rate, latency_s = np.broadcast_arrays(
            np.atleast_1d(np.asarray(src, np.int64)),
            np.asarray(dst, np.int64),
            np.asarray(rate, float),
            np.asarray(latency_s, float),
        )
        if (rate < 0).any() or (latency_s < 0).any() or not np.isfinite(latency_s).all() or np.isnan(rate).any():
            raise UsageError(f"a link of class {link_class} has a negative or impossible rate or latency")
        number = self._classes.setdefault(link_class, len(self._classes))
        self._rows.append((src, dst, rate, latency_s, number))
        first, self.n_links = self.n_links, self.n_links + len(src)
        if self.n_links > MOST_LINKS:
            raise UsageError(f"more than {MOST_LINKS:,} links", remedy="a switch instead of links between all pairs")
        return range(first, self.n_links)

    def there_and_back(self, here: Any, there: Any, rate: Any, latency_s: Any, link_class: str) -> range:
        """Add links in both directions: all of the one direction, then all of the other."""
        first = self.one_way(here, there, rate, latency_s, link_class)
        second = self.one_way(there, here, rate, latency_s, link_class)
        return range(first.start, second.stop)

    def topology(self, name: str, n_ranks: int, kinds: np.ndarray, **fields: Any) -> Topology:
        """Return the machine; ``fields`` are those of Topology."""
        import numpy as np

        columns = [
            np.concatenate([row[number] for row in self._rows]) if self._rows else np.zeros(0) for number in range(4)
        ]
        numbers = [np.full(len(row[0]), row[4], np.uint8) for row in self._rows]
        return Topology(
            name,
            n_ranks,
            kinds,
            columns[0].astype(np.int32),
            columns[1].astype(np.int32),
            columns[2],
            columns[3],
            np.concatenate(numbers) if numbers else np.zeros(0, np.uint8),
            tuple(self._classes) or ("link",),
            **fields,
        )


def packed(nodes: np.ndarray) -> np.ndarray:
    """Move the gaps (-1) of each row behind its nodes, and drop columns that are empty everywhere.

    int64 of shape (pairs, longest).
    """
    import numpy as np

    is_gap = nodes < 0
    if (is_gap[:, :-1] > is_gap[:, 1:]).any():
        nodes = np.take_along_axis(nodes, np.argsort(is_gap, axis=1, kind="stable"), axis=1)
    longest = int((nodes >= 0).sum(axis=1).max(initial=1))
    return nodes[:, :longest]


@dataclass(frozen=True)
class Dimension:
    """One dimension of a lattice: what joins its ``size`` ranks, with bytes/s and seconds of each link."""

    kind: str  # ring, line, full, switch
    size: int
    rate: float
    latency_s: float
    axis: str
    link_class: str = "link"


@dataclass(frozen=True)
class LatticePaths:
    """Dimension-ordered routes."""

    dimensions: tuple[Dimension, ...]
    bases: tuple[int, ...]  # first switch of each dimension

    def __call__(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the nodes on the route of each pair."""
        import numpy as np

        here, stride = src.copy(), 1
        columns = [src[:, None]]
        for dimension, base in zip(self.dimensions, self.bases, strict=True):
            start, end = here // stride % dimension.size, dst // stride % dimension.size
            columns.append(_walk(dimension, base, here, start, end, stride))
            here = here + (end - start) * stride
            stride *= dimension.size
        return packed(np.concatenate(columns, axis=1))


def _walk(dimension: Dimension, base: int, here: Any, start: Any, end: Any, stride: int) -> np.ndarray:
    """Return the nodes behind ``here`` in one dimension, -1 where fewer."""
    import numpy as np

    size, moves = dimension.size, start != end
    there = here + (end - start) * stride
    if dimension.kind == "full":
        return np.where(moves, there, UNREACHED)[:, None]
    if dimension.kind == "switch":
        line = here // (stride * size) * stride + here % stride
        return np.stack((np.where(moves, base + line, UNREACHED), np.where(moves, there, UNREACHED)), axis=1)
    hops, direction = end - start, np.sign(end - start)
    if dimension.kind == "ring":
        up = hops % size
        hops, direction = np.where(2 * up <= size, up, size - up), np.where(2 * up <= size, 1, -1)
    step = np.arange(1, int(np.abs(hops).max(initial=0)) + 1)
    places = (start[:, None] + direction[:, None] * step) % size
    nodes = here[:, None] + (places - start[:, None]) * stride
    return np.where(step <= np.abs(hops)[:, None], nodes, UNREACHED)


def lattice(
    name: str, dimensions: Sequence[Dimension], *, aggregator: Capability | None = None, **fields: Any
) -> Topology:
    """Return the product of dimensions; switches follow the ranks, those of the first switched dimension first.

    ``aggregator`` is what the switches can do. Raises UsageError for sizes below 1 or an unknown kind.
    """
    import numpy as np

    n = _check(name, dimensions)
    wires, ranks, stride, base = Wires(), np.arange(n), 1, n
    bases: list[int] = []
    for dimension in dimensions:
        bases.append(base)
        _wire(wires, dimension, ranks, stride, base)
        if dimension.kind == "switch" and dimension.size > 1:
            base += n // dimension.size
        stride *= dimension.size
    kinds = np.full(base, SWITCH, np.uint8)
    kinds[:n] = RANK
    aggregators: Mapping[int, Capability] = {} if aggregator is None else dict.fromkeys(range(n, base), aggregator)
    names: list[tuple[str, tuple[int, ...]]] = [("rank{}", (n,))]
    if base > n:
        names.append(("switch", ()) if base == n + 1 else ("switch{}", (base - n,)))
    default: dict[str, Any] = {
        "axes": tuple((dimension.axis, dimension.size) for dimension in dimensions),
        "names": Names(*names),
        "paths": LatticePaths(tuple(dimensions), tuple(bases)),
        "aggregators": aggregators,
        "is_symmetric": all(dimension.kind != "line" or dimension.size <= 2 for dimension in dimensions),
    }
    return wires.topology(name, n, kinds, **(default | fields))


def _check(name: str, dimensions: Sequence[Dimension]) -> int:
    wrong = [dimension.kind for dimension in dimensions if dimension.kind not in LATTICE_KINDS]
    if wrong:
        raise UsageError(f"'{wrong[0]}' joins no ranks", remedy=f"one of: {', '.join(LATTICE_KINDS)}")
    sizes = [dimension.size for dimension in dimensions]
    if not sizes or min(sizes) < 1 or math.prod(sizes) > MOST_NODES:
        raise UsageError(f"{name}: {'x'.join(map(str, sizes)) or 'nothing'} is no size", remedy="1 to 16,777,216 ranks")
    return math.prod(sizes)


def _wire(wires: Wires, dimension: Dimension, ranks: np.ndarray, stride: int, base: int) -> None:
    import numpy as np

    size = dimension.size
    if size == 1:
        return
    costs = (dimension.rate, dimension.latency_s, dimension.link_class)
    coordinate = ranks // stride % size
    if dimension.kind == "switch":
        wires.there_and_back(ranks, base + ranks // (stride * size) * stride + ranks % stride, *costs)
    elif dimension.kind == "full":
        if len(ranks) * (size - 1) > MOST_LINKS:
            raise UsageError(f"all pairs of {size} are too many links", remedy="switch:N")
        for by in range(1, size):
            wires.one_way(ranks, ranks + ((coordinate + by) % size - coordinate) * stride, *costs)
    else:
        wraps = dimension.kind == "ring" and size > 2
        here = ranks if wraps else ranks[coordinate < size - 1]
        at = here // stride % size
        wires.there_and_back(here, here + np.where(at == size - 1, 1 - size, 1) * stride, *costs)


def shared(name: str, rate: float, links: range) -> SharedCapacity:
    """Return a capacity in bytes/s that a run of links shares."""
    import numpy as np

    return SharedCapacity(name, rate, np.arange(links.start, links.stop))
