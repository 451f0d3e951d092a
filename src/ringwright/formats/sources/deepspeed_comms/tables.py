"""The tables of ``log_summary``, read line by line with other output between them, and which of them repeat each other.

The logger is not emptied between two tables, so a later one holds the calls of an earlier one unless counts or sums went down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ringwright.formats.sources.deepspeed_comms import grammar
from ringwright.formats.sources.deepspeed_comms.grammar import PrintedRow

ROUNDED_MS = 0.0051  # of a time with two decimals
_DIGITS = re.compile(r"\d")
Key = tuple[str, int]  # log name, bytes


@dataclass(slots=True)
class SummaryTable:
    """One table: its rows, and of the last one of a call the breakdown by stragglers."""

    line: int
    rows: list[PrintedRow] = field(default_factory=list)
    breakdown: list[PrintedRow] = field(default_factory=list)

    def sums(self) -> dict[Key, tuple[int, float]]:
        """Return calls and their ms by name and size; two sizes that print alike are one."""
        return _sums(self.rows)

    def waits(self) -> dict[Key, tuple[int, float, float]]:
        """Return calls, ms of the fastest rank and ms that this rank waited, by name and size."""
        waits: dict[Key, tuple[int, float, float]] = {}
        for row in self.breakdown:
            key = (row.name, row.size_bytes)
            count, least, waited = waits.get(key, (0, 0.0, 0.0))
            waits[key] = (count + row.count, least + row.numbers[0], waited + row.numbers[1])
        return waits


def _sums(rows: Iterable[PrintedRow]) -> dict[Key, tuple[int, float]]:
    sums: dict[Key, tuple[int, float]] = {}
    for row in rows:
        count, total = sums.get((row.name, row.size_bytes), (0, 0.0))
        sums[row.name, row.size_bytes] = (count + row.count, total + row.numbers[0])
    return sums


class TableReader:
    """Takes lines and keeps the tables; a table is cut by whatever else the job prints."""

    def __init__(self) -> None:
        self.tables: list[SummaryTable] = []
        self._prefix = ""  # what a launcher puts before every line
        self._is_breakdown = self._is_waited = False
        self._name = ""

    def line(self, text: str, number: int) -> bool:
        """Take a line; say whether it was part of a table."""
        begins = grammar.header(text)
        if begins is not None:
            column, self._is_breakdown, self._is_waited = begins
            self._prefix, self._name = text[:column], ""
            if not self._is_breakdown or not self.tables:
                self.tables.append(SummaryTable(number))
            return True
        return bool(self.tables) and self._inside(self._bare(text), number)

    def _bare(self, text: str) -> str:
        """Return the line without what a launcher put before it: the same but for digits."""
        width = len(self._prefix)
        is_alike = _DIGITS.sub("0", text[:width]) == _DIGITS.sub("0", self._prefix)
        return text[width:] if width and is_alike else text

    def _inside(self, text: str, number: int) -> bool:
        held = grammar.row(text, number, self._name, is_waited=self._is_waited) if self._name else None
        if held is not None:
            table = self.tables[-1]
            (table.breakdown if self._is_breakdown else table.rows).append(held)
            return True
        named = grammar.entry(text)
        # a word that others print does not end the rows of a name that is known
        if named and (grammar.op_of(named) != "unknown" or not self._name):
            self._name = named
            return True
        self._name = named or self._name
        return False


def closing(tables: list[SummaryTable]) -> list[SummaryTable]:
    """Return the tables that no later one continues: together they hold every call once."""
    kept: list[SummaryTable] = []
    for table in tables:
        if not table.rows:
            continue
        if kept and _continues(kept[-1].sums(), table.sums()):
            kept[-1] = table
        else:
            kept.append(table)
    return kept


def _continues(before: dict[Key, tuple[int, float]], after: dict[Key, tuple[int, float]]) -> bool:
    return all(
        key in after and after[key][0] >= count and after[key][1] >= total - 2 * ROUNDED_MS
        for key, (count, total) in before.items()
    )
