"""Which kernels communicate: a catalogue of patterns (``catalogue.toml``), which users extend by a file of their own.

A kernel that is in no list but sounds like communication is ``unknown-communication``: reported by name, counted neither
as communication nor as computation. Everything else on the device is ``compute``.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ringwright.costs.nccl.names import printed_algorithm, printed_protocol
from ringwright.formats.sources.datatypes import datatype
from ringwright.formats.sources.kineto.names import operation
from ringwright.ground.errors import InputError

VARIABLE = "RINGWRIGHT_KERNELS"
UNKNOWN = "unknown-communication"
COMPUTE = "compute"
LONGEST_NAME = 1024
_NAMING = f"name a file of rules with --kernel-patterns, or unset {VARIABLE}"
_given: ContextVar[str] = ContextVar("patterns", default="")
_REMEDY = f"compare it with {Path(__file__).with_name('catalogue.toml')}, whose first lines say what a rule is"
_LENGTH = re.compile(r"[1-9]\d{0,3}")
_PLACEHOLDERS = (
    "all-gather",
    "broadcast",
    "send-recv",
    "all-to-all",
)  # their names carry Sum_int8_t, which means nothing


@dataclass(frozen=True)
class Kernel:
    """What a kernel's name says. ``op`` is None where it says nothing; ``library`` is its class."""

    library: str
    op: str | None = None
    algorithm: str | None = None
    protocol: str | None = None
    reduce_op: str | None = None
    datatype: str | None = None

    @property
    def communicates(self) -> bool:
        """Whether the name is that of a known communication kernel."""
        return self.library not in (COMPUTE, UNKNOWN)


@dataclass(frozen=True)
class _Rule:
    library: str
    pattern: re.Pattern[str]
    op: str | None
    is_full: bool


class Catalogue:
    """Rules in order, with a memory of the names already classified."""

    def __init__(self, rules: list[_Rule], words: re.Pattern[str], but: re.Pattern[str]) -> None:
        self._rules, self._words, self._but = rules, words, but
        self._known: dict[str, Kernel] = {}

    def classify(self, name: str) -> Kernel:
        """Return what the name says; names beyond 1,024 characters are judged by their beginning."""
        name = name[:LONGEST_NAME]
        kernel = self._known.get(name)
        if kernel is None:
            kernel = self._classify(name)
            if len(self._known) < 1 << 16:
                self._known[name] = kernel
        return kernel

    def _classify(self, name: str) -> Kernel:
        short = bare(name)
        for rule in self._rules:
            found = rule.pattern.search(name if rule.is_full else short)
            if found:
                return _kernel(rule, found.groupdict())
        if self._words.search(short) and not self._but.search(short):
            return Kernel(UNKNOWN)
        return Kernel(COMPUTE)


def bare(name: str) -> str:
    """Return the function of a demangled kernel name: no return type, arguments or template arguments.

    >>> bare("void at::native::reduce_kernel<512, 1>(at::ReduceOp)")
    'at::native::reduce_kernel'
    """
    name = _demangled(name).replace("(anonymous namespace)::", "").removeprefix("void ").removeprefix("__global__ ")
    cut = min((end for end in (name.find("("), name.find("<")) if end > 0), default=len(name))
    rest = name[cut:]
    if rest.startswith("<") and (inner := re.search(r">::(\w+)(?:[<(]|$)", rest)):
        return f"{name[:cut]}::{inner[1]}"  # a template class with a plain member
    return name[:cut].strip()


def _demangled(name: str) -> str:
    """Return the name of a mangled function without its arguments: AMD's profiler writes names as the linker has them.

    >>> _demangled("_ZN4vllm26cross_device_reduce_1stageIDF16bLi8EEEvPNS_8RankDataE")
    'vllm::cross_device_reduce_1stage'
    """
    if not name.startswith("_Z"):
        return name
    at = 3 if name.startswith("_ZN") else 2
    parts: list[str] = []
    while (length := _LENGTH.match(name, at)) and len(parts) < 32:
        at = length.end() + int(length[0])
        parts.append(name[length.end() : at])
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__N")) or name


def _kernel(rule: _Rule, said: dict[str, str | None]) -> Kernel:
    op = operation(said.get("op")) or rule.op
    places = op in _PLACEHOLDERS
    algorithm, protocol = said.get("algorithm"), said.get("protocol")
    return Kernel(
        rule.library,
        op,
        printed_algorithm(algorithm) if algorithm else None,
        printed_protocol(protocol) if protocol else None,
        None if places else _reduction(said.get("reduce")),
        None if places else datatype(said.get("datatype")),
    )


def _reduction(said: str | None) -> str | None:
    if not said:
        return None
    return {"premulsum": "premulsum", "sumpostdiv": "avg"}.get(said.lower(), said.lower())


@contextmanager
def patterns(path: str | Path | None) -> Iterator[None]:
    """Have the rules of a file come first in every catalogue that is loaded while the body runs."""
    before = _given.set(str(path) if path is not None else _given.get())
    try:
        yield
    finally:
        _given.reset(before)


def load(path: str | Path | None = None) -> Catalogue:
    """Return the catalogue; rules of ``path``, or of the file that ``patterns`` or ``RINGWRIGHT_KERNELS`` name, come first.

    Raises InputError when that file cannot be read or a pattern is no regular expression.
    """
    named = str(path) if path is not None else _given.get() or os.environ.get(VARIABLE, "")
    try:
        stamp = Path(named).stat().st_mtime_ns if named else 0
    except OSError as error:
        raise InputError(f"no kernel catalogue: {error.strerror}", where=named, remedy=_NAMING) from error
    return _load(named, stamp)


@cache
def _load(named: str, stamp: int) -> Catalogue:
    own = resources.files("ringwright.formats.sources.kineto").joinpath("catalogue.toml").read_text("utf-8")
    document = tomllib.loads(own)
    rules = _rules(document, "catalogue.toml")
    suspects = document["suspects"]
    words, but = suspects["words"], suspects["but"]
    if named:
        try:
            theirs = tomllib.loads(Path(named).read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"not a kernel catalogue: {error}", where=named, remedy=_NAMING) from error
        rules = _rules(theirs, named) + rules
        more = theirs.get("suspects", {})
        words = "|".join(filter(None, (words, _text(more, "words", named))))
        but = "|".join(filter(None, (but, _text(more, "but", named))))
    return Catalogue(rules, _pattern(words, named, re.IGNORECASE), _pattern(but, named, re.IGNORECASE))


def _rules(document: dict[str, Any], where: str) -> list[_Rule]:
    rules = []
    entries = document.get("kernel", [])
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries], 1):
        where_in = f"{where}: [[kernel]] {number}"
        if not isinstance(entry, dict) or not isinstance(entry.get("pattern"), str):
            raise InputError("a kernel rule needs class and pattern", where=where_in, remedy=_REMEDY)
        op = entry.get("op")
        known = operation(op) if isinstance(op, str) else None
        if op is not None and known is None:
            raise InputError(
                f"'{op}' is no operation", where=where_in, remedy="use all-reduce, all-to-all, ... or leave it out"
            )
        library = _text(entry, "class", where_in)
        rules.append(_Rule(library or "custom", _pattern(entry["pattern"], where_in), known, bool(entry.get("full"))))
    return rules


def _text(table: Any, key: str, where: str) -> str:
    value = table.get(key, "") if isinstance(table, dict) else None
    if not isinstance(value, str):
        raise InputError(f"{key} must be text", where=where, remedy=_REMEDY)
    return value


def _pattern(text: str, where: str, flags: int = 0) -> re.Pattern[str]:
    try:
        return re.compile(text, flags)
    except re.error as error:
        raise InputError(f"not a regular expression: {error}", where=where, remedy=_REMEDY) from error
