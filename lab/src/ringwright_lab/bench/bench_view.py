"""A benchmark as a report reads it: schema ``ringwright.bench/1``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BenchRow:
    """A measured size, with the columns of nccl-tests; bytes that a rank sent, and by its least and most used link."""

    backend: str
    algorithm: str
    size_bytes: int
    count: int
    dtype: str
    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: int
    predicted_us: float | None
    sent_bytes: int | None
    least_port_bytes: int | None = None
    most_port_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BenchRatio:
    """Ours over theirs, at a size."""

    backend: str
    native: str
    algorithm: str
    size_bytes: int
    ratio: float


@dataclass(frozen=True, slots=True)
class BenchLimit:
    """What limited the run, and why."""

    limit: str
    why: str


@dataclass(frozen=True, slots=True)
class BenchView:
    """All that was measured."""

    collective: str
    ranks: int
    rounds: int
    rows: list[BenchRow]
    notes: list[str]
    lab: str | None = None
    tcp: str = ""
    faults: list[str] = field(default_factory=list)
    verdict: BenchLimit | None = None
    reduce_op: str = ""
    root: int = 0
    ratios: list[BenchRatio] = field(default_factory=list)
