"""One dump: bytes (pickle or JSON, whole or cut short) to its parts, every value of an expected type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from ringwright.formats.sources.flight_recorder.names import rank_in_name
from ringwright.formats.sources.flight_recorder.opcodes import MOST_BYTES, MOST_CONTAINERS, RefusedError, load
from ringwright.formats.sources.source import is_damage

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source

MOST_RANKS = 1 << 20
MOST_GROUPS = 1 << 16
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)  # an open string ends with the bytes
_BACKENDS = {"nccl", "ncclx", "rccl", "rcclx", "gloo", "xccl", "hccl", "mpi", "ucc", "dummy"}
_COUNTERS = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")

Group = tuple[str, str, tuple[int, ...]]  # name, description, members; () where unknown


@dataclass
class Dump:
    """What one rank wrote. ``groups`` by name; ``status`` by the rank's own number of the group (``pg_id``)."""

    file: str
    rank: int | None
    version: str
    nccl_version: str
    groups: dict[str, Group]
    status: dict[str, tuple[int | None, int | None, int | None]]  # last enqueued, started, completed
    entries: list[dict[str, Any]]
    operations: int = 0  # as many entries as it had
    not_entries: int = 0  # things in the list of entries that are none
    notes: list[str] = field(default_factory=list)
    is_rank_inferred: bool = False
    is_torchcomms: bool = False  # one counter for all groups; descriptions are backends


def read_dump(source: Source, progress: Callable[[int], None] | None = None) -> Dump:
    """Return the dump in ``source``; raise RefusedError where it holds none."""
    data = _bytes(source)
    if progress is not None:
        progress(len(data))
    notes: list[str] = []
    try:
        root = _decode(data)
    except RefusedError as error:
        if not isinstance(error.kept, dict):
            raise
        root = error.kept
        notes.append(f"cut short at byte {error.at:,}: {error.what}; what came before is kept")
    if not isinstance(root, dict) or not ({"entries", "pg_config", "pg_status"} & root.keys()):
        raise RefusedError("no Flight Recorder dump: neither entries nor pg_config", 0)
    return _parts(source.name, root, notes)


def _bytes(source: Source) -> bytes:
    """Return the bytes of a source; a damaged archive ends it and keeps what came before."""
    pieces: list[bytes] = []
    size = 0
    with source.open() as stream:
        while size <= MOST_BYTES:
            try:
                piece = stream.read(1 << 20)
            except Exception as error:
                if not is_damage(error):
                    raise
                source.losses.append((f"input damaged, rest not read: {type(error).__name__}", size))
                break
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
    if size > MOST_BYTES:
        raise RefusedError(f"larger than {MOST_BYTES >> 20} MiB", MOST_BYTES)
    return b"".join(pieces)


def _decode(data: bytes) -> Any:
    text = data.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] not in (b"{", b"["):
        return load(data)
    if data.count(b"{") + data.count(b"[") > MOST_CONTAINERS:
        raise RefusedError(f"more than {MOST_CONTAINERS:,} containers", 0)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError, UnicodeDecodeError) as error:
        raise RefusedError(f"damaged JSON: {str(error)[:160]}", len(data), kept=_mend(text)) from None


def _mend(text: bytes) -> Any:
    """Return what JSON that is cut short holds up to its last whole entry, or None."""
    open_, cut, closers = [], 0, b""
    for match in _TOKENS.finditer(text):
        token = match[0]
        if token in (b"{", b"["):
            open_.append(b"}" if token == b"{" else b"]")
            if len(open_) > 100:
                return None
        elif token in (b"}", b"]"):
            if not open_ or open_.pop() != token:
                break
            if len(open_) <= 2:
                cut, closers = match.end(), b"".join(reversed(open_))
    try:
        return msgspec.json.decode(text[:cut] + closers)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _parts(name: str, root: dict[Any, Any], notes: list[str]) -> Dump:
    given = root.get("entries")
    listed = given if isinstance(given, list | tuple) else []
    entries = [entry for entry in listed if isinstance(entry, dict)]
    dump = Dump(
        file=name,
        rank=None,
        version=_text(root.get("version")),
        nccl_version=_text(root.get("nccl_version") or root.get("comm_lib_version")),
        groups=_groups(root.get("pg_config")),
        status=_status(root.get("pg_status")),
        entries=entries,
        not_entries=len(listed) - len(entries),
        notes=notes,
    )
    if given is not None and not isinstance(given, list | tuple):
        notes.append("its entries are no list")
    dump.is_torchcomms = _of_torchcomms(root, dump)
    _set_rank(dump, root.get("rank"))
    if dump.is_torchcomms and dump.rank is not None:
        # its first releases numbered the members of every communicator from 0
        for group, (_, description, members) in dump.groups.items():
            if members and dump.rank not in members:
                dump.groups[group] = (group, description, ())
    return dump


def _of_torchcomms(root: dict[Any, Any], dump: Dump) -> bool:
    """Say whether torchcomms' hook wrote it: groups are described by their backend, and another key holds the release."""
    described = {description for _, description, _ in dump.groups.values()}
    return "comm_lib_version" in root and "nccl_version" not in root and bool(described) and described <= _BACKENDS


def _set_rank(dump: Dump, stated: Any) -> None:
    """The rank is in the content, else in the file name; the groups of a dump are its own, so they may contradict."""
    named = rank_in_name(dump.file)
    sets = [set(members) for _, _, members in dump.groups.values() if members]
    possible = set.intersection(*sets) if sets else set()
    if (rank := whole(stated)) is not None and 0 <= rank < MOST_RANKS:
        dump.rank = rank
    elif named is not None and (named in possible or not possible):
        dump.rank = named
    elif len(possible) == 1:
        dump.rank, dump.is_rank_inferred = next(iter(possible)), True
        if named is not None:
            dump.notes.append(f"the file name says rank {named}, its process groups say rank {dump.rank}")
    elif named is not None:
        dump.rank = named
        dump.notes.append(f"rank {named} of the file name is not in all of the dump's process groups")


def _groups(config: Any) -> dict[str, Group]:
    """``pg_config`` is an object by name, in some versions a list; ``ranks`` a list or its text."""
    groups: dict[str, Group] = {}
    parts: Iterable[Any] = ()
    if isinstance(config, dict):
        parts = [(key, value) for key, value in islice(config.items(), MOST_GROUPS)]
    elif isinstance(config, list | tuple):
        parts = [(None, value) for value in islice(config, MOST_GROUPS)]
    for key, value in parts:
        if isinstance(value, dict):
            name = _text(value.get("name")) or _text(value.get("pg_name")) or _text(key)
            members = ranks(value.get("ranks"))
            groups[name] = (name, _text(value.get("desc") or value.get("pg_desc")), members)
        elif isinstance(value, list | tuple | str):
            groups[_text(key)] = (_text(key), "", ranks(value))
    return groups


def ranks(value: Any) -> tuple[int, ...]:
    """Return ranks from a list or from text such as ``[0, 1, 2]``; () where it is neither or names a rank twice."""
    if isinstance(value, str):
        numbers = [int(text) for text in re.findall(r"\d{1,7}", value[: 8 * MOST_RANKS])]
    elif isinstance(value, list | tuple | set | frozenset):
        numbers = [number for number in map(whole, islice(value, MOST_RANKS)) if number is not None]
    else:
        return ()
    if len(set(numbers)) != len(numbers) or any(not 0 <= number < MOST_RANKS for number in numbers):
        return ()
    return tuple(numbers)


def _status(value: Any) -> dict[str, tuple[int | None, int | None, int | None]]:
    if not isinstance(value, dict):
        return {}
    status = {}
    for key, counters in islice(value.items(), MOST_GROUPS):
        if isinstance(counters, dict):
            enqueued, started, completed = (whole(counters.get(name)) for name in _COUNTERS)
            status[_text(key)] = (enqueued, started, completed)
    return status


def whole(value: Any) -> int | None:
    """Return a whole number of at most 62 bits from a number or its text, else None."""
    if type(value) is str and len(value) <= 20:
        try:
            value = int(value)
        except ValueError:
            return None
    return value if type(value) is int and -(1 << 62) < value < 1 << 62 else None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:512]
    return str(value) if type(value) is int and abs(value) < 1 << 62 else ""
