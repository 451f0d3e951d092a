"""What a reader gathers on its way to a Trace: rows by column, communicators, devices, claims and the ledger.

Values from files are checked against the column's type as they come in; what does not fit becomes null, never an error.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import UsageError
from ringwright.ground.trace_tables import TABLES, Row, conform, fitted, schema
from ringwright.model.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import polars as pl

    from ringwright.formats.sources.members import Member
    from ringwright.formats.sources.source import Source

PART_ROWS = 200_000
_I32 = 2**31 - 1
_I64 = 2**63 - 1
MOST_TEXT = 4096
MOST_EXAMPLES = 200
MOST_MEMBERS = 1 << 20
_EPOCH_S = 1e9  # seconds since 1970 passed this in 2001


class TableBuilder:
    """Rows of one table, kept by column and turned into frames every :data:`PART_ROWS` rows."""

    def __init__(self, table: str, **defaults: Any) -> None:
        self.types = TABLES[table]
        self.table = table
        self.defaults = defaults
        self.values: dict[str, list[Any]] = {}
        self.height = 0
        self.parts: list[pl.DataFrame] = []
        self.total = 0

    def add(self, **row: Any) -> int:
        """Add a row and return its number; columns not given have the table's defaults, or are unknown.

        Raises UsageError for a column that the table does not have.
        """
        for name, value in row.items():
            if name not in self.types:
                raise self._no_column(name)
            if value is None:
                continue
            column = self.values.setdefault(name, [])
            if len(column) < self.height:
                column.extend([None] * (self.height - len(column)))
            column.append(fitting(value, self.types[name]))
        self.height += 1
        self.total += 1
        if self.height >= PART_ROWS:
            self._close_part()
        return self.total - 1

    def extend(self, frame: pl.DataFrame) -> None:
        """Add the rows of a frame that has some of the table's columns; the defaults hold for them as for any row."""
        if self.height:
            self._close_part()
        self.parts.append(self._filled(conform(self.table, frame)))
        self.total += len(frame)

    def _no_column(self, name: str) -> UsageError:
        alike = [each for each in self.types if each.startswith(name) or name.startswith(each)]
        near = alike or difflib.get_close_matches(name, self.types, 3, 0.5) or list(self.types)[:8]
        return UsageError(
            f"{self.table} has no column '{name}'",
            remedy=f"perhaps {', '.join(near[:3])}; all: ringwright.ground.trace_tables.TABLES['{self.table}']",
        )

    def _filled(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with the defaults where nothing was said; how sure one is stays open of what was not read."""
        import polars as pl

        if not self.defaults:
            return frame
        plain = {name: value for name, value in self.defaults.items() if name != "confidence"}
        frame = frame.with_columns(pl.col(name).fill_null(value) for name, value in plain.items())
        if "confidence" not in self.defaults:
            return frame
        is_sure = pl.col("confidence").is_null() & (pl.col("ground") == plain.get("ground", "read"))
        sure = pl.when(is_sure).then(self.defaults["confidence"]).otherwise(pl.col("confidence"))
        return frame.with_columns(sure.cast(pl.Float64).alias("confidence"))

    def _close_part(self) -> None:
        import polars as pl

        kinds = schema(self.table)
        series = {}
        for name, kind in kinds.items():
            column = self.values.get(name)
            if column is None:
                continue
            column.extend([None] * (self.height - len(column)))
            series[name] = pl.Series(name, column, dtype=kind)
        frame = pl.DataFrame(series) if series else pl.DataFrame()
        missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in kinds.items() if name not in series]
        self.parts.append(self._filled(frame.with_columns(missing).select(list(kinds))))
        self.values, self.height = {}, 0

    def frame(self) -> pl.DataFrame:
        """Return all rows as one frame of the table's schema."""
        import polars as pl

        if self.height:
            self._close_part()
        return pl.concat(self.parts) if self.parts else pl.DataFrame(schema=schema(self.table))


def fitting(value: Any, kind: str) -> Any:
    """Return a value as a column of that kind holds it, None where it does not fit."""
    if kind == "str":
        return text(value)
    if kind == "i32":
        return whole_number(value, _I32)
    if kind == "i64":
        return whole_number(value, _I64)
    if kind == "f64":
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if fits and abs(value) < 1e300 and math.isfinite(value) else None
    if kind == "bool":
        return value if isinstance(value, bool) else None
    numbers = [whole_number(item, _I32) for item in value] if isinstance(value, list | tuple) else None
    return None if numbers is None or None in numbers else numbers


def whole_number(value: Any, most: int = _I64) -> int | None:
    """Return an integer (also one written as 8.0 or "8") within plus or minus ``most``, else None."""
    if isinstance(value, bool):
        return None
    if (isinstance(value, float) and value.is_integer()) or (
        isinstance(value, str) and len(value) < 20 and value.strip().removeprefix("-").isdecimal()
    ):
        value = int(value)
    return value if isinstance(value, int) and -most - 1 <= value <= most else None


def text(value: Any) -> str:
    """Return printable text of bounded length; what cannot be encoded is replaced."""
    spelled = value if isinstance(value, str) else str(value)
    return spelled[:MOST_TEXT].encode("utf-8", "replace").decode("utf-8")


class Gathered:
    """The tables of a Trace under construction, of one kind of source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.events = TableBuilder(
            "events", multiplicity=1, records=1, source=source, ground="read", confidence=1.0
        )  # what a row says that says nothing else
        self.edges = TableBuilder("edges")
        self.comms: dict[str, Row] = {}
        self.devices: dict[tuple[Any, ...], Row] = {}
        self.claims: list[Row] = []
        self.ledger: Counter[tuple[str, str, str]] = Counter()
        self.examples: dict[tuple[str, str, str], tuple[int | None, str]] = {}
        self.losses: list[str] = []
        self.inputs: list[str] = []
        self.releases: list[str] = []

    def communicator(
        self,
        comm_id: str,
        *,
        name: str = "",
        size: int | None = None,
        members: Sequence[int] = (),
        ground: str = "read",
        confidence: float = 1.0,
        **more: Any,
    ) -> int:
        """Return the number of a communicator, made at its first mention; later mentions fill what was unknown."""
        key = text(comm_id)
        row = self.comms.get(key)
        if row is None:
            row = {"communicator": len(self.comms), "comm_id": key, "name": text(name), "size": None, "members": None}
            row |= {"ground": ground, "confidence": confidence, "ranks": set()}
            self.comms[key] = row
        row["name"] = row["name"] or text(name)
        if size is not None and row["size"] is None:
            row["size"] = whole_number(size, _I32)
        if members and not row["members"]:
            row["members"] = fitting(list(members), "list_i32")
            row["size"] = row["size"] if row["size"] is not None else len(members)
        for key_, value in more.items():
            if value is not None:
                row.setdefault(key_, value)
        return int(row["communicator"])

    def of(self, number: int) -> Row:
        """Return what is known of a communicator by its number."""
        return list(self.comms.values())[number]

    def device(
        self, rank: int | None, host: str | None = None, pid: int | None = None, device: int | None = None
    ) -> None:
        """Note a process that was seen."""
        row = {"kind": "device", "rank": fitting(rank, "i32") if rank is not None else None, "host": host or None}
        row |= {"pid": whole_number(pid) if pid is not None else None}
        row |= {"device": fitting(device, "i32") if device is not None else None, "ground": "read"}
        self.devices.setdefault((row["rank"], row["host"], row["pid"], row["device"]), row)

    def claim(
        self, field: str, value: Any, source: str, *, ground: str = "read", confidence: float = 1.0, note: str = ""
    ) -> None:
        """Note a fact with where it comes from; the same claim is kept once."""
        row: Row = {"field": field, "value": text(value), "source": text(source), "ground": ground}
        row |= {"confidence": confidence, "note": text(note)}
        if row not in self.claims[-64:]:
            self.claims.append(row)

    def note(
        self, file: str, outcome: str, reason: str, records: int = 1, *, at: int | None = None, example: str = ""
    ) -> None:
        """Count records in the ledger: understood, repaired, refused or other."""
        if records <= 0:
            return
        key = (text(file), outcome, text(reason))
        self.ledger[key] += records
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.setdefault(key, (at, text(example)[:200]))

    def lose(self, sentence: str) -> None:
        """Note in one sentence what the Trace lacks."""
        if sentence not in self.losses and len(self.losses) < 1000:
            self.losses.append(sentence)

    def damage(self, name: str, losses: Iterable[tuple[str, int]]) -> None:
        """Note what was lost in reading a file."""
        for reason, offset in losses:
            self.note(name, "refused", reason, at=offset)
            self.lose(f"{name}: {reason} (byte {offset})")

    def members(self, sources: Iterable[Source], progress: Callable[[int], None] | None) -> Iterator[Member]:
        """Yield every file of some sources, and note what was lost of a source when all of it has been read."""
        from ringwright.formats.sources.members import members

        for source in sources:
            before = len(source.losses)
            yield from members(source, progress)
            self.damage(source.name, source.losses[before:])

    def release(self, release: str) -> None:
        """Note a release of the library."""
        if release and release not in self.releases:
            self.releases.append(release)

    def _whole(self, row: Row) -> Row:
        """Return a communicator's row; a size that nothing gives is that of the ranks seen, and said to be assumed."""
        ranks = row.pop("ranks")
        seen = sorted(rank for rank in ranks if rank is not None)
        if row["size"] is None:
            row |= {"size": max(len(seen), 1), "members": seen or [-1], "ground": "assumed", "confidence": 0.2}
            note = f"only the ranks seen are counted: {len(seen)}"
            self.claim(
                "size of a group",
                f"at least {row['size']}",
                row["comm_id"],
                ground="assumed",
                confidence=0.2,
                note=note,
            )
        elif not row["members"]:
            row["members"] = [-1] * min(row["size"], MOST_MEMBERS)
        return row | {"ranks_seen": len(ranks) or None}

    def zero(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, int | None]:
        """Return events whose earliest time is 0, and the wall clock of it in ns where the times were of the wall clock."""
        import polars as pl

        first = frame.select(pl.min_horizontal(pl.col("start_s").min(), pl.col("enqueue_s").min())).item()
        if first is None:
            return frame, None
        moved = frame.with_columns(pl.col("start_s", "enqueue_s") - first)
        return moved, round(first * 1e9) if first > _EPOCH_S else None

    def trace(self, **meta: Any) -> Trace:
        """Return the Trace; ``meta`` completes or replaces what the reader's kind implies.

        ``from_zero=True`` counts times from the earliest one.
        """

        ledger = [
            {"file": file, "outcome": outcome, "reason": reason, "lines": count}
            | dict(
                zip(("example_line", "example"), self.examples.get((file, outcome, reason), (None, "")), strict=True)
            )
            for (file, outcome, reason), count in self.ledger.items()
        ]
        comms = [self._whole(row) for row in self.comms.values()]
        frames = {"events": self.events.frame(), "edges": self.edges.frame()}
        tables = {
            "communicators": comms,
            "topology": list(self.devices.values()),
            "claims": self.claims,
            "ledger": ledger,
        }
        for name, records in tables.items():
            kinds = schema(name)
            columns = {key: [record.get(key) for record in records] for key in kinds}
            frames[name] = fitted(columns, kinds)
        base: dict[str, Any] = {
            "source": self.source,
            "inputs": self.inputs,
            "losses": self.losses,
            "world": None,
            "nccl_versions": self.releases,
            "library": None,
            "origin_ns": None,
        }
        if meta.pop("from_zero", False):
            frames["events"], base["origin_ns"] = self.zero(frames["events"])
        return Trace.of(frames, base | meta)
