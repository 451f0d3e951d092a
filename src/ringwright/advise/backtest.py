"""Was it true? A prediction made on one recording, held against another: the halves of a job, or a run after a known change.

What is predicted is what will be measured, so the interval also holds what the means of two recordings differ by of themselves:
by how much steps wander, taken from the steps of the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from ringwright.advise.advise import MOST_DECLINED, is_sure
from ringwright.advise.changes import setup_of
from ringwright.advise.evaluation import Evaluator
from ringwright.advise.interval import Draws
from ringwright.advise.settings import Setup
from ringwright.advise.situation import of_recording
from ringwright.ground.errors import InputError
from ringwright.jobs.recorded_job import FAR
from ringwright.workloads.recorded.lines import steady_steps

if TYPE_CHECKING:
    from ringwright.advise.situation import Situation
    from ringwright.model.topology import Topology
    from ringwright.model.trace import Trace

SCHEMA = "ringwright.back-test/1"
HALVES, PAIR = "halves", "pair"
FEWEST_STEPS = 4  # of a recording that is halved
MOST_ALIKE = 0.8  # of neighbouring steps: their correlation, as far as so few steps tell it
RUN_SIGMA = 0.008  # by which a run differs from the next one as a whole, and half of one from the other
PER_DRAW = 32  # means of recordings that are drawn for each draw of a gain
MOST_DRAWS = 32
NARROW = 0.05  # of a step: an interval around nothing, as wide at most, still says that nothing is gained
FREEDOM = 8  # degrees of it: how well so few steps tell how far they wander


@dataclass(frozen=True, slots=True)
class BackTest:
    """A prediction and what was measured; gains are shares of the step before, times in us.

    ``change`` is empty where nothing was changed. ``is_told``: advice would tell the change, not only that it may gain.
    ``is_telling``: the interval holds only gains, or only losses, or is narrow; else nearly anything would be inside.
    ``is_inside``: the measured gain lies within the predicted interval; null where nothing was predicted, and ``why`` says why.
    """

    schema: str
    kind: str
    job: str
    change: str
    what: str
    before_us: float
    after_us: float
    before_steps: int
    after_steps: int
    fidelity: float | None
    gain_p05: float | None
    gain_p50: float | None
    gain_p95: float | None
    measured_gain: float
    is_inside: bool | None
    is_telling: bool | None
    is_told: bool
    why: str
    seed: int


def of_halves(trace: Trace, topology: Topology | None = None, seed: int = 0) -> BackTest:
    """Return what the first half of a recording says of its second; InputError where it has too few steps, or no times."""
    steps = sorted(steady_steps(trace))
    if len(steps) < FEWEST_STEPS:
        raise InputError(
            f"{len(steps)} steady steps were recorded: halves need {FEWEST_STEPS}",
            where="events",
            remedy="record more steps, or --back-test OTHER --change SPELLING",
        )
    middle = steps[len(steps) // 2]
    first, second = (_part(trace, low, high) for low, high in ((steps[0], middle), (middle, steps[-1] + 1)))
    return _judged(HALVES, of_recording(first, topology), of_recording(second, topology, most=1), "", seed)


def of_pair(before: Trace, after: Trace, change: str, topology: Topology | None = None, seed: int = 0) -> BackTest:
    """Return what a recording says of a change, beside a recording with it; UsageError for a change that is not known.

    An empty change: both ran alike.
    """
    return _judged(PAIR, of_recording(before, topology), of_recording(after, topology, most=1), change, seed)


def _part(trace: Trace, low: int, high: int) -> Trace:
    """Return the steps from ``low`` to before ``high``, with what is of no step."""
    import polars as pl

    from ringwright.ground.trace_tables import TABLES

    frames = {name: trace.scan(name).collect() for name in TABLES if name != "edges"}
    at = pl.col("iteration")
    frames["events"] = frames["events"].filter(at.is_null() | ((at >= low) & (at < high)))
    return type(trace).of(frames, trace.meta)


def _judged(kind: str, before: Situation, after: Situation, change: str, seed: int) -> BackTest:
    was, now = _means(before), _means(after)
    evaluator = Evaluator(before)
    setup = setup_of(before, change) if change else Setup()
    ends, fidelity, why, is_told = None, None, "", False
    replayed = mean(evaluator.result(Setup(), at).step_s for at in range(before.iterations))
    fidelity = replayed / was - 1
    if abs(fidelity) > FAR:
        why = f"the replay, unchanged, is {abs(fidelity):.0%} {'longer' if fidelity > 0 else 'shorter'} than the recording"
    elif refused := evaluator.run(setup).refused:
        why = refused
    else:
        gain = Draws(evaluator, fidelity, seed, most=MOST_DRAWS).gain(setup)
        if gain.declined > MOST_DECLINED:
            why = f"it cannot be done in some of the recorded steps ({gain.declined:.0%} of the draws)"
        else:
            is_told = bool(change) and is_sure(gain)
            ends = _measured(gain.shares, before.measured_s, len(after.measured_s), seed)
    measured = 1 - now / was
    return BackTest(
        schema=SCHEMA,
        kind=kind,
        job=before.name,
        change=change,
        what="; ".join(each.what for each in setup) or "nothing was changed",
        before_us=was * 1e6,
        after_us=now * 1e6,
        before_steps=len(before.measured_s),
        after_steps=len(after.measured_s),
        fidelity=fidelity,
        gain_p05=ends[0] if ends else None,
        gain_p50=ends[1] if ends else None,
        gain_p95=ends[2] if ends else None,
        measured_gain=measured,
        is_inside=ends[0] <= measured <= ends[2] if ends else None,
        is_telling=is_telling(ends[0], ends[2]) if ends else None,
        is_told=is_told,
        why=why,
        seed=seed,
    )


def is_telling(low: float, high: float) -> bool:
    """Say whether an interval of predicted gains, as shares of a step, would be refuted by what a change may well do."""
    return low > 0 or high < 0 or high - low <= NARROW


def _means(situation: Situation) -> float:
    """Return the mean step, s; InputError where the recording has no times."""
    if not situation.measured_s:
        raise InputError(
            "the recording has no times of its steps",
            where=situation.name,
            remedy="ringwright run -- COMMAND, or PyTorch's profiler",
        )
    return mean(situation.measured_s)


def _measured(shares: np.ndarray, steps: Sequence[float], count: int, seed: int) -> tuple[float, float, float]:
    """Return 5, 50 and 95 % of the gain that will be measured between means of so many steps."""
    sigma = math.sqrt(wander(steps) ** 2 * (1 / len(steps) + 1 / count) + RUN_SIGMA**2)
    drawn = np.random.default_rng((seed, *b"means"))
    known = shares[np.isfinite(shares)]
    noise = np.exp(sigma * drawn.standard_t(FREEDOM, (PER_DRAW, len(known))))
    low, middle, high = np.quantile(1 - (1 - known) * noise, (0.05, 0.5, 0.95)).tolist()
    return low, middle, high


def wander(steps: Sequence[float]) -> float:
    """Return the standard deviation of the logarithm of a step, as the mean of many shows it: more where neighbours are alike."""
    if len(steps) < 2:
        return RUN_SIGMA
    logs = np.log(np.maximum(steps, 1e-12))
    off, variance = logs - logs.mean(), float(np.var(logs, ddof=1))
    if not variance:
        return 0.0
    alike = float((off[:-1] * off[1:]).sum() / (off**2).sum()) + 1 / len(logs)
    alike = min(max(alike, 0.0), MOST_ALIKE)
    return math.sqrt(variance * (1 + alike) / (1 - alike))
