"""Calls files of one job to a Trace: groups become communicators, calls events, iterations steps.

A call's end is known only where the host sees it (gloo, MPI); a NCCL call is enqueued, and its time comes from another source.
Ranks that a process manager started again are told apart: a second life has communicators of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.formats.sources.calls.build import KIND, PlacedProcess, frame_of, placed, read_process
from ringwright.formats.sources.calls.file import CallsFile
from ringwright.formats.sources.gate.packed import parsed
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

    def files() -> Iterator[CallsFile]:
        for source in sources:
            process = parsed(source, read_process, progress)
            process.losses = source.losses
            yield process

    return made([source.name for source in sources], files())


def made(names: list[str], files: Iterable[CallsFile]) -> Trace:
    """Return the Trace of prepared files, which are used up; InputError where none holds a line of the format."""
    gathered = Gathered(KIND)
    processes: list[CallsFile] = []
    batches = _Batches()
    for process in files:
        gathered.damage(process.name, process.losses)
        _account(gathered, process)
        if process.head or process.first_ns is not None:
            processes.append(process)
            batches.add(process)
            gathered.inputs.append(process.name)
    batches.close()
    if not processes:
        remedy = "ringwright run -- torchrun train.py writes such files"
        raise InputError("no calls file", where=", ".join(names[:3]), remedy=remedy)
    processes.sort(key=lambda process: (process.head.get("wall_ns", 0), process.name))
    origin_ns = min((first for process in processes if (first := _first_ns(process)) is not None), default=0)
    all_lives = lives(processes)
    at = {
        id(process): placed(gathered, number, process, life, origin_ns)
        for number, (process, life) in enumerate(zip(processes, all_lives, strict=True))
    }
    frames = [batches.store.keep(frame_of(*batch)) for batch in batches.taken(at)]
    return _trace(gathered, processes, frames, origin_ns, batches.store)


class _Batches:
    """Processes in the order they come, as many together as make a table worth its file."""

    def __init__(self) -> None:
        self.store = Store(MOST_ROWS)
        self._batches: list[tuple[list[CallsFile], pl.LazyFrame | None]] = []
        self._open: list[CallsFile] = []
        self._members: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._height = 0

    def add(self, process: CallsFile) -> None:
        """Take a process, with its rows."""
        for number, group in process.groups.items():  # ranks of a group list the same members: kept once
            process.groups[number] = group._replace(members=self._members.setdefault(group.members, group.members))
        self._open.append(process)
        self._height += process.rows.height if process.rows is not None else 0
        if self._height >= MOST_ROWS:
            self.close()

    def close(self) -> None:
        """Put the open batch by."""
        import polars as pl

        tables = [process.rows for process in self._open if process.rows is not None]
        numbers = [number for number, process in enumerate(self._open) if process.rows is not None]
        whole = None
        if tables:
            of = pl.Series("process", numbers, pl.Int32).repeat_by(pl.Series([len(each) for each in tables]))
            whole = self.store.keep(pl.concat(tables).with_columns(of.explode().alias("process")))
        for process in self._open:
            process.rows = None
        self._batches.append((self._open, whole))
        self._open, self._height = [], 0

    def taken(self, at: dict[int, PlacedProcess]) -> Iterator[tuple[list[PlacedProcess], pl.DataFrame | None]]:
        """Yield each batch: its processes as they are in their job, and their rows with the number of their process."""
        import polars as pl

        for processes, whole in self._batches:
            in_job = [at[id(process)] for process in processes]
            numbers = pl.Series([each.number for each in in_job], dtype=pl.Int32)
            rows = None if whole is None else whole.collect()
            yield (
                in_job,
                rows.with_columns(numbers.gather(rows["process"]).alias("process")) if rows is not None else None,
            )


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
    if process.first_ns is not None:
        firsts.append(process.first_ns)
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
