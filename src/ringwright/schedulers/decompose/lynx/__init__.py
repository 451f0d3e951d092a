"""Lynx: what backward needs and memory does not hold is computed again while a rank waits for the network anyway.

Idea: Activations that do not fit are usually computed again on the critical path. Ranks wait for tensor-parallel sums in forward
    and backward, and for the pipeline: what is computed again goes there. An integer program chooses, operation by operation,
    what is kept, what is computed again in which window, and what on demand; alike layers are solved once (heu), or a whole
    stage in one program (opt). ``partitioned`` moves layers from stages that compute much again to others.
Cost: A micro-batch takes F + B + what is computed on demand; a pipeline (m + p - 1) times the slowest stage. With all of it on
    demand 2F + B: hiding it gains at most (2F + B) / (F + B), 4/3 at B = 2F, and nothing without windows.
Knobs: ``search``: heu or opt; ``memory_bytes`` of a rank (0: what the job says its devices have); ``overlap`` (0.9): the share
    of a window that is good for work; ``reach`` (1) layers up to which opt looks for windows; ``early`` (true): where a stage
    waits for the pipeline, it computes again before the pass begins.
Holds: The same outputs to the bit; no window holds more than it is long times overlap; peak memory within the limit; heu never
    exposes less than opt.
Figure: 1.02x to 1.53x over Megatron-LM's policies and Checkmate, GPT 1.3B to 20B; heu searches for 0.16 s.
Source: Chen et al., arXiv 2406.08756 (v1 and v4, abstracts): rows of the program and windows are this project's own.
Declines: jobs that compute again by themselves, say nothing of memory, or keep nothing for backward; moving layers itself: it
    says which stages to ask for.
"""

from __future__ import annotations

from typing import Annotated, Literal

from ringwright.ground.errors import UsageError, WorkloadError
from ringwright.ground.knobs import Range
from ringwright.model.stages import Costs
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.lynx.layers import LayersOfClass
from ringwright.schedulers.decompose.lynx.program import LayerOperation, Recomputation, RecomputeChoice, Window, chosen
from ringwright.schedulers.decompose.lynx.search import MemoryLimits, planned
from ringwright.schedulers.decompose.lynx.stages import partitioned

__all__ = ["LayerOperation", "Recomputation", "RecomputeChoice", "Window", "chosen", "lynx", "partitioned"]
NEEDS = ("workload.tensor-parallel",)
CHANGES = ("tasks", "edges", "payloads", "values", "applied")
MEMORY = "memory"
SWITCHED_ON = (
    "in practice: no framework has it as a flag; Megatron-LM's --recompute-granularity selective with --recompute-modules "
    "chooses what is computed again, on demand; torch.utils.checkpoint.create_selective_checkpoint_contexts does in PyTorch"
)


def lynx(
    workload: Workload,
    costs: Costs,
    *,
    search: Literal["heu", "opt"] = "heu",
    memory_bytes: Annotated[int, Range(0, 1 << 50, "B")] = 0,
    overlap: Annotated[float, Range(0.0, 1.0)] = 0.9,
    reach: Annotated[int, Range(1, 8)] = 1,
    early: bool = True,
) -> Workload:
    """Return the workload within the memory of its devices, what is computed again in windows as far as they go."""
    if search not in ("heu", "opt"):
        raise UsageError(f"lynx has no search '{search}'", remedy="heu or opt")
    if not 0 <= overlap <= 1:
        raise UsageError(f"a share of {overlap:g} of a window", remedy="overlap: 0 to 1")
    limit = memory_bytes or next((each.capacity for each in workload.resources if each.name == MEMORY), 0.0)
    if not limit:
        raise WorkloadError(
            f"{workload.name} does not say how much memory a rank has", remedy="memory_bytes=80GiB, or --memory 80GiB"
        )
    stages = [LayersOfClass(workload, costs, each.name) for each in workload.classes]
    _require_layers(workload, stages)
    made, said = planned(workload, stages, MemoryLimits(limit, overlap, search, reach, early))
    return made.saying("lynx", *said, SWITCHED_ON).with_policy("lynx", order=made.policy.order, agreement="program")


def _require_layers(workload: Workload, stages: list[LayersOfClass]) -> None:
    """Raise WorkloadError for a job in which nothing could be computed again."""
    again = next(
        (task.name for task in workload.tasks if task.kind == "B" and task.work and "same_as" in task.work.settings),
        None,
    )
    if again is not None:
        raise WorkloadError(
            f"{workload.name} computes again by itself: {again}", where=again, remedy="--recompute none"
        )
    if not any(stage.layers for stage in stages):
        what = f"nothing of {workload.name} is kept from forward to backward"
        raise WorkloadError(
            what, where=workload.name, remedy="a job of which it is known what tasks read and write: --model"
        )
