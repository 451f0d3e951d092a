"""An SQLite file from elsewhere, read-only: tables and columns as they are, never views, triggers or attached files.

Times are integer nanoseconds from the start of the session. Source: the SQLite schema reference of Nsight Systems.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ringwright.formats.sources.kinds.nsys import SQLITE
from ringwright.formats.sources.members import members
from ringwright.ground.drafts import writing
from ringwright.ground.scratch import ROOM, TemporaryFolder

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source

MOST_STEPS = 2_000_000_000  # of SQLite's virtual machine, for one file
MOST_TEXT_BYTES = 16 << 20
_STEP = 1_000_000
_BATCH = 20_000


class Database:
    """The tables of one export."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        # a view could hold any query: only tables count, and only plain ones
        listed = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        names = [
            name for name, sql in listed if isinstance(name, str) and not str(sql).upper().startswith("CREATE VIRTUAL")
        ]
        self.columns = {name: self._columns(name) for name in names[:4096]}

    def _columns(self, table: str) -> dict[str, str]:
        """Return lower-case -> real name of the columns of a table."""
        rows = self.connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
        return {str(row[1]).lower(): str(row[1]) for row in rows}

    def rows(self, table: str, wanted: Sequence[str], order: str = "") -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns of a table, None for those that it lacks; nothing where it does not exist."""
        held = self.columns.get(table)
        if not held:
            return
        picked = [_quoted(held[name.lower()]) if name.lower() in held else "NULL" for name in wanted]
        ordered = f" ORDER BY {_quoted(held[order.lower()])}" if order.lower() in held else ""
        cursor = self.connection.execute(f"SELECT {', '.join(picked)} FROM {_quoted(table)}{ordered}")
        while batch := cursor.fetchmany(_BATCH):
            yield from batch

    def first(self, table: str, column: str) -> Any:
        """Return one value of a table, None where there is none."""
        return next((row[0] for row in self.rows(table, (column,))), None)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def opened(source: Source, progress: Callable[[int], None] | None) -> Iterator[tuple[str, Database] | None]:
    """Give the first SQLite file of a source, from its place on disk or from a temporary copy; None where there is none."""
    path = Path(source.name)
    if _is_sqlite(path):
        with _connected(path) as connection:
            if progress:
                progress(path.stat().st_size)
            yield source.name, Database(connection)
        return
    for member in members(source, progress):
        held = TemporaryFolder()
        copy = held.path / "export.sqlite"
        with writing(held.path, room=ROOM), copy.open("wb") as out:
            shutil.copyfileobj(member.stream, out, 1 << 20)
        try:
            if not _is_sqlite(copy):
                continue
            with _connected(copy) as connection:
                yield member.name, Database(connection)
            return
        finally:
            held.remove()
    yield None


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    except OSError:
        return False


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    # immutable: no journal is looked for and nothing is locked or written beside the file
    connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)
    left = [MOST_STEPS // _STEP]

    def over() -> int:
        left[0] -= 1
        return left[0] < 0

    try:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_TEXT_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_progress_handler(over, _STEP)
        connection.execute("PRAGMA trusted_schema = OFF")
        yield connection
    finally:
        connection.close()
