"""How terminal reports are set: headings, tables and lines on a rich console, plain when the output is a pipe.

Strings from a log may hold control characters; they are shown escaped, so that no log can drive the terminal.
"""

from __future__ import annotations

import io
import unicodedata
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

PIPED_WIDTH = 80


def console(file: TextIO | None = None, *, width: int | None = None) -> Console:
    """Return a console: as wide as the terminal, or 80 columns and without colour when ``file`` is none."""
    from rich.console import Console

    target = file if file is not None else io.StringIO()
    terminal = bool(getattr(target, "isatty", lambda: False)())
    chosen = width if width is not None else (None if terminal else PIPED_WIDTH)
    return Console(file=target, width=chosen, force_terminal=terminal, highlight=False, markup=False, emoji=False)


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

    line = Text(printable(text), style="bold")
    if aside:
        line.append(f"  {printable(aside)}", style="not bold dim")
    out.print()
    out.print(line)


def line(out: Console, text: str, *, style: str = "", indent: int = 2) -> None:
    """Print wrapped text under an indent."""
    from rich.text import Text

    for piece in Text(printable(text), style=style).wrap(out, max(20, out.width - indent)):
        piece.rstrip()
        piece.pad_left(indent)
        out.print(piece, soft_wrap=True)


def command(out: Console, text: str) -> None:
    """Print a command to paste: never wrapped by us, so that a copy of it runs."""
    from rich.text import Text

    out.print(Text(f"    $ {printable(text)}", style="cyan"), soft_wrap=True)


def table(
    out: Console, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, left: Sequence[str] = ("op",)
) -> None:
    """Print columns without rules; those named in ``left`` are text and may fold, the others are right-aligned."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for name in columns:
        text_column = name in left
        drawn.add_column(name, justify="left" if text_column else "right", no_wrap=not text_column, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text("-" if cell is None else printable(cell)) for cell in row))
    out.print(Padding(drawn, (0, 0, 0, 2), expand=False))


def cut(out: Console, shown: int, total: int, what: str) -> None:
    """Say what a table left out, when it left something out."""
    if total > shown:
        line(out, f"and {total - shown:,} more {what}; --json and the HTML report hold more", style="dim")


def percent(share: float) -> str:
    """Return a share as a percentage that is never shown as zero unless it is."""
    if 0 < share < 0.001:
        return "<0.1 %"
    return f"{100 * share:.1f} %"
