"""Figures of out-of-order backprop: pipelines in units of a stage's pass, and ResNets whose first layers' gradients go last."""

from __future__ import annotations

from functools import cache

from ringwright.engines.job.run import simulate
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Queue, Workload
from ringwright.schedulers.decompose.ooo_backprop import ooo_backprop
from ringwright.schedulers.priority.bytescheduler import bytescheduler
from ringwright.workloads.layers import layerwise, measured
from ringwright.workloads.models import model
from ringwright.workloads.pipeline_chain import StageTimes, pipeline_chain
from ringwright_lab.papers.figures.netai2020 import BATCH_S, log
from ringwright_lab.papers.figures.pipelines import ELEMENTS, UnitCosts, computed, plain, units

FREE = UnitCosts()


def makespan(p: int, m: int, v: int, policy: str) -> float:
    """Return the units of a step: gpipe, fast-forward on the same stages, or modulo (v short stages a device in a loop)."""
    if policy == "modulo":
        return computed(ooo_backprop(units(p, m, v), FREE))
    step = pipeline_chain(p, m, times=StageTimes(v, v, v), schedule="gpipe", replicas=2, elements=ELEMENTS)
    return computed(ooo_backprop(step, FREE) if policy == "fast-forward" else step)


def over_gpipe(p: int, m: int, v: int) -> float:
    """Return how many times shorter a step in loops is than GPipe's."""
    return makespan(p, m, v, "gpipe") / makespan(p, m, v, "modulo")


def held(p: int, m: int, live: int) -> float:
    """Return how many micro-batches a device holds at the most, under a limit."""
    step = ooo_backprop(plain(p, m, 1), FREE, live=live)
    most = 0
    for each in step.classes:
        level = 0
        for name, _ in step.line(each.name):
            kind = step.task[name].kind
            level += (kind == "F") - (kind == "dW")
            most = max(most, level)
    return float(most)


# ---------------------------------------------------------------------------------------------------------- data parallel
CHUNK_MB = 4.0


@cache
def step_s(name: str, nodes: int, rate_gbps: float, policy: str, compute_s: float = 0.0) -> float:
    """Return seconds of a ResNet's step on rings: ``fifo`` with a barrier, ``priority`` in chunks, or ``ooo`` below that.

    Passes are as measured or, with ``compute_s``, in proportion to operations.
    """
    read, costs = log(name), LinkCosts(rate_gbps * 1e9 / 8, ring=True)
    step = measured(name, read.gaps_s, read.sizes_bytes, BATCH_S[name] - read.backward_s, nodes)
    if compute_s:
        step = layerwise(model(name), compute_s, nodes)
    if policy == "fifo":
        return simulate(step.with_policy("fifo", queue=Queue(), boundary="barrier"), costs).step_s
    ordered: Workload = ooo_backprop(step, costs) if policy == "ooo" else step
    return simulate(bytescheduler(ordered, costs, partition_mb=CHUNK_MB, credit_mb=CHUNK_MB), costs).step_s


def over(baseline: str, name: str, nodes: int, rate_gbps: float, compute_s: float = 0.0) -> float:
    """Return how many times shorter a step is out of order, in chunks by urgency."""
    ends = [step_s(name, nodes, rate_gbps, policy, compute_s) for policy in (baseline, "ooo")]
    return ends[0] / ends[1]
