"""What is known beforehand of a profiler trace with fusions: which were due, which fired, and why the rest is exposed.

A fusion is (pattern, iteration, layer, fired): layer is "" where no mark names one. A cause is known per operation, by the
number of its kernel (or, without one, of its record) in ``traceEvents``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kineto_traces import source
from ringwright.formats.sources.kineto import read_kineto
from ringwright.model.trace import Trace

GATHER_MATMUL, MATMUL_SCATTER = "all-gather-matmul", "matmul-reduce-scatter"
BUCKETED_GATHER, GRADIENT_BUCKET, COPIES = "bucketed-all-gather", "gradient-bucket", "copy-engine"

Fusion = tuple[str, int | None, str, bool]
Document = dict[str, Any]


@dataclass
class Truth:
    """Fusions with how often each, causes by event, and what is known to keep communication and computation apart."""

    fusions: Counter[Fusion] = field(default_factory=Counter)
    causes: dict[int, str] = field(default_factory=dict)
    apart: set[str] = field(default_factory=set)

    def expect(self, pattern: str, iteration: int | None, layer: str = "", *, fired: bool, count: int = 1) -> None:
        """Note fusions of one pattern."""
        self.fusions[pattern, iteration, layer, fired] += count


@dataclass(frozen=True)
class KnownTrace:
    """A trace with its truth: ``make`` gives the document and the truth, the same ones each time."""

    name: str
    make: Callable[[], tuple[Document, Truth]]
    is_real: bool = False

    def read(self) -> tuple[Trace, Truth]:
        """Return what the reader makes of it, and what is known."""
        document, truth = self.make()
        return read_kineto([source(msgspec.json.encode(document), f"job/{self.name}.json")]), truth


@dataclass
class Judged:
    """How many claims were true, how many were made, and how many should have been."""

    right: int = 0
    said: int = 0
    due: int = 0

    @property
    def precision(self) -> float:
        return self.right / self.said if self.said else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.due if self.due else 1.0

    def add(self, said: Iterable[Any], due: Iterable[Any]) -> None:
        """Judge claims against the truth; equal ones are counted as often as both hold them."""
        claimed, known = Counter(said), Counter(due)
        self.right += (claimed & known).total()
        self.said += claimed.total()
        self.due += known.total()
