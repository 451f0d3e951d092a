"""Folders of measured tables (``*_times.csv`` beside ``*_cases.csv``) as calls of NCCL, and why some tables are none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringwright.accuracy.mpi_accuracy import is_table
from ringwright.costs.learnt.call import of_calls
from ringwright.costs.learnt.table_machine import described
from ringwright.costs.learnt.trusted import MeasuredCall
from ringwright.formats.sources.tables.nccl_tests import every_table, no_table
from ringwright.formats.sources.tables.nccl_tests_table import NcclTestsTable
from ringwright.ground.errors import InputError, RingwrightError

CASES, TIMES = "_cases.csv", "_times.csv"


@dataclass(frozen=True)
class RefusedRow:
    """A table, or a row of one (``line`` of its file, 0: all of it), that is not judged: the law that it breaks, the reason."""

    case: str
    reason: str
    line: int = 0
    law: str = ""

    @property
    def told(self) -> str:
        """The reason with the line and the law, as one sentence."""
        return (f"line {self.line}: " if self.line else "") + (f"law {self.law}: " if self.law else "") + self.reason


@dataclass(frozen=True)
class MeasuredFolder:
    """The calls of a folder, in order, and each table or row that is left out."""

    calls: tuple[MeasuredCall, ...]
    refused: tuple[RefusedRow, ...]


def measured_folder(paths: Sequence[str | Path], mpi: Sequence[Path] = ()) -> MeasuredFolder:
    """Return the calls of folders or of single ``*_times.csv``; InputError where there is none, nor one of ``mpi`` beside.

    What cannot be read or placed is refused with its reason; it never ends the reading.
    """
    calls: list[MeasuredCall] = []
    tables = [path for path in files(paths) if path not in mpi]
    left = list(_alone(paths, mpi))
    if not tables and not mpi and not left:
        raise InputError(
            "no pair of *_cases.csv and *_times.csv is here",
            where=", ".join(map(str, paths)),
            remedy="ringwright accuracy --help names their columns",
        )
    for path in tables:
        try:
            read = list(every_table(str(path)))
        except InputError as error:
            left.append(RefusedRow(path.name, error.what))
            continue
        if not read:
            left.append(RefusedRow(path.name, no_table([str(path)]).what))
        for table in read:
            made = measured_call(table)
            if isinstance(made, str):
                left.append(RefusedRow(table.name, made))
            else:
                calls.append(made)
            left += [RefusedRow(table.name, each.detail, each.line, each.law) for each in table.refused]
    return MeasuredFolder(tuple(calls), tuple(left))


def files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the ``*_times.csv`` of some folders, each with its ``*_cases.csv`` beside it, and the files that are named."""
    held: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            held += [each for each in _named(path, TIMES) if _beside(each, TIMES, CASES).is_file()]
        elif path.is_file():
            held.append(path)
        else:
            raise InputError("there is no such file or folder", where=str(path))
    return held


def _alone(paths: Sequence[str | Path], mpi: Sequence[Path]) -> Iterator[RefusedRow]:
    """Yield the files of folders that lack the other one of their pair."""
    for folder in (path for path in map(Path, paths) if path.is_dir()):
        for have, lacks in ((CASES, TIMES), (TIMES, CASES)):
            for path in _named(folder, have):
                other = _beside(path, have, lacks)
                if not other.is_file() and path not in mpi:
                    yield RefusedRow(path.name, f"there is no {other.name} beside it")


def _named(folder: Path, end: str) -> list[Path]:
    return sorted(path for path in folder.glob(f"*{end}") if path.is_file())


def _beside(path: Path, end: str, other: str) -> Path:
    return path.with_name(path.name.removesuffix(end) + other)


def mpi_tables(paths: Sequence[str | Path]) -> list[Path]:
    """Return the tables of MPI algorithms among some folders and files, known by their columns."""
    named = [path for path in map(Path, paths) if path.is_file()]
    beside = [each for path in map(Path, paths) if path.is_dir() for each in _named(path, TIMES)]
    return [path for path in (*named, *beside) if is_table(path)]


def measured_call(table: NcclTestsTable) -> MeasuredCall | str:
    """Return a table as a call with its out-of-place times, or in words why it is none."""
    rows = sorted((row for row in table.rows if row.size_bytes > 0), key=lambda row: row.size_bytes)
    if not rows:
        return "no size was measured"
    if not table.facts:
        return f"no row of its *{CASES} says what was measured"
    call = described(table.op, {**table.facts, "case": table.name}, tuple(row.size_bytes for row in rows))
    if isinstance(call, str):
        return call
    try:
        of_calls([call])
    except RingwrightError as error:
        return error.what
    return MeasuredCall(call, tuple(row.time_s for row in rows))
