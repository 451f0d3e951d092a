"""A TOML configuration of torchtitan, read as the settings of a job; tables and keys of other things are passed over."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ringwright.formats.sources.gate.whole import read_whole
from ringwright.graph.frameworks import torchtitan
from ringwright.graph.frameworks.settings import FrameworkSettings
from ringwright.ground.errors import InputError, UsageError

_REMEDY = "compare with what ringwright.formats.exports.torchtitan_toml writes"
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
