"""What a report reads of the object of schema ``ringwright.placements/1``: how a job's axes lie on a machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringwright.calls.provenance import AskedOf
from ringwright.jobs.job_document import HealthyStep


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A step by one placement: how much of each level of the machine an axis cuts, and its times in us."""

    matrix: dict[str, dict[str, int]]
    as_numbered: bool
    step_us: float
    exposed_comm_us: float
    step_us_p05: float | None = None
    step_us_p50: float | None = None
    step_us_p95: float | None = None
    outside: list[str] = field(default_factory=list)
    healthy: HealthyStep | None = None
    policy: str = ""


@dataclass(frozen=True, slots=True)
class PlacedSteps:
    """The placements that were simulated, the fastest first, of all ``placements``."""

    asked: AskedOf
    workload: str
    fabric: str
    mesh: dict[str, int]
    levels: dict[str, int]
    policy: str
    placements: int
    stopped: bool
    rows: list[PlacedStep]
    assumptions: list[str]
    left_out: list[str]
