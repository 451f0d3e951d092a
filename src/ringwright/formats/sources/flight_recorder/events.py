"""The rows of one dump: its entries as columns of events, and how far its rank came in each group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.flight_recorder.columns import DumpColumns, total_bytes
from ringwright.formats.sources.flight_recorder.dump import Dump, Group
from ringwright.formats.sources.flight_recorder.groups import DumpCommunicators

if TYPE_CHECKING:
    from ringwright.ground.trace_tables import Row

SOURCE = "flight-recorder"
COUNTERS = ("last-enqueued", "last-started", "last-completed")


@dataclass(frozen=True)
class GroupProgress:
    """How far a rank came in a group of that ``number``; ``groups`` are all that its dump describes."""

    row: Row
    number: str
    groups: Mapping[str, Group]


def events(dump: Dump, part: DumpColumns, of_number: dict[str, int], groups: DumpCommunicators) -> dict[str, list[Any]]:
    """Return the columns of a dump's entries, times in nanoseconds as they were read."""
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


def status(dump: Dump, part: DumpColumns, of_number: dict[str, int]) -> list[GroupProgress]:
    """Return how far the rank came in each group; without counters, as far as its entries show."""
    progress: list[GroupProgress] = []
    given = dump.status or _derived(part)
    ground = "read" if dump.status else "inferred"
    by_entries = set(part.number)
    for number, counters in given.items():
        communicator = of_number.get(number)
        for op, sequence in zip(COUNTERS, counters, strict=True):
            never_seen = op == "last-started" and sequence == -1 and (counters[2] or 0) >= 0
            if sequence is None or never_seen:
                continue
            row: Row = {
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
            progress.append(GroupProgress(row, number, dump.groups))
    return progress


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
