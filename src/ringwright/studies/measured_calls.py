"""Folders of measured tables (``*_times.csv`` beside ``*_cases.csv``) as calls of NCCL, and why some tables are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ringwright.costs.learnt.described import described
from ringwright.costs.learnt.trusted import MeasuredCall
from ringwright.errors import InputError
from ringwright.sources.nccl_tests import read_tables
from ringwright.sources.nccl_tests_table import NcclTestsTable
from ringwright.studies.mpi_accuracy import is_table


@dataclass(frozen=True)
class MeasuredFolder:
    """The calls of a folder, in order, and (table, reason) of each table that is left out."""

    calls: tuple[MeasuredCall, ...]
    left_out: tuple[tuple[str, str], ...]


def measured_folder(paths: Sequence[str | Path], mpi: Sequence[Path] = ()) -> MeasuredFolder:
    """Return the calls of folders or of single ``*_times.csv``; InputError where there is none, nor one of ``mpi`` beside."""
    calls: list[MeasuredCall] = []
    left: list[tuple[str, str]] = []
    tables = [path for path in files(paths) if path not in mpi]
    if not tables and not mpi:
        raise InputError(
            "no pair of *_cases.csv and *_times.csv is here",
            where=", ".join(map(str, paths)),
            remedy="ringwright accuracy --help names their columns",
        )
    for path in tables:
        for table in read_tables(str(path)):
            made = measured_call(table)
            if isinstance(made, str):
                left.append((table.name, made))
            else:
                calls.append(made)
            left += [(table.name, f"line {row.line}: law {row.law}: {row.detail}") for row in table.refused]
    return MeasuredFolder(tuple(calls), tuple(left))


def files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the ``*_times.csv`` of some folders, each with its ``*_cases.csv`` beside it, and the files that are named."""
    held: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            cases = sorted(path.glob("*_cases.csv"))
            held += [
                each for each in (case.with_name(case.name[:-9] + "times.csv") for case in cases) if each.is_file()
            ]
        elif path.is_file():
            held.append(path)
        else:
            raise InputError("there is no such file or folder", where=str(path))
    return held


def mpi_tables(paths: Sequence[str | Path]) -> list[Path]:
    """Return the tables of MPI algorithms among some folders and files, known by their columns."""
    named = [path for path in map(Path, paths) if path.is_file()]
    beside = [each for path in map(Path, paths) if path.is_dir() for each in sorted(path.glob("*_times.csv"))]
    return [path for path in (*named, *beside) if is_table(path)]


def measured_call(table: NcclTestsTable) -> MeasuredCall | str:
    """Return a table as a call with its out-of-place times, or in words why it is none."""
    rows = sorted((row for row in table.rows if row.size_bytes > 0 and row.time_s > 0), key=lambda row: row.size_bytes)
    if not rows:
        return "no size was measured"
    call = described(table.op, {**table.facts, "case": table.name}, tuple(row.size_bytes for row in rows))
    return call if isinstance(call, str) else MeasuredCall(call, tuple(row.time_s for row in rows))
