"""The survey as reports read it: schema ``ringwright.survey/1``."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringwright.calls.provenance import AskedOf
from ringwright.ground.documents import keyed
from ringwright.jobs.job_document import HealthyStep


@dataclass(frozen=True, slots=True)
class SurveyedSystem:
    """A system: what it is, what is recorded of it, and what it does for a job (None: there is no job, or no such figure)."""

    slug: str
    title: str
    year: int | None
    mechanism: str
    collectives: list[str]
    needs: list[str]
    built: bool
    simulated: bool | None
    real: bool | None
    equal_bits: bool | None
    kind: str | None
    claim: object
    got: object
    claim_of: str | None
    of_class: str = keyed("class")
    why_not: str | None = None
    declined: str | None = None
    left_to_library: list[str] = field(default_factory=list)
    step_us: float | None = None
    step_us_p50: float | None = None
    speedup: float | None = None
    exposed_us: float | None = None
    wire_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class SurveyedClass:
    """A class of systems, and how many of them are built."""

    family: str
    built: int
    systems: int
    of_class: str = keyed("class")


@dataclass(frozen=True, slots=True)
class SurveyedPair:
    """An algorithm with a policy: its step in us with the interval of such steps; of the best pair also how it was found."""

    algorithm: str
    policy: str
    step_us: float | None
    step_us_p05: float | None
    step_us_p50: float | None
    step_us_p95: float | None
    exposed_us: float | None
    wire_bytes: float | None
    healthy: HealthyStep | None = None
    tried: int = 0
    pairs: int = 0
    exhaustive: bool = False
    equal_bits: bool | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class SurveyView:
    """All systems by class; of a job also its baseline and the best pair."""

    rows: list[SurveyedSystem]
    tree: list[SurveyedClass]
    needs: dict[str, str]
    asked: AskedOf | None = None
    job: object = None
    workload: str = ""
    fabric: str = ""
    baseline: SurveyedPair | None = None
    best: SurveyedPair | None = None
    warnings: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
