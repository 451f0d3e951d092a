"""Dumps of one job to a Trace: groups become communicators, entries events, counters status rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ringwright.sources.flight_recorder.columns import Columns, columns, total_bytes
from ringwright.sources.flight_recorder.dump import Dump
from ringwright.sources.flight_recorder.names import role

if TYPE_CHECKING:
    from ringwright.trace import Trace

SOURCE = "flight-recorder"
COUNTERS = ("last-enqueued", "last-started", "last-completed")
_LEAST_FILE_IN_CLAIM = 8


class Groups:
    """Communicators by name and members; a name with other members on another rank is another communicator."""

    def __init__(self) -> None:
        self.number: dict[tuple[str, tuple[int, ...]], int] = {}
        self.names: list[str] = []
        self.descriptions: list[str] = []
        self.members: list[tuple[int, ...]] = []
        self.seen: list[set[int]] = []
        self.place: list[dict[int, int]] = []  # global rank to rank in the group

    def add(self, name: str, description: str, members: tuple[int, ...]) -> int:
        """Return the communicator of a group, a new one where it was not seen before."""
        key = (name, members)
        if key not in self.number:
            self.number[key] = len(self.names)
            self.names.append(name)
            self.descriptions.append(description)
            self.members.append(members)
            self.seen.append(set())
            self.place.append({rank: place for place, rank in enumerate(members)})
        return self.number[key]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the communicators table."""
        taken = Counter(self.names)
        found = []
        for number, name in enumerate(self.names):
            members, description = self.members[number], self.descriptions[number]
            stated = role(description) if description else None
            found.append(
                {
                    "communicator": number,
                    "comm_id": name if taken[name] == 1 else f"{name}@{members[0] if members else '?'}",
                    "name": f"{name} {description}".strip(),
                    "size": len(members) or None,
                    "members": list(members),
                    "ranks_seen": len(self.seen[number]),
                    "role": stated,
                    "role_evidence": f"its description is {description}" if stated else None,
                    "ground": "read" if members else "assumed",
                    "confidence": 1.0 if members else 0.5,
                }
            )
        return found


def build(dumps: list[Dump], inputs: list[str], losses: list[str], refused: list[dict[str, Any]]) -> Trace:
    """Return the Trace of dumps, at most one per rank."""
    import polars as pl

    from ringwright.trace import Trace, rows, schema

    groups = Groups()
    found = [columns(dump) for dump in dumps]
    origin_ns = min((n for part in found for n in part.created_ns if n is not None), default=None)
    frames, status, claims = [], [], []
    for dump, part in zip(dumps, found, strict=True):
        of_number = _groups_of(dump, part, groups)
        frames.append(pl.DataFrame(_events(dump, part, of_number, groups, origin_ns or 0), schema_overrides=_types()))
        status += _status(dump, part, of_number)
        claims += _dump_claims(dump)
    known = schema("events")
    events = pl.concat([*frames, rows("events", status).select(*_STATUS_COLUMNS)], how="diagonal")
    world = _world(groups, dumps)
    tables = {
        "events": events.select(pl.col(name).cast(known[name]) for name in events.columns),
        "communicators": rows("communicators", groups.rows()),
        "topology": rows("topology", [{"kind": "device", "rank": d.rank, "ground": "read"} for d in dumps]),
        "claims": rows("claims", claims + _job_claims(dumps, found, world)),
        "ledger": rows("ledger", refused + _ledger(dumps)),
    }
    meta = {
        "source": SOURCE,
        "inputs": inputs,
        "losses": losses + [f"{dump.file}: {note}" for dump in dumps for note in dump.notes],
        "world": world,
        "nccl_versions": sorted({dump.nccl_version for dump in dumps if dump.nccl_version}),
        "library": _library(found),
        "origin_ns": origin_ns,
        "dump_versions": sorted({dump.version for dump in dumps if dump.version}),
        "timeout_s": min((n / 1e3 for part in found for n in part.timeout_ms if n), default=None),
        "summary": f"{len(dumps)} dumps of {world if world is not None else '?'} ranks, {events.height:,} events",
    }
    return Trace.of(tables, meta)


_STATUS_COLUMNS = ("kind", "op", "rank", "communicator", "sequence", "source", "file", "ground", "confidence", "text")


def _types() -> dict[str, Any]:
    from ringwright.trace import schema

    return {name: kind for name, kind in schema("events").items() if name in _EVENT_COLUMNS}


_EVENT_COLUMNS = frozenset(
    "kind op task rank communicator comm_rank nranks sequence op_count thread count datatype element_bytes size_bytes "
    "sent_bytes received_bytes peer state enqueue_s start_s duration_s clock text source file line ground confidence "
    "records multiplicity role".split()
)


def _groups_of(dump: Dump, part: Columns, groups: Groups) -> dict[str, int]:
    """Return the communicator of each of the rank's own group numbers, also of those that only its counters name."""
    rank = dump.rank if dump.rank is not None else -1
    numbers = {name: groups.add(name, description, members) for name, (_, description, members) in dump.groups.items()}
    of_number: dict[str, int] = {}
    for number, (name, description) in dict(zip(part.number, part.group, strict=True)).items():
        if name not in numbers:
            numbers[name] = groups.add(name, description, ())
        of_number[number] = numbers[name]
    for number, name in _aligned(dump, {n: groups.names[c] for n, c in of_number.items()}).items():
        of_number.setdefault(number, numbers[name])
    for name in dump.groups:
        groups.seen[numbers[name]].add(rank)
    for communicator in of_number.values():
        groups.seen[communicator].add(rank)
    return of_number


def _aligned(dump: Dump, known: dict[str, str]) -> dict[str, str]:
    """Counters carry the rank's own number of a group only. Numbers and names of groups both grow as groups are made, so
    where there are as many of either, and the known pairs agree, the order of one is the order of the other."""
    numbers, names = list(dump.status), list(dump.groups)
    if len(numbers) != len(names) or not all(text.isdecimal() for text in (*numbers, *names)):
        return {}
    pairs = dict(zip(sorted(numbers, key=int), sorted(names, key=int), strict=True))
    return pairs if all(pairs.get(number, name) == name for number, name in known.items()) else {}


def _events(
    dump: Dump, part: Columns, of_number: dict[str, int], groups: Groups, origin_ns: int
) -> dict[str, list[Any]]:
    rank, size = dump.rank, len(part.what)
    communicator = [of_number[number] for number in part.number]
    nranks = [len(groups.members[c]) or None for c in communicator]
    own = [groups.place[c].get(rank) if rank is not None else None for c in communicator]
    own = [place if place is not None else what.own for place, what in zip(own, part.what, strict=True)]
    duration, ground = _durations(part)
    return {
        "kind": [what.kind for what in part.what],
        "op": [what.op for what in part.what],
        "task": part.name,
        "rank": [rank] * size,
        "communicator": communicator,
        "comm_rank": own,
        "nranks": nranks,
        "sequence": part.sequence,
        "op_count": part.op_id,
        "thread": part.thread,
        "count": part.count,
        "datatype": part.datatype,
        "element_bytes": part.element,
        "size_bytes": [
            total_bytes(what.op, n, sent, received)
            for what, n, sent, received in zip(part.what, nranks, part.sent, part.received, strict=True)
        ],
        "sent_bytes": part.sent,
        "received_bytes": part.received,
        "peer": [what.peer for what in part.what],
        "state": part.state,
        "enqueue_s": _seconds(part.created_ns, origin_ns),
        "start_s": _seconds(part.started_ns, origin_ns),
        "duration_s": duration,
        "clock": [f"host:rank{rank}"] * size,
        "text": part.text,
        "source": [SOURCE] * size,
        "file": [dump.file] * size,
        "line": part.record,
        "ground": ground,
        "confidence": [1.0] * size,
        "records": part.records,
        "multiplicity": [1] * size,
    }


def _seconds(times_ns: list[int | None], origin_ns: int) -> list[float | None]:
    return [None if ns is None else (ns - origin_ns) / 1e9 for ns in times_ns]


def _durations(part: Columns) -> tuple[list[float | None], list[str]]:
    """Device events time an operation exactly; else what the watchdog saw, as coarse as it looks."""
    durations: list[float | None] = []
    grounds: list[str] = []
    for exact_ms, started, completed in zip(part.duration_ms, part.started_ns, part.completed_ns, strict=True):
        if exact_ms is not None:
            durations.append(exact_ms / 1e3)
            grounds.append("read")
        elif started is not None and completed is not None and completed >= started:
            durations.append((completed - started) / 1e9)
            grounds.append("inferred")
        else:
            durations.append(None)
            grounds.append("read")
    return durations, grounds


def _status(dump: Dump, part: Columns, of_number: dict[str, int]) -> list[dict[str, Any]]:
    """Return how far the rank came in each group; without counters, as far as its entries show."""
    found = []
    given = dump.status or _derived(part)
    ground = "read" if dump.status else "inferred"
    by_entries = set(part.number)
    for number, counters in given.items():
        communicator = of_number.get(number)
        for op, sequence in zip(COUNTERS, counters, strict=True):
            never_seen = op == "last-started" and sequence == -1 and (counters[2] or 0) >= 0
            if sequence is None or never_seen:
                continue
            found.append(
                {
                    "kind": "status",
                    "op": op,
                    "rank": dump.rank,
                    "communicator": communicator,
                    "sequence": sequence,
                    "source": SOURCE,
                    "file": dump.file,
                    "ground": ground if number in by_entries else "inferred",
                    "confidence": 1.0 if number in by_entries else 0.9 if communicator is not None else 0.5,
                    "text": f"group number {number} of this rank",
                }
            )
    return found


def _derived(part: Columns) -> dict[str, tuple[int | None, int | None, int | None]]:
    enqueued: dict[str, int] = {}
    completed: dict[str, int] = defaultdict(lambda: -1)
    for number, sequence, state in zip(part.number, part.sequence, part.state, strict=True):
        if sequence is not None:
            enqueued[number] = max(enqueued.get(number, -1), sequence)
            if state == "completed":
                completed[number] = max(completed[number], sequence)
            else:
                completed[number] = max(completed[number], -1)
    return {
        number: (last, None, completed[number] if completed[number] >= 0 else None) for number, last in enqueued.items()
    }


def _world(groups: Groups, dumps: list[Dump]) -> int | None:
    for number, description in enumerate(groups.descriptions):
        if role(description) == "world" and groups.members[number]:
            return len(groups.members[number])
    highest = max((rank for members in groups.members for rank in members), default=-1)
    highest = max([highest, *(dump.rank for dump in dumps if dump.rank is not None)])
    return highest + 1 if highest >= 0 else None


def _library(found: Iterable[Columns]) -> str | None:
    backends = Counter(name.partition(":")[0] for part in found for name in part.name[:64] if ":" in name)
    return backends.most_common(1)[0][0] if backends else None


def _claim(field: str, value: str, source: str, ground: str, note: str, confidence: float = 1.0) -> dict[str, Any]:
    return {"field": field, "value": value, "source": source, "ground": ground, "confidence": confidence, "note": note}


def _dump_claims(dump: Dump) -> list[dict[str, Any]]:
    if not dump.is_rank_inferred:
        return []
    note = "the one rank that all process groups of the dump hold"
    return [_claim("rank", str(dump.rank), dump.file, "inferred", note, 0.9)]


def _job_claims(dumps: list[Dump], found: list[Columns], world: int | None) -> list[dict[str, Any]]:
    claims = [
        _claim("clock", "host", SOURCE, "read", "times are those of each host; hosts are not aligned with each other")
    ]
    firsts = {
        d.rank: min(r for r in p.record if r is not None) for d, p in zip(dumps, found, strict=True) if any(p.record)
    }
    late = {rank: first for rank, first in firsts.items() if first > 0}
    if late:
        note = (
            "records before the first are not in the dumps: the ring buffer was overwritten (TORCH_FR_BUFFER_SIZE) or "
            "only active operations were dumped; counts and bytes are those of the end of the job only"
        )
        value = f"{len(late)} of {len(dumps)} dumps begin at record {min(late.values()):,} or later"
        claims.append(_claim("coverage", value, SOURCE, "read", note))
    if found and not any(n is not None for part in found for n in part.started_ns):
        note = "no operation carries a start (TORCH_NCCL_ENABLE_TIMING): durations are unknown, not zero"
        claims.append(_claim("timing", "none", SOURCE, "read", note))
    missing = sorted(set(range(world)) - {d.rank for d in dumps}) if world and world <= 1 << 20 else []
    if missing:
        listed = ", ".join(map(str, missing[:32])) + (", ..." if len(missing) > 32 else "")
        claims.append(_claim("missing ranks", listed, SOURCE, "read", f"{len(missing)} of {world} ranks have no dump"))
    return claims


def _ledger(dumps: list[Dump]) -> list[dict[str, Any]]:
    found = []
    for dump in dumps:
        outcome, reason = ("repaired", dump.notes[0]) if dump.notes else ("understood", "entries of a dump")
        if dump.entries or dump.notes:
            found.append({"file": dump.file, "outcome": outcome, "reason": reason, "lines": len(dump.entries)})
        if dump.not_entries:
            reason = "in the list of entries, but no entry"
            found.append({"file": dump.file, "outcome": "refused", "reason": reason, "lines": dump.not_entries})
    return found
