"""Calls files of one job to a Trace: groups become communicators, calls events, iterations steps.

A call's end is known only where the host sees it (gloo, MPI); a NCCL call is enqueued, and its time comes from another source.
Ranks that a process manager started again are told apart: a second life has communicators of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.formats.sources.calls.build import KIND, frame_of
from ringwright.formats.sources.calls.file import CallsFile, read_file
from ringwright.formats.sources.gate.temporary import Store
from ringwright.formats.sources.reader_rows import Gathered
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

_MOST_WORLD = 1 << 20
MOST_ROWS = 250_000  # in memory; the rows of further processes wait in a folder


def read_calls(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's calls files; InputError where none holds a line of the format."""

    def parsed() -> Iterator[CallsFile]:
        for source in sources:
            process = read_file(source, progress)
            process.losses = source.losses
            yield process

    return made([source.name for source in sources], parsed())


def made(names: list[str], parsed: Iterable[CallsFile]) -> Trace:
    """Return the Trace of files that have been parsed, which are used up; InputError where none holds a line of the format."""
    gathered = Gathered(KIND)
    processes: list[CallsFile] = []
    firsts: list[int | None] = []
    store = Store(MOST_ROWS)
    waiting: dict[int, tuple[pl.LazyFrame | None, ...]] = {}
    for process in parsed:
        gathered.damage(process.name, process.losses)
        _account(gathered, process)
        if process.head or process.calls:
            processes.append(process)
            firsts.append(_first_ns(process))
            waiting[id(process)] = _put_by(process, store)
            gathered.inputs.append(process.name)
    if not processes:
        remedy = "ringwright run -- torchrun train.py writes such files"
        raise InputError("no calls file", where=", ".join(names[:3]), remedy=remedy)
    processes.sort(key=lambda process: (process.head.get("wall_ns", 0), process.name))
    origin_ns = min((first for first in firsts if first is not None), default=0)
    frames = []
    for process, life in zip(processes, lives(processes), strict=True):
        process.calls, process.ends = (
            [part.collect()] if part is not None else [] for part in waiting.pop(id(process))
        )
        frames.append(store.keep(frame_of(gathered, process, life, origin_ns)))
        process.calls, process.ends = [], []
    return _trace(gathered, processes, frames, origin_ns, store)


def _put_by(process: CallsFile, store: Store) -> tuple[pl.LazyFrame | None, ...]:
    """Take a process's calls and ends to where they wait until every file has been read."""
    import polars as pl

    kept = tuple(store.keep(pl.concat(parts)) if parts else None for parts in (process.calls, process.ends))
    process.calls, process.ends = [], []
    return kept


def _account(gathered: Gathered, process: CallsFile) -> None:
    """Note in the ledger what was read, refused and lost."""
    gathered.note(process.name, "understood", "lines of a calls file", process.lines - process.refused)
    for line, text in process.examples:
        gathered.note(process.name, "refused", "no line of a calls file", at=line, example=text)
    gathered.note(process.name, "refused", "no line of a calls file", process.refused - len(process.examples))
    who = f"rank {process.rank}" if process.rank is not None else process.name
    for reason, records in process.lost.items():
        gathered.note(process.name, "refused", f"not recorded: {reason}", records)
        gathered.lose(f"{who}: {records:,} records are missing ({reason})")
    if process.died is not None and process.head:
        gathered.lose(f"{who}: its recording stops early: {process.died.in_short}")
    elif process.head and not process.ended:
        gathered.lose(f"{who}: its recording stops without an end: it was killed, or still runs")


def _first_ns(process: CallsFile) -> int | None:
    firsts = [begin_ns for _, begin_ns, _, _ in process.steps[:1]]
    if process.calls:
        firsts.append(process.calls[0]["at_ns"][0])
    return process.offset_ns + min(firsts) if firsts else None


def lives(processes: list[CallsFile]) -> list[int]:
    """Return which life of the job each process belongs to; ``processes`` in order of their beginning.

    Ranks that one launcher started together say so by the same ``life``; a rank that comes again under the same one is, by order,
    in a further life.
    """
    order: dict[tuple[str, int], int] = {}
    seen: Counter[tuple[str, int]] = Counter()
    numbers = []
    for process in processes:
        life, rank = str(process.head.get("life", "")), process.rank
        turn = seen[life, rank] if rank is not None else 0
        if rank is not None:
            seen[life, rank] += 1
        numbers.append(order.setdefault((life, turn), len(order)))
    return numbers


def _trace(
    gathered: Gathered, processes: list[CallsFile], frames: list[pl.LazyFrame], origin_ns: int, store: Store
) -> Trace:
    import polars as pl

    worlds = [world for process in processes if (world := process.head.get("world"))]
    seen = {process.rank for process in processes if process.rank is not None}
    world = max(worlds, default=None)
    if not any("fake" in group.backend for process in processes for group in process.groups.values()):
        missing = sorted(set(range(min(world or 0, _MOST_WORLD))) - seen)
        if missing:
            listed = ", ".join(map(str, missing[:32])) + (", ..." if len(missing) > 32 else "")
            gathered.claim("missing ranks", listed, KIND, note=f"{len(missing)} of {world} ranks have no calls file")
    ends = Counter(process.ended or "none" for process in processes)
    gathered.claim("end of processes", ", ".join(f"{count} {how}" for how, count in sorted(ends.items())), KIND)
    gathered.claim(
        "clock", "host", KIND, note="times are those of each host's clock; hosts are not aligned with each other"
    )
    backends = Counter(group.backend for process in processes for group in process.groups.values())
    library = backends.most_common(1)[0][0] if backends else None
    trace = gathered.trace(world=world, origin_ns=origin_ns or None, library=library)
    events = pl.concat(frames) if frames else trace.scan("events")
    return replace(trace, tables={**trace.tables, "events": events}, held=store.folder)
