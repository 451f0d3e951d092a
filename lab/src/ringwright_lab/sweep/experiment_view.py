"""Sweeps and experiments as reports read them: schema ``ringwright.sweep/1``, and that of an experiment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringwright.ground.documents import keyed
from ringwright.reports.draw.plots import SizedRequest


@dataclass(frozen=True, slots=True)
class OperationCalls:
    """How often an operation is called."""

    op: str
    calls: int


@dataclass(frozen=True, slots=True)
class PatternView:
    """What one rank of a cell asks for in one iteration, prompt or token."""

    model: str
    size: str
    parallel: str
    mode: str
    turn: str
    dims: str
    world: int | None
    ranks: int
    calls: int
    bytes: int
    distinct: int
    top_share: float
    like: str
    sizes: list[SizedRequest]
    operations: list[OperationCalls]
    burst_bytes: int | None
    course: list[tuple[float, int, str]]
    label: str = ""


@dataclass(frozen=True, slots=True)
class ProvisionNeed:
    """What a pattern needs of a rank's wire."""

    model: str
    size: str
    parallel: str
    mode: str
    turn: str
    wire_bytes: float
    largest_bytes: int | None
    burst_bytes: int | None
    rate_for_100ms_gbit_s: float
    advice: str


@dataclass(frozen=True, slots=True)
class SimulatedCell:
    """The communication of one rank by the model of a library."""

    model: str
    size: str
    parallel: str
    mode: str
    turn: str
    env: str
    simulated_by: str
    machine: str
    nodes: int
    calls: int
    time_us_p50: float


@dataclass(frozen=True, slots=True)
class EffectView:
    """What a disturbance does to a model, over some seeds: ratios with intervals, answers, steps in s."""

    model: str
    anomaly: str
    fault: str
    step_ratio: float | None
    step_ratio_low: float | None
    step_ratio_high: float | None
    collective_ratio: float | None
    collective_ratio_low: float | None
    collective_ratio_high: float | None
    seeds: int
    right: int
    cannot_tell: int
    wrong: int
    answers: list[str]
    named: list[str]
    usual_s: list[float]
    steps_s: list[float]


@dataclass(frozen=True, slots=True)
class AgreementView:
    """What was calculated of a cell, and what was recorded."""

    cell: str
    when: str
    ranks: int
    expected_calls: int
    recorded_calls: int
    expected_bytes: int
    recorded_bytes: int
    agrees: bool
    difference: str


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A row of the contract of ``reproduce``."""

    figure: str
    kind: str
    claimed: object
    got: object
    tolerance: str
    source: str
    note: str
    passes: bool = keyed("pass")


@dataclass(frozen=True, slots=True)
class ConcludedStep:
    """A step: see ``papers.poster.conclusions.ConclusionAnswer``."""

    model: str
    fabric: str
    disturbance: str
    fault: str
    algorithm: str
    engine: str
    step_us: float | None
    slowdown: float | None
    why: str


@dataclass(frozen=True, slots=True)
class PacketStep:
    """A disturbed step again: see ``papers.poster.conclusions.PacketCheck``."""

    model: str
    fabric: str
    disturbance: str
    by_events: float | None
    by_packets: float | None
    ratio: float | None
    why: str


@dataclass(frozen=True, slots=True)
class ConclusionsView:
    """What was simulated for a paper's conclusions, and what no engine plays."""

    answers: list[ConcludedStep] = field(default_factory=list)
    packets: list[PacketStep] = field(default_factory=list)
    unanswered: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeasuredCells:
    """What a sweep and an experiment have in common."""

    out: str
    patterns: list[PatternView]
    provisions: list[ProvisionNeed]
    agreement: list[AgreementView]
    effects: list[EffectView] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    resumed: dict[str, Any] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    conclusions: ConclusionsView | None = None


@dataclass(frozen=True, slots=True)
class ExperimentView(MeasuredCells):
    """An experiment: its claims, in the short or the full form."""

    rows: list[ClaimRow] = field(default_factory=list)
    form: str = ""
    cells: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SweptCell:
    """A cell, what came of it, and why where that is nothing."""

    cell: str
    outcome: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class SweepView(MeasuredCells):
    """A sweep: its cells, how many were run, and the table of all ``rows``."""

    table: str = ""
    rows: int = 0
    cells: list[SweptCell] = field(default_factory=list)
    simulated: list[SimulatedCell] = field(default_factory=list)
    agreeing: int = 0
    checked: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    left_out: list[tuple[str, str]] = field(default_factory=list)
