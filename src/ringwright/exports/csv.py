"""A Trace as a folder of CSV files, one per table, with the schema version in ``meta.json`` beside them.

Lists (members of a communicator) are written as numbers separated by blanks; a missing value is an empty field.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.errors import UsageError
from ringwright.trace import TABLES, claim_folder, write_meta

if TYPE_CHECKING:
    from ringwright.trace import Trace


def csv(trace: Trace, path: str | Path, *, force: bool = False) -> list[Path]:
    """Write ``path/<table>.csv`` for every table; return the files; raise UsageError if ``path`` exists."""
    import polars as pl

    if not Path(path).parent.is_dir():
        raise UsageError(f"the folder {Path(path).parent} does not exist", remedy=f"mkdir -p {Path(path).parent}")
    folder = claim_folder(Path(path), force=force)
    written = []
    for name, columns in TABLES.items():
        lists = [column for column, kind in columns.items() if kind == "list_i32"]
        flat = [pl.col(column).cast(pl.List(pl.String)).list.join(" ") for column in lists]
        target = folder / f"{name}.csv"
        trace.scan(name).with_columns(flat).sink_csv(target)
        written.append(target)
    write_meta(folder, {**trace.meta, "tables_as": "csv"})
    return [*written, folder / "meta.json"]
