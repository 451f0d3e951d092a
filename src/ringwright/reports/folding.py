"""How a table and a line fit a width: text folds between words, a number is never broken, columns that do not fit follow below.

A number is a run of digits with the commas, points, colons and signs inside it, and what is written against it (``1,024*``,
``2.5x``, ``12%``). Where a single number is wider than the line, the line is wider than asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = 2
NARROWEST_TEXT = 12  # columns that a text column keeps if it can, before the table is cut into blocks
_PIECES = re.compile(r"[+\-\u2212<~]?\d+(?:[.,:eE][+-]?\d+)*[%*x]?|.", re.DOTALL)
_BREAKS = "/,;:|_-=&"  # after these a word that is too long is broken first


@dataclass(frozen=True)
class Column:
    """One column: its heading, its cells, and whether it is text (left-aligned, may fold) or numbers (right-aligned)."""

    name: str
    cells: tuple[str, ...]
    is_text: bool = False

    @property
    def natural(self) -> int:
        """The width that folds nothing."""
        return max(width(self.name), *(width(cell) for cell in self.cells), 1)

    @property
    def least(self) -> int:
        """The width below which a number would be broken, or a heading's word."""
        heading = max((width(word) for word in self.name.split()), default=0)
        needed = _longest_piece if self.is_text else width
        return max([heading, 1, *(needed(cell) for cell in self.cells)])

    @property
    def readable(self) -> int:
        """The width below which a text column would be broken beyond reason."""
        return max(self.least, min(NARROWEST_TEXT, self.natural)) if self.is_text else self.least


def width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap(text: str, columns: int) -> list[str]:
    """Return the lines of a text in at most ``columns``; numbers stay whole, so a line may be as wide as its number."""
    lines, line = [], ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if width(joined) <= columns or not joined.strip():
            line = joined
            continue
        if line.strip():
            lines.append(line.rstrip())
        *full, line = _broken(word, columns)
        lines += full
    return [*lines, line.rstrip()]


def _broken(word: str, columns: int) -> list[str]:
    """Return a word in pieces of at most ``columns``: behind a separator where there is one, never inside a number."""
    lines, line, after = [], "", 0
    for piece in _PIECES.findall(word):
        if line and width(line) + width(piece) > columns:
            at = after if after > columns // 3 else len(line)
            lines.append(line[:at])
            line, after = line[at:], 0
        line += piece
        after = len(line) if piece in _BREAKS else after
    return [*lines, line]


def _longest_piece(text: str) -> int:
    return max((len(piece) for piece in _PIECES.findall(text)), default=1)


def blocks(columns: Sequence[Column], room: int) -> list[list[tuple[Column, int]]]:
    """Return the columns with their widths, in as many blocks as it takes; what tells the rows apart stands in each."""
    if not columns:
        return []
    whole = _widths(columns, room)
    if whole is not None:
        return [whole]
    key = _key(columns, room)
    full, block = [], list(key)
    for column in columns[len(key) :]:
        if len(block) > len(key) and _widths([*block, column], room) is None:
            full.append(block)
            block = list(key)
        block.append(column)
    return [_widths(each, room) or [(one, one.least) for one in each] for each in [*full, block]]


def _key(columns: Sequence[Column], room: int) -> Sequence[Column]:
    """Return the first columns that tell the rows apart in at most half of the room, else the first column alone."""
    for many in range(1, len(columns)):
        chosen = columns[:many]
        if _widths(chosen, room // 2) is None:
            break
        told = list(zip(*(column.cells for column in chosen), strict=True))
        if len(set(told)) == len(told):
            return chosen
    return columns[:1]


def _widths(columns: Sequence[Column], room: int) -> list[tuple[Column, int]] | None:
    """Return the widths that fit, the widest text giving way first; None where nothing fits."""
    widths = [column.natural for column in columns]
    least = [column.readable for column in columns]
    over = sum(widths) + GAP * (len(columns) - 1) - room
    while over > 0:
        spare = [(widths[at] if columns[at].is_text else 0, widths[at] - least[at], at) for at in range(len(columns))]
        able = [each for each in spare if each[1] > 0]
        if not able:
            return None
        widths[max(able)[2]] -= 1
        over -= 1
    return list(zip(columns, widths, strict=True))


def rows(block: Sequence[tuple[Column, int]]) -> tuple[list[str], list[str]]:
    """Return the lines of the headings and of the cells of one block."""
    heads = _row([(column.name, wide, column.is_text) for column, wide in block])
    many = len(block[0][0].cells)
    body = [line for at in range(many) for line in _row([(c.cells[at], wide, c.is_text) for c, wide in block])]
    return heads, body


def _row(cells: Sequence[tuple[str, int, bool]]) -> list[str]:
    folded = [
        (wrap(text, wide) if is_text or width(text) > wide else [text], wide, is_text) for text, wide, is_text in cells
    ]
    row_lines = []
    for at in range(max(len(lines) for lines, _, _ in folded)):
        parts = [_set(lines[at] if at < len(lines) else "", wide, left=left) for lines, wide, left in folded]
        row_lines.append((" " * GAP).join(parts).rstrip())
    return row_lines


def _set(text: str, wide: int, *, left: bool) -> str:
    pad = " " * (wide - width(text))
    return text + pad if left else pad + text
