"""A Trace as a folder of CSV files, one per table, with the schema version in ``meta.json`` beside them.

Lists (members of a communicator) are written as numbers separated by blanks; a missing value is an empty field. A word
that begins with ``=``, ``+``, ``-`` or ``@`` has an apostrophe before it, so that no spreadsheet runs it as a formula.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.ground.drafts import draft_folder
from ringwright.ground.errors import UsageError
from ringwright.ground.trace_tables import TABLES
from ringwright.model.trace import claim_folder, write_meta

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

EXPORTS = {"csv": "csv"}
_FORMULA = r"^[=+\-@\t\r]"


def csv(trace: Trace, path: str | Path, *, force: bool = False) -> list[Path]:
    """Write ``path/<table>.csv`` for every table; return the files; raise UsageError if ``path`` exists."""
    import polars as pl

    if not Path(path).parent.is_dir():
        raise UsageError(f"the folder {Path(path).parent} does not exist", remedy=f"mkdir -p {Path(path).parent}")
    target = claim_folder(Path(path), force=force)
    with draft_folder(target) as folder:
        for name, columns in TABLES.items():
            lists = [column for column, kind in columns.items() if kind == "list_i32"]
            flat = [pl.col(column).cast(pl.List(pl.String)).list.join(" ") for column in lists]
            words = [_harmless(column) for column, kind in columns.items() if kind == "str"]
            trace.scan(name).with_columns(flat + words).sink_csv(folder / f"{name}.csv")
        write_meta(folder, {**trace.meta, "tables_as": "csv"})
    return [*(target / f"{name}.csv" for name in TABLES), target / "meta.json"]


def _harmless(column: str) -> pl.Expr:
    """Return a column of words with an apostrophe before those that a spreadsheet would take for a formula and run."""
    import polars as pl

    words = pl.col(column)
    return pl.when(words.str.contains(_FORMULA)).then(pl.lit("'") + words).otherwise(words).alias(column)
