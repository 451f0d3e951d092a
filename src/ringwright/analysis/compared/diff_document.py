"""What changed between two runs as a typed structure: schema ``ringwright.diff/1``, keys in the order in which they are written.

``ratio`` is after / before; ``noise`` is how much a time varies by itself, as a share, and ``noise_from`` says how that is
known; ``changed`` says whether the change is beyond it. What a run does not tell is None.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from ringwright.analysis.answer_document import FirstAnswer
from ringwright.analysis.document import Row


class RunCounts(TypedDict):
    """What one of the two runs is, and how much it did."""

    inputs: list[str]
    coverage: str
    nccl_versions: list[str]
    hosts: int | None
    ranks_seen: int | None
    count: int
    bytes: int
    wrong_results: str  # what a benchmark computed wrong, "" where nothing is


class CountChange(TypedDict):
    """Calls and bytes of one operation, size, communicator, algorithm or pair of hosts that changed."""

    kind: str
    key: str
    op: str | None
    size_bytes: int | None
    change: str
    before_count: int
    after_count: int
    before_bytes: int
    after_bytes: int
    delta_count: int
    delta_bytes: int


class TimedSize(TypedDict):
    """The time of one operation and size in both runs; ``inplace_``: of the same call in place, where both were measured."""

    op: str | None
    size_bytes: int
    before_us: float
    after_us: float
    ratio: float
    before_busbw_gbs: float | None
    after_busbw_gbs: float | None
    kind: str
    task: str | None
    nranks: int | None
    before_samples: int
    after_samples: int
    noise: float
    noise_from: str
    changed: bool
    inplace_before_us: float | None
    inplace_after_us: float | None
    inplace_ratio: float | None
    algorithm: str | None
    protocol: str | None
    datatype: str | None


class TimedClass(TypedDict):
    """The geometric mean ratio of an operation's rows from a power of two of the size to the next."""

    kind: str
    op: str
    log2_low_bytes: int
    log2_high_bytes: int
    rows: int
    ratio: float
    noise: float
    changed: bool


class TimedWhole(TypedDict):
    """Steps, communication, waiting or exposed communication of the whole job; shares are of the time in collectives."""

    what: str
    before_us: float
    after_us: float
    ratio: float | None
    before_share: float | None
    after_share: float | None
    before_samples: int | None
    after_samples: int | None
    noise: float | None
    noise_from: str
    changed: bool


class TimedAlone(TypedDict):
    """How many timed operations and sizes are in one of the runs only."""

    before: int
    after: int


class RunDifference(TypedDict):
    """The whole of ``ringwright diff --json``; the verb adds what disturbed the later run, where that can be told."""

    schema: str
    answer: FirstAnswer
    before: RunCounts
    after: RunCounts
    changed_share: float
    changes: list[CountChange]
    bandwidth: list[TimedSize]
    time_classes: list[TimedClass]
    times: list[TimedWhole]
    timed_in_one_only: TimedAlone
    notes: list[str]
    disturbance: NotRequired[Row | None]
