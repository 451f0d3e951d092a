"""A Trace as one timeline for Perfetto (ui.perfetto.dev) or chrome://tracing: Trace Event JSON.

A rank is a process, a stream or a communicator a track in it. A collective's arguments are its size, group, sequence,
algorithm, and how much of it was waiting: its duration less the shortest of the group's. Flows join a send with its
receive, and a collective's last arrival with the others' ends. Times are microseconds from the first event.
Format: "Trace Event Format" of the Catapult project.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.formats.exports.placement import claim_file
from ringwright.ground.drafts import draft
from ringwright.ground.errors import InputError
from ringwright.model.message_pairs import message_pairs

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

EXPORTS = {"perfetto": "perfetto"}
_SHOWN = ("collective", "p2p", "compute", "memory", "proxy", "step")
_ARGUMENTS = (
    "size_bytes",
    "sent_bytes",
    "received_bytes",
    "datatype",
    "reduce_op",
    "root",
    "peer",
    "communicator",
    "sequence",
    "nranks",
    "algorithm",
    "protocol",
    "channels",
    "kernel",
    "kernel_class",
    "iteration",
    "phase",
    "layer",
    "state",
    "ground",
    "wait_us",
    "transfer_us",
    "source",
    "file",
    "line",
)
_CALLS = ("collective", "p2p")
_TEXT_MOST = 200


def perfetto(trace: Trace, path: str | Path, *, force: bool = False) -> list[Path]:
    """Write the timed events of a Trace, whose ranks must share a clock, and return the file.

    Raises InputError where no event has a time, UsageError where the file exists.
    """
    import msgspec

    events = _timed(trace)
    if not events.height:
        raise InputError(
            "no event of this Trace has a time",
            where=str(trace.meta.get("source", "")),
            remedy="profile with PyTorch's profiler, the NCCL profiler plug-in or NCCL Inspector; a log has no times",
        )
    target = claim_file(path, force=force)
    encode = msgspec.json.Encoder().encode
    with draft(target) as beside, beside.open("wb") as out:
        out.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
        first = True
        for row in _rows(events, trace):
            out.write(b"" if first else b",\n")
            out.write(encode(row))
            first = False
        out.write(b'\n],"otherData":' + encode(_notes(trace)) + b"}\n")
    return [target]


def _timed(trace: Trace) -> pl.DataFrame:
    """Return the events with a start, their track, and what of a call was waiting."""
    import polars as pl

    timed = pl.col("kind").is_in(_SHOWN) & pl.any_horizontal(pl.col("start_s", "enqueue_s").is_not_null())
    events = trace.scan("events").filter(timed).collect()
    group = ("communicator", "sequence", "op")
    least = pl.when(pl.col("sequence").is_not_null()).then(pl.col("duration_s").min().over(group))
    is_call = pl.col("kind") == "collective"
    track = (
        pl.when(pl.col("kind") == "step")
        .then(pl.lit("steps"))
        .when(pl.col("stream").is_not_null())
        .then(pl.lit("stream ") + pl.col("stream"))
        .when(pl.col("kind").is_in(_CALLS))
        .then(pl.lit("communicator ") + pl.col("communicator").fill_null(-1).cast(pl.String))
        .otherwise(pl.concat_str(pl.lit("thread "), pl.col("thread").fill_null(0).cast(pl.String)))
    )
    return events.with_columns(
        track.alias("track"),
        pl.col("start_s").fill_null(pl.col("enqueue_s")).alias("begin_s"),
        pl.col("rank").fill_null(-1),
        pl.when(is_call).then((pl.col("duration_s") - least) * 1e6).round(3).alias("wait_us"),
        pl.when(is_call).then(least * 1e6).round(3).alias("transfer_us"),
    ).sort("begin_s")


def _rows(events: pl.DataFrame, trace: Trace) -> Iterator[dict[str, Any]]:
    tracks: dict[tuple[int, str], int] = {}
    for rank, name in events.select("rank", "track").unique().sort("rank", "track").iter_rows():
        tracks[rank, name] = len(tracks) + 1
    yield from _names(events, trace, tracks)
    origin = float(events["begin_s"][0])
    for row in events.iter_rows(named=True):
        yield _slice(row, tracks[row["rank"], row["track"]], origin)
    yield from _flows(events, tracks, origin)


def _names(events: pl.DataFrame, trace: Trace, tracks: dict[tuple[int, str], int]) -> Iterator[dict[str, Any]]:
    import polars as pl

    devices = trace.table("topology").filter((pl.col("kind") == "device") & pl.col("rank").is_not_null())
    host = dict(devices.select("rank", "host").iter_rows())
    unknown = "rank unknown" if events["rank_class"].is_null().all() else "ranks that are alike"
    for rank in events["rank"].unique().sort().to_list():
        name = unknown if rank < 0 else f"rank {rank}" + (f" on {host[rank]}" if host.get(rank) else "")
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
    for (rank, name), number in tracks.items():
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": name}}


def _slice(row: dict[str, Any], track: int, origin: float) -> dict[str, Any]:
    arguments = {name: row[name] for name in _ARGUMENTS if row[name] is not None}
    event = {
        "ph": "X",
        "name": _name(row),
        "cat": row["kind"],
        "pid": row["rank"],
        "tid": track,
        "ts": _us(row["begin_s"] - origin),
        "dur": _us(row["duration_s"] or 0.0),
        "args": arguments,
    }
    return event if row["duration_s"] is not None else event | {"ph": "i", "s": "t"}


def _name(row: dict[str, Any]) -> str:
    if row["kind"] in _CALLS:
        return str(row["op"] or row["kernel"] or row["kind"])
    return str(row["kernel"] or row["text"] or row["op"] or row["kind"])[:_TEXT_MOST]


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _flows(events: pl.DataFrame, tracks: dict[tuple[int, str], int], origin: float) -> Iterator[dict[str, Any]]:
    """Join sends with receives by order in their pair, and each collective's last arrival with its other members."""
    number = 0
    lasting = events.drop_nulls("duration_s")
    for source, targets in (*_collectives(lasting), *_pairs(lasting)):
        for target in targets:
            number += 1
            common = {"cat": "flow", "name": "waits for" if source["kind"] == "collective" else "message", "id": number}
            start, end = source["begin_s"] - origin, target["begin_s"] + target["duration_s"] - origin
            yield common | {
                "ph": "s",
                "pid": source["rank"],
                "tid": tracks[source["rank"], source["track"]],
                "ts": _us(start),
            }
            yield common | {
                "ph": "f",
                "bp": "e",
                "pid": target["rank"],
                "tid": tracks[target["rank"], target["track"]],
                "ts": _us(end),
            }


_Flow = tuple[dict[str, Any], list[dict[str, Any]]]


def _collectives(events: pl.DataFrame) -> Iterator[_Flow]:
    import polars as pl

    known = events.filter((pl.col("kind") == "collective") & pl.col("sequence").is_not_null())
    for members in known.partition_by("communicator", "sequence", "op", maintain_order=True):
        if members.height > 1:
            rows = members.sort("begin_s").to_dicts()
            yield rows[-1], rows[:-1]


def _pairs(events: pl.DataFrame) -> Iterator[_Flow]:
    import polars as pl

    points = events.filter(pl.col("kind") == "p2p").with_row_index("number")
    rows = points.to_dicts()
    for sent, received in message_pairs(points, "number").sort("recv").iter_rows():
        yield rows[sent], [rows[received]]


def _notes(trace: Trace) -> dict[str, Any]:
    keep = ("source", "inputs", "world", "nccl_versions", "clock_note", "origin_ns")
    return {"written by": "ringwright"} | {key: trace.meta[key] for key in keep if trace.meta.get(key)}
