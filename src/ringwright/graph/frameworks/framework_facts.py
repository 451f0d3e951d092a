"""What a Workload says of itself that a framework must be told: axes, how states are shared out, what its policy lets overlap."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from ringwright.graph.frameworks.settings import FrameworkSettings
from ringwright.graph.pipelines.stages import PipelineStages, stages_of
from ringwright.ground.errors import UsageError
from ringwright.model.rewrites import operations
from ringwright.model.rewrites.kind import carried_by
from ringwright.model.workload import SHIFTS, Workload

IN_BLOCKS = ("open", "cut", "loop-gather", "loop-scatter")  # rules that loop an operation beside a product
_AXIS = re.compile(r"(tp|pp|cp|dp)\d*")
_SIZE = re.compile(r"micro-batch size: (\d+) ")


def settings_of(workload: Workload, *, micro_batch_size: int | None = None, recompute: str = "") -> FrameworkSettings:
    """Return the settings of a job that trains.

    ``micro_batch_size`` and ``recompute`` are for what a Workload does not hold: sequences of a micro-batch, where they are not
    among its assumptions, and selective recomputation. Raises UsageError for axes and orders that no framework has a setting for.
    """
    _refuse(workload)
    sizes = _sizes(workload)
    size = micro_batch_size or next(_said_size(workload), None)
    zero, gathers_later = _sharing(workload)
    pp = sizes.get("pp", 1)
    sp = any(each.role == "tp" and each.op in ("reduce-scatter", *SHIFTS) for each in workload.payloads)
    pipeline = _pipeline(workload) if pp > 1 else None
    return FrameworkSettings(
        tp=sizes.get("tp", 1),
        pp=pp,
        vp=1 if pipeline is None else pipeline.shape.chunks,
        cp=sizes.get("cp", 1),
        ep=_experts(workload),
        dp=sizes.get("dp", 1),
        sp=sp,
        sg=not sp and any(_is_between_stages(workload, each.name) for each in workload.payloads if each.role == "tp"),
        zero=zero,
        schedule="gpipe" if pipeline is not None and _is_all_forward_first(workload, pipeline.devices[0]) else "1f1b",
        overlap_gradients=sizes.get("dp", 1) > 1,
        overlap_parameters=zero == 3 or gathers_later,
        overlap_tensor=any(each.role == "tp" and each.op in SHIFTS for each in workload.payloads),
        bucket_elements=_bucket_elements(workload),
        recompute="full" if any(".R." in task.name for task in workload.tasks) else recompute,
        micro_batches=workload.micro_batches if size else None,
        micro_batch_size=size,
    )


def _pipeline(workload: Workload) -> PipelineStages:
    pipeline = stages_of(workload, "settings")
    if pipeline.shape.folded or pipeline.sides > 1:
        raise UsageError(
            f"the pipeline of {workload.name} goes back or is fed from both ends", remedy="--schedule 1f1b"
        )
    return pipeline


def _refuse(workload: Workload) -> None:
    """Raise UsageError for a job that does not train, and for a part of the policy that no framework carries out."""
    if all(task.kind != "U" for task in workload.tasks):
        raise UsageError(f"{workload.name} updates no parameters", remedy="a job that trains: --mode training")
    policy, queue = workload.policy, workload.policy.queue
    kinds = {rewrite.kind for rewrite in policy.rewrites or ()} - set(carried_by("buckets"))
    has_blocks = any(each.role == "tp" and each.op in SHIFTS for each in workload.payloads)
    rules = {each.rule for each in workload.applied} - {"begin-behind", *(IN_BLOCKS if has_blocks else ())}
    zero, _ = _sharing(workload)
    for wrong, what in (
        (queue is not None and (queue.keys or queue.windows or queue.gates or queue.random is not None), "urgencies"),
        (kinds, f"the rewrite '{min(kinds, default='')}'"),
        (rules, f"the rule '{min(rules, default='')}'"),
        (not zero and policy.boundary in ("layer", "reads"), f"the boundary '{policy.boundary}' without sharing"),
    ):
        if wrong:
            raise UsageError(
                f"{policy.label} has {what}, for which there is no setting",
                where=workload.name,
                remedy="a policy that only fuses, gathers ahead, or loops tensor parallelism; or --to json",
            )
    if policy.order:
        raise UsageError(
            f"{policy.label} orders the passes in its own way, for which there is no setting",
            where=workload.name,
            remedy="ringwright workload MODEL --to pipeline-csv, which torch.distributed.pipelining loads",
        )


def _bucket_elements(workload: Workload) -> int | None:
    """Return with how many gradients a bucket is full, where a policy fuses them; UsageError where no one number does it.

    A bucket takes gradients in the order in which they are made, until it holds that many or more.
    """
    if not workload.policy.rewrites:
        return None
    groups: dict[tuple[str, str], list[list[int]]] = {}
    for each in operations(workload):
        if each.role in ("dp", "edp") and each.per == "step" and each.op != "all-gather":
            groups.setdefault((each.of, each.role), []).append([payload.elements for payload in each.payloads])
    sums = [sum(each) for buckets in groups.values() for each in buckets]
    closed = [sum(each) for buckets in groups.values() for each in buckets[:-1]] or sums
    open_still = max((sum(each[:-1]) for buckets in groups.values() for each in buckets), default=0)
    if not closed or min(closed) <= open_still:
        raise UsageError(
            f"the buckets of {workload.policy.label} are not full at one size: {min(closed, default=0)} elements to {open_still}",
            where=workload.name,
            remedy="one size for all buckets, such as pytorch-ddp:caps_mb=25",
        )
    return min(closed)


def _sizes(workload: Workload) -> dict[str, int]:
    """Return the ranks of each axis of the form; axes that were cut for experts are one again."""
    grouped: dict[str, list[int]] = {}
    for name, size in workload.mesh.axes:
        axis = _AXIS.fullmatch(name)
        if axis is None:
            raise UsageError(
                f"the mesh of {workload.name} has an axis '{name}'", remedy="a job of tp, pp, cp, dp and ep"
            )
        grouped.setdefault(axis[1], []).append(size)
    return {name: prod(sizes) for name, sizes in grouped.items()}


def _said_size(workload: Workload) -> Iterator[int]:
    for said in workload.assumptions:
        match = _SIZE.match(said)
        if match:
            yield int(match[1])


def _experts(workload: Workload) -> int:
    return max((workload.mesh.extent(each.axes) for each in workload.payloads if each.role == "ep"), default=1)


def _sharing(workload: Workload) -> tuple[int, bool]:
    """Return the stage of ZeRO, and whether what was updated is gathered beside the next forward pass."""
    among = [each for each in workload.payloads if each.role in ("dp", "edp")]
    if any(each.op == "all-gather" and each.per == "micro-batch" for each in among):
        return 3, True
    gathers = [each for each in among if each.op == "all-gather" and each.per == "step"]
    if not gathers:
        return 0, False
    return 1, workload.policy.boundary in ("layer", "reads")


def _is_between_stages(workload: Workload, name: str) -> bool:
    """Whether a payload gathers what a stage received in parts."""
    payload = workload.payload[name]
    received = {each.result for each in workload.payloads if each.op == "send-recv" and each.result}
    return payload.op == "all-gather" and payload.source in received


def _is_all_forward_first(workload: Workload, of: str) -> bool:
    """Whether the first device is through with every forward pass before its first backward pass, and need not be."""
    phases = [phase for phase, _, _ in workload.schedule(of)]
    forward = phases.count("F")
    return phases[:forward] == ["F"] * forward and workload.micro_batches > len(workload.classes)
