"""DeAR's figures: what pipelining alone can gain, and the order of methods on Ethernet and InfiniBand."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise

from ringwright.engines.job.run import simulate
from ringwright.ground.units import PS
from ringwright.model.stages import LinkCosts
from ringwright.model.workload import Queue, Rewrite, Workload
from ringwright.schedulers.decompose.dear import dear
from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
from ringwright.schedulers.order import GRADIENTS, released
from ringwright.schedulers.priority._fusion import SlicedSeconds, Tensor, merge
from ringwright.schedulers.priority.bytescheduler import bytescheduler
from ringwright.workloads.chain import ChainLayer, chain
from ringwright.workloads.layers import layerwise
from ringwright.workloads.models import model

STEPS, FROM, UNTIL = 20, 8, 18  # a steady step is the mean of those between
LAYERS, LAYER_BYTES, FEW = 40, 1 << 20, 4
# ------------------------------------------------------------------------------------------------------- pipelining alone
# Forward takes 1 s, backward 2 s, over equal layers; no start-up.


def steady_s(step: Workload, costs: LinkCosts) -> float:
    """Return the seconds of one step of a long run."""
    run = simulate(step, costs, steps=STEPS)
    return (run.finished(UNTIL) - run.finished(FROM)) / (UNTIL - FROM) / PS


@cache
def pipelining(all_reduce_s: float, layers: int = LAYERS, *, conserving: bool = False) -> float:
    """Return plain overlap's step against DeAR's, each layer alone, where all gradients take ``all_reduce_s`` seconds."""
    links = [ChainLayer(1 / layers, 2 / layers, LAYER_BYTES) for _ in range(layers)]
    step = chain("equal layers", links, FEW)
    costs = LinkCosts(LAYER_BYTES * layers * 2 * (FEW - 1) / FEW / all_reduce_s, ring=True)
    after = dear(step, costs, neighbours=1, conserving=conserving)
    return steady_s(step, costs) / steady_s(after, costs)


def largest_pipelining(*, conserving: bool = False) -> float:
    """Return the largest gain over all-reduces of 0.5 to 12 s."""
    return max(pipelining(tenths / 2, 160, conserving=conserving) for tenths in range(1, 25))


# --------------------------------------------------------------------------------------------------------- five methods
GPUS = 64
RATES = {"10GbE": 1.25e9, "100GbIB": 12.5e9}  # bytes/s of a node's port, which the ring passes once
HOP_S = {"10GbE": 50e-6, "100GbIB": 10e-6}  # the two ends of 10 to 50 us a hop, assumed
# RTX 2080 Ti: 13.45 TFLOP/s in single precision (data sheet), half of them used (assumed); forward GFLOP of a sample, of 64
# tokens for BERT (assumed); samples a GPU and step.
FLOPS, USED = 13.45e12, 0.5
FORWARD_GFLOP = {"resnet50": 8.18, "bert-base": 10.9, "bert-large": 38.7}
SAMPLES = {"resnet50": 64, "bert-base": 64, "bert-large": 32}
MODELS = tuple(FORWARD_GFLOP)
SWEPT_MIB = (1, 5, 10, 25, 50, 100, 200)  # within what its tuner may choose
FUSING, ALONE = ("mg-wfbp", "pytorch-ddp"), ("wfbp", "bytescheduler")


def compute_s(name: str) -> float:
    """Return the seconds of a step's compute."""
    return 3 * FORWARD_GFLOP[name] * 1e9 * SAMPLES[name] / (FLOPS * USED)


def network(kind: str) -> LinkCosts:
    """Return a ring over all GPUs, through one port a node."""
    return LinkCosts(RATES[kind], HOP_S[kind], ring=True)


def merged_gradients(workload: Workload, costs: LinkCosts) -> Workload:
    """Return MG-WFBP: gradients merged so that the last all-reduce ends soonest."""
    ready = released(workload)
    listed = workload.gradients()
    hops = 2 * (GPUS - 1)
    takes = SlicedSeconds(hops * costs.latency_s, hops / GPUS / costs.rate, 1 << 62)
    groups = merge([Tensor(each.name, ready[each.name], 0.0, each.size_bytes) for each in listed], takes)
    merging = Rewrite("groups", GRADIENTS, {"names": [list(names) for names in groups]})
    return workload.with_policy("mg-wfbp", rewrites=(merging,), queue=Queue(), boundary="barrier", agreement="index")


METHODS: dict[str, Callable[..., Workload]] = {
    "wfbp": partial(pytorch_ddp, bucket_cap_mb=0),
    "pytorch-ddp": pytorch_ddp,
    "mg-wfbp": merged_gradients,
    "bytescheduler": bytescheduler,
}


@cache
def method_s(name: str, kind: str, method: str) -> float:
    """Return the seconds of a steady step of a model with a method.

    One of ``METHODS``, dear, dear-tuned (the best of ``SWEPT_MIB``), or dear-alone (each layer alone).
    """
    step, costs = layerwise(model(name), compute_s(name), GPUS), network(kind)
    if method in METHODS:
        return steady_s(METHODS[method](step, costs), costs)
    if method == "dear-tuned":
        return min(steady_s(dear(step, costs, threshold_mb=each), costs) for each in SWEPT_MIB)
    return steady_s(dear(step, costs, neighbours=int(method == "dear-alone")), costs)


def in_order(name: str, kind: str = "10GbE", *, tuned: bool = False) -> float:
    """Return 1 where DeAR is no slower than MG-WFBP, that no slower than buckets, these no slower than gradients alone."""
    mine = "dear-tuned" if tuned else "dear"
    times = [method_s(name, kind, method) for method in (mine, "mg-wfbp", "pytorch-ddp", "wfbp")]
    return float(all(one <= other * (1 + 1e-9) for one, other in pairwise(times)))


def largest_gain(kind: str) -> float:
    """Return the most that DeAR is faster, over models and methods: with buckets where they have some, else each layer alone."""
    fused = (method_s(name, kind, each) / method_s(name, kind, "dear") for name in MODELS for each in FUSING)
    alone = (method_s(name, kind, each) / method_s(name, kind, "dear-alone") for name in MODELS for each in ALONE)
    return max(*fused, *alone)


def gain_over_buckets(kind: str) -> float:
    """Return the mean over models of what DeAR saves against the best method with buckets, as a share."""
    gains = [min(method_s(name, kind, each) for each in FUSING) / method_s(name, kind, "dear") - 1 for name in MODELS]
    return sum(gains) / len(gains)


def ethernet_over_infiniband() -> float:
    """Return how many times larger DeAR's gain is on 10 Gb/s Ethernet than on 100 Gb/s InfiniBand."""
    slow, fast = (gain_over_buckets(kind) for kind in ("10GbE", "100GbIB"))
    return slow / fast if fast > 0 else (1e3 if slow > 0 else 0.0)
