"""Dumps of one job to a Trace: groups become communicators, entries events, counters status rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from ringwright.laws.records import gap
from ringwright.sources.flight_recorder.columns import DumpColumns, columns, group_of, total_bytes
from ringwright.sources.flight_recorder.dump import Dump
from ringwright.sources.flight_recorder.names import role
from ringwright.sources.missing import entry

if TYPE_CHECKING:
    import polars as pl

    from ringwright.trace import Trace

SOURCE = "flight-recorder"
COUNTERS = ("last-enqueued", "last-started", "last-completed")


class DumpCommunicators:
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
            self.place.append({rank: index for index, rank in enumerate(members)})
        return self.number[key]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the communicators table."""
        taken = Counter(self.names)
        rows = []
        for number, name in enumerate(self.names):
            members, description = self.members[number], self.descriptions[number]
            stated = role(description) if description else None
            rows.append(
                {
                    "communicator": number,
                    "comm_id": name if taken[name] == 1 else f"{name}@{members[0] if members else '?'}",
                    "name": f"{name} {description}".strip(),
                    "size": len(members) or max(1, len(self.seen[number])),
                    "members": list(members),
                    "ranks_seen": len(self.seen[number]),
                    "role": stated,
                    "role_evidence": f"its description is {description}" if stated else None,
                    "ground": "read" if members else "assumed",
                    "confidence": 1.0 if members else 0.5,
                }
            )
        return rows


class DumpedJob:
    """Dumps on their way to tables: each becomes a frame as it comes, and its entries are let go."""

    def __init__(self) -> None:
        self.groups = DumpCommunicators()
        self.dumps: list[Dump] = []
        self.frames: list[pl.DataFrame] = []
        self.status: list[dict[str, Any]] = []
        self.claims: list[dict[str, Any]] = []
        self.firsts: list[int] = []  # first record of each dump that has one
        self.backends: Counter[str] = Counter()
        self.timeout_ms: int | None = None
        self.gone: list[dict[str, Any]] = []  # the ledger's lines of what is missing between two entries
        self.descriptions: dict[str, set[str]] = defaultdict(set)  # of a group number, over ranks

    def add(self, dump: Dump) -> None:
        """Take one dump."""
        import polars as pl

        part = columns(dump)
        self.gone += _gone(dump)
        dump.operations, dump.entries = len(dump.entries), []
        of_number = _groups_of(dump, part, self.groups)
        for number, communicator in of_number.items():
            self.descriptions[number].add(self.groups.descriptions[communicator])
        self.frames.append(pl.DataFrame(_events(dump, part, of_number, self.groups), schema_overrides=_types()))
        self.status += _status(dump, part, of_number)
        self.claims += _dump_claims(dump)
        self.firsts += [min(known)] if (known := [n for n in part.record if n is not None]) else []
        self.backends.update(name.partition(":")[0] for name in part.name[:64] if ":" in name)
        self.timeout_ms = min((n for n in (self.timeout_ms, *part.timeout_ms) if n), default=None)
        self.dumps.append(dump)

    def trace(self, inputs: list[str], losses: list[str], refused: list[dict[str, Any]]) -> Trace:
        """Return the Trace of all dumps taken."""
        from ringwright.trace import Trace, rows

        events, origin_ns = self._events()
        world = _world(self.groups, self.dumps)
        is_timed = events["start_s"].null_count() < events.height
        tables = {
            "events": events,
            "communicators": rows("communicators", self.groups.rows()),
            "topology": rows("topology", [{"kind": "device", "rank": d.rank, "ground": "read"} for d in self.dumps]),
            "claims": rows("claims", self.claims + _job_claims(self.dumps, self.firsts, is_timed, world)),
            "ledger": rows("ledger", refused + _ledger(self.dumps) + self.gone),
        }
        meta = {
            "source": SOURCE,
            "inputs": inputs,
            "losses": losses + [f"{dump.file}: {note}" for dump in self.dumps for note in dump.notes],
            "world": world,
            "nccl_versions": sorted({dump.nccl_version for dump in self.dumps if dump.nccl_version}),
            "library": self.backends.most_common(1)[0][0] if self.backends else None,
            "origin_ns": origin_ns,
            "dump_versions": sorted({dump.version for dump in self.dumps if dump.version}),
            "timeout_s": self.timeout_ms / 1e3 if self.timeout_ms else None,
            "summary": f"{len(self.dumps)} dumps of {world if world is not None else '?'} ranks, {events.height:,} events",
        }
        return Trace.of(tables, meta)

    def _events(self) -> tuple[pl.DataFrame, int | None]:
        """Return all rows, with times in seconds since the earliest call."""
        import polars as pl

        from ringwright.trace import conform, rows

        calls = pl.concat(self.frames)
        self.frames = []
        origin_ns: Any = calls["created_ns"].min()
        seconds = [((pl.col(ns) - (origin_ns or 0)) / 1e9).alias(s) for ns, s in _TIMES.items()]
        calls = conform("events", calls.with_columns(seconds).drop(*_TIMES))
        for row in self.status:
            self._resolve(row)
        return pl.concat([calls, rows("events", self.status)]), origin_ns

    def _resolve(self, row: dict[str, Any]) -> None:
        """Where only a group's number is known, take the rank's one group of the description that others give the number."""
        number, groups = row.pop("number"), row.pop("groups")
        said = self.descriptions.get(number, set())
        if row["communicator"] is None and len(said) == 1:
            mine = [group for group in groups.values() if group[1] in said]
            if len(mine) == 1:
                row |= {"communicator": self.groups.add(*mine[0]), "ground": "inferred", "confidence": 0.7}


_TIMES = {"created_ns": "enqueue_s", "started_ns": "start_s"}


def _types() -> dict[str, Any]:
    import polars as pl

    from ringwright.trace import schema

    return schema("events") | dict.fromkeys(_TIMES, pl.Int64)


def _groups_of(dump: Dump, part: DumpColumns, groups: DumpCommunicators) -> dict[str, int]:
    """Return the communicator of each of the rank's own group numbers, also of those that only its counters name."""
    rank = dump.rank if dump.rank is not None else -1
    # Gloo's dumps describe one group, without a name: it is the whole job, which the entries call default_pg.
    named = {name: group for name, group in dump.groups.items() if name or group[1]}
    whole = next((members for name, (_, _, members) in dump.groups.items() if name not in named), ())
    numbers = {name: groups.add(name, description, members) for name, (_, description, members) in named.items()}
    of_number: dict[str, int] = {}
    for number, (name, description) in dict(zip(part.number, part.group, strict=True)).items():
        if name not in numbers:
            numbers[name] = groups.add(name, description, whole if role(description) == "world" else ())
        of_number[number] = numbers[name]
    for number, name in _aligned(dump, {n: groups.names[c] for n, c in of_number.items()}).items():
        of_number.setdefault(number, numbers[name])
    for name in named:
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
    dump: Dump, part: DumpColumns, of_number: dict[str, int], groups: DumpCommunicators
) -> dict[str, list[Any]]:
    rank, size = dump.rank, len(part.what)
    communicator = [of_number[number] for number in part.number]
    nranks = [len(groups.members[c]) or None for c in communicator]
    own = [groups.place[c].get(rank) if rank is not None else None for c in communicator]
    own = [column if column is not None else what.own for column, what in zip(own, part.what, strict=True)]
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
        "created_ns": part.created_ns,
        "started_ns": part.started_ns,
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


def _durations(part: DumpColumns) -> tuple[list[float | None], list[str]]:
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


def _gone(dump: Dump) -> list[dict[str, Any]]:
    """Return the ledger's lines of numbers that no entry carries, between the first and the last of a group that the ring held.

    Every entry tells both counters of its group, also markers of coalesced calls and those of the other kind.
    """
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for each in dump.entries:
        collective = each.get("collective_seq_id", each.get("seq_id"))
        group = f"group {group_of(each)[0] or each.get('pg_id')}"
        for kind, number in (("collectives", collective), ("point-to-point", each.get("p2p_seq_id"))):
            if type(number) is int and abs(number) < 1 << 53:
                numbers[group, kind].append(number)
    gaps = ((whose, gap(held)) for whose, held in numbers.items())
    return [entry(dump.file, f"rank {dump.rank}, {' '.join(whose)}", each) for whose, each in gaps if each is not None]


def _status(dump: Dump, part: DumpColumns, of_number: dict[str, int]) -> list[dict[str, Any]]:
    """Return how far the rank came in each group; without counters, as far as its entries show."""
    rows = []
    given = dump.status or _derived(part)
    ground = "read" if dump.status else "inferred"
    by_entries = set(part.number)
    for number, counters in given.items():
        communicator = of_number.get(number)
        for op, sequence in zip(COUNTERS, counters, strict=True):
            never_seen = op == "last-started" and sequence == -1 and (counters[2] or 0) >= 0
            if sequence is None or never_seen:
                continue
            rows.append(
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
                    "number": number,
                    "groups": dump.groups,
                }
            )
    return rows


def _derived(part: DumpColumns) -> dict[str, tuple[int | None, int | None, int | None]]:
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


def _world(groups: DumpCommunicators, dumps: list[Dump]) -> int | None:
    for number, description in enumerate(groups.descriptions):
        if role(description) == "world" and groups.members[number]:
            return len(groups.members[number])
    highest = max((rank for members in groups.members for rank in members), default=-1)
    highest = max([highest, *(dump.rank for dump in dumps if dump.rank is not None)])
    return highest + 1 if highest >= 0 else None


def _claim(field: str, value: str, source: str, ground: str, note: str, confidence: float = 1.0) -> dict[str, Any]:
    return {"field": field, "value": value, "source": source, "ground": ground, "confidence": confidence, "note": note}


def _dump_claims(dump: Dump) -> list[dict[str, Any]]:
    if not dump.is_rank_inferred:
        return []
    note = "the one rank that all process groups of the dump hold"
    return [_claim("rank", str(dump.rank), dump.file, "inferred", note, 0.9)]


def _job_claims(dumps: list[Dump], firsts: list[int], is_timed: bool, world: int | None) -> list[dict[str, Any]]:
    claims = [
        _claim("clock", "host", SOURCE, "read", "times are those of each host; hosts are not aligned with each other")
    ]
    late = [first for first in firsts if first > 0]
    if late:
        note = (
            "records before the first are not in the dumps: the ring buffer was overwritten (TORCH_FR_BUFFER_SIZE) or "
            "only active operations were dumped; counts and bytes are those of the end of the job only"
        )
        value = f"{len(late)} of {len(dumps)} dumps begin at record {min(late):,} or later"
        claims.append(_claim("coverage", value, SOURCE, "read", note))
    if firsts and not is_timed:
        note = "no operation carries a start (TORCH_NCCL_ENABLE_TIMING): durations are unknown, not zero"
        claims.append(_claim("timing", "none", SOURCE, "read", note))
    missing = sorted(set(range(world)) - {d.rank for d in dumps}) if world and world <= 1 << 20 else []
    if missing:
        listed = ", ".join(map(str, missing[:32])) + (", ..." if len(missing) > 32 else "")
        claims.append(_claim("missing ranks", listed, SOURCE, "read", f"{len(missing)} of {world} ranks have no dump"))
    return claims


def _ledger(dumps: list[Dump]) -> list[dict[str, Any]]:
    rows = []
    for dump in dumps:
        outcome, reason = ("repaired", dump.notes[0]) if dump.notes else ("understood", "entries of a dump")
        if dump.operations or dump.notes:
            rows.append({"file": dump.file, "outcome": outcome, "reason": reason, "lines": dump.operations})
        if dump.not_entries:
            reason = "in the list of entries, but no entry"
            rows.append({"file": dump.file, "outcome": "refused", "reason": reason, "lines": dump.not_entries})
    return rows
