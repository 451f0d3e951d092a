"""The columns of a Trace's seven tables, and frames that have them. Polars is imported only when a frame is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

CHECKPOINT = "checkpoint"  # the phase, and the role, of what is sent to save the state of a job or to load it
OUTSIDE = ("setup", CHECKPOINT)  # phases whose calls belong to no iteration

# column -> type name; the names are resolved to Polars types on first use. Units are part of each name.
EVENTS = {
    "kind": "str",  # collective, p2p, compute, memory, proxy, step, error, tuning (a choice of algorithm, not a call),
    # phase (a named stretch of a step), sync (a call that waits), operator (what a launch
    # belongs to: gradient, backward, ddp, or a fused operation by its pattern), status (how far a rank came in a group),
    # measurement (a row of a benchmark), statistic (another number of such a row: ``task`` names its column), metric (a sample
    # of a gauge)
    "op": "str",  # all-reduce, ...; for kind=error the error class
    "task": "str",
    "rank": "i32",  # global rank; null when unknown or when the row stands for several ranks
    "rank_class": "str",  # name of the class of ranks a folded row stands for
    "multiplicity": "i64",  # how many equal events this row stands for
    "records": "i64",  # source records (log lines) behind the row
    "communicator": "i32",  # id in communicators
    "comm_rank": "i32",
    "nranks": "i32",
    "nnodes": "i32",
    "sequence": "i64",  # logical operation within its communicator, joined across ranks
    "op_count": "i64",  # as the source printed it
    "host": "str",
    "pid": "i64",
    "thread": "i64",
    "device": "i32",
    "count": "i64",  # elements as the source printed them
    "datatype": "str",
    "element_bytes": "i32",
    "size_bytes": "i64",  # the nccl-tests size column
    "sent_bytes": "i64",  # what the caller hands in on this rank
    "received_bytes": "i64",
    "reduce_op": "str",
    "root": "i32",
    "peer": "i32",  # rank in the communicator, for send and receive
    "algorithm": "str",
    "protocol": "str",
    "channels": "i32",
    "stream": "str",
    "graph_captured": "bool",
    "graph_replay": "i64",
    "iteration": "i64",
    "phase": "str",
    "layer": "str",
    "role": "str",
    "tokens": "i64",
    "kernel": "str",  # name of the device kernel, or of the function that a sampler saw
    "kernel_class": "str",  # nccl, rccl, multimem, deepep, ..., compute, memory, unknown-communication
    "state": "str",  # scheduled, started, completed
    "value": "f64",  # of a metric
    "enqueue_s": "f64",  # when the call was made
    "start_s": "f64",  # on the device, counted from meta's origin_ns as the other two
    "duration_s": "f64",
    "clock": "str",  # clock domain of the three times
    "code": "i32",  # error or completion status
    "text": "str",
    "source": "str",  # which reader
    "file": "str",
    "line": "i64",
    "ground": "str",  # read, inferred or assumed
    "confidence": "f64",
}
EDGES = {"src_event": "i64", "dst_event": "i64", "kind": "str"}
COMMUNICATORS = {
    "communicator": "i32",
    "comm_id": "str",
    "name": "str",
    "size": "i32",
    "members": "list_i32",  # global ranks in order of rank in the communicator; -1 where unknown
    "ranks_seen": "i32",
    "nnodes": "i32",
    "role": "str",  # world, tp, dp, pp, ep, embedding, ...
    "role_evidence": "str",
    "parent": "i32",
    "color": "i64",
    "ground": "str",
    "confidence": "f64",
}
TOPOLOGY = {
    "kind": "str",  # device, ring, tree, ring-part and tree-part (not whole), connection (value: its side), nic, channels
    "communicator": "i32",
    "channel": "i32",
    "src": "i32",  # rank in the communicator
    "dst": "i32",
    "rank": "i32",
    "host": "str",
    "pid": "i64",
    "device": "i32",
    "bus_id": "str",
    "transport": "str",
    "nic": "str",
    "value": "str",  # of a device the parts of the network that it lies in, the widest first: 1/0
    "ground": "str",
}
LINKS = {
    "src": "str",
    "dst": "str",
    "link": "str",
    "bin_start_s": "f64",
    "bin_s": "f64",
    "bytes": "f64",
    "queue_bytes": "f64",  # the longest queue in front of it in that stretch, of packets that were followed
}
CLAIMS = {"field": "str", "value": "str", "source": "str", "ground": "str", "confidence": "f64", "note": "str"}
LEDGER = {
    "file": "str",
    "outcome": "str",  # understood, repaired, refused, other
    "reason": "str",
    "lines": "i64",
    "example_line": "i64",
    "example": "str",
}
Row = dict[str, Any]  # a row of a table, by the names of its columns; a column that is not named is null
TABLES: dict[str, dict[str, str]] = {
    "events": EVENTS,
    "edges": EDGES,
    "communicators": COMMUNICATORS,
    "topology": TOPOLOGY,
    "links": LINKS,
    "claims": CLAIMS,
    "ledger": LEDGER,
}


def schema(table: str) -> dict[str, Any]:
    """Return ``column -> Polars type`` of one table."""
    import polars as pl

    types = {
        "str": pl.String,
        "i32": pl.Int32,
        "i64": pl.Int64,
        "f64": pl.Float64,
        "bool": pl.Boolean,
        "list_i32": pl.List(pl.Int32),
    }
    return {name: types[kind] for name, kind in TABLES[table].items()}


def conform(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return ``frame`` with exactly the table's columns, in order and type; absent columns become null."""
    import polars as pl

    wanted = schema(table)
    unknown = [name for name in frame.columns if name not in wanted]
    if unknown:
        raise UsageError(f"{table} has no column {', '.join(unknown)}")
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in wanted.items()
    )


def conformed(table: str, frame: pl.LazyFrame, *more: str) -> pl.LazyFrame:
    """As ``conform``, of a frame that is not in memory; with ``more`` columns of its own before the table's."""
    import polars as pl

    present = set(frame.collect_schema().names())
    wanted = schema(table).items()
    return frame.select(
        *more, *((pl.col(name) if name in present else pl.lit(None)).cast(kind).alias(name) for name, kind in wanted)
    )


def rows(table: str, records: list[Row]) -> pl.DataFrame:
    """Return a frame of one table from dictionaries; absent keys become null."""
    wanted = schema(table)
    told = set().union(*records)
    present = {name: kind for name, kind in wanted.items() if name in told} or wanted
    made = fitted({name: [record.get(name) for record in records] for name in present}, present)
    return conform(table, made) if len(present) < len(wanted) else made


def fitted(columns: Mapping[str, Any], kinds: Mapping[str, Any]) -> pl.DataFrame:
    """Return a frame of columns in their types; a value that its type cannot hold (a rank of 2^31) is unknown."""
    import polars as pl

    try:
        return pl.DataFrame(columns, schema=kinds)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.DataFrame(columns, schema=kinds, strict=False)
