"""Rows of a CSV file with named columns, as text: whatever is wrong with the file is an InputError that names it."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection
from pathlib import Path

from ringwright.ground.errors import InputError

MOST_BYTES = 1 << 50  # of a message


def csv_rows(path: str | Path, columns: Collection[str] = (), *, remedy: str = "a CSV file") -> list[dict[str, str]]:
    """Return the rows; what a short row leaves out is empty.

    Raises InputError for a file that cannot be read, is no text or no CSV, has no row, or lacks one of ``columns``.
    """
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = [{key: value or "" for key, value in row.items() if key is not None} for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"the table cannot be read: {error}", where=str(path), remedy=remedy) from error
    missing = [name for name in columns if not rows or name not in rows[0]]
    if missing:
        what = f"{Path(path).name} has no columns {', '.join(missing)}" if rows else f"{Path(path).name} has no row"
        raise InputError(what, where=str(path), remedy=remedy)
    return rows


def whole_number(text: str) -> int:
    """Return a number of bytes or ranks; ValueError for what is none, or more than any message has."""
    value = int(text)
    if not 0 <= value <= MOST_BYTES:
        raise ValueError(f"{text[:40]} is not between 0 and 2^50")
    return value


def finite(text: str) -> float:
    """Return a time; ValueError for what is none, negative or without end."""
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{text[:40]} is no time")
    return value
