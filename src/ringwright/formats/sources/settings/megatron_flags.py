"""The flags of Megatron-LM in a file, or in the command of a script, read as the settings of a job.

Flags that say nothing of its form are passed over, and so is what stands before the first one; a ``\\`` at the end of a line goes
on. The number of GPUs is asked for, or stands in a comment ``# GPUs: N``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from ringwright.formats.sources.gate.whole import read_whole
from ringwright.graph.frameworks import megatron
from ringwright.graph.frameworks.settings import FrameworkSettings
from ringwright.ground.errors import InputError, UsageError

_REMEDY = "compare with what ringwright.formats.exports.megatron_flags writes"
_GPUS = re.compile(rf"^{megatron.GPUS}(\d{{1,9}})\s*$", re.MULTILINE)
_NUMBERS = (*megatron.SIZES.values(), megatron.BUCKET, megatron.MICRO_BATCH, megatron.GLOBAL_BATCH)
_VALUED = (*_NUMBERS, megatron.GRANULARITY)
_BARE = (*megatron.SWITCHES.values(), megatron.SHARED_STATES, megatron.SHARDED, megatron.WHOLE_OUTPUTS)


def read_megatron_flags(path: Path | str, gpus: int | None = None) -> FrameworkSettings:
    """Return the settings of a file; InputError for a flag that is wrong, or where nothing says on how many GPUs."""
    path = Path(path)
    return parse_megatron_flags(read_whole(path, "the flags", _REMEDY), str(path), gpus)


def parse_megatron_flags(text: str, where: str = "flags", gpus: int | None = None) -> FrameworkSettings:
    """Return the settings of a file's text; ``where`` names it in errors."""
    said = _GPUS.search(text)
    gpus = gpus or (int(said[1]) if said else None)
    if gpus is None:
        _fail("nothing says on how many GPUs", where, "give gpus, or write a line '# GPUs: 64'")
    flags = _flags(text, where)
    sizes = {name: _whole(flags, flag, where) for name, flag in megatron.SIZES.items()}
    inner = sizes["tp"] * sizes["pp"] * sizes["cp"]
    if gpus % inner:
        _fail(f"{gpus} GPUs are no multiple of tp x pp x cp = {inner}", where)
    is_sharded = megatron.SHARDED in flags
    dp = gpus // inner
    switches = {name: flag in flags for name, flag in megatron.SWITCHES.items()}
    if is_sharded:
        switches |= dict.fromkeys(("overlap_gradients", "overlap_parameters"), dp > 1)
    parts = sizes["tp"] > 1 and sizes["pp"] > 1 and not switches["sp"] and megatron.WHOLE_OUTPUTS not in flags
    values: Mapping[str, Any] = {
        **sizes,
        **switches,
        "dp": dp,
        "sg": parts,
        "zero": 3 if is_sharded else int(megatron.SHARED_STATES in flags),
        "bucket_elements": _whole(flags, megatron.BUCKET, where) if megatron.BUCKET in flags else None,
        "recompute": flags.get(megatron.GRANULARITY, ""),
    }
    try:
        settings = FrameworkSettings(**values)
        if megatron.GLOBAL_BATCH not in flags or megatron.MICRO_BATCH not in flags:
            return settings
        sequences, size = (_whole(flags, flag, where) for flag in (megatron.GLOBAL_BATCH, megatron.MICRO_BATCH))
        return settings.with_batches(sequences, size, where)
    except UsageError as error:
        _fail(error.what, where, error.remedy)


def _flags(text: str, where: str) -> dict[str, str]:
    """Return the flags that are known, with their values; InputError for one that is said twice or lacks its value."""
    lines = text.replace("\\\n", " ").splitlines()
    try:
        words = [word for line in lines for word in shlex.split(line, comments=True)]
    except ValueError as error:
        _fail(f"a quotation that does not end: {error}", where)
    flags: dict[str, str] = {}
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag not in _VALUED and flag not in _BARE:
            continue
        if flag in flags:
            _fail(f"{flag} is said twice", where)
        if flag in _VALUED and not equals:
            value = words[at + 1] if at + 1 < len(words) else ""
        if flag in _VALUED and (not value or value.startswith("--")):
            _fail(f"{flag} has no value", where)
        flags[flag] = value
    return flags


def _whole(flags: dict[str, str], flag: str, where: str) -> int:
    value = flags.get(flag, "1")
    if not re.fullmatch(r"[1-9]\d{0,11}", value, re.ASCII):
        _fail(f"{flag} {value[:30]} is no whole number", where)
    return int(value)


def _fail(what: str, where: str, remedy: str = _REMEDY) -> NoReturn:
    raise InputError(f"bad flags of Megatron-LM: {what}", where=where, remedy=remedy)
