"""Logs of a backward pass: how long after the one before each gradient became ready, and its bytes.

Three lines of head (an explanation, the number of batches, the number of tensors), then one line a tensor, the last layer's
first: ``microseconds since the gradient before,bytes``. Beside them lie tables of what adding up numbers takes:
``bytes,seconds``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ringwright.ground.errors import InputError

HEAD = 3
MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class BackwardLog:
    """A backward pass: seconds before each gradient, and its bytes, in the order in which they became ready."""

    name: str
    gaps_s: tuple[float, ...]
    sizes_bytes: tuple[int, ...]

    @property
    def backward_s(self) -> float:
        """Seconds of the whole pass."""
        return sum(self.gaps_s)


def backward_log(path: Path) -> BackwardLog:
    """Return what a log says; InputError for a line that cannot be read, or fewer tensors than its head says."""
    lines = _lines(path)
    rows = _pairs(path, lines[HEAD:], HEAD)
    said = lines[HEAD - 1].strip() if len(lines) >= HEAD else ""
    if not rows or said != str(len(rows)):
        raise InputError(f"holds {len(rows)} tensors, its third line says '{said[:40]}'", where=str(path))
    for at, (gap, size) in enumerate(rows):
        if gap < 0 or size < 1 or size != int(size):
            raise InputError(
                "a tensor of no bytes, or a time before its predecessor's", where=f"{path}:{HEAD + at + 1}"
            )
    return BackwardLog(
        path.name.split(".")[0], tuple(gap * 1e-6 for gap, _ in rows), tuple(int(size) for _, size in rows)
    )


def table(path: Path) -> list[tuple[float, float]]:
    """Return the rows of a table ``bytes,seconds``, ascending; InputError where it has none."""
    rows = sorted(_pairs(path, _lines(path), 0))
    if not rows:
        raise InputError("holds no row", where=str(path))
    return rows


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError("is too large to be such a log", where=str(path))
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error


def _pairs(path: Path, lines: list[str], before: int) -> list[tuple[float, float]]:
    pairs = []
    for at, line in enumerate(lines):
        first, comma, second = line.partition(",")
        try:
            pair = (float(first), float(second))
        except ValueError:
            pair = (math.nan, math.nan)
        if not all(map(math.isfinite, pair)):
            said = "is not two numbers with a comma between them" if comma else "has no comma"
            raise InputError(f"'{line[:40]}' {said}", where=f"{path}:{before + at + 1}")
        pairs.append(pair)
    return pairs
