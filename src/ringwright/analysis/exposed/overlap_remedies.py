"""What would hide exposed communication: the rewrite, a published system that does it, its memory, how to switch it on.

Systems are named by slug (``ringwright systems``), rewrites as the rules of ``docs/how-to/rules.md`` are. What a framework calls
its switch is said for PyTorch, Megatron-LM or Transformer Engine, whichever has one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ringwright.analysis.exposed.fusion_rows import (
    BUCKETED_GATHER,
    COPIES,
    GATHER_MATMUL,
    GRADIENT_BUCKET,
    MATMUL_SCATTER,
)
from ringwright.ground.units import MIB

NOT_MATCHED, ONE_COMMUNICATOR = "fusion-not-matched", "same-communicator"
TENSOR_ROLES = ("tp", "sp")
BY_LAYER = "FSDP: shard layer by layer"


@dataclass(frozen=True)
class OverlapRemedy:
    """A remedy: ``rewrite`` (a rule, or ""), ``system`` (a slug, or ""), ``memory`` and ``switch`` in words."""

    rewrite: str
    system: str
    memory: str
    switch: str


_ASYNC_TP = (
    "torch._inductor.config._micro_pipeline_tp = True and enable_symm_mem_for_group(GROUP); "
    "Megatron-LM --tp-comm-overlap (Transformer Engine user buffers)"
)
_NOTHING_NEW = "nothing more"
_REMEDIES = {
    GATHER_MATMUL: OverlapRemedy(
        "loop-gather", "collective-einsum-overlap", "a symmetric buffer of the gathered size a group", _ASYNC_TP
    ),
    MATMUL_SCATTER: OverlapRemedy(
        "loop-scatter", "collective-einsum-overlap", "a symmetric buffer of the partial result a group", _ASYNC_TP
    ),
    BUCKETED_GATHER: OverlapRemedy(
        "fuse",
        "",
        "a flat buffer of one layer's parameters",
        "fully_shard each layer as one unit; compiled: torch._inductor.config.bucket_all_gathers_fx = 'only_fsdp'",
    ),
    GRADIENT_BUCKET: OverlapRemedy(
        "fuse", "pytorch-ddp", "a flat buffer a bucket, unless gradients are views of it", "DDP: gradients in buckets"
    ),
    COPIES: OverlapRemedy(
        "",
        "",
        "buffers registered as symmetric memory",
        "the buffers of all of them from symmetric memory, NCCL_CTA_POLICY=2 (NCCL 2.28 on)",
    ),
    "same-stream": OverlapRemedy(
        "order",
        "",
        "its buffers live until the wait",
        "async_op=True and wait() where the result is used; or torch.cuda.stream(a side stream)",
    ),
    ONE_COMMUNICATOR: OverlapRemedy(
        "order",
        "centauri",
        "the buffers of one more communicator",
        "a process group of its own for one of the two (torch.distributed.new_group)",
    ),
    "connections": OverlapRemedy(
        "",
        "",
        _NOTHING_NEW,
        "CUDA_DEVICE_MAX_CONNECTIONS unset or 8 and more; Megatron-LM's tensor parallel overlap wants 1 before Blackwell",
    ),
    "strict-order": OverlapRemedy(
        "order", "", _NOTHING_NEW, "take out the synchronising call (.item(), .cpu(), synchronize, blocking wait)"
    ),
    "late-launch": OverlapRemedy(
        "", "", "static buffers of the captured graph", "torch.cuda.CUDAGraph, torch.compile(mode='reduce-overhead')"
    ),
    "bucket": OverlapRemedy("cut", "pytorch-ddp", _NOTHING_NEW, f"DDP: a smaller bucket_cap_mb; {BY_LAYER}"),
}
_NEXT_STEP = OverlapRemedy(
    "split-all-reduce, next-step",
    "dear",
    "the shards of parameters and optimizer stay apart until the next forward pass",
    "Megatron-LM --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
)
_UNKNOWN = OverlapRemedy("", "", "not known", "")


def remedy_of(
    cause: str, op: str, role: str | None, phase: str, pair: str, size_bytes: int | None = None
) -> OverlapRemedy:
    """Return what would hide an operation that is exposed for a cause; empty where nothing is known that would.

    ``pair``: the pattern of the fusion that it and a product could be, "" where it is no such pair. ``size_bytes``: of the
    largest such operation, None where it is not known.
    """
    if pair and cause in (NOT_MATCHED, "dependency"):
        return _REMEDIES[pair]
    if cause == "bucket" and size_bytes:
        cap = f"DDP(bucket_cap_mb={size_bytes / MIB / 2:.3g})" if op == "all-reduce" else ""
        return replace(_REMEDIES[cause], switch="; ".join(filter(None, (cap, BY_LAYER))))
    if cause != "dependency":
        return _REMEDIES.get(cause, _UNKNOWN)
    if op == "all-reduce" and role in TENSOR_ROLES:
        return OverlapRemedy(
            "cut", "oases", "activations of both halves of a batch", "Megatron-LM --tp-comm-overlap; DeepSpeed Domino"
        )
    if op == "all-to-all" and role == "ep":
        return OverlapRemedy(
            "cut",
            "centauri",
            "the pieces' buffers",
            "split the batch: dispatch of one half beside the other's experts (Megatron-LM --overlap-moe-expert-parallel-comm)",
        )
    if phase == "backward" and op in ("all-reduce", "reduce-scatter"):
        return _NEXT_STEP
    return OverlapRemedy("cut", "centauri", "the pieces' buffers", "")


def of_fusion(pattern: str, size_bytes: int | None = None) -> OverlapRemedy:
    """Return what makes a fusion fire; ``size_bytes``: of the largest bucket that was missed, None where it is not known."""
    remedy = _REMEDIES[pattern]
    if pattern != GRADIENT_BUCKET or not size_bytes:
        return remedy
    return replace(remedy, switch=f"DDP(bucket_cap_mb={-(-size_bytes // MIB)})")
