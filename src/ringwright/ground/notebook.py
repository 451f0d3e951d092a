"""What a prompt and a notebook show of a noun: one line; a title and a small table, every string escaped, nothing loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, TypeVar, cast

MOST_ROWS = 30
MOST_LETTERS = 200
MOST_COLUMNS = 9
_PLAIN = (str, int, float, type(None))
Told = TypeVar("Told")
Seen = tuple[str, Sequence[str]]  # a title, and the HTML of what stands below it


class ShownData(dict[str, object]):
    """Plain data, a dict like any other; at a prompt of IPython a line of it, in a notebook a few tables."""

    show: Callable[[Any], Seen]

    def _repr_pretty_(self, printer: Any, _is_cycle: bool) -> None:
        title, _ = self.show(self)
        printer.text(line(f"{self.get('schema') or 'data'}: {title}"))

    def _repr_html_(self) -> str:
        title, parts = self.show(self)
        return "".join([f"<p><b>{_text(title)}</b></p>", *parts])


def shown(data: Told, show: Callable[[Told], Seen]) -> Told:
    """Return plain data that shows itself: a dict with the same keys and values; ``show`` says what a notebook has of it."""
    made = ShownData(cast(Mapping[str, object], data))
    made.show = show
    return cast(Told, made)


def rows_shown(title: str, *keys: str) -> Callable[[Mapping[str, Any]], Seen]:
    """Return what shows the rows under the first of some keys that the data has: the columns that hold one value each."""

    def show(data: Mapping[str, Any]) -> Seen:
        rows: Sequence[Mapping[str, object]] = next((data[key] for key in keys if data.get(key)), [])
        named = dict.fromkeys(name for row in rows for name in row)
        plain = [name for name in named if all(isinstance(row.get(name), _PLAIN) for row in rows)]
        told = [name for name in plain if any(row.get(name) not in (None, "") for row in rows)][:MOST_COLUMNS]
        listed = [["" if row.get(name) is None else _figure(row[name]) for name in told] for row in rows]
        return f"{title}: {len(rows):,} row{'' if len(rows) == 1 else 's'}", [table("", told, listed)] if listed else []

    return show


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
    head = f"<p><b>{_text(title)}</b></p>" if title or not rows else ""
    return f"{head}<table>{rows}</table>" if rows else head


def _cells(values: Iterable[object], kind: str) -> str:
    return "".join(f"<{kind}>{_text(value)}</{kind}>" for value in values)


def _figure(value: object) -> object:
    return f"{value:,.6g}" if isinstance(value, float) else value


def _text(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return escape(text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} ...")
