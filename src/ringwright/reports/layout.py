"""How terminal reports are set: headings, tables and lines on a rich console, plain when the output is a pipe.

Strings from a log may hold control characters; they are shown escaped, so that no log can drive the terminal.
"""

from __future__ import annotations

import io
import os
import unicodedata
from typing import TYPE_CHECKING, Any, TextIO

from ringwright.ground import invocation
from ringwright.reports import folding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

PIPED_WIDTH = 80
NARROWEST = 20
INDENT = 2


def console(file: TextIO | None = None, *, width: int | None = None) -> Console:
    """Return a console: as wide as ``COLUMNS`` says, else as the terminal, else 80 columns; without colour in a pipe."""
    from rich.console import Console

    target = file if file is not None else io.StringIO()
    terminal = bool(getattr(target, "isatty", lambda: False)())
    chosen = width if width is not None else _asked_width() or (None if terminal else PIPED_WIDTH)
    return Console(file=target, width=chosen, force_terminal=terminal, highlight=False, markup=False, emoji=False)


def _asked_width() -> int | None:
    """Return the width that the environment asks for, in a pipe too."""
    asked = os.environ.get("COLUMNS", "").strip()
    return max(NARROWEST, int(asked)) if asked.isascii() and asked.isdigit() and int(asked) > 0 else None


def printable(value: object) -> str:
    """Return text with control characters escaped, line breaks too."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp", "Cs") else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def heading(out: Console, text: str, aside: str = "") -> None:
    """Print a blank line and a heading; ``aside`` follows it, dimmed."""
    from rich.text import Text

    out.print()
    title = printable(text)
    whole = f"{title}  {invocation.as_called(printable(aside))}" if aside else title
    left = len(title)
    for piece in folding.wrap(whole, out.width):
        line = Text(piece, style="dim")
        line.stylize("bold not dim", 0, max(0, left))
        out.print(line, soft_wrap=True)
        left -= len(piece) + 1


def line(out: Console, text: str, *, style: str = "", indent: int = 2) -> None:
    """Print text under an indent, folded between words; a number is never broken."""
    from rich.text import Text

    for piece in folding.wrap(invocation.as_called(printable(text)), max(NARROWEST, out.width) - indent):
        out.print(Text(" " * indent + piece, style=style), soft_wrap=True)


def command(out: Console, text: str) -> None:
    """Print a command to paste: never wrapped by us, so that a copy of it runs."""
    from rich.text import Text

    out.print(Text(f"    $ {invocation.as_called(printable(text))}", style="cyan"), soft_wrap=True)


def table(
    out: Console, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, left: Sequence[str] = ("op",)
) -> None:
    """Print columns without rules; those named in ``left`` are text and may fold, the others are right-aligned.

    No cell is ever cut. What does not fit beside each other follows below, with the first column again.
    """
    from rich.text import Text

    told = [tuple("-" if cell is None else printable(cell) for cell in row) for row in rows]
    made = [
        folding.Column(printable(name), tuple(row[at] for row in told), name in left) for at, name in enumerate(columns)
    ]
    for number, block in enumerate(folding.blocks(made, max(NARROWEST, out.width) - INDENT)):
        if number:
            out.print()
        heads, body = folding.rows(block)
        for text, style in (*((each, "dim") for each in heads), *((each, "") for each in body)):
            out.print(Text(" " * INDENT + text, style=style), soft_wrap=True)


def cut(out: Console, shown: int, total: int, what: str) -> None:
    """Say what a table left out, when it left something out."""
    if total > shown:
        line(out, f"and {total - shown:,} more {what}; --json and the HTML report hold more", style="dim")


def percent(share: float) -> str:
    """Return a share as a percentage that is never shown as zero unless it is."""
    if 0 < share < 0.001:
        return "<0.1 %"
    return f"{100 * share:.1f} %"
