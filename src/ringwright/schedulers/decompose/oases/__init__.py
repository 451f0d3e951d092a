"""Oases: a batch in two halves through tensor-parallel blocks, one half's sums beside the other half's products.

Idea: The halves take turns block by block, forward, in what is computed again, and backward, so a sum of one half is always under
    way beside the other's products. Sums that forward made are kept, so what is computed again sends nothing. Where a micro-batch
    is one sequence, two micro-batches take turns instead; or the forward pass of one and the backward pass of another, which
    hides exchanges of experts (DualPipe, Megatron-LM). ``planned`` chooses how many ranks cut each layer.
Cost: Of a layer, full batch, F forward, B backward, c a sum: Megatron 2F + B + 6c; sums kept 2F + B + 4c; halves of f, b, c:
    2 (max(f_a, c) + max(f_m, c) + max(f_a + b_a, c) + max(f_m + b_m, c)). Half a product takes more than half; sums slow it.
Knobs: ``schedule``: oases, overlap-checkpoint (no sums kept), optim-comm (no halves), default-checkpoint (neither);
    ``form``: oases, or domino (gradients of weights stay whole and fill, products before a sum go by columns, too);
    ``halves``: batch, micro-batches, auto (the second where a micro-batch is one sequence), or passes; ``dim`` (batch) is cut.
Holds: Every output is that of the whole batch, to the bit on whole numbers; of each operation two halves, as many bytes; in a
    block that is computed again four sums in place of six; of two micro-batches, or passes, the same tasks.
Figure: Up to 1.48x over the best other, 1.95x over Megatron-LM, seven models on 32 RTX 3090.
Source: Li et al., arXiv 2305.16121; lucasleesw/oases (Apache-2.0). Domino: Wang et al., arXiv 2409.15241. Passes: DeepSeek-V3,
    arXiv 2412.19437, section 3.2.1; Megatron-LM.
Declines: jobs whose operations nobody can cut along the batch; pairs of micro-batches that do not fill the groups of chunks (vp)
    or go in zero-bubble orders; orders in which no forward pass lies beside a backward one; moving ranks between tensor and data
    parallelism in mid-model: a plan is all that is returned.
"""

from __future__ import annotations

from typing import Literal, get_args

from ringwright.ground.errors import UsageError
from ringwright.ground.knobs import Dimension
from ringwright.model.stages import Costs
from ringwright.model.workload import Workload
from ringwright.schedulers.decompose.oases.columns import by_columns
from ringwright.schedulers.decompose.oases.half_order import in_turns
from ringwright.schedulers.decompose.oases.halves import cut_in_two, twice
from ringwright.schedulers.decompose.oases.pairs import paired
from ringwright.schedulers.decompose.oases.passes import beside
from ringwright.schedulers.decompose.oases.planner import DegreePlan, PlannedLayer, planned

__all__ = ["DegreePlan", "PlannedLayer", "Schedule", "oases", "planned"]
NEEDS = ("workload.tensor-parallel",)
CHANGES = ("tasks", "edges", "payloads", "values", "applied")
Schedule = Literal["oases", "overlap-checkpoint", "optim-comm", "default-checkpoint"]
SCHEDULES = get_args(Schedule)
FORMS, HALVES = ("oases", "domino"), ("auto", "batch", "micro-batches", "passes")
SWITCHED_ON = (
    "in practice: DeepSpeed's DominoTransformerLayer (deepspeed.runtime.domino); Megatron-LM has no halves of a batch, its "
    "--tp-comm-overlap (with --sequence-parallel) cuts within a product, --delay-wgrad-compute keeps gradients of weights to fill"
)
EXPERTS_SWITCHED_ON = (
    "in practice: Megatron-LM's --overlap-moe-expert-parallel-comm (in pipelines with virtual stages), with gradients of weights "
    "that fill by --delay-wgrad-compute; DeepSeek's DualPipe pairs passes by overlapped_forward_backward of the model"
)


def oases(
    workload: Workload,
    costs: Costs,
    *,
    schedule: Schedule = "oases",
    form: Literal["oases", "domino"] = "oases",
    halves: Literal["auto", "batch", "micro-batches", "passes"] = "auto",
    dim: Dimension = "batch",
) -> Workload:
    """Return the workload with its batch in two halves that take turns, and nothing sent again in what is computed again."""
    for name, value, known in (("schedule", schedule, SCHEDULES), ("form", form, FORMS), ("halves", halves, HALVES)):
        if value not in known:
            raise UsageError(f"oases has no {name} '{value}'", remedy=f"one of: {', '.join(known)}")
    made = workload
    if schedule in ("oases", "optim-comm"):
        made = twice(made, required=schedule == "optim-comm")
    if schedule in ("oases", "overlap-checkpoint"):
        made = _halved(made, form, halves, dim)
    switched = EXPERTS_SWITCHED_ON if halves == "passes" else SWITCHED_ON
    return made.saying("oases", switched).with_policy("oases", order=made.policy.order, agreement="program")


def _halved(workload: Workload, form: str, how: str, dim: str) -> Workload:
    """Return the workload with halves that take turns: of each micro-batch, or two micro-batches."""
    parts = None
    if how == "passes":
        return beside(workload)
    if how != "micro-batches":
        parts = cut_in_two(workload, dim, whole_weights=form == "domino", required=how == "batch")
    if parts is None:
        return paired(workload)
    if form == "domino":
        parts = by_columns(parts, dim)
    return in_turns(parts.workload, parts.half)
