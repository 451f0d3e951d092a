"""The parallel form and the overlaps of a job as keys of torchtitan's TOML, to be merged into a configuration of one's own.

What torchtitan cannot do is refused: tensor parallelism that does not cut the sequence, replicas (DDP) beside any other axis,
ZeRO stage 1, and more than two stages a rank, whose layers it would have to be told. FSDP overlaps by itself. Source:
pytorch/torchtitan ``torchtitan/config/job_config.py`` (0.2, of 2025; configurations of 2026 are Python with the same names).

Read back, tables and keys of other things are passed over.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ringwright.formats.sources.gate.small_file import read_whole
from ringwright.graph.frameworks import torchtitan
from ringwright.graph.frameworks.framework_facts import settings_of
from ringwright.graph.frameworks.settings import FrameworkSettings
from ringwright.ground.errors import InputError, UsageError
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


# read back


_REMEDY = "compare with what ringwright.formats.settings.torchtitan_toml writes"
_MODES = ("none", "selective", "full")
Table = Mapping[str, object]


def read_torchtitan_toml(path: Path | str, gpus: int | None = None) -> FrameworkSettings:
    """Return the settings of a file; InputError for a key that is wrong.

    ``gpus`` is needed where ``data_parallel_shard_degree`` is -1: all ranks that are left.
    """
    path = Path(path)
    return parse_torchtitan_toml(read_whole(path, "the configuration", _REMEDY), str(path), gpus)


def parse_torchtitan_toml(text: str, where: str = "config.toml", gpus: int | None = None) -> FrameworkSettings:
    """Return the settings of a file's text; ``where`` names it in errors."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        _fail(f"not TOML: {str(error)[:80]}", where)
    parallelism = _table(document, "parallelism", where)
    sizes = {name: _whole(parallelism, key, where) for name, key in torchtitan.SIZES.items()}
    shards = _shards(parallelism, sizes, gpus, where)
    dp = _whole(parallelism, torchtitan.REPLICAS, where) * shards
    schedule, vp = _schedule(parallelism, sizes["pp"], where)
    mode = _table(document, "activation_checkpoint", where).get("mode", "")
    if mode and mode not in _MODES:
        _fail(f"activation_checkpoint mode {str(mode)[:30]!r} is none of {', '.join(_MODES)}", where)
    values: Mapping[str, Any] = {
        **sizes,
        "vp": vp,
        "dp": dp,
        "sp": sizes["tp"] > 1,
        "zero": 3 if shards > 1 else 0,
        "schedule": schedule,
        "overlap_gradients": dp > 1,
        "overlap_parameters": shards > 1,
        "overlap_tensor": _flag(parallelism, torchtitan.ASYNC_TP, where),
        "recompute": str(mode),
    }
    try:
        settings = FrameworkSettings(**values)
        training = _table(document, "training", where)
        if "global_batch_size" not in training or training.get("global_batch_size") == -1:
            return settings
        of, key = (parallelism, torchtitan.PIPELINE_BATCH) if sizes["pp"] > 1 else (training, "local_batch_size")
        return settings.with_batches(_whole(training, "global_batch_size", where), _whole(of, key, where), where)
    except UsageError as error:
        _fail(error.what, where, error.remedy)


def _shards(parallelism: Table, sizes: Mapping[str, int], gpus: int | None, where: str) -> int:
    """Return over how many ranks parameters are cut; all that are left, where the file says so."""
    if parallelism.get(torchtitan.SHARDS, -1) != -1:
        return _whole(parallelism, torchtitan.SHARDS, where)
    inner = sizes["tp"] * sizes["pp"] * sizes["cp"] * _whole(parallelism, torchtitan.REPLICAS, where)
    if gpus is None:
        _fail(f"{torchtitan.SHARDS} is -1, all ranks that are left: of how many?", where, "give gpus")
    if gpus % inner or gpus < inner:
        _fail(f"{gpus} GPUs are no multiple of {inner}", where)
    return gpus // inner


def _schedule(parallelism: Table, pp: int, where: str) -> tuple[str, int]:
    named = parallelism.get(torchtitan.SCHEDULE, "1F1B")
    known = {name: said for said, name in torchtitan.SCHEDULES.items()}
    if not isinstance(named, str) or named not in known:
        _fail(f"schedule {str(named)[:40]!r} is none of {', '.join(known)}", where)
    return known[named] if pp > 1 else ("1f1b", 1)


def _table(document: Table, name: str, where: str) -> Table:
    table = document.get(name, {})
    if not isinstance(table, dict):
        _fail(f"'{name}' should be a table", where)
    return table


def _whole(table: Table, key: str, where: str) -> int:
    value = table.get(key, 1)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 31:
        _fail(f"{key} {str(value)[:30]!r} is no whole number of 1 or more", where)
    return value


def _flag(table: Table, key: str, where: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        _fail(f"{key} is true or false", where)
    return value


def _fail(what: str, where: str, remedy: str = _REMEDY) -> NoReturn:
    raise InputError(f"bad configuration of torchtitan: {what}", where=where, remedy=remedy)
