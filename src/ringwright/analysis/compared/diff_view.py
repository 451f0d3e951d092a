"""What changed between two runs, as reports read it: schema ``ringwright.diff/1``; see `diff_document` for each field."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringwright.analysis.summary_view import SeenAnswer


@dataclass(frozen=True, slots=True)
class RunView:
    """What one of the two runs is, and how much it did."""

    inputs: list[str]
    coverage: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CountView:
    """Calls and bytes of one operation, size, communicator, algorithm or pair of hosts that changed."""

    kind: str
    key: str
    op: str | None
    size_bytes: int | None
    change: str
    before_count: int
    after_count: int
    delta_bytes: int


@dataclass(frozen=True, slots=True)
class TimedSizeView:
    """The time of one operation and size in both runs."""

    op: str | None
    size_bytes: int
    before_us: float
    after_us: float
    ratio: float
    before_busbw_gbs: float | None
    after_busbw_gbs: float | None
    noise: float
    noise_from: str
    changed: bool


@dataclass(frozen=True, slots=True)
class TimedWholeView:
    """Steps, communication, waiting or exposed communication of the whole job."""

    what: str
    before_us: float
    after_us: float
    ratio: float | None
    before_share: float | None
    after_share: float | None
    noise: float | None
    noise_from: str
    changed: bool


@dataclass(frozen=True, slots=True)
class DisturbanceView:
    """What disturbed the later run, where, and on what evidence."""

    kind: str
    ranks: list[int]
    hosts: list[str]
    evidence: list[str]


@dataclass(frozen=True, slots=True)
class DifferenceView:
    """The whole difference."""

    answer: SeenAnswer
    before: RunView
    after: RunView
    changed_share: float
    changes: list[CountView]
    notes: list[str]
    bandwidth: list[TimedSizeView] = field(default_factory=list)
    times: list[TimedWholeView] = field(default_factory=list)
    disturbance: DisturbanceView | None = None
