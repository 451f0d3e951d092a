"""The parallel form and the overlaps of a job as keys of torchtitan's TOML, to be merged into a configuration of one's own.

What torchtitan cannot do is refused: tensor parallelism that does not cut the sequence, replicas (DDP) beside any other axis,
ZeRO stage 1, and more than two stages a rank, whose layers it would have to be told. FSDP overlaps by itself. Source:
pytorch/torchtitan ``torchtitan/config/job_config.py`` (0.2, of 2025; configurations of 2026 are Python with the same names).
"""

from __future__ import annotations

from ringwright.graph.frameworks import torchtitan
from ringwright.graph.frameworks.settings import FrameworkSettings
from ringwright.graph.frameworks.told import settings_of
from ringwright.ground.errors import UsageError
from ringwright.model.workload import Workload

EXPORTS = {"torchtitan-toml": "as_toml"}
Tables = dict[str, dict[str, object]]


def as_toml(workload: Workload) -> bytes:
    """Return the file's bytes for a job; UsageError for a form or policy that has no keys."""
    return torchtitan_toml(settings_of(workload))


def torchtitan_toml(settings: FrameworkSettings) -> bytes:
    """Return the file's bytes; UsageError for settings that torchtitan has not."""
    _refuse(settings)
    text = f"# {settings.form} on {settings.world} GPUs\n"
    for name, table in _tables(settings).items():
        text += f"\n[{name}]\n" + "".join(f"{key} = {_value(value)}\n" for key, value in table.items())
    return text.encode()


def _tables(settings: FrameworkSettings) -> Tables:
    is_sharded = settings.zero == 3
    parallelism: dict[str, object] = {key: getattr(settings, name) for name, key in torchtitan.SIZES.items()}
    parallelism[torchtitan.REPLICAS] = 1 if is_sharded else settings.dp
    parallelism[torchtitan.SHARDS] = settings.dp if is_sharded else 1
    parallelism[torchtitan.ASYNC_TP] = settings.overlap_tensor
    if settings.pp > 1:
        parallelism[torchtitan.SCHEDULE] = torchtitan.SCHEDULES[settings.schedule, settings.vp]
    tables: Tables = {"parallelism": parallelism}
    if settings.micro_batches is not None:
        local = settings.micro_batches if settings.pp > 1 else 1
        tables["training"] = {
            "local_batch_size": local * (settings.micro_batch_size or 1),
            "global_batch_size": settings.global_batch_size,
        }
        if settings.pp > 1:
            parallelism[torchtitan.PIPELINE_BATCH] = settings.micro_batch_size
    if settings.recompute:
        tables["activation_checkpoint"] = {"mode": settings.recompute}
    if settings.overlap_tensor:
        tables["compile"] = {"enable": True, "components": ["model", "loss"]}
    return tables


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _refuse(settings: FrameworkSettings) -> None:
    is_sharded = settings.zero == 3
    is_alone = settings.world == settings.dp
    overlaps = settings.overlap_gradients and (settings.overlap_parameters or not is_sharded)
    for wrong, why, remedy in (
        (settings.tp > 1 and not settings.sp, "its tensor parallelism cuts the sequence too", "sp"),
        (settings.zero == 1, "it shares out optimiser states with the parameters only", "zero0, or fsdp"),
        (settings.dp > 1 and not is_sharded and not is_alone, "its replicas go with no other axis", "fsdp"),
        (settings.dp > 1 and not overlaps, "its sums and gathers overlap by themselves", "overlap both"),
        (settings.bucket_elements is not None, "its buckets have a size of their own", "a policy without buckets"),
        (settings.sg, "its stages send whole outputs", "leave sg out"),
        ((settings.schedule, settings.vp) not in torchtitan.SCHEDULES, "its stages need their layers listed", "vp2"),
        (
            settings.ep > 1 and not (is_sharded and settings.cp <= settings.ep <= settings.dp * settings.cp),
            "its experts lie on ranks that share parameters and sequences",
            "fsdp, and an ep from cp to dp x cp",
        ),
    ):
        if wrong:
            raise UsageError(f"torchtitan has no keys for {settings.form}: {why}", remedy=remedy)
