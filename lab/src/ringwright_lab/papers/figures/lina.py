"""Lina's figures: one layer's time line, training steps of the 419M model, inference with skewed popularity."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice

from ringwright.costs.nodes import NodeCosts
from ringwright.engines.job.run import JobRun, simulate
from ringwright.model.stages import seconds
from ringwright.model.workload import Edge, Gate, Payload, Task, Workload
from ringwright.schedulers.fifo.pytorch_ddp import pytorch_ddp
from ringwright.schedulers.priority.lina import GATES, GRADIENT_CLASS, lina, priority
from ringwright.schedulers.priority.lina.inference import Skew, layer_times
from ringwright.workloads.moe_chain import MoeLayer, moe_chain

NODE_RATE, PER_NODE, RANKS = 12.5e9, 4, 16  # 100 Gb/s a node, 4 nodes
INSIDE = 300e9  # NVLink of an A100, one direction: not in the paper
HIDDEN, LAYERS, EXPERTS, PARAMETERS = 512, 12, 16, 419e6
EXPERT_BYTES = 2 * HIDDEN * 4 * HIDDEN * 4  # two matrices of h x 4 h in single precision
DENSE_BYTES = round((PARAMETERS * 4 - LAYERS * EXPERTS * EXPERT_BYTES) / LAYERS)
STEP_S, SHARE = 0.333, 0.38  # Table 1 for 16 experts: 333 ms; all-to-all 37 % to 39.5 % over its models
# Without packing, expert work fills 33 % to 36 % of an all-to-all ("pipelining efficiency"), forward; backward takes twice as
# long. Of the other work a twentieth is given to combine, which is a guess.
FILLED, COMBINE_WORK, BACKWARD = 0.345, 0.05, 2.0
MICRO_OPS_LONGER, PARTITION_MIB = 0.017, 30  # section 7: micro-ops of 30 MB take 1.7 % longer in total
SWEPT_MIB = (5, 10, 20, 30, 50, 100, 200)


def costs(cards: int = 1) -> NodeCosts:
    """Return the testbed: ``cards`` of 100 Gb/s a node. A micro-op's overhead is 1.7 % of an all-reduce of 30 MiB."""
    whole_s = 2 * (RANKS - 1) / RANKS * PARTITION_MIB * (1 << 20) / (NODE_RATE * cards)
    return NodeCosts(NODE_RATE * cards, PER_NODE, INSIDE, MICRO_OPS_LONGER * whole_s)


# ---------------------------------------------------------------------------------------------------- one layer, Fig. 7 and 8
EXCHANGE_MS = 4.4  # one all-to-all: what fair sharing takes longer than deferral, 29.0 - 24.6
LEFT_MS = 6.3  # of the all-reduce when the first all-to-all comes: what naive priority takes longer, 30.9 - 24.6
COMPUTE_MS = 24.6 - 2 * EXCHANGE_MS
VARIANTS = ("naive", "fair", "deferred", "micro-ops")


def layer(variant: str, what: str, partition_mb: float = PARTITION_MIB, *, pipelining: bool = True) -> float:
    """Return ms from the start of a layer's backward to its end (``layer``) or to that of the all-reduce (``gradient``)."""
    wires = NodeCosts(NODE_RATE, PER_NODE)
    made = _scheduled(one_layer(), wires, variant, partition_mb, pipelining=pipelining)
    run = simulate(made, wires, steps=1)
    begin = min(int(run.starts(row, 0)[0]) for row in run.laid.rows if row.name == "B.combine0")
    wanted = {"layer": "B.dense0", "gradient": "above"}[what]
    return (max(int(run.ends(row, 0).max()) for row in run.laid.rows if row.name == wanted) - begin) / 1e9


def order(partition_mb: float = PARTITION_MIB) -> float:
    """Return 1 where the four variants' layer times are in the paper's order and deferral ends the all-reduce later."""
    times = [round(layer(variant, "layer", partition_mb), 3) for variant in VARIANTS]
    later = layer("deferred", "gradient") > layer("micro-ops", "gradient", partition_mb)
    return float(times == sorted(times, reverse=True) and later)


def earlier(partition_mb: float = PARTITION_MIB) -> float:
    """Return by how many ms the all-reduce ends earlier with micro-ops than when it is deferred."""
    return layer("deferred", "gradient") - layer("micro-ops", "gradient", partition_mb)


def one_layer() -> Workload:
    """Return a layer whose backward begins when a gradient from above becomes ready."""
    wire = NODE_RATE / PER_NODE / (1 - PER_NODE / RANKS)
    experts_s = FILLED * EXCHANGE_MS / 1e3
    other_s = COMPUTE_MS / 1e3 / BACKWARD - experts_s
    made = moe_chain(
        "one layer",
        [
            MoeLayer(
                other_s * (1 - COMBINE_WORK),
                experts_s,
                other_s * COMBINE_WORK,
                round(EXCHANGE_MS / 1e3 * wire),
                backward=BACKWARD,
            )
        ],
        RANKS,
    )
    size = round((LEFT_MS / 1e3 + other_s * COMBINE_WORK * BACKWARD) * NODE_RATE * RANKS / (2 * (RANKS - 1)))
    above = Task("B.above", "all", "B", 0.0, 1, ("B", 0))
    first = next(at for at, task in enumerate(made.tasks) if task.name == "B.combine0")
    gradient = Payload("above", "all", "all-reduce", size, ("dp", "ep"), "dp", ("B.above",), (("U.above", 0),))
    return replace(
        made,
        tasks=(*made.tasks[:first], above, *made.tasks[first:], Task("U.above", "all", "U", per="step")),
        edges=(Edge("F.combine0", "B.above"), Edge("B.above", "B.combine0")),
        payloads=(*made.payloads, gradient),
    )


def _scheduled(
    workload: Workload, wires: NodeCosts, variant: str, partition_mb: float, *, pipelining: bool
) -> Workload:
    if variant == "fair":
        return workload
    if variant == "micro-ops":
        return lina(workload, wires, partition_mb=partition_mb, packing=1, pipelining=pipelining)
    queue = priority()
    if variant == "naive":  # whole operations, and nothing known of what follows
        queue = replace(queue, gates=tuple(gate for gate in GATES if not isinstance(gate.by, str)))
    else:  # whole all-reduces, and none between the all-to-alls of a layer
        queue = replace(queue, gates=(*GATES, Gate(GRADIENT_CLASS, "experts", "running")))
    return workload.with_policy(variant, queue=queue)


# ------------------------------------------------------------------------------------------------------------ training steps
def step_layers(all_to_all_bytes: float, other_s: float, cards: int) -> Workload:
    """Return a step of the 419M model, 12 layers and 16 experts, for this exchange and these seconds of other work in all."""
    size = round(all_to_all_bytes)
    experts_s = FILLED * seconds(costs(cards), "all-to-all", size, tuple(range(RANKS)), "ep")
    each_s = other_s / LAYERS / (1 + BACKWARD)
    one = MoeLayer(
        each_s * (1 - COMBINE_WORK), experts_s, each_s * COMBINE_WORK, size, (DENSE_BYTES,), EXPERT_BYTES, BACKWARD
    )
    return moe_chain("419M", [one] * LAYERS, RANKS)


@cache
def fitted(cards: int = 1) -> tuple[Workload, JobRun]:
    """Return the workload whose step takes 333 ms with buckets, 38 % of it all-to-all, and the run."""
    size, other_s = 10e6, STEP_S / 2
    for _ in range(30):
        made = step_layers(size, other_s, cards)
        run = simulate(pytorch_ddp(made, costs(cards)), costs(cards), steps=3)
        size *= SHARE * STEP_S / exchanged_s(run)
        other_s = max(other_s + STEP_S - run.step_s, STEP_S / 100)
    return made, run


def exchanged_s(run: JobRun) -> float:
    """Return the seconds of the last step in which some all-to-all waits for the network or runs."""
    rows = [row for row in run.laid.rows if row.role == "ep"]
    last = run.laid.steps - 1
    spans = sorted(
        (int(begin), int(end))
        for row in rows
        for begin, end in zip(run.times.ready[run.span(row, last)], run.ends(row, last), strict=True)
    )
    total, until = 0, 0
    for begin, end in spans:
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total / 1e12


def share(cards: int = 1) -> float:
    """Return the share of the step that all-to-alls take with buckets: what was fitted."""
    run = fitted(cards)[1]
    return exchanged_s(run) / run.step_s


@cache
def _lina(cards: int, partition_mb: float, packing: int, pipelining: bool) -> JobRun:
    workload = fitted(cards)[0]
    made = lina(workload, costs(cards), partition_mb=partition_mb, packing=packing, pipelining=pipelining)
    return simulate(made, costs(cards), steps=3)


def best_partition_mib(cards: int = 1) -> float:
    """Return the partition of the shortest step without packing; of equals the largest, so that no effect is no minimum."""
    return max(SWEPT_MIB, key=lambda mib: (-round(_lina(cards, mib, 1, pipelining=True).step_s, 9), mib))


def all_to_all_gain(cards: int = 1, packing: int = 2) -> float:
    """Return how many times less the all-to-alls take than with buckets."""
    return exchanged_s(fitted(cards)[1]) / exchanged_s(_lina(cards, PARTITION_MIB, packing, pipelining=True))


def step_gain(cards: int = 1, packing: int = 1, *, pipelining: bool = False) -> float:
    """Return how many times shorter the step is than with buckets."""
    return fitted(cards)[1].step_s / _lina(cards, PARTITION_MIB, packing, pipelining=pipelining).step_s


def packing(cards: int = 1) -> float:
    """Return how many experts a device gets by the rule."""
    return lina(fitted(cards)[0], costs(cards)).mesh.sizes.get("epx", 1)


# ------------------------------------------------------------------------------------------------------------------ inference
RATIO, BATCHES, TOKENS, ACCURACY = 5.56, 1000, 8192, 0.584  # tokens of a batch: 512 a device, not in the paper


@cache
def inference(known: str) -> tuple[float, ...]:
    """Return the layer time of 1000 batches, 1 is ideal (tokens / devices).

    Popularity is Zipf's, the most popular of 16 experts 5.56 times the least, drawn anew which is which. ``known``: nothing
    (expert i on device i), exact (the batch's own counts), estimate (right in 58.4 % of the batches, otherwise of another order
    with other two experts in front), or again (the same, and decided again from the counts where the two in front differ).
    """
    plan = {"nothing": "even"}.get(known, known)
    return tuple(islice(layer_times(Skew(RATIO, plan, ACCURACY, seed=16), RANKS, TOKENS), BATCHES))


def layer_time(known: str, percentile: float = 50) -> float:
    """Return a percentile of the layer time, 1 is ideal."""
    times = sorted(inference(known))
    return times[min(len(times) - 1, int(percentile / 100 * len(times)))]


def worse_batches(known: str) -> float:
    """Return in how many of 1000 batches a layer takes longer than with one device an expert."""
    return float(sum(mine > plain for mine, plain in zip(inference(known), inference("nothing"), strict=True)))


def inference_gain(known: str, percentile: float) -> float:
    """Return a percentile of the layer time with one device an expert against the same with Lina's placement."""
    return layer_time("nothing", percentile) / layer_time(known, percentile)


def tail_without_second(percentile: float) -> float:
    """Return how much longer a percentile of the layer time is where nothing is decided again, as a share: 0 is none."""
    return layer_time("estimate", percentile) / layer_time("again", percentile) - 1
