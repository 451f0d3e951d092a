"""The parallel form and the overlaps of a job as flags of Megatron-LM, one a line: ``$(grep -v '^#' FILE)`` in its command.

What Megatron-LM cannot do is refused: FSDP beside a pipeline or experts, GPipe. It takes data parallelism from the number of
GPUs, which stands in the head of the file. Source: NVIDIA/Megatron-LM ``megatron/training/arguments.py`` (0.12).
"""

from __future__ import annotations

from collections.abc import Iterator

from ringwright.graph.frameworks import megatron
from ringwright.graph.frameworks.settings import FrameworkSettings
from ringwright.graph.frameworks.told import settings_of
from ringwright.ground.errors import UsageError
from ringwright.model.workload import Workload

EXPORTS = {"megatron-flags": "as_flags"}


def as_flags(workload: Workload) -> bytes:
    """Return the file's bytes for a job; UsageError for a form or policy that has no flags."""
    return megatron_flags(settings_of(workload))


def megatron_flags(settings: FrameworkSettings) -> bytes:
    """Return the file's bytes; UsageError for settings that Megatron-LM has not."""
    _refuse(settings)
    head = [f"{megatron.GPUS}{settings.world}", f"# {settings.form}"]
    if settings.micro_batches is None:
        head.append(f"# {megatron.MICRO_BATCH} and {megatron.GLOBAL_BATCH} are left to you")
    if not settings.recompute:
        head.append(f"# {megatron.GRANULARITY} is left to you")
    return ("\n".join([*head, *_flags(settings)]) + "\n").encode()


# branches: a flag, or a pair of them, for each setting
def _flags(settings: FrameworkSettings) -> Iterator[str]:
    is_sharded = settings.zero == 3
    for name, flag in megatron.SIZES.items():
        if getattr(settings, name) > 1 or name in ("tp", "pp"):
            yield f"{flag} {getattr(settings, name)}"
    if settings.ep > 1:
        yield f"{megatron.EXPERT_TP} 1"
    for name, flag in megatron.SWITCHES.items():
        if getattr(settings, name) and not (is_sharded and name in ("overlap_gradients", "overlap_parameters")):
            yield flag
    if settings.zero:
        yield megatron.SHARDED if is_sharded else megatron.SHARED_STATES
    if settings.bucket_elements is not None:
        yield f"{megatron.BUCKET} {settings.bucket_elements}"
    if settings.tp > 1 and settings.pp > 1 and not settings.sp and not settings.sg:
        yield megatron.WHOLE_OUTPUTS
    if settings.recompute in ("selective", "full"):
        yield f"{megatron.GRANULARITY} {settings.recompute}"
    if settings.recompute == "full":
        yield "--recompute-method uniform"
        yield "--recompute-num-layers 1"
    if settings.micro_batches is not None:
        yield f"{megatron.MICRO_BATCH} {settings.micro_batch_size}"
        yield f"{megatron.GLOBAL_BATCH} {settings.global_batch_size}"


def _refuse(settings: FrameworkSettings) -> None:
    is_sharded = settings.zero == 3
    has_overlaps = settings.overlap_gradients and settings.overlap_parameters
    for wrong, why, remedy in (
        (settings.schedule == "gpipe" and settings.pp > 1, "its pipelines go by 1F1B", "--schedule 1f1b"),
        (is_sharded and (settings.pp > 1 or settings.ep > 1), "FSDP goes with neither pipeline nor experts", "zero1"),
        (
            is_sharded and settings.bucket_elements is not None,
            "FSDP sums by modules",
            "zero1, or a policy without buckets",
        ),
        (is_sharded and not has_overlaps and settings.dp > 1, "FSDP overlaps by itself", "zero1, or both overlaps"),
        (settings.overlap_tensor and not settings.sp, "it overlaps operations of the sequence only", "sp"),
        (
            settings.overlap_parameters and not settings.overlap_gradients,
            "gathers overlap where sums do",
            "overlap both",
        ),
    ):
        if wrong:
            raise UsageError(f"Megatron-LM has no flags for {settings.form}: {why}", remedy=remedy)
