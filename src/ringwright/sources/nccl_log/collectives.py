"""The collective records as events: folded (a row per communicator and signature) or one row each, sequence joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringwright.sources.nccl_log import dialect
from ringwright.sources.nccl_log.fold import Fold
from ringwright.sources.nccl_log.identity import Identity
from ringwright.sources.nccl_log.state import LogState

if TYPE_CHECKING:
    import polars as pl

_HUGE_BYTES = 1 << 50  # beyond it a size is damage, not data


def event_rows(state: LogState, fold: Fold, ops: list[str], identity: Identity, files: list[str]) -> pl.DataFrame:
    """Return the collective and point-to-point events as the events table's columns."""
    import polars as pl

    from ringwright.trace import conform, rows

    if not fold.records:
        return rows("events", [])
    handles = _handle_frame(state, identity)
    joined = _Joined(fold, state, ops, identity)
    frame = joined.rows() if fold.rows is not None else joined.folded()
    frame = frame.join(handles, on="handle", how="left", maintain_order="left") if "handle" in frame.columns else frame
    frame = _with_sizes(frame, state, ops)
    point = pl.col("op").is_in(sorted(dialect.POINT_TO_POINT))
    timed = pl.col("enqueue_s").is_finite() if "enqueue_s" in frame.columns else pl.lit(False)
    frame = frame.with_columns(
        pl.when(point).then(pl.lit("p2p")).otherwise(pl.lit("collective")).alias("kind"),
        pl.when(point).then(pl.col("root")).alias("peer"),
        pl.when(pl.col("op").is_in(sorted(dialect.ROOTED))).then(pl.col("root")).alias("root"),
        pl.lit("nccl-log").alias("source"),
        pl.lit("read").alias("ground"),
        (pl.when(timed).then(pl.lit("log")) if "enqueue_s" in frame.columns else pl.lit(None, pl.String)).alias(
            "clock"
        ),
    )
    if "enqueue_s" in frame.columns:
        frame = frame.with_columns(pl.col("enqueue_s").fill_nan(None))
    if "file" in frame.columns:
        names = pl.Series(files)
        frame = frame.with_columns(
            pl.col("file").map_elements(lambda i: names[i], return_dtype=pl.String).alias("file")
        )
    drop = [name for name in ("handle", "datatype_id", "redop", "inplace", "entry") if name in frame.columns]
    return conform("events", frame.drop(drop))


def _handle_frame(state: LogState, identity: Identity) -> pl.DataFrame:
    import polars as pl

    place: dict[int, tuple[int | None, int | None]] = {}
    for number, group in enumerate(identity.groups):
        for rank, found in group.handles.items():
            place.update((index, (number, rank)) for index in found)
        place.update((index, (number, None)) for index in group.spare)
    records = []
    for handle in state.handles:
        true = state.handles[identity.alias.get(handle.index, handle.index)]
        where = place.get(true.index, (None, None))
        records.append(
            {
                "handle": handle.index,
                "communicator": where[0],
                "comm_rank": where[1],
                "rank": identity.rank_of.get(true.index),
                "host": true.host,
                "pid": true.pid,
                "device": true.device,
                "nranks": true.nranks,
                "nnodes": true.nnodes,
            }
        )
    kinds = {"handle": pl.Int32, "communicator": pl.Int32, "comm_rank": pl.Int32, "rank": pl.Int32, "host": pl.String}
    kinds |= {"pid": pl.Int64, "device": pl.Int32, "nranks": pl.Int32, "nnodes": pl.Int32}
    return pl.DataFrame(records, schema=kinds)


class _Joined:
    """The joiner's export, cut by communicator."""

    def __init__(self, fold: Fold, state: LogState, ops: list[str], identity: Identity) -> None:
        import numpy as np

        self.fold = fold
        self.ops = ops
        self.identity = identity
        found = fold.joiner.export()
        self.signature = found["signatures"]
        self.entry_signature = found["entries"]["signature"]
        self.words, self.offsets = found["member_bits"]["words"], found["member_bits"]["offsets"]
        self.totals = tuple(found["totals"][name] for name in ("signature", "member", "records"))
        self.point = np.array([dialect.operation(op) in dialect.POINT_TO_POINT for op in ops], bool)
        self.counter_drifts = not dialect.sequence_is_printed(state.version)

    def _members(self, number: int) -> Any:
        import numpy as np

        group = self.identity.groups[number]
        alias: dict[int, list[int]] = {}
        for shadow, true in self.identity.alias.items():
            alias.setdefault(true, []).append(shadow)
        handles = [index for true in group.all_handles() for index in (true, *alias.get(true, ()))]
        return np.array(
            [self.fold.member_of[index] for index in handles if self.fold.group_of[index : index + 1] == [group.size]],
            int,
        )

    def _entries(self, size: int) -> Any:
        """Return (entry numbers, bit matrix) of the entries of one group size."""
        import numpy as np

        mine = np.flatnonzero(self.signature["group"][self.entry_signature] == size)
        width = (len(self.fold.members.get(size, ())) + 63) // 64
        matrix = np.zeros((len(mine), max(width, 1)), np.uint64)
        starts, ends = self.offsets[mine], self.offsets[mine + 1]
        for word in range(width):
            has = starts + word < ends
            matrix[has, word] = self.words[starts[has] + word]
        return mine, matrix

    def folded(self) -> pl.DataFrame:
        """One row per communicator and signature; point-to-point one per rank as well."""
        import numpy as np
        import polars as pl

        signature, member, _count = self.totals
        blocks: list[dict[str, Any]] = []
        for size in sorted({group.size for group in self.identity.groups}):
            entries, bits = self._entries(size)
            in_size = self.signature["group"][signature] == size
            for number, group in enumerate(self.identity.groups):
                if group.size != size:
                    continue
                members = self._members(number)
                ours = in_size & np.isin(member, members)
                if not ours.any():
                    continue
                blocks.extend(self._collectives(number, members, entries, bits, ours))
                blocks.extend(self._points(number, size, members, ours))
        kinds = {"communicator": pl.Int32, "op_id": pl.Int32, "count": pl.UInt64, "datatype_id": pl.Int16}
        kinds |= {
            "redop": pl.Int16,
            "root": pl.Int32,
            "nranks": pl.Int32,
            "multiplicity": pl.Int64,
            "records": pl.Int64,
        }
        return pl.DataFrame(blocks, schema=kinds | {"comm_rank": pl.Int32, "rank": pl.Int32})

    def _collectives(self, number: int, members: Any, entries: Any, bits: Any, ours: Any) -> list[dict[str, Any]]:
        import numpy as np

        mask = np.zeros(bits.shape[1], np.uint64)
        for member in members.tolist():
            mask[member // 64] |= np.uint64(1) << np.uint64(member % 64)
        touched = entries[(bits & mask).any(axis=1)]
        signature, member, count = (part[ours] for part in self.totals)
        ids, where = np.unique(signature, return_inverse=True)
        records = np.bincount(where, weights=count).astype(np.int64)
        most = np.zeros(len(ids), np.int64)
        np.maximum.at(most, where, count.astype(np.int64))
        joined = np.bincount(np.searchsorted(ids, self.entry_signature[touched]), minlength=len(ids))
        drifts = self.counter_drifts and bool(self.point[self.signature["op"][ids]].any())
        logical = most if drifts else joined
        return [
            self._row(number, int(sig), int(n), int(r))
            for sig, n, r in zip(ids, logical, records, strict=True)
            if not self.point[self.signature["op"][sig]]
        ]

    def _points(self, number: int, size: int, members: Any, ours: Any) -> list[dict[str, Any]]:
        handles = self.fold.members[size]
        rank = {index: place for place, found in self.identity.groups[number].handles.items() for index in found}
        rows = []
        for sig, member, count in zip(*(part[ours].tolist() for part in self.totals), strict=True):
            if not self.point[self.signature["op"][sig]]:
                continue
            true = self.identity.alias.get(handles[member], handles[member])
            row = self._row(number, sig, count, count)
            rows.append(row | {"comm_rank": rank.get(true), "rank": self.identity.rank_of.get(true)})
        return rows

    def _row(self, number: int, sig: int, logical: int, records: int) -> dict[str, Any]:
        values = {
            name: int(self.signature[name][sig]) for name in ("op", "count", "datatype", "redop", "root", "group")
        }
        return {
            "communicator": number,
            "op_id": values["op"],
            "count": values["count"],
            "datatype_id": values["datatype"],
            "redop": values["redop"],
            "root": values["root"],
            "nranks": values["group"],
            "multiplicity": logical,
            "records": records,
        }

    def rows(self) -> pl.DataFrame:
        """One row per record; equal sequence in a communicator means the same logical operation."""
        import numpy as np
        import polars as pl

        parts = self.fold.rows or []
        frame = pl.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
        group = pl.Series("communicator", self._communicator_of())
        frame = frame.with_columns(group.gather(frame["handle"]).alias("number")).filter(pl.col("number") >= 0)
        drifting = self._drifting(frame)
        occurrence = pl.int_range(pl.len()).over("handle", "op", "count", "datatype", "redop", "root")
        signature = pl.struct("op", "count", "datatype", "redop", "root", occurrence.alias("n"))
        key = (
            pl.when(pl.col("number").is_in(drifting)).then(signature.hash()).otherwise(pl.col("entry").cast(pl.UInt64))
        )
        point = pl.col("op").is_in(np.flatnonzero(self.point).tolist())
        key = pl.when(point).then(pl.int_range(pl.len(), dtype=pl.UInt64) + 2**63).otherwise(key)
        frame = frame.with_columns(key.alias("key"), pl.int_range(pl.len()).alias("order"))
        first = frame.group_by("number", "key").agg(pl.col("order").min())
        first = first.with_columns((pl.col("order").rank("dense").over("number") - 1).cast(pl.Int64).alias("sequence"))
        frame = frame.join(
            first.drop("order"), on=["number", "key"], how="left", maintain_order="left", nulls_equal=True
        )
        return frame.select(
            "handle",
            "sequence",
            pl.col("op_count").cast(pl.Int64, strict=False),
            "count",
            "redop",
            "root",
            "line",
            "file",
            pl.col("op").alias("op_id"),
            pl.col("datatype").alias("datatype_id"),
            pl.col("time_s").alias("enqueue_s"),
            pl.col("stream").map_elements(hex, return_dtype=pl.String).alias("stream"),
            pl.lit(1, pl.Int64).alias("multiplicity"),
            pl.lit(1, pl.Int64).alias("records"),
        )

    def _communicator_of(self) -> list[int]:
        """Return the group number of every handle, -1 where it has none."""
        numbers = [-1] * max(len(self.fold.group_of), 1)
        for number, group in enumerate(self.identity.groups):
            for index in group.all_handles():
                if index < len(numbers):
                    numbers[index] = number
        for shadow, true in self.identity.alias.items():
            if shadow < len(numbers) and true < len(numbers):
                numbers[shadow] = numbers[true]
        return numbers

    def _drifting(self, frame: pl.DataFrame) -> list[int]:
        """Communicators whose launch counter may differ between ranks: point-to-point launches only some of them."""
        import numpy as np
        import polars as pl

        if not self.counter_drifts:
            return []
        point = np.flatnonzero(self.point).tolist()
        return frame.filter(pl.col("op").is_in(point))["number"].unique().to_list()


def _with_sizes(frame: pl.DataFrame, state: LogState, ops: list[str]) -> pl.DataFrame:
    """Add op, datatype and the sizes in bytes from the printed numbers."""
    import polars as pl

    pairs = frame.select("op_id", "datatype_id").unique().rows()
    table = []
    for op_id, datatype in pairs:
        op = dialect.operation(ops[op_id])
        name, unit = dialect.element(op, datatype, state.version)
        row = {"op_id": op_id, "datatype_id": datatype, "op": op, "datatype": name, "element_bytes": unit}
        table.append(row | {"per_rank": op in dialect.PER_RANK_COUNT})
    kinds: dict[str, Any] = {
        "op_id": frame.schema["op_id"],
        "datatype_id": frame.schema["datatype_id"],
        "op": pl.String,
    }
    kinds |= {"datatype": pl.String, "element_bytes": pl.Int32, "per_rank": pl.Boolean}
    frame = frame.join(
        pl.DataFrame(table, schema=kinds), on=["op_id", "datatype_id"], how="left", maintain_order="left"
    )
    frame = _possible(frame, state)
    printed = pl.col("count").cast(pl.Int64) * pl.col("element_bytes")
    size = printed * pl.when("per_rank").then(pl.col("nranks").clip(1)).otherwise(1)
    share = pl.when(pl.col("op").is_in(["all-gather", "gather"])).then(printed).otherwise(size)
    got = pl.when(pl.col("op").is_in(["reduce-scatter", "scatter"])).then(printed).otherwise(size)
    reduces = pl.col("op").is_in(sorted(dialect.REDUCING))
    names = dict(dialect.REDUCE_OPS.items())
    return frame.with_columns(
        size.alias("size_bytes"),
        share.alias("sent_bytes"),
        got.alias("received_bytes"),
        pl.col("count").cast(pl.Int64),
        pl.when(reduces)
        .then(pl.col("redop").replace_strict(names, default="user", return_dtype=pl.String))
        .alias("reduce_op"),
    ).drop("op_id", "per_rank")


def _possible(frame: pl.DataFrame, state: LogState) -> pl.DataFrame:
    """Leave out records whose printed numbers no operation can have, and say how many."""
    import polars as pl

    amount = pl.col("count").cast(pl.Float64) * pl.col("element_bytes") * pl.col("nranks").clip(1)
    kept = frame.filter(amount < _HUGE_BYTES)
    lost = int(frame["records"].sum()) - int(kept["records"].sum())
    if lost:
        state.losses.append(f"{lost} records of impossible size left out")
    return kept


def time_bins(state: LogState, fold: Fold, ops: list[str]) -> list[dict[str, Any]]:
    """Return bytes asked for per second and operation, over the ranks seen, where lines carry a time."""
    bins: dict[tuple[str, int], float] = {}
    for (second, op_id, count, datatype, nranks), records in fold.time_bins.items():
        op = dialect.operation(ops[op_id])
        _, unit = dialect.element(op, datatype, state.version)
        amount = dialect.size_bytes(op, count, unit, nranks) * records / max(nranks, 1)
        bins[op, second] = bins.get((op, second), 0.0) + amount
    return [
        {"link": "operation", "src": op, "bin_start_s": float(second), "bin_s": 1.0, "bytes": amount}
        for (op, second), amount in sorted(bins.items(), key=lambda item: (item[0][1], item[0][0]))
    ]
