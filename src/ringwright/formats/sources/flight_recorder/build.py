"""Dumps of one job to a Trace: groups become communicators, entries events, counters status rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.flight_recorder.columns import DumpedRank
from ringwright.formats.sources.flight_recorder.dump import Dump
from ringwright.formats.sources.flight_recorder.events import SOURCE, GroupProgress, events, status
from ringwright.formats.sources.flight_recorder.groups import DumpCommunicators, groups_of
from ringwright.formats.sources.flight_recorder.names import role

if TYPE_CHECKING:
    import polars as pl

    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace


class DumpedJob:
    """Dumps on their way to tables: each becomes a frame as it comes."""

    def __init__(self) -> None:
        self.groups = DumpCommunicators()
        self.dumps: list[Dump] = []
        self.frames: list[pl.DataFrame] = []
        self.status: list[GroupProgress] = []
        self.claims: list[Row] = []
        self.firsts: list[int] = []  # first record of each dump that has one
        self.backends: Counter[str] = Counter()
        self.timeout_ms: int | None = None
        self.gone: list[Row] = []  # the ledger's lines of what is missing between two entries
        self.descriptions: dict[str, set[str]] = defaultdict(set)  # of a group number, over ranks

    def add(self, dumped: DumpedRank) -> None:
        """Take one dump."""
        import polars as pl

        dump, part = dumped.dump, dumped.columns
        self.gone += dumped.gone
        of_number = groups_of(dump, part, self.groups)
        for number, communicator in of_number.items():
            self.descriptions[number].add(self.groups.descriptions[communicator])
        self.frames.append(pl.DataFrame(events(dump, part, of_number, self.groups), schema_overrides=_types()))
        self.status += status(dump, part, of_number)
        self.claims += _dump_claims(dump)
        self.firsts += [min(known)] if (known := [n for n in part.record if n is not None]) else []
        self.backends.update(name.partition(":")[0] for name in part.name[:64] if ":" in name)
        self.timeout_ms = min((n for n in (self.timeout_ms, *part.timeout_ms) if n), default=None)
        self.dumps.append(dump)

    def trace(self, inputs: list[str], losses: list[str], refused: list[Row]) -> Trace:
        """Return the Trace of all dumps taken."""
        from ringwright.ground.trace_tables import rows
        from ringwright.model.trace import Trace

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

        from ringwright.ground.trace_tables import conform, rows

        calls = pl.concat(self.frames)
        self.frames = []
        origin_ns: Any = calls["created_ns"].min()
        seconds = [((pl.col(ns) - (origin_ns or 0)) / 1e9).alias(s) for ns, s in _TIMES.items()]
        calls = conform("events", calls.with_columns(seconds).drop(*_TIMES))
        told = [self._resolved(each) for each in self.status]
        return pl.concat([calls, rows("events", told)]), origin_ns

    def _resolved(self, progress: GroupProgress) -> Row:
        """Where only a group's number is known, take the rank's one group of the description that others give the number."""
        row, said = progress.row, self.descriptions.get(progress.number, set())
        if row["communicator"] is None and len(said) == 1:
            mine = [group for group in progress.groups.values() if group[1] in said]
            if len(mine) == 1:
                return row | {"communicator": self.groups.add(*mine[0]), "ground": "inferred", "confidence": 0.7}
        return row


_TIMES = {"created_ns": "enqueue_s", "started_ns": "start_s"}


def _types() -> dict[str, Any]:
    import polars as pl

    from ringwright.ground.trace_tables import schema

    return schema("events") | dict.fromkeys(_TIMES, pl.Int64)


def _world(groups: DumpCommunicators, dumps: list[Dump]) -> int | None:
    for number, description in enumerate(groups.descriptions):
        if role(description) == "world" and groups.members[number]:
            return len(groups.members[number])
    highest = max((rank for members in groups.members for rank in members), default=-1)
    highest = max([highest, *(dump.rank for dump in dumps if dump.rank is not None)])
    return highest + 1 if highest >= 0 else None


def _claim(field: str, value: str, source: str, ground: str, note: str, confidence: float = 1.0) -> Row:
    return {"field": field, "value": value, "source": source, "ground": ground, "confidence": confidence, "note": note}


def _dump_claims(dump: Dump) -> list[Row]:
    if not dump.is_rank_inferred:
        return []
    note = "the one rank that all process groups of the dump hold"
    return [_claim("rank", str(dump.rank), dump.file, "inferred", note, 0.9)]


def _job_claims(dumps: list[Dump], firsts: list[int], is_timed: bool, world: int | None) -> list[Row]:
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


def _ledger(dumps: list[Dump]) -> list[Row]:
    rows: list[Row] = []
    for dump in dumps:
        outcome, reason = ("repaired", dump.notes[0]) if dump.notes else ("understood", "entries of a dump")
        if dump.operations or dump.notes:
            rows.append({"file": dump.file, "outcome": outcome, "reason": reason, "lines": dump.operations})
        if dump.not_entries:
            reason = "in the list of entries, but no entry"
            rows.append({"file": dump.file, "outcome": "refused", "reason": reason, "lines": dump.not_entries})
    return rows
