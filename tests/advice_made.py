"""An advice that nobody searched for, with two changes, hostile names and two drawn steps, for its page."""

from __future__ import annotations

from ringwright.advise.document import SCHEMA, Advice, AdvisedChange
from ringwright.advise.pictures import DrawnStep
from ringwright.calls.provenance import asked_of
from ringwright.executors.fan_out import WorkAccount
from ringwright.jobs.explained.tracks import StepTrack, StepTracks, TrackPart

HOSTILE = "<script>document.title='x'</script>" + "a" * 90


def made_advice() -> Advice:
    """Return the object: one change that surely gains, one that may lose."""
    return {
        "schema": SCHEMA,
        "asked": {**asked_of(None), "faults": [HOSTILE]},
        "job": HOSTILE,
        "fabric": "dgx-h100:2",
        "ground": "times",
        "verdict": "changes",
        "why": "a step 12.0% shorter, -2.0% to 20.0%",
        "stopped": False,
        "ended": "complete",
        "base": {
            "measured_us": 1e5,
            "measured_us_p05": 9e4,
            "measured_us_p95": 1.1e5,
            "steps": 9,
            "peak_memory_bytes": None,
            "memory_unknown": None,
            "device_memory_bytes": None,
            "fits": None,
            "too_large": None,
            "replayed_us": 1.01e5,
            "step_us_p05": None,
            "step_us_p50": None,
            "step_us_p95": None,
            "fidelity": 0.01,
            "iterations": 8,
            "policy": "as recorded",
            "exposed_us": 2e4,
            "healthy_us": 9e4,
            "healthy_us_p50": None,
        },
        "changes": [_change("buckets of 25 MiB", 0.05, 0.1, 0.15), _change(HOSTILE, -0.02, 0.12, 0.2)],
        "refused": [{"what": HOSTILE, "why": "it would gain " + "much " * 40, "remedy": "--fabric dgx-h100:2"}],
        "setups": 100,
        "bounded": 90,
        "evaluated": 20,
        "work": 1000,
        "search_s": 1.5,
        "seed": 0,
        "executor": WorkAccount("local:1").document(),
        "assumptions": ["one step stands for all", HOSTILE],
    }


def _change(what: str, low: float, middle: float, high: float) -> AdvisedChange:
    return {
        "what": what,
        "where": f"environment: NCCL_ALGO={'x' * 120}",
        "layer": "ddp",
        "ground": "replay of its times",
        "risk": "more calls",
        "step_us": 1e5 * (1 - middle),
        "gain_p05": low,
        "gain_p50": middle,
        "gain_p95": high,
        "adds_p05": low,
        "adds_p50": middle,
        "adds_p95": high,
        "alone": None,
        "memory_bytes": -(1 << 20),
        "export": "ringwright export all-reduce --to nccl-tuner-csv -o tuner.csv; ringwright export " + "y" * 200,
        "files": [],
        "measure": "ringwright run -o after -- COMMAND; ringwright diff job after",
        "spelling": what,
    }


def drawn(steps: int = 3) -> list[DrawnStep]:
    """Return so many steps, each a tenth shorter than the one before: a pass, and what is sent beside it."""
    made: list[DrawnStep] = []
    for at in range(steps):
        span = 0.1 * 0.9**at
        sent = TrackPart("dp", [0.5 * span], [span])
        forward = TrackPart("forward", [0.0], [0.8 * span])
        tracks = [StepTrack("all", 0, 16, name, [part]) for name, part in (("compute", forward), ("dp", sent))]
        made.append(DrawnStep(at, f"step {at}", span, StepTracks(span_s=span, tracks=tracks, classes=1, shown=1)))
    return made
