"""Lina: all-to-alls before gradients, both in equal micro-ops; expert work by chunks; popular experts on more devices.

Idea: In expert-parallel training backward's all-to-alls block computation and share the network with gradients that nothing
    waits for. Both are cut into micro-ops; one is on its way per device, and none of a gradient starts while an all-to-all
    waits, runs or is about to follow. Experts compute on a chunk of tokens once it is in. In inference the path of experts
    that tokens took says which experts the next layer will need, and those get more devices before the gate has run.
Cost: An all-to-all waits for one micro-op at most, partition / rate, where fair sharing may double it. A layer takes the
    longest chain over its chunks. Inference: the most tokens on one device; ideal is tokens / devices.
Knobs: ``partition_mb`` (30, MiB); ``pipelining`` (true); ``packing`` (0: by the rule that doubles the experts of a device while
    a micro-op of their work is shorter than one of all-to-all and a device holds them; otherwise how many times as many);
    ``memory_gb`` (0: four fifths of the device's, as the workload says) for parameters, gradients and Adam's states.
    Of inference: ``skew`` (1: even) is how many times the tokens of the least popular expert the most popular has; ``plan`` of
    the devices: even (expert i on device i), exact, estimate, again (decided again where the gate's counts name others);
    ``accuracy`` (0.584) of the estimate; ``seed``.
Holds: No gradient starts while an all-to-all waits; no micro-op holds two gradients; every gradient is summed before the
    update; devices per expert sum to the devices, copies' tokens to the expert's.
Figure: Steps of 4 models 1.37x to 1.73x shorter, all-to-all 2.2x to 2.4x; inference 1.45x (median) and up to 1.82x (95th).
Source: Li et al., USENIX ATC 2023, arXiv 2210.17223.
Declines: moving experts to host memory, deciding anew every few steps (here costs are known at once), and every device
    deciding alone: two that see an all-to-all arrive at different moments would wait for each other, so a leader decides.
"""

from __future__ import annotations

from typing import Annotated

from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Choices, Piece, Range, Seed
from ringwright.model.stages import Costs
from ringwright.model.workload import Gate, Queue, Rewrite, Workload
from ringwright.schedulers.order import GRADIENTS
from ringwright.schedulers.priority.lina._chunks import TOKENS, pipelined
from ringwright.schedulers.priority.lina._packing import decided, packed
from ringwright.schedulers.priority.lina.inference import PLANS, Skew, skewed

NEEDS = ("workload.all-to-all",)
CHANGES = ("tasks", "edges", "payloads", "values")  # experts are packed, and their work and exchanges cut into chunks
TOKEN_CLASS, GRADIENT_CLASS = 1, 2  # 0 is what Lina does not schedule
POPULARITY = (
    "in inference it gives popular experts more devices, and all are taken to be as popular: lina:skew=4 says that the most "
    "popular has four times the tokens of the least"
)
COMBINE = "combine"  # tag of backward tasks that an all-to-all follows at once
GATES = (
    Gate(GRADIENT_CLASS, TOKEN_CLASS, "waiting"),
    Gate(GRADIENT_CLASS, TOKEN_CLASS, "running"),
    Gate(GRADIENT_CLASS, COMBINE, "running"),
    Gate(TOKEN_CLASS, GRADIENT_CLASS, "running"),  # one micro-op on its way, whatever its class
    *(Gate(each, each, state) for each in (TOKEN_CLASS, GRADIENT_CLASS) for state in ("waiting", "running")),
)


def lina(
    workload: Workload,
    costs: Costs,
    *,
    partition_mb: Piece = 30,
    pipelining: bool = True,
    packing: Annotated[int, Range(0, 64)] = 0,
    memory_gb: Annotated[float, Range(0, 1e6, "GB")] = 0.0,
    skew: Annotated[float, Range(1, 1000)] = 1.0,
    plan: Annotated[str, Choices(PLANS)] = "again",
    accuracy: Annotated[float, Range(0, 1)] = 0.584,
    seed: Seed = 0,
) -> Workload:
    """Return the workload packed and cut, its all-to-alls strictly before its gradients, with a barrier at the end."""
    size = round(partition_mb * (1 << 20))
    if size < 1:
        raise UsageError(f"micro-ops of {partition_mb:g} MiB cannot be sent", remedy="partition_mb=30")
    if plan not in PLANS:
        raise UsageError(f"lina has no plan '{plan}'", remedy=f"one of: {', '.join(PLANS)}")
    if skew > 1:
        workload, said = skewed(workload, Skew(skew, plan, accuracy, seed))
        workload = workload.saying("lina", said)
    decision = decided(workload, costs, size, packing, memory_gb)
    why = f"packing={decision.factor}: {decision.why}"
    if not packing and all(task.kind != "U" for task in workload.tasks):
        why = POPULARITY if skew == 1 else "in inference devices are given to experts by popularity, and none is packed"
    made = packed(workload, decision.factor)
    if pipelining:
        made = pipelined(made, size)
    return made.saying("lina", why).with_policy(
        "lina",
        rewrites=(Rewrite("partition", (TOKENS, *GRADIENTS), {"size_bytes": size, "equal": True}),),
        queue=priority(),
        boundary="barrier",
        agreement="leader",
    )


def priority() -> Queue:
    """Return the queue alone: one priority queue a device, one operation on its way; whole operations if nothing is cut."""
    traffic = {TOKENS: TOKEN_CLASS, **dict.fromkeys(GRADIENTS, GRADIENT_CLASS)}
    return Queue(traffic=traffic, gates=GATES)
