"""Out-of-order backprop: gradients of inputs first, gradients of weights where nobody waits for them.

Idea: Only the gradient of a layer's input is on the way of backward; that of its weights can run any time later. In a
    pipeline each stage hands the gradient of its input on before it computes those of its weights (fast-forwarding), and
    short stages in a loop (modulo allocation) shorten what is left. In data parallelism the first k layers' gradients of
    weights run last, the first layer's before the others, so that what the next forward pass needs first is summed first
    (reverse first-k).
Cost: Pipeline: the bubble falls from (p - 1)(f + o + w) to (p - 1)(f + o), in a loop of v stages to the v-th part of that.
    Data parallel: one machine with releases, 1 | r_i | max(C_i + q_i), where k moves the releases.
Knobs: ``k`` (none: the best by the cost model) first layers whose gradients of weights are put off; ``live`` (0: no limit)
    micro-batches that a device holds, new ones enter behind the gradients of weights of the oldest; ``share`` (0.5) of a
    whole backward pass that is for its inputs, where a workload does not tell them apart.
Holds: Each gradient is computed once, from the same values; a layer's next forward pass waits for its update; never more than
    ``live`` micro-batches.
Figure: 1.03 to 1.58 times (one GPU), 1.10 to 1.27 (data parallel), 1.41 to 1.99 (pipeline) the throughput.
Source: Oh et al., EuroSys 2022, 10.1145/3492321.3519563; mlsys-seo/ooo-backprop.
Declines: One GPU alone (kernels side by side need a profile of them), gradients that are scattered for every micro-batch,
    pipelines that are folded; ``live`` in loops.
"""

from __future__ import annotations

from typing import Annotated

from ringwright.graph.algebra import RewriteError, rewritten
from ringwright.graph.pipelines.fast_forward import PassTimes, capped, fast_forward
from ringwright.graph.pipelines.stages import PipelineStages, stages_of
from ringwright.ground.errors import UsageError, WorkloadError
from ringwright.ground.knobs import Range
from ringwright.model.stages import Costs, seconds
from ringwright.model.workload import Queue, Workload
from ringwright.schedulers.decompose._first_k import LayerTimes, best_k
from ringwright.schedulers.decompose._halves import in_halves
from ringwright.schedulers.order import by_layer

CHANGES = ("tasks", "edges", "payloads", "values", "applied")
SLUG = "ooo-backprop"
Slots = list[tuple[str, int, int]]


def ooo_backprop(
    workload: Workload,
    costs: Costs,
    *,
    k: Annotated[int, Range(0, 100_000)] | None = None,
    live: Annotated[int, Range(0, 65_536)] = 0,
    share: Annotated[float, Range(0.01, 0.99)] = 0.5,
) -> Workload:
    """Return the workload with gradients of weights out of order: fast-forwarded in a pipeline, else reverse first-k."""
    stages = stages_of(workload, SLUG)
    _refuse(workload, stages, live)
    halves = in_halves(workload, share)
    try:
        split = rewritten(workload, halves)
        if halves:
            split = split.saying(SLUG, f"{len(halves)} backward tasks are split: {share:g} of each is for its inputs")
        if not any(task.kind == "dW" for task in split.tasks):
            raise WorkloadError(
                f"{SLUG}: nothing computes gradients of weights", where=workload.name, remedy="--mode training"
            )
        if stages.shape.devices > 1:
            return _forwarded(split, stages, costs, live)
        return _first_last(split, costs, k)
    except RewriteError as error:
        raise WorkloadError(f"{SLUG}: {error.what}", where=error.where, remedy=error.remedy) from None


def _refuse(workload: Workload, stages: PipelineStages, live: int) -> None:
    """Raise where there is nothing to win, or no order of this kind."""
    shape = stages.shape
    if shape.folded:
        why = "its stages go there and back, and gradients are forwarded along a loop"
        raise WorkloadError(f"{SLUG}: {why}", where=workload.name, remedy="--schedule 1f1b")
    if any(batch < 0 for of in stages.devices for _, batch in workload.line(of)):
        why = "its steps run into each other, so that no device waits: there is no bubble to fill"
        raise WorkloadError(f"{SLUG}: {why}", where=workload.name, remedy="--schedule 1f1b")
    if live and (shape.devices == 1 or shape.chunks > 1):
        raise UsageError(
            f"{SLUG}: a limit of {live} micro-batches is for pipelines of one stage a device",
            where=workload.name,
            remedy="live=0, or --parallel without vp",
        )
    if shape.devices == 1 and not _travelling(workload):
        raise WorkloadError(
            f"{SLUG}: no gradients are summed up once a step, and nothing is piped",
            where=workload.name,
            remedy="--parallel pp4, or more GPUs than tp x pp without fsdp",
        )


def _travelling(workload: Workload) -> list[str]:
    return [each.name for each in workload.gradients() if workload.mesh.extent(each.axes) > 1]


# ------------------------------------------------------------------------------------------------------------ pipelines
def _forwarded(workload: Workload, stages: PipelineStages, costs: Costs, live: int) -> Workload:
    """Return a pipeline whose gradients of inputs go first."""
    shape = stages.shape
    if live:
        orders = [capped(shape, device, live) for device in range(shape.devices)]
    else:
        times = [_pass_times(workload, stages, stage, costs) for stage in range(shape.stages)]
        orders = list(fast_forward(shape, times.__getitem__, _message_s(workload, costs)))
    listed = {of: list(order) for of, order in zip(stages.devices, orders, strict=True)}
    made = rewritten(workload, [("slots", stages.devices[0], {"orders": listed})])
    held = live or shape.micro_batches * shape.chunks
    told = [f"gradients of inputs first; a device holds at most {held} inputs of its {shape.chunks} stages"]
    if shape.chunks == 1:
        told.append("one stage a device: in loops (--parallel ...,vp2) the bubble is shorter still")
    practice = "I and W actions of torch.distributed.pipelining (ringwright workload ... --to pipeline-csv)"
    return made.saying(SLUG, *told, f"in practice: {practice}").with_policy(SLUG, order=made.policy.order)


def _pass_times(workload: Workload, stages: PipelineStages, stage: int, costs: Costs) -> PassTimes:
    """Return what the passes of a stage take: its tasks, and what is exchanged within a pass, one after another."""
    of, chunk = stages.seat(stage)
    sums, halves = {"F": 0.0, "I": 0.0, "W": 0.0}, dict[str, str]()
    for task in workload.tasks:
        if task.of == of and task.per == "micro-batch" and task.slot[1] == chunk:
            halves[task.name] = "F" if task.slot[0] == "F" else "W" if task.kind == "dW" else "I"
            sums[halves[task.name]] += task.seconds
    for payload in workload.payloads:
        user = next((halves[name] for name, _ in payload.consumers if name in halves), "")
        if user and payload.per == "micro-batch" and payload.op != "send-recv" and payload.of == of:
            group = workload.group(of, payload.axes)
            sums[user] += seconds(costs, payload.asked, payload.size_bytes, group, payload.role)
    return PassTimes(sums["F"], sums["I"], sums["W"])


def _message_s(workload: Workload, costs: Costs) -> float:
    """Return how long the longest message between stages takes."""
    at = {each.name: workload.mesh.rank(each.at) for each in workload.classes}
    sent = {
        (each.size_bytes, at[each.of], at[each.peer])
        for each in workload.payloads
        if each.op == "send-recv" and each.per == "micro-batch" and each.peer in at
    }
    return max(
        (seconds(costs, "send-recv", size, ends, "pp") for size, *two in sent for ends in [tuple(two)]), default=0.0
    )


# -------------------------------------------------------------------------------------------------------- data parallel
def _first_last(workload: Workload, costs: Costs, k: int | None) -> Workload:
    """Return a data parallel step whose first k layers compute their gradients of weights last, in their order."""
    (of,) = (each.name for each in workload.classes)
    layers = sorted({task.layer for task in workload.tasks if task.per == "micro-batch" and task.slot[0] != "F"})
    if len(layers) < 2:
        why = "its backward pass is of one layer, as far as is known: no gradient of weights can go before another"
        raise WorkloadError(
            f"{SLUG}: {why}", where=workload.name, remedy="--model in place of a recording, or another policy"
        )
    if k is None:
        k = best_k([_layer_times(workload, costs, of, layer) for layer in layers]).candidate
    k = min(k, len(layers))
    slots = _reverse_first_k(workload, of, layers, k)
    made = rewritten(workload, [("slots", of, {"orders": {of: slots}, "by": "layer"})])
    told = f"the first {k} of {len(layers)} layers compute gradients of weights last, in their own order"
    practice = "in practice: no flag does it; Megatron-LM --delay-wgrad-compute splits the pass so"
    return made.saying(SLUG, told, practice).with_policy(
        SLUG, order=made.policy.order, queue=Queue(keys=by_layer(made)), boundary="layer", agreement="static"
    )


def _reverse_first_k(workload: Workload, of: str, layers: list[int], k: int) -> Slots:
    """Return the passes of a step by layer: those of the last micro-batch out of order, which the sums wait for."""
    slots: Slots = []
    last = workload.micro_batches - 1
    for name, batch in workload.line(of):
        task = workload.task[name]
        if batch < last or task.slot[0] == "F":
            slots.append(("F" if task.slot[0] == "F" else "B", task.layer, batch))
    slots = list(dict.fromkeys(slots))
    early, late = layers[:k], layers[k:]
    slots += [("B", layer, last) for layer in reversed(late)]
    slots += [("I", layer, last) for layer in reversed(early)]
    return slots + [("W", layer, last) for layer in early]


def _layer_times(workload: Workload, costs: Costs, of: str, layer: int) -> LayerTimes:
    """Return what a layer takes, and how long the sums of its gradients take one after another."""
    sums: dict[str, float] = {"F": 0.0, "I": 0.0, "W": 0.0}
    for task in workload.tasks:
        if task.layer == layer and task.per == "micro-batch":
            half = "W" if task.kind == "dW" else "I"
            sums["F" if task.slot[0] == "F" else half] += task.seconds
    mine = [each for each in workload.gradients() if each.layer == layer]
    sent_s = sum(
        seconds(costs, each.asked, each.size_bytes, workload.group(of, each.axes), each.role)
        for each in mine
        if each.op not in ("push", "pull")
    )
    return LayerTimes(sums["F"], sums["I"], sums["W"], sent_s)
