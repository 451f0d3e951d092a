"""Measured steps beside predicted ones as a report reads them: schema ``ringwright.step-accuracy/1``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepErrors:
    """The errors of a table, on a device, of the half that had a part in a fit or of the other."""

    table: str
    device: str
    half: str
    rows: int
    median_abs_error: float
    median_error: float
    worst_abs_error: float


@dataclass(frozen=True, slots=True)
class JudgedRowOfSteps:
    """A measured step, what is predicted, and in us what simulate answers (None: nothing was asked, or measured)."""

    row: str
    device: str
    gpus: int
    half: str
    measured_s: float
    predicted_s: float
    error: float
    too_large: str | None
    step_us_p05: float | None = None
    step_us_p50: float | None = None
    step_us_p95: float | None = None


@dataclass(frozen=True, slots=True)
class RefusedRowOfSteps:
    """A row that cannot be simulated as it stands, and why."""

    row: str
    why: str


@dataclass(frozen=True, slots=True)
class StepAccuracy:
    """All rows, and what they rest on."""

    rows: list[JudgedRowOfSteps]
    groups: list[StepErrors]
    refused: list[RefusedRowOfSteps]
    median_abs_error: float
    fits: list[str]
    assumptions: list[str]
