"""Which word of a row stands in which column of nccl-tests' table: by where the header's words end, as both are flush right.

A column may be empty (``redop`` of all-to-all before 2.13), and an empty one must shift nothing. Pasted tables have lost their
blanks; there a column of words (type, redop) is empty where a number stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ringwright.formats.sources.kinds.bench import BARE_ROW

WORDS = frozenset({"type", "redop"})
MOST_COLUMNS = 64
LEAST_JOINED = 60  # letters of a line that is two
_KNOWN = {
    "size",
    "count",
    "type",
    "redop",
    "root",
    "time",
    "algbw",
    "busbw",
    "error",
    "#wrong",
    "cputime",
    "timestamp",
    "i_min",
    "i_max",
    "i_p99",
    "i_cv%",
    "min_lat",
    "max_lat",
}
_OTHER_NAMES = {"wrong": "#wrong", "cputime": "time", "latency": "time"}  # of rccl-tests, and of NVSHMEM's tests
_UNIT = re.compile(r"\((?:b|elements|elems|us|gb/s)\)$")  # beside the name, where others print it in a line of its own
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"\S+")
# Where on a line that two processes wrote at once the second one's begins: a row, a header, or a line of "#".
_SECOND = re.compile(
    r"(?<=\S)(?=\s*#\s+(?:Rank\s+\d|size\s+count\b|Avg bus|Out of bounds)"
    r"|\s+\d+\s+\d+\s+(?:u?int\d+|float\w*|half|double|bf\w+|fp8\w*)\s)"
)


@dataclass(frozen=True, slots=True)
class HeaderWord:
    """A name and the place behind its last letter."""

    name: str
    end: int


def header(line: str) -> list[HeaderWord]:
    """Return the columns of a header line, nothing for any other line."""
    if "count" not in line.lower():
        return []
    text = line.lower().replace("#", " ", 1) if line.lstrip().startswith("#") else line.lower()
    words = [HeaderWord(_name(match[0]), match.end()) for match in _WORD.finditer(text)]
    names = [column.name for column in words]
    is_header = names[:2] == ["size", "count"] and "time" in names and set(names) <= _KNOWN
    return words if is_header and len(words) <= MOST_COLUMNS else []


# The columns of every release from 2.13 on, for rows whose header was cut off; where they end does not matter, as all are there.
USUAL = [
    HeaderWord(name, at)
    for at, name in enumerate("size count type redop root time algbw busbw #wrong time algbw busbw #wrong".split())
]
_BARE = re.compile(BARE_ROW + r"(?: +\S+){7}\s*$")


def is_bare_row(line: str) -> bool:
    """Say whether a line is a whole row of the usual columns, header or not."""
    return _BARE.match(line) is not None


def apart(line: str) -> list[str]:
    """Return the lines that several processes wrote on one, each as it was: their line ends came later."""
    return _SECOND.split(line) if len(line) > LEAST_JOINED else [line]


def _name(word: str) -> str:
    name = _UNIT.sub("", word)
    return _OTHER_NAMES.get(name, name)


def place(line: str, columns: list[HeaderWord]) -> list[str] | None:
    """Return the text of each column, "" where it is empty; None where the words fit the columns in no way."""
    words = [(match[0], match.end()) for match in _WORD.finditer(line)]
    texts = [word for word, _ in words]
    return next(
        (cells for cells in _readings(words, texts, columns) if cells is not None and _fits(cells, columns)), None
    )


def misplaced(above: str, line: str) -> str:
    """Return how a row breaks the law of columns under a header line; empty where its words stand under those of the header."""
    return "" if place(line, header(above)) is not None else "its words fit those of the header in no way"


def _readings(words: list[tuple[str, int]], texts: list[str], columns: list[HeaderWord]) -> Iterator[list[str] | None]:
    """Yield the ways to put words into columns, the surest first."""
    yield _in_order(texts, columns)
    yield _by_ends(words, columns)
    yield _by_kind(texts, columns)


def _in_order(texts: list[str], columns: list[HeaderWord]) -> list[str] | None:
    return texts[: len(columns)] if len(texts) >= len(columns) else None


def _by_ends(words: list[tuple[str, int]], columns: list[HeaderWord]) -> list[str] | None:
    """Put each word into the column that ends nearest to it, never before the one of the word on its left."""
    cells = [""] * len(columns)
    first = 0
    for word, end in words:
        if first >= len(columns):
            return None
        nearest = min(range(first, len(columns)), key=lambda index: abs(columns[index].end - end))
        cells[nearest], first = word, nearest + 1
    return cells


def _by_kind(texts: list[str], columns: list[HeaderWord]) -> list[str]:
    cells, left = [], list(reversed(texts))
    for column in columns:
        is_here = bool(left) and (column.name not in WORDS or not is_number(left[-1]))
        cells.append(left.pop() if is_here else "")
    return cells


def _fits(cells: list[str], columns: list[HeaderWord]) -> bool:
    """Say whether words stand only under words, and size and a time are there."""
    named = list(zip(cells, columns, strict=True))
    words = all(not is_number(cell) for cell, column in named if column.name in WORDS and cell)
    others = all(is_number(cell) or _is_absent(cell) for cell, column in named if column.name not in WORDS)
    times = [cell for cell, column in named if column.name == "time"]
    return words and others and named[0][0].isdecimal() and any(times) and not _is_cut(cells, columns)


def _is_cut(cells: list[str], columns: list[HeaderWord]) -> bool:
    """Say whether a time stands alone: the line ends inside it, or before the rates that would prove it."""
    at = [index for index, column in enumerate(columns) if column.name == "time" and cells[index]]
    rates = [columns[index + 1 : index + 3] for index in at]
    return any(
        column.name in ("algbw", "busbw") and not cells[index + 1 + behind]
        for index, mine in zip(at, rates, strict=True)
        for behind, column in enumerate(mine)
    )


def is_number(text: str) -> bool:
    """Say whether a word is a number, as nccl-tests prints one."""
    return _NUMBER.fullmatch(text) is not None


def _is_absent(text: str) -> bool:
    return text.lower() in ("", "n/a", "nan", "-nan", "inf", "-", "-inf", "--")
