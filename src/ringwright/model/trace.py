"""The Trace: what happened, as seven versioned tables, whoever produced it.

A log without times, a profiler trace, a simulated run and an executed run share this one schema. All tables are
defined from the first version on; any may be empty. Polars is imported only when a table is touched.

On disk a Trace is a folder: ``meta.json`` (schema version, writer), one ``<table>.parquet`` per table, and for
``events`` any number of ``events/part-*.parquet`` so that a writer can stream with bounded memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.ground import drafts, saved_trace, sums, untrusted_tables
from ringwright.ground.errors import InputError, SchemaError, UsageError
from ringwright.ground.notebook import line, table
from ringwright.ground.trace_tables import TABLES, conform, schema

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 1
META_FILE = "meta.json"
_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_FILE_READER = re.compile(r"(?i)\b((?:read|scan)_\w+)[\"`\]]?\s*\(")
_FILES_READ = re.compile(r"(?i)\b(?:read|scan)_\w+[\"`\]]?\s*\(\s*'((?:[^']|'')*)'")
SUMS = "files"  # in meta.json: size and check sum of every table


@dataclass(frozen=True)
class Trace:
    """Seven tables and a little about their origin. ``meta`` holds plain JSON values.

    The tables are events, edges, communicators, topology, links, claims and ledger; each column carries its unit in its name
    (``size_bytes``, ``start_s``). A row of ``events`` stands for ``multiplicity`` equal events: weight by it.

    Parameters
    ----------
    tables
        A Polars lazy frame by table name; ``Trace.of`` takes frames, completes and checks them.
    meta
        Source, world size, versions, losses: plain JSON values.
    held
        What has to live as long as the Trace.

    Examples
    --------
    >>> import ringwright
    >>> trace = ringwright.read(ringwright.sample())
    >>> trace.df.filter(kind="collective")["multiplicity"].sum()
    3839
    >>> trace.query("select op, max(size_bytes) as largest from events where kind = 'collective' group by op").rows()
    [('all-reduce', 28328960)]
    """

    tables: Mapping[str, pl.LazyFrame]
    meta: Mapping[str, Any] = field(default_factory=dict)
    held: Any = field(default=None, repr=False, compare=False)  # keeps a temporary folder of events alive

    @classmethod
    def of(cls, frames: Mapping[str, pl.DataFrame], meta: Mapping[str, Any] | None = None) -> Trace:
        """Return a Trace from frames; tables not given are empty, columns not given are null."""
        import polars as pl

        stray = [name for name in frames if name not in TABLES]
        if stray:
            raise UsageError(f"a Trace has no table {', '.join(stray)}", remedy=f"use one of {', '.join(TABLES)}")
        tables = {
            name: (conform(name, frames[name]) if name in frames else pl.DataFrame(schema=schema(name))).lazy()
            for name in TABLES
        }
        return cls(tables, dict(meta or {}))

    def scan(self, table: str) -> pl.LazyFrame:
        """Return one table unread, for streaming queries."""
        return self.tables[table]

    def table(self, name: str) -> pl.DataFrame:
        """Return one table, read."""
        return self.tables[name].collect()

    @property
    def df(self) -> pl.DataFrame:
        """The events, read."""
        return self.table("events")

    def query(self, sql: str, *, files: bool = False) -> pl.DataFrame:
        """Return the answer to an SQL query over the seven tables (Polars SQL); with ``files`` it may read files too.

        Raises UsageError for a query that cannot be answered, InputError for a file that cannot be read.
        """
        import polars as pl

        reader = _FILE_READER.search(_LITERAL.sub("''", _COMMENT.sub(" ", sql)))
        if reader and not files:
            raise UsageError(
                f"the query reads a file ({reader[1]}), which is not allowed",
                remedy="add --files where you trust the query",
            )
        if reader:
            return self._query_of_files(sql)
        try:
            answer: pl.DataFrame = pl.SQLContext(dict(self.tables)).execute(sql, eager=True)
        except pl.exceptions.PolarsError as error:
            raise _unanswered(str(error)) from error
        return answer

    def _query_of_files(self, sql: str) -> pl.DataFrame:
        """Have a query that reads files answered in a process of its own, which damage in one of them may end."""
        answer = untrusted_tables.answer(sql, self.tables)
        if answer.frame is not None:
            return answer.frame
        if not answer.of_files:
            raise _unanswered(answer.why)
        raise InputError(
            f"a file that the query reads cannot be read: {answer.why}",
            where=", ".join(name.replace("''", "'") for name in _FILES_READ.findall(sql)),
            remedy="name a file that is there and whole",
        )

    def to_pandas(self) -> Any:
        """Return the events as a pandas frame (needs pandas)."""
        return self.df.to_pandas()

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the Trace as a folder of Parquet files and return it; refuse to overwrite without ``force``."""
        with drafts.writing(Path(path)):
            target = claim_folder(Path(path), force=force)
        with drafts.draft_folder(target) as folder:
            for name, frame in self.tables.items():
                frame.sink_parquet(folder / f"{name}.parquet")
            write_meta(folder, self.meta)
        return target

    @classmethod
    def open(cls, path: str | Path) -> Trace:
        """Open a saved Trace, of this or any older schema version."""
        folder = Path(path)
        held = read_meta(folder)
        told = held.pop(SUMS, None)
        meta, faults = saved_trace.checked_meta(held)
        tables, more, copies = saved_trace.tables(folder, told, {name: schema(name) for name in TABLES})
        faults += more
        if faults:
            tables["ledger"] = saved_trace.noted(tables["ledger"], faults, str(folder))
            meta["losses"] = [*meta.get("losses", []), *saved_trace.sentences(faults)]
        return cls(tables, meta, copies)

    def __repr__(self) -> str:
        return f"Trace({self._label()})"

    def _label(self) -> str:
        world = self.meta.get("world")
        told = self.meta.get("summary") or (f"{world:,} ranks" if isinstance(world, int) else "ranks unknown")
        return line(f"{self.meta.get('source') or 'unknown'}, {told}")

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a row per kind of event and operation, every string escaped."""
        import polars as pl

        weight, size = pl.col("multiplicity").fill_null(1), pl.col("size_bytes")
        told = pl.when(size.is_not_null().any()).then((size * weight).sum())  # what no event tells is no zero
        counts = (
            self.scan("events")
            .group_by("kind", "op")
            .agg(weight.sum().alias("events"), told.alias("bytes"))
            .sort(["events", "kind", "op"], descending=[True, False, False])
            .collect()
        )
        rows = (["" if value is None else value for value in row] for row in counts.iter_rows())
        return table(self._label(), ("kind", "op", "events", "bytes"), rows)


def _unanswered(words: str) -> UsageError:
    return UsageError(
        f"the query could not be answered: {words}",
        remedy=f'query "select * from events limit 5"; the tables are {", ".join(TABLES)}',
    )


def is_capture(path: Path) -> bool:
    """Say whether a folder is a saved Trace."""
    return path.is_dir() and (path / META_FILE).is_file()


def claim_folder(path: Path, *, force: bool) -> Path:
    """Return ``path``, which a capture may take: an existing capture only with ``force``, anything else never."""
    if path.exists() or path.is_symlink():
        if not force:
            raise UsageError(f"{path} exists", remedy="add --force to overwrite, or name another output")
        if not path.is_dir():
            raise UsageError(f"{path} is a file; it will not be removed", remedy="name a folder with -o")
        if not is_capture(path) and any(path.iterdir()):
            raise UsageError(f"{path} is not a capture; it will not be removed", remedy="name another output")
    with drafts.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_meta(folder: Path, meta: Mapping[str, Any]) -> None:
    """Write ``meta.json``; written last, so that its presence means a complete capture."""
    document = {"format": "ringwright.trace", "schema_version": SCHEMA_VERSION, **meta, SUMS: sums.checksums(folder)}
    (folder / META_FILE).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def read_meta(folder: Path) -> dict[str, Any]:
    """Return the meta data of a capture; raise InputError or SchemaError with the place."""
    try:
        document = saved_trace.document(folder / META_FILE)
        version, written = document["schema_version"], document.get("tables_as")
        if type(version) is not int:
            raise ValueError("no version")
    except (OSError, ValueError, KeyError) as error:
        words = "its meta.json is missing" if isinstance(error, FileNotFoundError) else "its meta.json cannot be read"
        where = str(folder / META_FILE)
        raise InputError(f"not a capture: {words}", where=where, remedy="ringwright convert LOG -o DIR") from error
    if not 1 <= version <= SCHEMA_VERSION:
        raise SchemaError(
            f"capture of schema {version}, this release reads 1 to {SCHEMA_VERSION}",
            where=str(folder / META_FILE),
            remedy="open it with the release of ringwright that wrote it, or a later one",
        )
    if written not in (None, "parquet"):
        raise InputError(
            f"its tables are {str(written)[:20]}, which says neither types nor what is missing: it is for other programs",
            where=str(folder),
            remedy="convert the recording itself: ringwright convert LOG --format parquet -o DIR",
        )
    return {key: value for key, value in document.items() if key not in ("format", "schema_version")}
