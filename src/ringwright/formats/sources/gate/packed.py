"""What a reader made of one source, as bytes and back: plain values, tables, and arrays of numbers. Nothing in them can run.

Tables lie apart from the head that names them: who joins many parts reads heads, and leaves the rows to others. Decoding checks
every value against the type that the reader declares, so that the bytes of others are plain data, or refused.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

import msgspec

from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from ringwright.formats.sources.source import Source

_DAMAGE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_MOST_ROWS = 1 << 31
_WIDTHS = (1, 2, 4, 8)  # of a whole number, in bytes


@dataclass(frozen=True)
class PackedPart:
    """What a reader made of a source: the head, and the tables that it names, or the file that they wait in."""

    head: bytes
    tables: bytes | Path = b""

    def table_bytes(self) -> bytes:
        """Return the tables."""
        return self.tables if isinstance(self.tables, bytes) else self.tables.read_bytes()


class TableSpan(msgspec.Struct, array_like=True):
    """Where a table lies among the tables of a part."""

    begin: int
    size: int


class PackedColumn(msgspec.Struct, array_like=True):
    """A column: its type and its values side by side, one where all are the same, none where none is known.

    ``known`` says which are (empty: all). Of text the ``words`` that the values number; the number behind the last is no word.
    Whole numbers have ``width`` bytes, as many as the largest needs.
    """

    name: str
    kind: str
    values: bytes
    known: bytes
    words: list[str]
    width: int = 0


class PackedTable(msgspec.Struct, array_like=True):
    """A table by columns."""

    height: int
    columns: list[PackedColumn]


class PackedArray(msgspec.Struct, array_like=True):
    """An array of numbers, or of rows of numbers: its type as NumPy spells it, and its values."""

    kind: str | list[tuple[str, str, tuple[int, ...]]]  # of a row of numbers: each its name, its type and its shape
    values: bytes


def parsed(source: Source, parse: Callable[..., Any], progress: Callable[[int], None] | None) -> Any:
    """Return what ``parse`` makes of a source, here, or what it made of it elsewhere."""
    part = source.part() if source.part is not None else None
    return parse(source, progress) if part is None else unpacked(part, parse, source.name)


def unpacked(part: PackedPart, parse: Callable[..., Any], name: str) -> Any:
    """Return what ``parse`` made of a source, of its part; InputError where that holds nothing of the kind."""
    return _decoded(part, _there(part.tables, name), parse, name)


def head_alone(part: PackedPart, parse: Callable[..., Any], name: str) -> Any:
    """Return the same with empty tables, which are not looked at."""
    return _decoded(part, None, parse, name)


def table_alone(tables: bytes | Path, name: str) -> pl.DataFrame:
    """Return the one table of a part whose head was looked at before; InputError where there is none."""
    held = _there(tables, name)
    try:
        return _table(held, TableSpan(0, len(held)))
    except _DAMAGE as error:
        raise _refusal(error, name) from error


def packed(value: object) -> PackedPart | None:
    """Return a value as bytes; None for one that holds what cannot travel (a number beyond 64 bits, half a character)."""
    tables = bytearray()
    try:
        head = msgspec.msgpack.encode(value, enc_hook=partial(_plain, tables))
    except (*_DAMAGE, TypeError, NotImplementedError):
        return None
    return PackedPart(head, bytes(tables))


def _decoded(part: PackedPart, tables: bytes | None, parse: Callable[..., Any], name: str) -> Any:
    kind = getattr(sys.modules[parse.__module__], parse.__annotations__["return"])
    try:
        return msgspec.msgpack.decode(part.head, type=kind, dec_hook=partial(_made, tables))
    except _DAMAGE as error:
        raise _refusal(error, name) from error


def _there(tables: bytes | Path, name: str) -> bytes:
    """Return tables, wherever they wait."""
    try:
        return tables if isinstance(tables, bytes) else tables.read_bytes()
    except OSError as error:
        raise InputError(
            f"what a worker read of it is gone: {error.strerror or error}", where=name, remedy="ask again"
        ) from error


def _refusal(error: Exception, name: str) -> InputError:
    return InputError(
        f"its part is damaged, or of another release: {str(error)[:160]}",
        where=name,
        remedy="make the parts again with this release: ringwright convert FILES --format parts -o DIR",
    )


def _plain(tables: bytearray, value: Any) -> object:
    if isinstance(value, array):
        return PackedArray(value.typecode, value.tobytes())
    if type(value).__module__.startswith("polars"):
        made = msgspec.msgpack.encode(PackedTable(value.height, [_column(value[name]) for name in value.columns]))
        span = TableSpan(len(tables), len(made))
        tables += made
        return span
    if type(value).__module__ == "numpy":
        import numpy as np

        fields = [(name, value.dtype[name].base.str, value.dtype[name].shape) for name in value.dtype.names or ()]
        if fields and np.dtype(fields) != value.dtype:
            raise TypeError("rows with room between their numbers")
        return PackedArray(fields or value.dtype.str, value.tobytes())
    raise NotImplementedError(type(value).__name__)


def _column(series: pl.Series) -> PackedColumn:
    import numpy as np
    import polars as pl

    kind, unknown = str(series.dtype), series.null_count()
    if unknown == len(series):
        return PackedColumn(series.name, kind, b"", b"", [])
    words, known = list[str](), b""
    if series.dtype == pl.String:
        words = series.drop_nulls().unique(maintain_order=True).to_list()
        series = series.cast(pl.Enum(words)).to_physical().cast(pl.Int32).fill_null(len(words))
    elif unknown:
        known = np.packbits(series.is_not_null().to_numpy()).tobytes()
        series = series.fill_null(strategy="min") if series.dtype != pl.Boolean else series.fill_null(value=False)
    if series.dtype == pl.Float64:
        return PackedColumn(series.name, kind, series.to_numpy().tobytes(), known, words, 8)
    least, most = int(series.min()), int(series.max())  # type: ignore[arg-type]
    values = (series.head(1) if least == most else series).to_numpy()
    width = next(width for width in _WIDTHS if -1 << 8 * width - 1 <= least and most < 1 << 8 * width - 1)
    return PackedColumn(series.name, kind, values.astype(f"<i{width}").tobytes(), known, words, width)


def _made(tables: bytes | None, kind: Any, value: Any) -> Any:
    of = get_origin(kind) or kind
    if of is array:
        given = msgspec.convert(value, PackedArray)
        made: array[Any] = array(str(given.kind))
        made.frombytes(given.values)
        return made
    if of.__module__.startswith("polars"):
        return _table(tables, msgspec.convert(value, TableSpan))
    if of.__module__ == "numpy":
        return _array(msgspec.convert(value, PackedArray))
    raise NotImplementedError(str(kind))


def _array(given: PackedArray) -> np.ndarray[Any, Any]:
    import numpy as np

    try:
        return np.frombuffer(given.values, np.dtype(given.kind)).copy()
    except TypeError as error:
        raise ValueError(f"an array of {str(given.kind)[:40]}") from error


def _table(tables: bytes | None, span: TableSpan) -> pl.DataFrame:
    import polars as pl

    if tables is None:
        return pl.DataFrame()
    given = msgspec.msgpack.decode(memoryview(tables)[span.begin : span.begin + span.size], type=PackedTable)
    if not 0 <= given.height < _MOST_ROWS:
        raise ValueError(f"a table of {given.height} rows")
    return pl.DataFrame([_series(each, given.height) for each in given.columns])


def _series(column: PackedColumn, height: int) -> pl.Series:
    import numpy as np
    import polars as pl

    kinds = {"String": pl.String, "Boolean": pl.Boolean, "Int32": pl.Int32, "Int64": pl.Int64, "Float64": pl.Float64}
    if column.kind not in kinds:
        raise ValueError(f"a column of {column.kind[:40]}")
    kind, is_text = kinds[column.kind], column.kind == "String"
    if not column.values:
        return pl.Series(column.name, [None], kind).new_from_index(0, height)
    if column.width not in _WIDTHS or (column.kind == "Int32" and column.width > 4):
        raise ValueError(f"a column of numbers of {column.width} bytes")
    values = np.frombuffer(column.values, "<f8" if kind == pl.Float64 else f"<i{column.width}")
    if len(values) not in (1, height) or (is_text and not 0 <= values.min() <= values.max() <= len(column.words)):
        raise ValueError(f"column {column.name[:40]} is not as long as its table, or says words that it has not")
    words = pl.Series([*column.words, None], dtype=kind) if is_text else None
    series = pl.Series(values).cast(kind) if words is None else words.gather(values.astype(np.int64))
    if len(values) < height:
        series = series.new_from_index(0, height)
    if column.known:
        known = np.unpackbits(np.frombuffer(column.known, np.uint8), count=height)
        series = series.set(pl.Series(known == 0), None)
    return series.alias(column.name)
