"""What the gate is asked and what it answers, as typed structures; the answer's keys in the order in which they are written."""

from __future__ import annotations

from typing import Literal, TypedDict

CountedBound = Literal["max_count", "min_count", "max_bytes", "min_bytes", "max_share"]
TimedBound = Literal["max_time_us", "min_busbw_gbs", "min_percentile", "max_wait_share", "max_exposed_share"]
COUNTED: tuple[CountedBound, ...] = ("max_count", "min_count", "max_bytes", "min_bytes", "max_share")
TIMED: tuple[TimedBound, ...] = (
    "max_time_us",
    "min_busbw_gbs",
    "min_percentile",
    "max_wait_share",
    "max_exposed_share",
)


class ClassLimit(TypedDict, total=False):
    """The bounds of one operation and size class; sizes in bytes, both ends included, shares 0 to 1."""

    op: str
    min_size: int
    max_size: int
    max_bytes: int
    min_bytes: int
    max_share: float
    max_wait_share: float
    max_exposed_share: float
    max_time_us: float
    min_busbw_gbs: float
    min_percentile: float
    max_count: int
    min_count: int


class Thresholds(TypedDict):
    """What a job is held against; None: not judged."""

    max_refused_share: float
    expected_ranks: int | None
    allow_verdict: bool
    allow_empty: bool
    allow_truncated: bool
    max_step_us: float | None
    max_wait_share: float | None
    max_exposed_share: float | None
    limit: list[ClassLimit]


class CheckResult(TypedDict):
    """One check: what was measured, its limit, and both in a sentence."""

    check: str
    passed: bool
    measured: float | str | None
    limit: float | None
    detail: str


class GateAnswer(TypedDict):
    """The whole of ``ringwright check --json``, schema ``ringwright.check/1``; ``line`` is for CI."""

    schema: str
    passed: bool
    checks: list[CheckResult]
    line: str


def checked(name: str, passed: bool, measured: float | str | None, limit: float | None, detail: str) -> CheckResult:
    """Return the result of one check."""
    return {"check": name, "passed": passed, "measured": measured, "limit": limit, "detail": detail}
