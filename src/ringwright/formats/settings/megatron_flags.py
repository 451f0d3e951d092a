r"""The parallel form and the overlaps of a job as flags of Megatron-LM, one a line: ``$(grep -v '^#' FILE)`` in its command.

What Megatron-LM cannot do is refused: FSDP beside a pipeline or experts, GPipe. It takes data parallelism from the number of
GPUs, which stands in the head of the file. Source: NVIDIA/Megatron-LM ``megatron/training/arguments.py`` (0.12).

They are read back from a file, or from the command of a script. Flags that say nothing of its form are passed over, and so is
what stands before the first one; a ``\`` at the end of a line goes on. The number of GPUs is asked for, or stands in a
comment ``# GPUs: N``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from ringwright.formats.sources.gate.small_file import read_whole
from ringwright.graph.frameworks import megatron
from ringwright.graph.frameworks.framework_facts import settings_of
from ringwright.graph.frameworks.settings import FrameworkSettings
from ringwright.ground.errors import InputError, UsageError
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


# read back


_REMEDY = "compare with what ringwright.formats.settings.megatron_flags writes"
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
    flags = _read_flags(text, where)
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


def _read_flags(text: str, where: str) -> dict[str, str]:
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
