"""What a reader made of one source, as bytes and back: plain values, tables, and arrays of numbers. Nothing in them can run.

Decoding checks every value against the type that the reader declares, so that the bytes of others are plain data, or refused.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_origin

import msgspec

from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from ringwright.formats.sources.source import Source

_DAMAGE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_MOST_ROWS = 1 << 31


class PackedColumn(msgspec.Struct, array_like=True):
    """A column: its type and its values side by side, one where all are the same, none where none is known; else ``known`` says
    which are (empty: all). Of text the ``words`` that the values number; the number behind the last is no word."""

    name: str
    kind: str
    values: bytes
    known: bytes
    words: list[str]


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
    data = source.part() if source.part is not None else None
    if data is None:
        return parse(source, progress)
    named = parse.__annotations__["return"]
    return unpacked(data, getattr(sys.modules[parse.__module__], named), source.name)


def packed(value: object) -> bytes | None:
    """Return a value as bytes; None for one that holds what cannot travel (a number beyond 64 bits, half a character)."""
    try:
        return msgspec.msgpack.encode(value, enc_hook=_plain)
    except (*_DAMAGE, TypeError, NotImplementedError):
        return None


def unpacked(data: bytes, kind: Any, name: str) -> Any:
    """Return the value of a type that bytes hold; InputError, with the name of their source, where they hold none."""
    try:
        return msgspec.msgpack.decode(data, type=kind, dec_hook=_made)
    except _DAMAGE as error:
        raise InputError(
            f"its part is damaged, or of another release: {str(error)[:160]}",
            where=name,
            remedy="make the parts again with this release: ringwright convert FILES --format parts -o DIR",
        ) from error


def _plain(value: Any) -> object:
    if isinstance(value, array):
        return PackedArray(value.typecode, value.tobytes())
    if type(value).__module__.startswith("polars"):
        return PackedTable(value.height, [_column(value[name]) for name in value.columns])
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

    kind, words, unknown = str(series.dtype), [], series.null_count()
    if unknown == len(series):
        return PackedColumn(series.name, kind, b"", b"", [])
    if series.n_unique() == 1:
        series = series.head(1)
    if series.dtype == pl.String:
        words = series.drop_nulls().unique(maintain_order=True).to_list()
        numbers = series.cast(pl.Enum(words)).to_physical().cast(pl.Int32).fill_null(len(words)).to_numpy()
        return PackedColumn(
            series.name, kind, numbers.astype(np.uint8 if len(words) < 256 else np.int32).tobytes(), b"", words
        )
    known = np.packbits(series.is_not_null().to_numpy()).tobytes() if unknown else b""
    plain = series.cast(pl.Int8) if series.dtype == pl.Boolean else series
    return PackedColumn(series.name, kind, plain.fill_null(0).to_numpy().tobytes(), known, [])


def _made(kind: Any, value: Any) -> Any:
    of = get_origin(kind) or kind
    if of is array:
        given = msgspec.convert(value, PackedArray)
        made: array[Any] = array(str(given.kind))
        made.frombytes(given.values)
        return made
    if of.__module__.startswith("polars"):
        return _table(msgspec.convert(value, PackedTable))
    if of.__module__ == "numpy":
        return _array(msgspec.convert(value, PackedArray))
    raise NotImplementedError(str(kind))


def _array(given: PackedArray) -> np.ndarray[Any, Any]:
    import numpy as np

    try:
        return np.frombuffer(given.values, np.dtype(given.kind)).copy()
    except TypeError as error:
        raise ValueError(f"an array of {str(given.kind)[:40]}") from error


def _table(given: PackedTable) -> pl.DataFrame:
    import polars as pl

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
    widths = {"String": np.uint8 if len(column.words) < 256 else np.int32, "Boolean": np.int8, "Int32": np.int32}
    values = np.frombuffer(column.values, widths.get(column.kind, np.float64 if kind == pl.Float64 else np.int64))
    if len(values) not in (1, height) or (is_text and not 0 <= values.min() <= values.max() <= len(column.words)):
        raise ValueError(f"column {column.name[:40]} is not as long as its table, or says words that it has not")
    series = pl.Series([*column.words, None], dtype=kind).gather(values) if is_text else pl.Series(values).cast(kind)
    if len(values) < height:
        series = series.new_from_index(0, height)
    if column.known:
        known = np.unpackbits(np.frombuffer(column.known, np.uint8), count=height)
        series = series.set(pl.Series(known == 0), None)
    return series.alias(column.name)
