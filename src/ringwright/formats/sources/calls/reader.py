"""Calls files of one job to a Trace: groups become communicators, calls events, iterations steps.

A call's end is known only where the host sees it (gloo, MPI); a NCCL call is enqueued, and its time comes from another source.
Ranks that a process manager started again are told apart: a second life has communicators of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.formats.sources.calls.build import KIND, PlacedProcess, frame_of, placed, read_process
from ringwright.formats.sources.calls.file import CallsFile
from ringwright.formats.sources.gate.packed import parsed
from ringwright.formats.sources.gate.temporary import Store
from ringwright.formats.sources.reader_rows import Gathered
from ringwright.ground.errors import InputError
from ringwright.ground.trace_tables import conformed

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
    at = [
        placed(gathered, batches.number[id(process)], process, life, origin_ns)
        for process, life in zip(processes, lives(processes), strict=True)
    ]
    return _trace(gathered, processes, batches.events(at), origin_ns, batches.store)


class _Batches:
    """Processes in the order they come, the rows of many together, each with the number of its process."""

    def __init__(self) -> None:
        self.store = Store(MOST_ROWS)
        self.number: dict[int, int] = {}  # of a process, by its identity
        self._tables: list[pl.DataFrame] = []
        self._batches: list[tuple[pl.LazyFrame | None, int]] = []  # and up to which process
        self._height = self._total = 0
        self._members: dict[tuple[int, ...], tuple[int, ...]] = {}

    def add(self, process: CallsFile) -> None:
        """Take a process, with its rows."""
        import polars as pl

        for number, group in process.groups.items():  # ranks of a group list the same members: kept once
            process.groups[number] = group._replace(members=self._members.setdefault(group.members, group.members))
        number = self.number[id(process)] = len(self.number)
        if process.rows is not None:
            self._tables.append(process.rows.with_columns(pl.lit(number, pl.Int32).alias("process")))
            self._height += process.rows.height
            process.rows = None
        if self._height >= MOST_ROWS:
            self.close()

    def close(self) -> None:
        """Put the open batch by."""
        import polars as pl

        table = self.store.keep(pl.concat(self._tables)) if self._tables else None
        self._batches.append((table, len(self.number)))
        self._total += self._height
        self._tables, self._height = [], 0

    def events(self, processes: Sequence[PlacedProcess]) -> pl.LazyFrame:
        """Return the events of all: of few rows in the order of the processes, else batch by batch, by communicator."""
        import polars as pl

        frames, begin = [], 0
        for table, end in self._batches:
            here = [at for at in processes if begin <= at.number < end]
            is_whole, begin = self._total <= MOST_ROWS, end
            whole = frame_of(here, table).sort("turn" if is_whole else "communicator", maintain_order=True)
            made = conformed("events", whole).collect()
            frames.append(made.lazy() if is_whole else self.store.keep(made))
        return pl.concat(frames)


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
    firsts = [first for first in (process.first_step_ns, process.first_ns) if first is not None]
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


def _trace(gathered: Gathered, processes: list[CallsFile], events: pl.LazyFrame, origin_ns: int, store: Store) -> Trace:
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
    return replace(trace, tables={**trace.tables, "events": events}, held=store.folder)
