"""One step of a job under construction: bands of instances alike, and the edges between them, as numbers that are laid out later.
from ringwright.ground.units import PS

Most of a step repeats: an operation is sent every micro-batch, in pieces of one size. So what is written down is one band for all
of them, and one run of edges for all pairs; ``arrays.flatten`` makes the instances.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

UPDATES = "U"
WHOLE = (
    *("width", "rows", "queue", "key", "work", "last_work", "latency", "last_latency"),
    *("tag", "tiles", "loads", "domain", "tokens"),
)
REAL = ("size", "last_size", "sms")
EDGES = 12
Pairs = tuple[tuple[int, float], ...]
Loads = tuple[tuple[int, float, float], ...]
K = TypeVar("K")
V = TypeVar("V")


@dataclass
class Instances:
    """One kind of instances of one step: what they are, and where they begin."""

    first: int
    count: int
    what: str  # task, operation or barrier
    name: str
    rank_classes: tuple[int, ...]
    kind: str
    role: str = ""
    phase: str = ""
    micro_batch: int = 0
    size_bytes: int = 0
    last_bytes: int = 0
    layer: int = 0


class Band(NamedTuple):
    """Rows of instances alike, one row after another: of an operation one for each micro-batch, else one."""

    first: int
    width: int  # instances of a row
    rows: int
    what: str
    name: str
    rank_classes: tuple[int, ...]
    kind: str
    role: str = ""
    phase: str = ""
    size_bytes: int = 0
    last_bytes: int = 0
    layer: int = 0

    @property
    def instances(self) -> int:
        """How many there are in all its rows."""
        return self.width * self.rows

    def each(self) -> Iterator[Instances]:
        """Yield its rows."""
        first, width, rows, what, name, rank_classes, kind, role, phase, size_bytes, last_bytes, layer = self
        for at in range(rows):
            yield Instances(
                first + at * width,
                width,
                what,
                name,
                rank_classes,
                kind,
                role,
                phase,
                at,
                size_bytes,
                last_bytes,
                layer,
            )


class Timing(NamedTuple):
    """What the engine is told of a band: of the last piece of each row apart. Work and latency in ps, ``loads`` and ``tokens`` by
    number.
    """

    queue: int
    key: int = 0
    work: int = 0
    last_work: int = 0
    latency: int = 0
    last_latency: int = 0
    tag: int = -1
    tiles: int = 0
    size: float = 0.0
    last_size: float = 0.0
    sms: float = 0.0
    loads: int = 0
    tokens: int = 0


class StepMark(NamedTuple):
    """How far a step was once written: how many of each of its lists there were, and instances."""

    bands: int
    n: int
    runs: int
    loads: int
    domains: int
    queues: int
    resources: int


def _lists() -> dict[Any, int]:
    return {(): 0}


@dataclass
class StepBuilder:
    """One step under construction. What instances load, take and take part in are lists, each kept once and called by number."""

    bands: list[Band] = field(default_factory=list)
    n: int = 0
    whole: array[int] = field(default_factory=lambda: array("q"))  # rows of WHOLE
    real: array[float] = field(default_factory=lambda: array("d"))  # rows of REAL
    runs: array[int] = field(default_factory=lambda: array("q"))  # rows of EDGES, see ``link``
    keyed: list[tuple[int, list[int]]] = field(default_factory=list)  # first instance, a key for each from there
    joined: list[tuple[np.ndarray, np.ndarray, int]] = field(
        default_factory=list
    )  # edges that follow no rule, behind all runs
    loads: dict[Loads, int] = field(default_factory=_lists)  # (resource, share, claim)
    domains: dict[tuple[int, ...], int] = field(default_factory=dict)  # of rank classes
    tokens: dict[Pairs, int] = field(default_factory=_lists)  # (pool, amount)
    queues: dict[tuple[Any, ...], int] = field(default_factory=dict)
    resources: dict[tuple[int, str], int] = field(default_factory=dict)
    pools: dict[tuple[int, str], int] = field(default_factory=dict)
    updates: list[int] = field(default_factory=list)  # instances whose place is in the order of the next step

    def add(self, band: Band, timing: Timing) -> None:
        """Take in the instances of a band, which begins where the last one ended."""
        queue, key, work, last_work, latency, last_latency, tag, tiles, size, last_size, sms, loads, tokens = timing
        domain = self.domains.setdefault(tuple(dict.fromkeys(band.rank_classes)), len(self.domains))
        self.bands.append(band)
        self.n += band.width * band.rows
        self.whole.extend(
            (
                band.width,
                band.rows,
                queue,
                key,
                work,
                last_work,
                latency,
                last_latency,
                tag,
                tiles,
                loads,
                domain,
                tokens,
            )
        )
        self.real.extend((size, last_size, sms))

    def link(
        self,
        src: int,
        dst: int,
        first: tuple[int, int, int] = (1, 0, 0),
        second: tuple[int, int, int] = (1, 0, 0),
        third: tuple[int, int, int] = (1, 0, 0),
        distance: int = 0,
    ) -> None:
        """Make instances wait for others of ``distance`` steps before: three loops, one in the other.

        Each is (how often, by how much the one waited for moves on, by how much the one that waits).
        """
        self.runs.extend((src, dst, *first, *second, *third, distance))

    def resource(self, rank_class: int, name: str) -> int:
        """Return the number of a resource of a rank class."""
        return self.resources.setdefault((rank_class, name), len(self.resources))

    def mark(self) -> StepMark:
        """Return how far it is written."""
        lists = (self.runs, self.loads, self.domains, self.queues, self.resources)
        return StepMark(len(self.bands), self.n, *map(len, lists))

    def until(self, mark: StepMark) -> StepBuilder:
        """Return a copy that ends at a mark, which was set when all tasks and no edges without a rule were written."""
        return StepBuilder(
            self.bands[: mark.bands],
            mark.n,
            self.whole[: mark.bands * len(WHOLE)],
            self.real[: mark.bands * len(REAL)],
            self.runs[: mark.runs],
            self.keyed,
            [],
            earliest(self.loads, mark.loads),
            earliest(self.domains, mark.domains),
            self.tokens,
            earliest(self.queues, mark.queues),
            earliest(self.resources, mark.resources),
            self.pools,
            self.updates,
        )


def earliest(known: dict[K, V], count: int) -> dict[K, V]:
    """Return the first entries of a dictionary, in the order in which they came in."""
    return dict(islice(known.items(), count))
