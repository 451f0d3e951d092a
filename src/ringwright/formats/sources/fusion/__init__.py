"""One job from several sources: the same communicators and operations are found again, and each fact keeps its source.

Groups are matched by their identity, else by their members, else by size where only one fits. Operations are matched by rank,
group and sequence; where sources count from different moments their sequences are shifted by what makes operations and sizes
agree. Of two values for one fact the better ground wins, and where they differ a claim shows both: nothing is averaged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.fusion.groups import match
from ringwright.formats.sources.fusion.operations import aligned
from ringwright.formats.sources.fusion.rows import merged
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

# Whose word counts first, fact by fact, where two are equally well grounded.
ORDER = (
    "calls",
    "nccl-profiler",
    "kineto",
    "nsys",
    "inspector",
    "flight-recorder",
    "nccl-log",
    "chakra-et",
    "pytorch-et",
    "param-comms",
)
_JOINED = "were joined as different sources: read their files together, or what convert --format parts makes of them"
_ADDED = ("topology", "links", "ledger")


def fuse(parts: Sequence[Trace]) -> Trace:
    """Return one Trace of several of the same job."""
    import polars as pl

    ordered = sorted(parts, key=lambda part: _position(str(part.meta.get("source", ""))))
    claims: list[dict[str, Any]] = []
    communicators, numbers = match(ordered, claims)
    frames = [
        _renumbered(part.table("events"), number, _origin_s(part, ordered))
        for part, number in zip(ordered, numbers, strict=True)
    ]
    frames = _told_once(frames, ordered, claims)
    calls = aligned([frame.filter(_is_call()) for frame in frames], [_source(part) for part in ordered], claims)
    events = pl.concat([merged(calls, claims), *(frame.filter(~_is_call()) for frame in frames)])
    tables = {name: pl.concat([part.table(name) for part in ordered]) for name in _ADDED}
    for table, number in zip(("topology",), ("communicator",), strict=True):
        shifted = [_mapped(part.table(table), number, by) for part, by in zip(ordered, numbers, strict=True)]
        tables[table] = pl.concat(shifted)
    tables["topology"] = _once(tables["topology"])
    tables["claims"] = pl.concat([*(part.table("claims") for part in ordered), rows("claims", claims)])
    tables["communicators"] = rows("communicators", communicators)
    tables["events"] = events
    trace = Trace.of(tables, _meta(ordered))
    return replace(trace, held=[part.held for part in ordered if part.held is not None] or None)


def _told_once(frames: list[pl.DataFrame], parts: Sequence[Trace], claims: list[dict[str, Any]]) -> list[pl.DataFrame]:
    """Leave out folded calls of communicators whose calls another source has one by one: they cannot be aligned with them."""
    import polars as pl

    single = [frame for frame, part in zip(frames, parts, strict=True) if not part.meta.get("folded")]
    told = {
        number
        for frame in single
        for number in frame.filter(_is_call())["communicator"].drop_nulls().unique().to_list()
    }
    left = []
    for frame, part in zip(frames, parts, strict=True):
        doubled = _is_call() & pl.col("communicator").is_in(sorted(told))
        kept = frame.filter(~doubled.fill_null(value=False)) if part.meta.get("folded") and told else frame
        if kept.height < frame.height:
            note = "folded calls of communicators whose calls another source has one by one are not counted again"
            count = int(frame["records"].sum() or 0) - int(kept["records"].sum() or 0)
            claim = {"field": "calls told twice", "value": f"{count:,} records", "source": _source(part)}
            claims.append(claim | {"ground": "inferred", "confidence": 0.9, "note": note})
        left.append(kept)
    return left


def _once(topology: pl.DataFrame) -> pl.DataFrame:
    """Return each device once: by rank, with what the first source that knows it says."""
    import polars as pl

    is_device = (pl.col("kind") == "device") & pl.col("rank").is_not_null()
    devices = topology.filter(is_device).group_by("rank", maintain_order=True).agg(pl.all().drop_nulls().first())
    return pl.concat([devices.select(topology.columns), topology.filter(~is_device)])


def _position(source: str) -> int:
    return ORDER.index(source) if source in ORDER else len(ORDER)


def _source(part: Trace) -> str:
    return str(part.meta.get("source", "")) or "capture"


def _is_call() -> pl.Expr:
    import polars as pl

    return pl.col("kind").is_in(["collective", "p2p"])


def _origin_s(part: Trace, parts: Sequence[Trace]) -> float:
    """Return what brings a part's times to the first known origin; 0 where its own is unknown."""
    known = [int(other.meta["origin_ns"]) for other in parts if other.meta.get("origin_ns") is not None]
    mine = part.meta.get("origin_ns")
    return 0.0 if mine is None or not known else (int(mine) - min(known)) / 1e9


def _renumbered(events: pl.DataFrame, number: dict[int, int], origin_s: float) -> pl.DataFrame:
    """Give events the numbers of the common communicators, and times from the common origin."""
    import polars as pl

    moved = _mapped(events, "communicator", number)
    return moved.with_columns(pl.col("enqueue_s") + origin_s, pl.col("start_s") + origin_s) if origin_s else moved


def _mapped(frame: pl.DataFrame, column: str, number: dict[int, int]) -> pl.DataFrame:
    import polars as pl

    return frame.with_columns(pl.col(column).replace_strict(number, default=None, return_dtype=pl.Int32))


def _meta(parts: Sequence[Trace]) -> dict[str, Any]:
    """Return the parts' meta data together: lists joined, of single values the first that is known."""
    meta: dict[str, Any] = {}
    for part in parts:
        for key, value in part.meta.items():
            if isinstance(value, list):
                meta[key] = [*dict.fromkeys([*meta.get(key, []), *value])]
            elif value is not None and meta.get(key) is None:
                meta[key] = value
    sources = [_source(part) for part in parts]
    origins = [int(part.meta["origin_ns"]) for part in parts if part.meta.get("origin_ns") is not None]
    records = [int(part.meta["records"]) for part in parts if part.meta.get("records") is not None]
    worlds = [int(part.meta["world"]) for part in parts if part.meta.get("world") is not None]
    twice = [f"{count} saved Traces of {name} {_JOINED}" for name, count in Counter(sources).items() if count > 1]
    return meta | {
        "limits": [*meta.get("limits", []), *twice],
        "source": "+".join(dict.fromkeys(sources)),
        "origin_ns": min(origins) if origins else None,
        "world": max(worlds) if worlds else None,
        "records": sum(records) if records else None,
        "folded": any(part.meta.get("folded") for part in parts),
    }
