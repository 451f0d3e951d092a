"""What a Workload says of itself that a framework must be told: axes, how states are shared out, what its policy lets overlap."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from ringwright.errors import UsageError
from ringwright.frameworks.settings import FrameworkSettings
from ringwright.pipelines.stages import stages_of
from ringwright.workload import SHIFTS, Workload

_AXIS = re.compile(r"(tp|pp|cp|dp)\d*")
_SIZE = re.compile(r"micro-batch size: (\d+) ")


def settings_of(workload: Workload, *, micro_batch_size: int | None = None, recompute: str = "") -> FrameworkSettings:
    """Return the settings of a job that trains.

    ``micro_batch_size`` and ``recompute`` are for what a Workload does not hold: sequences of a micro-batch, where they are not
    among its assumptions, and selective recomputation. Raises UsageError for axes and orders that no framework has a setting for.
    """
    if all(task.kind != "U" for task in workload.tasks):
        raise UsageError(f"{workload.name} updates no parameters", remedy="a job that trains: --mode training")
    if workload.policy.order:
        raise UsageError(
            f"{workload.policy.label} orders the passes in its own way, for which there is no setting",
            where=workload.name,
            remedy="ringwright workload MODEL --to pipeline-csv, which torch.distributed.pipelining loads",
        )
    sizes = _sizes(workload)
    size = micro_batch_size or next(_said_size(workload), None)
    zero, gathers_later = _sharing(workload)
    pp = sizes.get("pp", 1)
    sp = any(each.role == "tp" and each.op == "reduce-scatter" for each in workload.payloads)
    pipeline = stages_of(workload, "settings") if pp > 1 else None
    if pipeline is not None and (pipeline.shape.folded or pipeline.sides > 1):
        raise UsageError(
            f"the pipeline of {workload.name} goes back or is fed from both ends", remedy="--schedule 1f1b"
        )
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
        recompute="full" if any(".R." in task.name for task in workload.tasks) else recompute,
        micro_batches=workload.micro_batches if size else None,
        micro_batch_size=size,
    )


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
