"""Fold3D's figures: steps of a pipeline whose sums take 44 % of 1F1B's, in units of a stage's forward pass."""

from __future__ import annotations

from functools import cache

from ringwright.engines.job.run import simulate
from ringwright.ground.units import PS
from ringwright.schedulers.decompose.breadth_first_pp import breadth_first_pp
from ringwright.schedulers.decompose.fold3d import fold3d
from ringwright.workloads.pipeline_chain import StageTimes, pipeline_chain
from ringwright_lab.papers.figures.pipelines import ELEMENTS, UnitCosts, computed, ended, plain, steady, units

IDLE = 0.44  # of the time, in which data parallelism leaves all GPUs idle: sums behind the pipeline of 1F1B
CHUNKS = 4


def sums_s(p: int, m: int) -> float:
    """Return the units of all sums of a device: the published share of a 1F1B step that ends with them."""
    return computed(plain(p, m, CHUNKS)) * IDLE / (1 - IDLE)


@cache
def step_units(p: int, m: int, policy: str, message_s: float = 0.0) -> float:
    """Return the units of a step: 1f1b or interleaved with sums behind it, breadth-first, or fold3d in steady steps."""
    whole, step = sums_s(p, m), units(p, m, CHUNKS)
    costs, alone = UnitCosts(whole / CHUNKS, message_s), UnitCosts(0.0, message_s)
    if policy in ("1f1b", "interleaved"):
        made = plain(p, m, CHUNKS) if policy == "1f1b" else step
        return simulate(made, alone, steps=1).finished(0) / PS + whole
    if policy == "breadth-first":
        return ended(breadth_first_pp(step, costs), costs)
    return steady(fold3d(step, costs), costs)


def rounded(p: int, m: int, policy: str) -> float:
    """Return the same to the unit."""
    return float(round(step_units(p, m, policy)))


def over_interleaved(p: int, m: int, message_s: float) -> float:
    """Return how much more steps there are than of Megatron's interleaved pipeline, messages and sums on one NIC."""
    return step_units(p, m, "interleaved", message_s) / step_units(p, m, "fold3d", message_s) - 1


@cache
def over_best_split(ratio: float, again: bool, sums: float = 1.1, p: int = 2, m: int = 4) -> float:
    """Return how much longer a step is by the formula than by the best of 19 splits; ``sums`` are in compute times."""
    times = StageTimes(ratio, 0.5, 0.5 + (ratio if again else 0.0))
    step = pipeline_chain(p, m, CHUNKS, times=times, replicas=2, elements=ELEMENTS)
    costs = UnitCosts(m * sums * (times.forward_s + times.inputs_s + times.weights_s))
    shares = [at / 20 for at in range(1, 20)]
    best = min(steady(fold3d(step, costs, ratio=share / (1 - share)), costs, 4) for share in shares)
    return steady(fold3d(step, costs), costs, 4) / best


def over_formula(ratio: float, sums: float = 1.1, p: int = 4, m: int = 8) -> float:
    """Return how much longer a step is whose buffers are cut in halves than by the formula, with recomputation."""
    times = StageTimes(ratio, 0.5, 0.5 + ratio)
    step = pipeline_chain(p, m, CHUNKS, times=times, replicas=2, elements=ELEMENTS)
    costs = UnitCosts(m * sums * (times.forward_s + times.inputs_s + times.weights_s))
    return steady(fold3d(step, costs, ratio=1.0), costs) / steady(fold3d(step, costs), costs)
