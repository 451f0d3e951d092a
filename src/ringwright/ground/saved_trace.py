"""The gate in for what we wrote ourselves: a saved Trace is believed only as far as it keeps to its own rules.

A capture comes back from disks, copies and other hands. Every table is read once when it is opened: a table that cannot be read,
a column of another type, a value that no writer of ours makes (negative sizes, numbers that are none, a group with more members
than its size), a table changed since it was written (``sums``): each is left out, or told, and counted. What keeps to the
rules is kept. A table that no check sum vouches for is decoded by another process (``untrusted_tables``); its copy is read here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.ground import sums, untrusted_tables
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    import polars as pl

MOST_META_BYTES = 64 << 20
MOST_RANKS = 1 << 24
MOST_BYTES = 1 << 60  # of a row: its size times how many equal ones it stands for
MOST_SECONDS = 1e12
_I63 = (1 << 63) - 1
_MOST_TOLD = 20

# What may be less than nothing: -1 stands for none or unknown; the others are names given by somebody else.
_FROM_MINUS_ONE = {"root", "peer", "src", "dst", "channel", "device", "comm_rank", "rank", "count"}
_ANY = {"color", "code", "pid", "thread", "op_count", "sequence", "graph_replay", "line", "example_line"}
_RANKS = {
    "rank",
    "comm_rank",
    "nranks",
    "nnodes",
    "root",
    "peer",
    "size",
    "ranks_seen",
    "device",
    "channels",
    "channel",
}
_SHARES = {"confidence"}
_DURATIONS = {"duration_s", "bin_s", "bytes"}
_INDISPENSABLE = ("events", "communicators", "ledger")  # without these nothing can be said, or not on which ground
_NEEDED = {
    "events": ("kind",),
    "edges": ("src_event", "dst_event", "kind"),
    "communicators": ("communicator",),
    "topology": ("kind",),
    "links": ("src", "link"),
    "claims": ("field", "value"),
    "ledger": ("outcome", "lines"),
}
_NEEDED_OF: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {
    "events": {("collective", "p2p", "measurement", "metric", "tuning"): ("op",)},
    "topology": {("ring", "tree", "connection"): ("communicator", "src", "dst"), ("ring",): ("channel",)},
}
_TEXTS = ("source", "summary", "library", "clock_note", "tables_as")
_LISTS = ("inputs", "losses", "limits", "nccl_versions", "dump_versions", "profiler_versions", "passed_over")
_NUMBERS = ("profiler_versions",)  # of the lists, those of numbers
_COUNTS = ("world", "origin_ns", "records", "errors_dropped", "adding_dropped")
# What readers and writers note in meta, and the types that it can be of.
META: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(_TEXTS, (str, type(None))),
    **dict.fromkeys(_LISTS, (list,)),
    **dict.fromkeys(_COUNTS, (int, type(None))),
    "asked": (dict,),
    "folded": (bool,),
    "redacted": (bool,),
    "timeout_s": (float, int, type(None)),
}
_NEVER_NONE = ("source", "summary", "errors_dropped")


@dataclass(frozen=True)
class Omission:
    """Something of a capture that is left out, or told: where, what, and in how many rows."""

    where: str
    what: str
    rows: int = 1

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" ({self.rows:,} rows)" if self.rows > 1 else "")


# ------------------------------------------------------------------------------------------------------------ meta
def document(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; ValueError or OSError for what is none."""
    if path.stat().st_size > MOST_META_BYTES:
        raise ValueError("larger than any that we write")
    try:
        found = json.loads(path.read_bytes().decode("utf-8", "replace"), parse_constant=lambda _: None)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def checked_meta(meta: Mapping[str, Any]) -> tuple[dict[str, Any], list[Omission]]:
    """Return what of the meta data is of its type and range, and what is not."""
    good, faults = {}, []
    for name, value in meta.items():
        if name not in META or _fits(name, value):
            good[name] = value
        else:
            faults.append(Omission("meta.json", f"{name} is no {META[name][0].__name__} that can be: it is left out"))
    return good, faults


def _fits(name: str, value: Any) -> bool:
    if type(value) not in META[name] or (value is None and name in _NEVER_NONE):
        return False
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    if type(value) is list:
        return all(type(each) is (int if name in _NUMBERS else str) for each in value)
    if name == "world":
        return value is None or 1 <= value <= MOST_RANKS
    if type(value) in (int, float):
        return abs(value) <= _I63 and (value >= 0 or name == "origin_ns")
    return True


def _is_plain(value: Any) -> bool:
    """Return whether a value of ``asked`` is a text, a number, nothing, or a list or table of texts."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return type(value) in (str, int, type(None), list, dict) and all(type(each) is str for each in inner)


# ---------------------------------------------------------------------------------------------------------- tables
def tables(
    folder: Path, told: Any, wanted: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, pl.LazyFrame], list[Omission], Any]:
    """Return a capture's tables with the columns ``wanted``, what of them is left out, and what to hold while they are used.

    ``told`` are the check sums that the writer told. Raises InputError where a table that everything stands on cannot be read.
    """
    wrong, same = sums.compared(folder, told)
    files = {name: _files(folder, name) for name in wanted}
    doubtful = {name: of for name, of in files.items() if not {str(file.relative_to(folder)) for file in of} <= same}
    copies = untrusted_tables.copies(doubtful, wanted)
    found, faults = {}, [Omission(name, what) for name, what in wrong.items()]
    for name, columns in wanted.items():
        here = [copies.found[name]] if name in copies.found else files[name]
        if not here and (
            name not in _INDISPENSABLE or (name != "events" and not isinstance(told, dict))
        ):  # an older writer
            found[name] = _without(columns)
            continue
        if not here or name in copies.lost:
            found[name], more = _lost(name, files[name], folder, copies.lost.get(name, "it is missing"), columns)
        else:
            found[name], more = table(name, here, columns)
        faults += more
    return found, faults, copies.held


def _files(folder: Path, name: str) -> list[Path]:
    parts = sorted(path for path in (folder / name).glob("part-*.parquet") if path.is_file())
    single = folder / f"{name}.parquet"
    return parts or ([single] if single.is_file() else [])


def _without(wanted: Mapping[str, Any]) -> pl.LazyFrame:
    import polars as pl

    return pl.DataFrame(schema=dict(wanted)).lazy()


def _lost(
    name: str, files: list[Path], folder: Path, words: str, wanted: Mapping[str, Any]
) -> tuple[pl.LazyFrame, list[Omission]]:
    """Return an empty table and the fault; raise InputError where nothing can be said without the table."""
    path = files[0] if files else folder / f"{name}.parquet"
    if name in _INDISPENSABLE:
        remedy = "read the recordings again: ringwright convert LOG -o DIR"
        raise InputError(f"table {name} cannot be read: {words}", where=str(path), remedy=remedy)
    return _without(wanted), [Omission(f"{name}.parquet", f"cannot be read, and is left out: {words}")]


def table(name: str, files: list[Path], wanted: Mapping[str, Any]) -> tuple[pl.LazyFrame, list[Omission]]:
    """Return a table with ``wanted`` columns, lifted from older captures, and what of it is left out."""
    import polars as pl

    try:
        frame, faults = _typed(name, pl.scan_parquet(files, glob=False), wanted)
        frame, more = _ruled(name, frame, wanted)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        return _lost(name, files, files[0].parent, " ".join(str(error).split())[:200], wanted)
    return frame, [*faults, *more]


def _typed(name: str, frame: pl.LazyFrame, wanted: Mapping[str, Any]) -> tuple[pl.LazyFrame, list[Omission]]:
    import polars as pl

    present = frame.collect_schema()
    columns, faults = [], []
    for column, kind in wanted.items():
        held = present.get(column)
        is_number = held is not None and held.is_numeric() and kind.is_numeric()
        if held is None or held == pl.Null:
            columns.append(pl.lit(None, dtype=kind).alias(column))
        elif held == kind:
            columns.append(pl.col(column))
        elif is_number and held.is_integer():
            columns.append(pl.col(column).cast(kind, strict=False))
        else:
            faults.append(Omission(f"{name}.parquet", f"column {column} is of type {held}, not {kind}: it is left out"))
            columns.append(pl.lit(None, dtype=kind).alias(column))
    return frame.select(columns), faults


def _ruled(name: str, frame: pl.LazyFrame, wanted: Mapping[str, Any]) -> tuple[pl.LazyFrame, list[Omission]]:
    """Look at every value once; only where one breaks its rule is the table rewritten."""
    import polars as pl

    bad = {column: rule for column, kind in wanted.items() if (rule := _broken(name, column, kind)) is not None}
    lost = [column for column in _NEEDED[name] if column in wanted]
    counted = (
        frame.select(
            *(rule.fill_null(value=False).sum().alias(f"bad {column}") for column, rule in bad.items()),
            *(pl.col(column).null_count().alias(f"lost {column}") for column in lost),
            *(pl.col(column).count().alias(f"read {column}") for column in wanted),
        )
        .collect()
        .row(0, named=True)
    )
    faults = []
    for column, rule in bad.items():
        if rows := counted[f"bad {column}"]:
            faults.append(Omission(f"{name}.parquet", f"{column} is out of range: taken as unknown", rows))
            unknown = pl.lit([], dtype=wanted[column]) if wanted[column] == pl.List(pl.Int32) else pl.lit(None)
            good = pl.when(rule.fill_null(value=False)).then(unknown).otherwise(pl.col(column))
            frame = frame.with_columns(good.alias(column))
    if any(counted[f"lost {column}"] or counted.get(f"bad {column}") for column in lost):
        rows = max(counted[f"lost {column}"] + (counted.get(f"bad {column}") or 0) for column in lost)
        faults.append(Omission(f"{name}.parquet", f"without {', '.join(lost)}: left out", rows))
        frame = frame.drop_nulls(lost)
    frame = _of_kind(name, frame, faults)
    return _of_its_own(name, frame, faults), faults


def _of_kind(name: str, frame: pl.LazyFrame, faults: list[Omission]) -> pl.LazyFrame:
    """Leave out rows without what rows of their kind always have."""
    import polars as pl

    for kinds, columns in _NEEDED_OF.get(name, {}).items():
        bare = pl.col("kind").is_in(kinds) & pl.any_horizontal(pl.col(column).is_null() for column in columns)
        if rows := frame.select(bare.sum()).collect().item():
            faults.append(
                Omission(f"{name}.parquet", f"{', '.join(kinds)} without {', '.join(columns)}: left out", rows)
            )
            frame = frame.filter(~bare)
    return frame


def _broken(name: str, column: str, kind: Any) -> pl.Expr | None:
    """Return which values of a column break its rule; None for a column without one."""
    import polars as pl

    value = pl.col(column)
    if kind == pl.Float64:
        least = 0.0 if column in _DURATIONS | _SHARES else -1e300 if column == "value" else -MOST_SECONDS
        most = 1.0 if column in _SHARES else 1e300 if column in ("value", "bytes") else MOST_SECONDS
        return ~value.is_between(least, most)
    if kind == pl.List(pl.Int32):
        holes = value.list.drop_nulls().list.len() < value.list.len()
        return holes | (value.list.min() < -1) | (value.list.max() >= MOST_RANKS) | (value.list.len() > pl.col("size"))
    if not kind.is_integer() or column in _ANY:
        return None
    rule = value < (-1 if column in _FROM_MINUS_ONE else 0)
    if column in _RANKS:
        rule |= value >= MOST_RANKS
    if name == "events" and column.endswith("_bytes"):
        rule |= value.cast(pl.Float64) * pl.col("multiplicity").fill_null(1).cast(pl.Float64) > MOST_BYTES
    if column in ("multiplicity", "records", "count", "lines"):
        rule |= value > MOST_BYTES
    return rule


def _of_its_own(name: str, frame: pl.LazyFrame, faults: list[Omission]) -> pl.LazyFrame:
    """Apply the rules of single tables."""
    rules = {"events": _errors, "communicators": _groups, "claims": _claims}
    return rules[name](frame, faults) if name in rules else frame


def _groups(frame: pl.LazyFrame, faults: list[Omission]) -> pl.LazyFrame:
    """Groups are told once each."""
    import polars as pl

    frame = frame.with_columns(pl.col("members").fill_null([]))
    rows = frame.select(pl.col("communicator").is_duplicated().sum()).collect().item()
    if rows:
        faults.append(Omission("communicators.parquet", "told more than once: the first is taken", rows))
        frame = frame.unique("communicator", keep="first", maintain_order=True)
    return frame


def _errors(frame: pl.LazyFrame, faults: list[Omission]) -> pl.LazyFrame:
    """What an error tells is a JSON object."""
    import polars as pl

    is_error = (pl.col("kind") == "error") & pl.col("task").is_not_null()
    held = frame.filter(is_error).select(pl.col("task").unique()).collect()["task"].to_list()
    wrong = [text for text in held if not _is_object(text)]
    if wrong:
        faults.append(Omission("events.parquet", "facts of an error that are not in their form: left out", len(wrong)))
        bad = is_error & pl.col("task").is_in(wrong)
        frame = frame.with_columns(pl.when(bad).then(None).otherwise(pl.col("task")).alias("task"))
    return frame


def _claims(frame: pl.LazyFrame, faults: list[Omission]) -> pl.LazyFrame:
    """Claims that have a form are in it."""
    import polars as pl

    held = frame.select("field", "value").collect().rows()
    wrong = sorted({(field, value) for field, value in held if not _is_claim(field, value)})
    if wrong:
        faults.append(Omission("claims.parquet", "a claim that is not in its form: left out", len(wrong)))
        pairs = pl.DataFrame(wrong, schema=["field", "value"], orient="row").lazy()
        frame = frame.join(pairs, on=["field", "value"], how="anti", maintain_order="left")
    return frame


def _is_claim(field: str, value: str) -> bool:
    if field.startswith("launch "):
        return value.isascii() and value.isdigit() and 0 <= int(value[:20]) <= MOST_RANKS
    return field != "ras" or _is_object(value)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def noted(ledger: pl.LazyFrame, faults: list[Omission], where: str) -> pl.LazyFrame:
    """Return the ledger with a row for every fault."""
    import polars as pl

    if not faults:
        return ledger
    kinds = ledger.collect_schema()
    rows: dict[str, list[Any]] = {
        "file": [f"{where}/{fault.where}" for fault in faults],
        "outcome": ["refused"] * len(faults),
        "reason": [fault.what for fault in faults],
        "lines": [fault.rows for fault in faults],
        "example_line": [None] * len(faults),
        "example": [None] * len(faults),
    }
    return pl.concat([ledger, pl.DataFrame(rows, schema=dict(kinds)).lazy()])


def sentences(faults: list[Omission]) -> list[str]:
    """Return what a summary says is lost."""
    told = [f"the capture's {fault}" for fault in faults[:_MOST_TOLD]]
    return told + ([f"and {len(faults) - _MOST_TOLD} more of its faults"] if len(faults) > _MOST_TOLD else [])
