"""Rows of many files, in memory as long as they are few."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.ground.drafts import writing
from ringwright.ground.scratch import ROOM, TemporaryFolder

if TYPE_CHECKING:
    import polars as pl

ROWS_IN_MEMORY = 2_000_000


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
        path = self._next()
        with writing(path.parent, room=ROOM):
            frame.write_parquet(path, compression="lz4")
        return pl.scan_parquet(path, glob=False)

    def take(self, file: Path) -> pl.LazyFrame:
        """Take over a file of rows that another process wrote."""
        import polars as pl

        path = self._next()
        with writing(path.parent, room=ROOM):
            shutil.move(file, path)
        return pl.scan_parquet(path, glob=False)

    def _next(self) -> Path:
        self.folder = self.folder or TemporaryFolder()
        self._parts += 1
        return self.folder.path / f"part-{self._parts:05}.parquet"
