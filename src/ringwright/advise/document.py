"""The object of schema ``ringwright.advise/1``: what to change, in which order, what it gains, and what could not be told."""

from __future__ import annotations

from typing import TypedDict

from ringwright.calls.provenance import AskedOf
from ringwright.executors.fan_out import ExecutorAccount
from ringwright.jobs.memory import PeakMemory

SCHEMA = "ringwright.advise/1"
CHANGES, NOTHING, CANNOT_TELL = "changes", "nothing", "cannot-tell"


class AdvisedStep(PeakMemory):
    """The step as it is today, in us: mean of the recorded ones, with its 90 % interval; and mean of those that were replayed.

    The measured ones are null of a model, all of a recording without times; ``steps`` were measured, of which ``iterations`` were
    replayed. Of a model ``step_us_p50`` is the most probable step with its interval, as simulate answers, null where no such
    steps were measured; ``replayed_us`` is the simulated one, of which the exposed time is a part, and ``healthy_us`` that on the
    machine without its faults (``healthy_us_p50`` the most probable), null where it has none. ``fits`` and what is beside it tell
    of the memory of a rank.
    """

    measured_us: float | None
    measured_us_p05: float | None
    measured_us_p95: float | None
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


class AdvisedChange(TypedDict):
    """A change, with those above it: the step in us, and what all of them gain, as shares of the step of today.

    ``adds_*`` is what this one adds to those above; ``alone`` what it gains by itself, null where it cannot be. ``memory_bytes``
    is what a rank holds more at its peak, null where that is not known. ``export``: what writes the files that make it, which
    are called ``files`` in the folder that ``-o`` writes; null where a line of code makes it. ``measure``: the command that
    shows whether it was true. ``spelling`` is what simulate takes.
    """

    what: str
    where: str
    layer: str
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
    files: list[str]
    measure: str
    spelling: str


class RefusedAdvice(TypedDict):
    """What was not advised, or not tried: why, and what to do about it."""

    what: str
    why: str
    remedy: str


class Advice(TypedDict):
    """The answer: of ``setups`` ``evaluated`` were simulated and ``bounded`` have a bound, by so much ``work``.

    ``ended``: complete, or what ``stopped`` the search before: its work, the clock, or whoever interrupted it.
    """

    schema: str
    asked: AskedOf
    job: str
    fabric: str
    ground: str
    verdict: str
    why: str
    stopped: bool
    ended: str
    base: AdvisedStep
    changes: list[AdvisedChange]
    refused: list[RefusedAdvice]
    setups: int
    bounded: int
    evaluated: int
    work: int
    search_s: float
    seed: int
    executor: ExecutorAccount
    assumptions: list[str]
