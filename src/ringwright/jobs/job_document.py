"""What reports read of the object of schema ``ringwright.simulate-job/1``: a row of each policy, times in us of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringwright.calls.provenance import AskedOf
from ringwright.jobs.bursts import PolicyBursts
from ringwright.jobs.explained.tracks import StepTracks
from ringwright.jobs.job_end import JobEndInStep
from ringwright.jobs.switch_gains import JobInNetwork


@dataclass(frozen=True, slots=True)
class HealthyStep:
    """A step on the machine without its faults, as in a row."""

    step_us: float
    step_us_p05: float | None
    step_us_p50: float | None
    step_us_p95: float | None
    exposed_comm_us: float


@dataclass(frozen=True, slots=True)
class StepOfRole:
    """What operations of one role take of a step, in the mean over ranks; ``queued_us`` of all of them."""

    exposed_us: float
    busy_us: float
    queued_us: float
    operations: float
    bytes: float


@dataclass(frozen=True, slots=True)
class StepChange:
    """What a rule changes in a step of one rank; ``wire_bytes`` by role."""

    wire_bytes: dict[str, int]
    operations: int
    flops: float
    launches: int


@dataclass(frozen=True, slots=True)
class RuleOfStep:
    """A rule that rewrote the graph of a step, once."""

    rule: str
    delta: StepChange


@dataclass(frozen=True, slots=True)
class CauseOfStep:
    """A cause of exposed communication, how much of a step it is, and what would help."""

    cause: str
    exposed_us: float
    count: float
    costliest: str
    costliest_us: float
    advice: str


@dataclass(frozen=True, slots=True)
class DeviceOfPipeline:
    """The passes of a device, each (phase, chunk, micro-batch, begin, end) in s; ``idle`` is a share."""

    of: str
    idle: float
    peak_bytes: int | None
    passes: list[tuple[str, int, int, float, float]]


@dataclass(frozen=True, slots=True)
class PipelineOfStep:
    """The passes of a pipeline in one step."""

    span_s: float
    idle: float
    chunks: int
    devices: list[DeviceOfPipeline]


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """A policy's step; None: not known, or not asked for."""

    policy: str
    step_us: float
    step_us_p05: float | None
    step_us_p50: float | None
    step_us_p95: float | None
    outside: list[str]
    compute_us: float
    update_us: float
    exposed_comm_us: float
    idle_us: float
    overlap: float
    ceiling: float
    by_role: dict[str, StepOfRole]
    why: list[CauseOfStep]
    ranks: int
    simulated_ranks: int
    steady: bool
    engine: str
    step_us_hit: float | None = None
    healthy: HealthyStep | None = None
    decided: list[str] = field(default_factory=list)
    outages: list[str] = field(default_factory=list)
    applied: list[RuleOfStep] = field(default_factory=list)
    peak_memory_bytes: int | None = None
    memory_unknown: str | None = None
    device_memory_bytes: int | None = None
    fits: bool | None = None
    too_large: str | None = None
    timeline: StepTracks | None = None
    pipeline: PipelineOfStep | None = None


@dataclass(frozen=True, slots=True)
class DeclinedPolicy:
    """A policy without a step: why, or how the job ends."""

    policy: str
    declined: str
    ends: JobEndInStep | None = None


@dataclass(frozen=True, slots=True)
class RemedyOfStep:
    """A policy that leaves less of a cause: what the whole step is shorter, and what a rank holds more at its peak."""

    cause: str
    exposed_us: float
    policy: str
    exposed_after_us: float
    saved_us: float
    saved_us_p05: float | None
    saved_us_p95: float | None
    memory_bytes: int | None
    equal: str
    switch: list[str]


@dataclass(frozen=True, slots=True)
class SearchedPolicy:
    """A policy that a search tried; ``least_us``: the least its step takes, where it was not simulated for that."""

    policy: str
    step_us: float | None
    peak_memory_bytes: int | None
    declined: str | None
    least_us: float | None


@dataclass(frozen=True, slots=True)
class PolicyNeeds:
    """A policy that a search left out, and what it needs."""

    policy: str
    needs: str


@dataclass(frozen=True, slots=True)
class SoughtPolicies:
    """What a search tried, how many it need not simulate, and the frontier of time and memory."""

    tried: list[SearchedPolicy]
    pruned: int
    alike: int
    frontier: list[str]
    stopped: bool
    left_out: list[PolicyNeeds]


@dataclass(frozen=True, slots=True)
class TunedPolicy:
    """The best of a policy's trials, beside the first."""

    best: str
    step_us: float
    first_step_us: float
    trials: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """What a replay, unchanged, is held against: see ``recorded.ReplayBaseline``."""

    measured_us: float
    steps: int
    step_us: float
    replayed_us: float
    error: float


@dataclass(frozen=True, slots=True)
class JobSteps:
    """A row of each policy, and what they rest on; of a recording also which ``step`` is replayed, on which ``ground``."""

    asked: AskedOf
    workload: str
    fabric: str
    assumptions: list[str]
    rows: list[PolicyStep | DeclinedPolicy]
    left_out: list[str]
    interference: str = ""
    remedies: list[RemedyOfStep] = field(default_factory=list)
    search: SoughtPolicies | None = None
    tuned: list[TunedPolicy] = field(default_factory=list)
    in_network: JobInNetwork | None = None
    ground: str = ""
    step: str = ""
    baseline: ReplayedStep | None = None
    warnings: list[str] = field(default_factory=list)
    bursts: PolicyBursts | None = None
    bursts_unknown: str = ""

    @property
    def answered(self) -> list[PolicyStep]:
        """The rows of the policies that have times."""
        return [row for row in self.rows if isinstance(row, PolicyStep)]

    @property
    def refused(self) -> list[DeclinedPolicy]:
        """The rows of those that have none."""
        return [row for row in self.rows if isinstance(row, DeclinedPolicy)]
