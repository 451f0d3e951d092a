"""The rows of many processes of a job, some hundred thousand together: where many work, a batch is written by who has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import polars as pl

from ringwright.executors.kept_results import LEFT
from ringwright.formats.sources.calls.build import PlacedProcess, frame_of
from ringwright.formats.sources.gate.packed import table_alone
from ringwright.formats.sources.gate.temporary import Store

if TYPE_CHECKING:
    from ringwright.executors.fan_out import FanOut
    from ringwright.formats.sources.calls.file import CallsFile
    from ringwright.formats.sources.gate.packed import PackedPart

MOST_ROWS = 250_000  # in memory; the rows of further processes wait in a folder


NumberedRows = tuple[
    int, str, pl.DataFrame | bytes | Path
]  # the process's number, its file, and its rows: packed, or in a file


@dataclass
class _Batch:
    """Some processes by number, from ``begin`` to before ``end``: their rows, later ``kept``."""

    begin: int
    end: int = 0
    height: int = 0
    rows: list[NumberedRows] = field(default_factory=list)
    kept: pl.LazyFrame | None = None

    @property
    def waits_elsewhere(self) -> bool:
        """Whether all rows can travel, and large ones wait where workers see them."""
        held = [rows for *_, rows in self.rows]
        return all(isinstance(each, bytes | Path) for each in held) and any(isinstance(each, Path) for each in held)


class EventBatches:
    """Processes in the order they come, the rows of many together, each with the number of its process."""

    def __init__(self, fan: FanOut | None) -> None:
        self.store = Store(MOST_ROWS)
        self.number: dict[int, int] = {}  # of a process, by its identity
        self._fan = fan
        self._batches = [_Batch(0)]
        self._members: dict[tuple[int, ...], tuple[int, ...]] = {}

    def add(self, process: CallsFile, part: PackedPart | None) -> None:
        """Take a process, with its rows; of its part nothing but these is kept, for heads list all members of groups."""
        for number, group in process.groups.items():  # ranks of a group list the same members: kept once
            process.groups[number] = group._replace(members=self._members.setdefault(group.members, group.members))
        number = self.number[id(process)] = len(self.number)
        batch = self._batches[-1]
        batch.end, batch.height = len(self.number), batch.height + process.height
        held = process.rows if part is None else part.tables
        if held is not None and process.height:
            batch.rows.append((number, process.name, held))
        process.rows = None
        if batch.height >= MOST_ROWS:
            if not batch.waits_elsewhere:
                batch.kept, batch.rows = self.store.keep(_together(batch.rows)), []
            self._batches.append(_Batch(batch.end))

    def events(self, processes: Sequence[PlacedProcess]) -> pl.LazyFrame:
        """Return the events of all: of few rows in the order of the processes, else batch by batch, by communicator."""
        is_large = sum(batch.height for batch in self._batches) > MOST_ROWS
        here = [[at for at in processes if batch.begin <= at.number < batch.end] for batch in self._batches]
        frames = self._elsewhere(here) if is_large else {}
        for number, batch in enumerate(self._batches):
            if number not in frames:
                kept = batch.kept if batch.kept is not None or not batch.rows else _together(batch.rows).lazy()
                made = frame_of(here[number], kept, by_communicator=is_large).collect()
                frames[number] = self.store.keep(made) if is_large else made.lazy()
        return pl.concat([frames[number] for number in range(len(self._batches))])

    def _elsewhere(self, here: list[list[PlacedProcess]]) -> dict[int, pl.LazyFrame]:
        """Let workers write the batches whose rows they see; return those, by their numbers."""
        asked = [number for number, batch in enumerate(self._batches) if batch.waits_elsewhere]
        frames: dict[int, pl.LazyFrame] = {}
        if self._fan is None or len(asked) < 2:
            return frames
        given = [(self._batches[number].rows, here[number]) for number in asked]
        for at, file in self._fan.stream(batch_file, given, is_kept=False):
            frames[asked[at]] = self.store.take(Path(file))
            for *_, held in self._batches[asked[at]].rows:
                if isinstance(held, Path):
                    held.unlink(missing_ok=True)
        return frames


def batch_file(rows: list[NumberedRows], processes: list[PlacedProcess]) -> str:
    """Write the events of processes beside the files that hold their rows; return the file: a task, for whoever sees those."""
    at = next(held for *_, held in rows if isinstance(held, Path))
    file = at.with_name(f"{uuid4().hex}{LEFT}")
    frame_of(processes, _together(rows).lazy(), by_communicator=True).collect().write_parquet(file, compression="lz4")
    return str(file)


def _together(rows: Sequence[NumberedRows]) -> pl.DataFrame:
    """Return the rows of processes in one table."""
    tables = []
    for number, name, held in rows:
        table = held if isinstance(held, pl.DataFrame) else table_alone(held, name)
        tables.append(table.with_columns(pl.lit(number, pl.Int32).alias("process")))
    return pl.concat(tables)
