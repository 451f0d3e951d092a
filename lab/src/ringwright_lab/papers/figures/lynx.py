"""Lynx's figures: one layer between no window and endless ones, a GPT of 6.7 billion parameters on fast and slow links, stages.

Neither tables nor set-up were at hand (abstracts alone). Assumed, before the rows were run: gpt3-6.7b on 16 A100 as tp4 and pp4,
micro-batches of one sequence; NVLink as 250 GB/s and PCIe as 20 GB/s a rank; memory of 1.15 times what full recomputation holds,
so that Megatron-LM's policies leave full recomputation alone.
"""

from __future__ import annotations

from functools import cache

from ringwright.engines.job.run import simulate
from ringwright.graph.memory import peak_bytes
from ringwright.jobs.model_step import job
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.lynx import LayerOperation, Recomputation, Window, chosen, lynx, partitioned
from ringwright.schedulers.decompose.lynx.stages import even, imbalance

MODEL, PARALLEL, GPUS = "gpt3-6.7b", "tp4,pp4", 16
RATES = {"nvlink": 250e9, "pcie": 20e9}  # bytes/s of a rank
ROOM = 1.15  # memory, in what full recomputation holds at its peak
FORWARD_S, BACKWARD_S, PARTS = 1.0, 2.0, 8
LAYERS, STAGES, SHARE_AGAIN = (
    32,
    4,
    0.25,
)  # of the partitioner: each micro-batch under way more has so much of F computed again


def hidden_gain(window_s: float) -> float:
    """Return how many times faster than full recomputation a layer is whose windows are so long, in forward passes."""
    step = FORWARD_S / PARTS
    names = [f"part{at}" for at in range(PARTS)]
    parts = tuple(LayerOperation(name, step, 1, tuple(names[max(0, at - 1) : at])) for at, name in enumerate(names))
    choice = chosen(Recomputation(parts, (Window("wait", window_s, layers=1),), budget_bytes=PARTS, copies=4))
    return (2 * FORWARD_S + BACKWARD_S) / (FORWARD_S + BACKWARD_S + choice.exposed_s)


@cache
def steps(links: str) -> tuple[Workload, LinkCosts, float, int]:
    """Return the job without recomputation, its links, the seconds of a step with full recomputation, and the memory."""
    costs = LinkCosts(RATES[links], ring=True)
    full = job(MODEL, gpus=GPUS, parallel=PARALLEL, gpu="a100", recompute="full")
    room = round(ROOM * (peak_bytes(full) or 0))
    return job(MODEL, gpus=GPUS, parallel=PARALLEL, gpu="a100"), costs, simulate(full, costs, steps=3).step_s, room


@cache
def gain_over_full(links: str) -> float:
    """Return how many times faster than full recomputation a step is, within the same memory; 1 where it does not fit."""
    step, costs, full_s, room = steps(links)
    made = lynx(step, costs, memory_bytes=room)
    if (peak_bytes(made) or 0) > room:
        return 1.0
    return full_s / simulate(made, costs, steps=3).step_s


def slow_links_gain_more() -> float:
    """Return 1 where the gain is at least 1.02 on NVLink and larger on PCIe."""
    return float(1.02 <= gain_over_full("nvlink") < gain_over_full("pcie"))


def imbalance_left() -> float:
    """Return the share of the imbalance of even stages that is left once layers have moved."""

    def stage_s(stage: int, layers: int) -> float:
        again = SHARE_AGAIN * (STAGES - 1 - stage)
        return layers * (FORWARD_S + BACKWARD_S + min(FORWARD_S, again))

    before = even(LAYERS, STAGES)
    after = partitioned(before, stage_s)
    left, whole = (imbalance([stage_s(at, each) for at, each in enumerate(made)]) for made in (after, before))
    return left / whole
