"""Environment variables for NCCL: lines as ``docker run --env-file`` and ``/etc/nccl.conf`` take them, or of a shell.

The two differ: lists for single collectives have semicolons, which end a command of a shell, and quotes would become part of
the value in the other one.

They are read back as the release would read them. An unknown word in a list is refused, as NCCL refuses it since 2.24
(before, it passes over it). ``^`` before a list: all but these. Lines that set nothing of NCCL's are passed over. The release
is asked for, or stands in a comment ``# NCCL 2.27``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from ringwright.costs.nccl.constants import PROTOCOLS, release_numbers
from ringwright.costs.nccl.environment import (
    EVERY_OP,
    OWN,
    VARIABLE,
    Lists,
    NcclEnvironment,
    algorithms_of,
    lists_of,
    op_words,
)
from ringwright.costs.nccl.names import spelled
from ringwright.formats.sources.gate.small_file import read_whole
from ringwright.ground.errors import InputError, UsageError

HEAD = "# NCCL "
_CTAS_FROM = (2, 17)


def nccl_environment(environment: NcclEnvironment) -> bytes:
    """Return the lines as they stand, for ``--env-file``."""
    lines = [f"{name}={value}" for name, value in variables(environment)]
    return "\n".join([f"{HEAD}{environment.release}", *lines, ""]).encode("ascii")


def nccl_environment_shell(environment: NcclEnvironment) -> bytes:
    """Return the lines for a shell: exported, and quoted where one would read them otherwise."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables(environment)]
    return "\n".join([f"{HEAD}{environment.release}", *lines, ""]).encode("ascii")


def variables(environment: NcclEnvironment) -> Iterator[tuple[str, str]]:
    """Yield each variable with its value."""
    release = environment.release
    for name, lists in (("NCCL_ALGO", environment.algorithms), ("NCCL_PROTO", environment.protocols)):
        if lists:
            yield name, _listed(lists, release)
    counted = "CTAS" if release_numbers(release)[:2] >= _CTAS_FROM else "NCHANNELS"
    for end, number in (("MIN", environment.min_channels), ("MAX", environment.max_channels)):
        if number is not None:
            yield f"NCCL_{end}_{counted}", str(number)
    if environment.buffer_bytes is not None:
        yield "NCCL_BUFFSIZE", str(environment.buffer_bytes)
    yield from environment.others.items()


def _listed(lists: Lists, release: str) -> str:
    """Return lists as NCCL has them: the one for all first, which alone has no name."""
    every = [_words(lists[EVERY_OP], release)] if EVERY_OP in lists else []
    return ";".join([*every, *(f"{word}:{_words(lists[op], release)}" for op, word in op_words() if op in lists)])


def _words(names: tuple[str, ...], release: str) -> str:
    return ",".join(spelled(name, release) for name in names)


# read back


_REMEDY = "compare with what ringwright.formats.settings.nccl_environment writes"
_RELEASE = re.compile(r"^# NCCL (v?\d+\.\d+[\w.+-]*)\s*$", re.MULTILINE)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)")
_NUMBER = re.compile(r"[1-9]\d{0,11}", re.ASCII)


def read_nccl_environment(path: Path | str, release: str | None = None) -> NcclEnvironment:
    """Return what a file sets; InputError names the line that is wrong."""
    path = Path(path)
    return parse_nccl_environment(read_whole(path, "the environment", _REMEDY), str(path), release)


def parse_nccl_environment(text: str, where: str = "env", release: str | None = None) -> NcclEnvironment:
    """Return what a file's text sets; ``where`` names it in errors."""
    said = _RELEASE.search(text)
    release = release or (said[1] if said else None)
    if release is None:
        _fail("nothing says for which release", where, "give release, or write a line '# NCCL 2.27'")
    assigned = _variables(text, where)
    numbers = {name: _number(assigned[name], f"{where}: {name}") for name in OWN[2:] if name in assigned}
    try:
        algorithms = {spelled(each, release): each for each in algorithms_of(release)}
        return NcclEnvironment(
            release,
            _lists(assigned.get("NCCL_ALGO", ""), algorithms, f"{where}: NCCL_ALGO"),
            _lists(assigned.get("NCCL_PROTO", ""), {each: each for each in PROTOCOLS}, f"{where}: NCCL_PROTO"),
            numbers.get("NCCL_MIN_CTAS", numbers.get("NCCL_MIN_NCHANNELS")),
            numbers.get("NCCL_MAX_CTAS", numbers.get("NCCL_MAX_NCHANNELS")),
            numbers.get("NCCL_BUFFSIZE"),
            {name: value for name, value in assigned.items() if name not in OWN},
        )
    except UsageError as error:
        _fail(error.what, where, error.remedy)


def _variables(text: str, where: str) -> dict[str, str]:
    """Return the variables of NCCL's that a file sets, the last one of a name."""
    assigned: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        is_shell = line.lstrip().startswith("export ")
        for word in _read_words(line, f"{where}:{number}") if is_shell else [line]:
            match = _ASSIGNED.fullmatch(word.strip() if is_shell else word)
            if match and VARIABLE.fullmatch(match[1]):
                assigned[match[1]] = match[2]
    return assigned


def _read_words(line: str, where: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)[1:]
    except ValueError as error:
        _fail(f"a quotation that does not end: {error}", where)


def _lists(value: str, known: Mapping[str, str], where: str) -> dict[str, tuple[str, ...]]:
    try:
        return lists_of(value, lambda word: known.get(word.lower()), tuple(known.values()))
    except UsageError as error:
        _fail(error.what, where)


def _number(value: str, where: str) -> int:
    if not _NUMBER.fullmatch(value):
        _fail(f"'{value[:30]}' is no whole number of 1 or more", where)
    return int(value)


def _fail(what: str, where: str, remedy: str = _REMEDY) -> NoReturn:
    raise InputError(f"bad environment of NCCL: {what}", where=where, remedy=remedy)
