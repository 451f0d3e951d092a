"""The entries of one dump as columns: every value checked, sizes in bytes, coalesced operations put together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from ringwright.bounds.laws.records import gap
from ringwright.formats.sources.flight_recorder.dump import Dump, read_dump, whole
from ringwright.formats.sources.flight_recorder.names import NamedOperation, datatype, operation
from ringwright.formats.sources.gate import missing_records
from ringwright.ground.trace_tables import Row

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source

MOST_TENSORS = 4096
MOST_DIMENSIONS = 64
MOST_FRAMES = 64
MOST_TEXT = 300
_STATES = frozenset({"scheduled", "started", "completed"})
_LIBRARY = ("/torch/", "site-packages", "dist-packages", "<frozen", "<string>", "importlib", "/lib/python", "c10d")
_TOTAL_IS_OUTPUT = frozenset({"all-gather", "gather"})
_TOTAL_IS_INPUT = frozenset({"reduce-scatter", "scatter"})

Entry = dict[str, Any]


@dataclass
class DumpColumns:
    """Lists of equal length, one item per operation of the dump; times in nanoseconds since the epoch."""

    record: list[int | None] = field(default_factory=list)
    group: list[tuple[str, str]] = field(default_factory=list)  # name and description
    number: list[str] = field(default_factory=list)  # pg_id, the rank's own number of the group
    name: list[str] = field(default_factory=list)
    what: list[NamedOperation] = field(default_factory=list)
    sequence: list[int | None] = field(default_factory=list)
    op_id: list[int | None] = field(default_factory=list)
    thread: list[int | None] = field(default_factory=list)
    state: list[str | None] = field(default_factory=list)
    created_ns: list[int | None] = field(default_factory=list)
    started_ns: list[int | None] = field(default_factory=list)
    completed_ns: list[int | None] = field(default_factory=list)
    duration_ms: list[float | None] = field(default_factory=list)
    timeout_ms: list[int | None] = field(default_factory=list)
    sent: list[int | None] = field(default_factory=list)
    received: list[int | None] = field(default_factory=list)
    count: list[int | None] = field(default_factory=list)
    datatype: list[str | None] = field(default_factory=list)
    element: list[int | None] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    text: list[str | None] = field(default_factory=list)


@dataclass
class DumpedRank:
    """One dump, read: what it says of its rank, its operations, and what is missing between them, as the ledger tells it."""

    dump: Dump
    columns: DumpColumns
    gone: list[Row]


def read_columns(source: Source, progress: Callable[[int], None] | None = None) -> DumpedRank:
    """Return the dump in a source with its operations by column; raise RefusedError where it holds none."""
    dump = read_dump(source, progress)
    read = DumpedRank(dump, columns(dump), _gone(dump))
    dump.operations, dump.entries = len(dump.entries), []
    return read


def columns(dump: Dump) -> DumpColumns:
    """Return the operations of a dump."""
    entries = dump.entries
    table = DumpColumns()
    table.name = [_name(entry.get("profiling_name")) for entry in entries]
    if any(name.endswith("oalesced") for name in table.name):
        entries = _without_markers(entries, [operation(name) for name in table.name])
        table.name = [_name(entry.get("profiling_name")) for entry in entries]
    table.what = [operation(name) for name in table.name]
    table.record = _numbers(entries, "record_id")
    table.op_id = _numbers(entries, "op_id")
    table.thread = [whole(entry.get("thread_id")) for entry in entries]
    table.timeout_ms = _numbers(entries, "timeout_ms")
    table.number = [str(number) if type(number := entry.get("pg_id")) is int else "" for entry in entries]
    table.group = [group_of(entry) for entry in entries]
    table.records = [n if type(n := entry.get(_FOLDED)) is int else 1 for entry in entries]
    table.text = [_first_user_frame(entry.get("frames")) for entry in entries]
    table.state = [state if (state := entry.get("state")) in _STATES else None for entry in map(_hashable, entries)]
    _sequences(table, entries)
    if dump.is_torchcomms:
        _apart(table)
    _times(table, entries)
    _sizes(table, entries)
    return table


def _gone(dump: Dump) -> list[Row]:
    """Return the ledger's lines of numbers that no entry carries, between the first and the last of a group that the ring held.

    Every entry tells both counters of its group, also markers of coalesced calls and those of the other kind.
    """
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for each in dump.entries if not dump.is_torchcomms else ():
        collective = each.get("collective_seq_id", each.get("seq_id"))
        group = f"group {group_of(each)[0] or each.get('pg_id')}"
        for kind, number in (("collectives", collective), ("point-to-point", each.get("p2p_seq_id"))):
            if type(number) is int and abs(number) < 1 << 53:
                numbers[group, kind].append(number)
    gaps = ((whose, gap(held)) for whose, held in numbers.items())
    return [
        missing_records.entry(dump.file, f"rank {dump.rank}, {' '.join(whose)}", each)
        for whose, each in gaps
        if each is not None
    ]


def total_bytes(op: str, nranks: int | None, sent: int | None, received: int | None) -> int | None:
    """Return the size column of nccl-tests: the total over ranks for gathering and scattering, else this rank's buffer."""
    if op in _TOTAL_IS_OUTPUT:
        return received or _times_ranks(sent, nranks)
    if op in _TOTAL_IS_INPUT:
        return sent or _times_ranks(received, nranks)
    return sent if sent is not None and (sent or not received) else received


def _times_ranks(part: int | None, nranks: int | None) -> int | None:
    return part * nranks if part is not None and nranks else None


def _name(value: Any) -> str:
    return value[:128] if isinstance(value, str) else ""


def _hashable(entry: Entry) -> Entry:
    return entry if isinstance(entry.get("state"), str) else {}


def _numbers(entries: list[Entry], key: str) -> list[int | None]:
    limit = 1 << 62
    return [n if type(n := entry.get(key)) is int and -limit < n < limit else None for entry in entries]


def group_of(entry: Entry) -> tuple[str, str]:
    """Return name and description of an entry's group."""
    value = entry.get("process_group", entry.get("pg_name"))
    if isinstance(value, list | tuple) and value and isinstance(value[0], str):
        description = value[1] if len(value) > 1 and isinstance(value[1], str) else ""
        return value[0][:512], description[:512]
    return (value[:512], "") if isinstance(value, str) else ("", "")


def _sequences(table: DumpColumns, entries: list[Entry]) -> None:
    collective = _numbers(entries, "collective_seq_id")
    if not any(number is not None for number in collective):
        collective = _numbers(entries, "seq_id")  # dumps of version 1
    pointwise = _numbers(entries, "p2p_seq_id")
    table.sequence = [
        p if what.kind == "p2p" and p is not None else c
        for what, c, p in zip(table.what, collective, pointwise, strict=True)
    ]


def _apart(table: DumpColumns) -> None:
    """Count the collectives of each group, where one counter numbers all; not where the ring has lost the first of them."""
    is_alone = len(set(table.number)) == 1 and all(what.kind != "p2p" for what in table.what)
    counted: Counter[str] = Counter()
    is_whole = not table.record or table.record[0] == 0
    for index, (number, what) in enumerate(zip(table.number, table.what, strict=True)):
        if what.kind == "p2p":
            table.sequence[index] = None
        elif not is_alone:
            table.sequence[index] = counted[number] if is_whole else None
            counted[number] += 1


def _times(table: DumpColumns, entries: list[Entry]) -> None:
    """Nanoseconds; JSON writes 0 for a time that was not seen."""
    table.created_ns = [n or None for n in _numbers(entries, "time_created_ns")]
    if not any(table.created_ns):
        table.created_ns = [n * 1000 if n else None for n in _numbers(entries, "time_created_us")]
    table.started_ns = [n or None for n in _numbers(entries, "time_discovered_started_ns")]
    table.completed_ns = [n or None for n in _numbers(entries, "time_discovered_completed_ns")]
    table.duration_ms = [_duration(entry.get("duration_ms")) for entry in entries]


def _duration(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value < 1e12 else None


def _sizes(table: DumpColumns, entries: list[Entry]) -> None:
    for what, entry in zip(table.what, entries, strict=True):
        input_count, input_bytes, name, element = _bytes(entry.get("input_sizes"), entry.get("input_dtypes"))
        output_count, output_bytes, other, other_element = _bytes(entry.get("output_sizes"), entry.get("output_dtypes"))
        table.count.append(input_count or output_count)
        table.datatype.append(name or other)
        table.element.append(element if name else other_element)
        table.sent.append(None if what.op == "recv" else input_bytes)
        table.received.append(None if what.op == "send" else output_bytes)


def _bytes(sizes: Any, types: Any) -> tuple[int | None, int | None, str | None, int | None]:
    """Return elements, bytes, datatype and bytes of an element of a list of tensors."""
    if type(sizes) is not list and type(sizes) is not tuple:
        return None, None, None, None
    first = types[0] if (type(types) is list or type(types) is tuple) and types else None
    name, element = datatype(first) if type(first) is str and len(first) < 64 else (None, None)
    count = 0
    for tensor in sizes if len(sizes) <= MOST_TENSORS else ():
        elements = _elements(tensor)
        if elements is None:
            return None, None, name, element
        count += elements
    if len(sizes) > MOST_TENSORS or count >= 1 << 58:
        return None, None, name, element
    return count, count * element if element else (None if sizes else 0), name, element


def _elements(tensor: Any) -> int | None:
    if (type(tensor) is not list and type(tensor) is not tuple) or len(tensor) > MOST_DIMENSIONS:
        return None
    count = 1
    for extent in tensor:
        if type(extent) is not int or not 0 <= extent < 1 << 58:
            return None
        count *= extent
    return count


def _first_user_frame(frames: Any) -> str | None:
    """Return ``function at file:line`` of the innermost frame outside libraries, else of the innermost frame."""
    if (type(frames) is not list and type(frames) is not tuple) or not frames:
        return None
    first: Any = None
    for frame in islice(frames, MOST_FRAMES):
        if type(frame) is dict and type(file := frame.get("filename")) is str:
            if len(file) < 1 << 12 and not _is_library(file):
                return _says(frame)
            first = first or frame
    return _says(first) if first else None


def _says(frame: dict[Any, Any]) -> str:
    name, file = frame.get("name"), str(frame["filename"])
    return f"{name[:MOST_TEXT] if type(name) is str else '?'} at {file[-MOST_TEXT:]}:{whole(frame.get('line')) or 0}"


@lru_cache(4096)
def _is_library(file: str) -> bool:
    return any(word in file for word in _LIBRARY)


_FOLDED = "ringwright folded"
_STATE_KEYS = ("state", "time_discovered_started_ns", "time_discovered_completed_ns", "duration_ms", "retired")


def _without_markers(entries: list[Entry], whats: list[NamedOperation]) -> list[Entry]:
    """Give the state of a coalesced marker to the operations it stands for, and leave the marker out.

    Only the marker has device events; its parts stay at ``scheduled`` for ever. Collectives of one sequence become one
    entry of their joint size; sends and receives stay apart. A marker without parts stays.
    """
    parts: dict[Any, list[int]] = {}
    for index, (entry, what) in enumerate(zip(entries, whats, strict=True)):
        if not what.is_coalesced:
            parts.setdefault(_joint_key(entry, what.kind), []).append(index)
    kept: dict[int, Entry] = dict(enumerate(entries))
    for index, (entry, what) in enumerate(zip(entries, whats, strict=True)):
        indices = parts.get(_joint_key(entry, what.kind), []) if what.is_coalesced else []
        if not indices:
            continue
        del kept[index]
        state = {key: entry.get(key) for key in _STATE_KEYS}
        if what.kind == "p2p":
            kept |= {part: {**entries[part], **state} for part in indices if part in kept}
            continue
        joint = _joined([entries[part] for part in indices]) | state
        for part in indices:
            kept.pop(part, None)
        kept[indices[0]] = joint
    return [kept[index] for index in sorted(kept)]


def _joint_key(entry: Entry, kind: str) -> tuple[Any, ...]:
    key = "p2p_seq_id" if kind == "p2p" else "collective_seq_id"
    return (kind, *(whole(entry.get(name)) for name in ("pg_id", key)))


def _joined(entries: list[Entry]) -> Entry:
    joint: Entry = dict(entries[0])
    for key in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes"):
        listed = [entry.get(key) for entry in entries[:MOST_TENSORS]]
        joint[key] = [item for part in listed if isinstance(part, list) for item in part[:MOST_TENSORS]][:MOST_TENSORS]
    joint[_FOLDED] = len(entries)
    return joint
