"""The survey as one object: a row for each of its systems, and for a job what each would do to its step."""

from __future__ import annotations

from typing import Any

from ringwright.calls.provenance import AskedOf, asked_of
from ringwright.executors.fan_out import Chosen, fan_out
from ringwright.ground.stepwise import Advance
from ringwright.jobs.model_job import UNCHARGED
from ringwright.model.registry import schedulers
from ringwright_lab.survey import catalogue, records
from ringwright_lab.survey.entries import PROFILER, TREE, Entry, entries
from ringwright_lab.survey.job_gains import LIKELY, Runs, StepOutcome, best, figures, scene, untouched_by
from ringwright_lab.survey.needs import NEEDS, Scene, unmet
from ringwright_lab.survey.survey_job import Asked

SCHEMA = "ringwright.survey/1"
ALGORITHMS, POLICIES = ("collective-library", "in-network-aggregation"), ("communication-scheduling",)
NOT_BUILT = "not built"
NO_JOB: dict[str, Any] = {
    **dict.fromkeys(("step_us", *LIKELY, "exposed_us", "wire_bytes", "healthy")),
    **dict.fromkeys(("speedup", "why_not", "declined", "command")),
    "left_to_library": [],
}


def survey(
    asked: Asked | None = None, *, exhaustive: bool = False, told: Advance | None = None, executor: Chosen = None
) -> dict[str, Any]:
    """Return the object of schema ``ringwright.survey/1``: ``rows``, and of a job ``baseline`` and ``best``.

    ``asked`` is the job, None for the list alone. ``executor`` simulates the pairs. Times in microseconds, bytes
    those that a rank puts on wires in a step.
    """
    listed = entries()
    conformance = {row["slug"]: row["conformance"] for row in catalogue.catalogue()["systems"]}
    document: dict[str, Any] = {"schema": SCHEMA, "asked": question_of(asked), "job": None, "tree": tree(listed)}
    with fan_out(executor) as fan:
        runs, where = None, None
        if asked is not None:
            runs = Runs(asked, told, sum(entry.built for entry in listed), fan)
            where = Scene(scene(asked), asked.topology, asked.recorded, asked.measured_us is not None)
            runs.ahead(_pair(entry, asked) for entry in listed if not _why_not(entry, where) and entry.kind != PROFILER)
        rows = [_row(entry, conformance.get(entry.slug), runs, where) for entry in listed]
        if asked is not None and runs is not None:
            document |= _job(asked, runs, rows, exhaustive=exhaustive) | {"executor": fan.account.document()}
    return document | {"rows": rows, "needs": {name: need.meaning for name, need in NEEDS.items()}}


def question_of(asked: Asked | None) -> AskedOf:
    """Return what was asked: of which machine, by which baseline."""
    if asked is None:
        return asked_of(None)
    algorithm, policy = asked.baseline
    return asked_of(asked.topology, (algorithm,), policies=(policy,))


def tree(listed: list[Entry]) -> list[dict[str, Any]]:
    """Return the classes in their order: family, class, systems, and how many of them are built."""
    return [
        {
            "family": family,
            "class": kind,
            "systems": sum(each.kind == kind for each in listed),
            "built": sum(each.kind == kind and each.built for each in listed),
        }
        for kind, (family, _) in TREE.items()
    ]


def _row(entry: Entry, checks: dict[str, Any] | None, runs: Runs | None, where: Scene | None) -> dict[str, Any]:
    outcome, of_job = (None, NO_JOB) if runs is None or where is None else _measured(entry, runs, where)
    real = records.real_runs(entry.slug)
    now = outcome is not None and outcome.step_us is not None
    passed = bool(checks and checks.get("passed", 0) and not checks.get("failed", 0))
    return {
        "slug": entry.slug,
        "family": entry.family,
        "class": entry.kind,
        "title": entry.title,
        "year": entry.year,
        "origin": entry.system.origin if entry.system else None,
        "mechanism": entry.mechanism,
        "needs": list(entry.needs),
        "collectives": list(entry.collectives),
        "declines": entry.declines,
        "built": entry.built,
        "simulated": passed or now,
        "real": bool(real),
        "equal_bits": _equal(entry, passed, outcome),
        "conformance": checks,
        "real_runs": real,
        **records.claim(entry.slug),
        **of_job,
    }


def _equal(entry: Entry, passed: bool, outcome: StepOutcome | None) -> bool | None:
    """Say whether sums are the plain ones, to the bit, wherever adding is exact: by this run, its checks, or its declaration."""
    if not entry.built or entry.kind == PROFILER:
        return entry.equal_bits
    if entry.family in POLICIES and entry.system is not None:
        return untouched_by(entry.system.load()) if outcome is None else outcome.equal_bits
    if entry.system is not None and entry.system.rounds:
        return False
    return passed or None


def _measured(entry: Entry, runs: Runs, where: Scene) -> tuple[StepOutcome | None, dict[str, Any]]:
    """Return what a system does for the job: figures, or why there are none."""
    if why := _why_not(entry, where):
        return None, NO_JOB | {"why_not": why}
    if entry.kind == PROFILER:
        return None, NO_JOB | {"step_us": runs.asked.measured_us}
    pair = _pair(entry, runs.asked)
    outcome = runs.outcome(*pair)
    return outcome, {
        **NO_JOB,
        **figures(outcome),
        "declined": outcome.declined or None,
        "left_to_library": list(outcome.left),
        "command": runs.asked.command(*pair),
    }


def _why_not(entry: Entry, where: Scene) -> str:
    """Return why a system says nothing of the job; empty where it may."""
    ops = entry.collectives if entry.family in ALGORITHMS else ()
    return (unmet(entry.needs, ops, where) or "") if entry.built else NOT_BUILT


def _pair(entry: Entry, asked: Asked) -> tuple[str, str]:
    """Return the baseline with a system in the place of its algorithm or its policy."""
    algorithm, policy = asked.baseline
    return (entry.slug, policy) if entry.family in ALGORITHMS else (algorithm, entry.slug)


def _job(asked: Asked, runs: Runs, rows: list[dict[str, Any]], *, exhaustive: bool) -> dict[str, Any]:
    algorithm, policy = asked.baseline
    baseline = runs.outcome(algorithm, policy)
    answered = [row for row in rows if row["command"] and row["step_us"] is not None]
    algorithms = [row["slug"] for row in answered if row["family"] in ALGORITHMS]
    waiting = {each.slug for each in schedulers() if each.hardware}  # for machines that nobody has: no answer for a job
    policies = [row["slug"] for row in answered if row["family"] in POLICIES and row["slug"] not in waiting]
    own = [] if policy in policies else [policy]
    pair = best(runs, algorithms or [algorithm], [*own, *policies], exhaustive=exhaustive)
    for row in answered:
        row["speedup"] = baseline.step_us / row["step_us"] if baseline.step_us else None
    return {
        "job": asked.name,
        "workload": scene(asked).name,
        "fabric": asked.topology.name,
        "mesh": dict(scene(asked).mesh.axes),
        "measured_us": asked.measured_us,
        "baseline": {
            "algorithm": algorithm,
            "policy": policy,
            **figures(baseline),
            "command": asked.command(algorithm, policy),
        },
        "best": pair,
        "assumptions": list(asked.told),
        "warnings": [*asked.warnings, f"algorithms: {UNCHARGED}"],
        "left_out": list(runs.job(algorithm).left_out),
    }
