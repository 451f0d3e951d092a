"""The ledger: every line of the input is understood, repaired, refused or other (not NCCL's); with the reason and a place."""

from __future__ import annotations

from typing import Any

OUTCOMES = ("understood", "repaired", "refused", "other")


class Ledger:
    """Counts of lines by (file, outcome, reason), with the first example of each."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], list[Any]] = {}

    def add(self, file: str, outcome: str, reason: str, line: int = 0, example: str = "", lines: int = 1) -> None:
        """Count ``lines`` lines; the first call of a kind leaves its place and an excerpt."""
        row = self._rows.setdefault((file, outcome, reason), [0, line, example[:200]])
        row[0] += lines

    def move(self, file: str, old: tuple[str, str], new: tuple[str, str], line: int, example: str) -> None:
        """Count one line anew: what had been given one outcome turned out to be another."""
        self.add(file, old[0], old[1], lines=-1)
        self.add(file, new[0], new[1], line, example)

    def total(self, outcome: str) -> int:
        """Return the lines of one outcome."""
        return sum(row[0] for (_, kind, _), row in self._rows.items() if kind == outcome)

    def rows(self) -> list[dict[str, Any]]:
        """Return the table's rows, largest first within an outcome."""
        rows = [
            {"file": file, "outcome": outcome, "reason": reason, "lines": n, "example_line": line, "example": example}
            for (file, outcome, reason), (n, line, example) in self._rows.items()
            if n
        ]
        return sorted(rows, key=lambda row: (OUTCOMES.index(row["outcome"]), -row["lines"], row["file"], row["reason"]))
