"""One step of a job under construction: rows of instances, their values, their edges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

PS = 1e12
UPDATES = "U"


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


@dataclass
class StepBuilder:
    """One step under construction: lists that become arrays, edges with their iteration distance."""

    rows: list[Instances] = field(default_factory=list)
    n: int = 0
    work: list[Any] = field(default_factory=list)
    latency: list[Any] = field(default_factory=list)
    queue: list[Any] = field(default_factory=list)
    key: list[Any] = field(default_factory=list)
    size: list[Any] = field(default_factory=list)
    sms: list[Any] = field(default_factory=list)
    tag: list[Any] = field(default_factory=list)
    tiles: list[Any] = field(default_factory=list)
    loads: list[tuple[int, int, tuple[tuple[int, float], ...]]] = field(default_factory=list)  # first, count, loads
    domains: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    tokens: list[tuple[int, int, tuple[tuple[int, float], ...]]] = field(default_factory=list)
    src: list[np.ndarray] = field(default_factory=list)
    dst: list[np.ndarray] = field(default_factory=list)
    distance: list[np.ndarray] = field(default_factory=list)
    queues: dict[tuple[Any, ...], int] = field(default_factory=dict)
    resources: dict[tuple[int, str], int] = field(default_factory=dict)
    pools: dict[tuple[int, str], int] = field(default_factory=dict)
    updates: list[int] = field(default_factory=list)  # instances whose place is in the order of the next step

    def add(self, row: Instances, **values: Any) -> int:
        """Take in instances; values are numbers, or arrays of ``row.count``."""
        row.first = self.n
        self.rows.append(row)
        self.n += row.count
        for name in ("work", "latency", "queue", "key", "size", "sms", "tag", "tiles"):
            value = values.get(name, -1 if name == "tag" else 0)
            whole = isinstance(value, int | float | np.number)
            getattr(self, name).append(np.full(row.count, value) if whole else np.asarray(value))
        self.domains.append((row.first, row.count, tuple(dict.fromkeys(row.rank_classes))))
        return row.first

    def link(self, src: Any, dst: Any, distance: int = 0) -> None:
        """Make every ``dst`` wait for the ``src`` beside it; one of the two may be a single instance."""
        src, dst = np.broadcast_arrays(np.atleast_1d(src), np.atleast_1d(dst))
        self.src.append(src.astype(np.int32))
        self.dst.append(dst.astype(np.int32))
        self.distance.append(np.full(len(src), distance, np.int16))

    def resource(self, rank_class: int, name: str) -> int:
        """Return the number of a resource of a rank class."""
        return self.resources.setdefault((rank_class, name), len(self.resources))
