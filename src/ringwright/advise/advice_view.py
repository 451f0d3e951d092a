"""Advice as reports read it: schema ``ringwright.advise/1``."""

from __future__ import annotations

from dataclasses import dataclass

from ringwright.calls.provenance import AskedOf


@dataclass(frozen=True, slots=True)
class StepView:
    """The step as it is today: see ``document.AdvisedStep``."""

    measured_us: float | None
    steps: int
    replayed_us: float | None
    step_us_p05: float | None
    step_us_p50: float | None
    step_us_p95: float | None
    fidelity: float | None
    iterations: int
    policy: str
    exposed_us: float | None
    healthy_us: float | None
    healthy_us_p50: float | None

    @property
    def today_us(self) -> float | None:
        """The step that advice begins from: measured, else the most probable one, else as it was simulated."""
        told = (self.measured_us, self.step_us_p50, self.replayed_us)
        return next((each for each in told if each is not None), None)


@dataclass(frozen=True, slots=True)
class ChangeView:
    """A change, with those above it: see ``document.AdvisedChange``."""

    what: str
    where: str
    ground: str
    risk: str
    step_us: float
    gain_p05: float
    gain_p50: float
    gain_p95: float
    adds_p05: float
    adds_p50: float
    adds_p95: float
    alone: float | None
    memory_bytes: int | None
    export: str | None
    measure: str


@dataclass(frozen=True, slots=True)
class RefusedAdviceView:
    """What was not advised, why, and what to do about it."""

    what: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class AdviceView:
    """The answer: see ``document.Advice``."""

    asked: AskedOf
    job: str
    fabric: str
    verdict: str
    why: str
    ended: str
    base: StepView
    changes: list[ChangeView]
    refused: list[RefusedAdviceView]
    setups: int
    bounded: int
    evaluated: int
    search_s: float
    seed: int
    assumptions: list[str]
