"""ByteScheduler's figures: the contrived example, VGG16 over parameter servers, the two knobs."""

from __future__ import annotations

from functools import cache, partial

from ringwright.engines.job.run import simulate
from ringwright.model.stages import LinkCosts, ServerCosts
from ringwright.model.workload import Queue, Workload
from ringwright.schedulers.priority.bytescheduler import bytescheduler
from ringwright.workloads.chain import ChainLayer, chain
from ringwright.workloads.layers import layerwise
from ringwright.workloads.models import model
from ringwright_lab.papers.figures.fit import least, turns

TENSORS = (3, 6, 3)  # units, layers 0, 1, 2; forward and backward of each take 2 units
ALONE_S = 256 / 785  # a step of one machine of 8 GPUs, 32 images each, at the images/s of the repository's plot
OVERHEAD_S = 1e-4  # of an operation over the wire: assumed
PUBLISHED = {  # images/s by GPUs: (MXNet's own, ByteScheduler), read from the repository's plots
    16: (671, 1508),
    32: (1413, 2826),
    64: (2731, 5404),
}


def example(op: str) -> Workload:
    """Return the three layers of Fig. 2, whole tensors first come first served behind a barrier."""
    made = chain("ByteScheduler Fig. 2", [ChainLayer(2.0, 2.0, size) for size in TENSORS], op=op)
    return fifo(made)


def fifo(workload: Workload) -> Workload:
    """Return it with whole tensors, first come first served, behind a barrier."""
    return workload.with_policy("fifo", queue=Queue(), boundary="barrier")


def fig2(op: str, policy: str) -> float:
    """Return the step in units: ``fifo``, or by urgency in unit partitions."""
    costs = ServerCosts(1.0) if op == "push-pull" else LinkCosts(1.0)
    units = partial(bytescheduler, partition_mb=1 / (1 << 20), credit_mb=1 / (1 << 20))
    made = example(op) if policy == "fifo" else units(example(op), costs)
    return simulate(made, costs).step_s


# ------------------------------------------------------------------------------------------------------------- Fig. 10b
def published_s(gpus: int, policy: str) -> float:
    """Return the step that the published images/s of ``gpus`` GPUs are: 32 images each."""
    return 32 * gpus / PUBLISHED[gpus][policy != "fifo"]


@cache
def fig10b(policy: str, rate_gbps: float | None = None) -> float:
    """Return seconds of a VGG16 step over servers, a link of ``rate_gbps`` each way, or the one rate that fits best."""
    costs = ServerCosts((fitted_gbps() if rate_gbps is None else rate_gbps) * 1e9 / 8, OVERHEAD_S)
    made = layerwise(model("vgg16"), ALONE_S, op="push-pull")
    return simulate(fifo(made) if policy == "fifo" else bytescheduler(made, costs, partition_mb=4), costs).step_s


@cache
def fitted_gbps() -> float:
    """Return the one rate whose two steps are nearest to all six published ones: the largest relative error is least."""

    def error(rate: float) -> float:
        policies = ("fifo", "bytescheduler")
        return max(
            abs(fig10b(policy, rate) / published_s(gpus, policy) - 1) for gpus in PUBLISHED for policy in policies
        )

    return least(error, 8.0, 20.0)


# --------------------------------------------------------------------------------------------------------------- knobs
PARTITIONS_MB = (8, 16, 32, 64, 128)  # the tuner's ranges: 2 to 32 million parameters, credit 4 to 64 million
CREDITS_MB = (16, 32, 64, 128, 256)
LATENCY_S = 5e-4  # of an all-reduce, which others overlap as far as credit allows: assumed
RIPPLE = 0.01


@cache
def step(partition_mb: float, credit_mb: float) -> float:
    """Return seconds of a VGG16 step by all-reduce at the fitted rate, with these knobs."""
    costs = LinkCosts(fitted_gbps() * 1e9 / 8, LATENCY_S, OVERHEAD_S)
    made = bytescheduler(layerwise(model("vgg16"), ALONE_S), costs, partition_mb=partition_mb, credit_mb=credit_mb)
    return simulate(made, costs).step_s


def sweep_turns(axis: str, at_once: int = 0) -> int:
    """Return how often, along ``axis``, the step gets longer and then shorter again by more than 1 %, over all lines.

    With ``at_once``, only where the credit holds so many partitions.
    """
    if axis == "credit":
        return sum(turns([step(partition, credit) for credit in CREDITS_MB], RIPPLE) for partition in PARTITIONS_MB)
    lines = [[step(each, credit) for each in PARTITIONS_MB if each * at_once <= credit] for credit in CREDITS_MB]
    return sum(turns(line, RIPPLE) for line in lines if line)


# ------------------------------------------------------------------------------------------------------ at the line's rate
LINE = 100e9 / 8  # the testbed's 100 Gb/s, used in full: nothing is fitted here
GPUS, PER_MACHINE = 64, 8
ONE_MACHINE_S = {  # 32 images or 512 tokens a GPU, 8 GPUs, at the images/s or tokens/s of one machine in the repository's plots
    "vgg16": 256 / 785,
    "resnet50": 256 / 1654,
    "transformer": 4096 / 16400,
}
ADVISED = {
    "push-pull": (4.0, 16.0),
    "all-reduce": (32.0, 64.0),
}  # MB of a partition and of the credit, from its own advice


@cache
def line_step(name: str, op: str, policy: str) -> float:
    """Return seconds of a step on 64 GPUs with links used in full: ``fifo`` or ``bytescheduler``, by servers or all-reduce."""
    ranks = GPUS // PER_MACHINE
    made = layerwise(model(name), ONE_MACHINE_S[name], ranks, op=op)
    costs = ServerCosts(LINE, OVERHEAD_S) if op == "push-pull" else LinkCosts(LINE, overhead_s=OVERHEAD_S, ring=True)
    partition_mb, credit_mb = ADVISED[op]
    ordered = bytescheduler(made, costs, partition_mb=partition_mb, credit_mb=credit_mb)
    return simulate(fifo(made) if policy == "fifo" else ordered, costs).step_s


def line_gain(name: str, op: str) -> float:
    """Return how much more throughput urgency gains over first come first served, as a share: 0 is none."""
    return line_step(name, op, "fifo") / line_step(name, op, "bytescheduler") - 1


def line_efficiency(name: str) -> float:
    """Return the step of one machine against that of eight over servers, by urgency."""
    return ONE_MACHINE_S[name] / line_step(name, "push-pull", "bytescheduler")
