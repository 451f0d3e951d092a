"""Every scheduler on real ranks: small models trained by its policy, their parameters held against those of plain training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringwright.ground.errors import RanksFailedError, RingwrightError, UsageError
from ringwright.model.registry import System
from ringwright_lab.live import bench
from ringwright_lab.live.plan import plan

MODELS = ("vgg", "transformer")
RANKS, STEPS, STEP_S, LINK_RATE, ELEMENTS = 2, 3, 0.05, 50e6, 200_000
PLAIN = "ringwright.schedulers.fifo.pytorch_ddp:pytorch_ddp"  # with knobs that send each gradient alone


@dataclass(frozen=True)
class SchedulerRun:
    """One model by one scheduler: ``outcome`` is exact, rounded (the policy changes what travels), wrong or declined."""

    slug: str
    model: str
    outcome: str
    why: str = ""


def reference(model: str) -> bench.LiveResult:
    """Return what plain training of a model gives: every gradient sent alone, as it comes."""
    return bench.measure(_job(model, PLAIN, {"bucket_cap_mb": 0}))


def tried(system: System, model: str, plain: bench.LiveResult) -> SchedulerRun:
    """Train a model by a scheduler and compare its parameters with the plain ones."""
    name = f"{system.module}:{system.slug.replace('-', '_')}"
    try:
        whole = _sends_whole(system, plain)
    except UsageError as error:
        return SchedulerRun(system.slug, model, "declined", error.what)
    try:
        measured = bench.measure(_job(model, name, {}))
    except RanksFailedError as error:
        return SchedulerRun(system.slug, model, "wrong", error.what)
    if not whole:
        return SchedulerRun(system.slug, model, "rounded")
    same = measured.parameters_hash == plain.parameters_hash
    return SchedulerRun(system.slug, model, "exact" if same else "wrong", "" if same else "the parameters differ")


def counted(results: Sequence[SchedulerRun]) -> dict[str, int]:
    """Return how many runs ended each way."""
    return {name: sum(each.outcome == name for each in results) for name in ("exact", "rounded", "wrong", "declined")}


def _sends_whole(system: System, plain: bench.LiveResult) -> bool:
    """Say whether all payloads travel as they are by the plan that the ranks will follow; UsageError where it is refused."""
    try:
        drawn = plain.workload()
        made = plan(system.load()(drawn, plain.costs()), plain.costs(), drawn)
    except UsageError:
        raise
    except RingwrightError as error:
        raise UsageError(error.what) from error
    return all(each.size_bytes >= sum(p.size_bytes for p in each.payloads) for each in made.operations)


def _job(model: str, scheduler: str, knobs: dict[str, float]) -> bench.LiveJob:
    return bench.LiveJob(model, scheduler, RANKS, LINK_RATE, 0, STEP_S, ELEMENTS, STEPS, knobs)
