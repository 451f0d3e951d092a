"""What a prompt and a notebook show of a noun: one line; a title and a small table, every string escaped, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

MOST_ROWS = 30
MOST_LETTERS = 200


def card(title: str, facts: Mapping[str, object]) -> str:
    """Return the HTML of a title and a row (name, value) for each fact; what is empty or None is left out."""
    rows = [(name, value) for name, value in facts.items() if value not in (None, "", ())]
    return _framed(title, "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in rows))


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return the HTML of a title and a table with a head; of more than ``MOST_ROWS`` rows the first, and how many more."""
    listed = [list(row) for row in rows]
    cells = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in listed[:MOST_ROWS])
    more = len(listed) - MOST_ROWS
    rest = f'<tr><td colspan="{len(listed[0])}">and {more:,} more</td></tr>' if more > 0 else ""
    return _framed(title, f"<tr>{_cells(head, 'th')}</tr>{cells}{rest}")


def line(text: str) -> str:
    """Return a text as one line that a terminal may show: no breaks or control characters, and not too long."""
    shown = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return shown if len(shown) <= MOST_LETTERS else f"{shown[:MOST_LETTERS]} ..."


def _framed(title: str, rows: str) -> str:
    return f"<p><b>{_text(title)}</b></p><table>{rows}</table>" if rows else f"<p><b>{_text(title)}</b></p>"


def _cells(values: Iterable[object], kind: str) -> str:
    return "".join(f"<{kind}>{_text(value)}</{kind}>" for value in values)


def _text(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return escape(text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} ...")
