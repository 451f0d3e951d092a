"""A folder that lives as long as the object that holds it, and goes silently with it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from ringwright.drafts import told
from ringwright.scratch import Scratch

if TYPE_CHECKING:
    import polars as pl

ROWS_IN_MEMORY = 2_000_000
ROOM = "free some space there, or name a larger place: export TMPDIR=DIR"
PREFIX = "ringwright-read-"


class TemporaryFolder:
    """Hold this to keep ``path``; the folder is removed when the holder is gone or the interpreter ends.

    What a killed interpreter left is removed by the next holder.
    """

    def __init__(self) -> None:
        folder = Scratch(PREFIX)
        self.path = folder.path
        self.remove = weakref.finalize(self, folder.close)


class Store:
    """Keeps the many rows of files in memory, or in a folder once there are too many."""

    def __init__(self, most_rows: int = ROWS_IN_MEMORY) -> None:
        self.folder: TemporaryFolder | None = None
        self._held, self._parts, self._most = 0, 0, most_rows

    def keep(self, frame: pl.DataFrame) -> pl.LazyFrame:
        """Return the frame for later, from memory or from disk."""
        import polars as pl

        if self._held + frame.height <= self._most:
            self._held += frame.height
            return frame.lazy()
        self.folder = self.folder or TemporaryFolder()
        path = self.folder.path / f"part-{self._parts:05}.parquet"
        self._parts += 1
        with told(self.folder.path, room=ROOM):
            frame.write_parquet(path, compression="lz4")
        return pl.scan_parquet(path)
