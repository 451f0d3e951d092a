"""Every timed event of a Trace at every level of detail: what a timeline draws without reading more than it shows.

A row is a rank and a track (calls, compute, memory ...). Its events lie sorted by start in flat arrays, and beside them levels:
bins of equal width with the share of each that an operation kept busy. A view takes events where few are in sight and bins where
many are, so its cost follows the picture's width, not the length of the recording. Saved, the arrays are files that are mapped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.analysis.clocks import align
from ringwright.ground import drafts
from ringwright.ground.errors import InputError
from ringwright.model.message_pairs import message_pairs

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from ringwright.model.trace import Trace

TRACKS = {
    "step": "steps",
    "phase": "phases",
    "collective": "calls",
    "p2p": "calls",
    "compute": "compute",
    "memory": "memory",
    "proxy": "proxy",
    "sync": "waits",
}
MOST_OPERATIONS = 12  # that have bins of their own; the rest share the last
OTHER = "other"
COARSEST = 512  # bins
FINER = 4  # from one level to the next
MOST_BINS = 8_000_000  # of one level, in all rows and operations
FULL = 255  # a bin that is busy all the time
META = "levels.json"
COLUMNS = ("start_us", "duration_us", "operation", "name", "size_bytes", "wait_us", "communicator", "sequence")


@dataclass(frozen=True)
class TimelineRow:
    """One line of the picture."""

    label: str
    rank: int | None
    host: str
    track: str
    events: int


@dataclass(frozen=True)
class EventLevels:
    """Rows, flat arrays of events and levels of bins.

    ``columns`` holds an array for each of COLUMNS, sorted by row and start; row ``r`` has the events from ``first[r]`` to
    ``first[r + 1]``; ``longest_us[r]`` is the longest of them. ``busy[k]`` is (operations, rows, bins), 255 is all of a bin.
    ``links`` are pairs of events, sender and receiver.
    """

    rows: Sequence[TimelineRow]
    operations: Sequence[str]
    names: Sequence[str]
    end_us: float
    note: str
    first: np.ndarray
    longest_us: np.ndarray
    links: np.ndarray
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    busy: Sequence[np.ndarray] = ()
    count: Sequence[np.ndarray] = ()

    def save(self, folder: Path) -> Path:
        """Write the arrays and what they mean into a folder, whole or not at all."""
        import numpy as np

        with drafts.draft_folder(folder) as draft:
            for name, array in self._arrays().items():
                np.save(draft / f"{name}.npy", array, allow_pickle=False)
            told = {
                "rows": [asdict(row) for row in self.rows],
                "operations": list(self.operations),
                "names": list(self.names),
                "end_us": self.end_us,
                "note": self.note,
                "levels": len(self.busy),
            }
            (draft / META).write_text(json.dumps(told), encoding="utf-8")
        return folder

    @classmethod
    def open(cls, folder: Path) -> EventLevels:
        """Map what was saved; InputError where it is not whole."""
        import numpy as np

        try:
            told = json.loads((folder / META).read_text(encoding="utf-8"))

            def mapped(name: str) -> np.ndarray:
                path = folder / f"{name}.npy"
                try:
                    return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
                except ValueError:  # an array without a number cannot be mapped
                    return np.asanyarray(np.load(path, allow_pickle=False))

            return cls(
                [TimelineRow(**row) for row in told["rows"]],
                told["operations"],
                told["names"],
                told["end_us"],
                told["note"],
                mapped("first"),
                mapped("longest_us"),
                mapped("links"),
                {name: mapped(name) for name in COLUMNS},
                [mapped(f"busy-{level}") for level in range(told["levels"])],
                [mapped(f"count-{level}") for level in range(told["levels"])],
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"no timeline can be opened: {error}", where=str(folder), remedy="read the job again"
            ) from error

    def _arrays(self) -> dict[str, np.ndarray]:
        levels = {f"busy-{at}": level for at, level in enumerate(self.busy)}
        levels |= {f"count-{at}": level for at, level in enumerate(self.count)}
        return {"first": self.first, "longest_us": self.longest_us, "links": self.links, **self.columns, **levels}


def levels(trace: Trace) -> EventLevels:
    """Return the events of a Trace that have a time, at every level of detail.

    Ranks whose clocks cannot be brought together begin at their own first event each, and ``note`` says so.
    """
    import numpy as np

    events, note = _timed(trace)
    rows, first = _rows(events)
    operations, of = _operations(events)
    names, name = _names(events)
    columns = {
        "start_us": events["start_us"].to_numpy(),
        "duration_us": events["duration_us"].to_numpy().astype(np.float32),
        "operation": of,
        "name": name,
        "size_bytes": events["size_bytes"].fill_null(-1).to_numpy(),
        "wait_us": events["wait_us"].fill_null(-1.0).to_numpy().astype(np.float32),
        "communicator": events["communicator"].fill_null(-1).to_numpy(),
        "sequence": events["sequence"].fill_null(-1).to_numpy(),
    }
    ends = columns["start_us"] + columns["duration_us"]
    end_us = float(ends.max()) if len(ends) else 0.0
    longest = np.array([columns["duration_us"][a:b].max(initial=0.0) for a, b in pairwise(first)], np.float64)
    busy, count = _bins(columns, first, len(operations), end_us)
    links = _links(trace, events)
    return EventLevels(rows, operations, names, end_us, note, first, longest, links, columns, busy, count)


def _timed(trace: Trace) -> tuple[pl.DataFrame, str]:
    """Return the events with a time, by row and start on one clock, and what is to be said of the clock."""
    import polars as pl

    known = pl.all_horizontal(pl.col("start_s", "duration_s").is_not_null()) & pl.col("kind").is_in(list(TRACKS))
    group = ("communicator", "sequence", "op")
    wanted = [
        "kind",
        "op",
        "kernel",
        "kernel_class",
        "rank",
        "rank_class",
        "multiplicity",
        "host",
        "start_s",
        "enqueue_s",
        "duration_s",
        "size_bytes",
        "communicator",
        "sequence",
    ]
    events = trace.scan("events").with_row_index("event").filter(known).select("event", *wanted).collect()
    clocks = align(trace)
    several = (pl.col("kind") == "collective") & pl.col("sequence").is_not_null() & (pl.len().over(group) > 1)
    events = events.with_columns(
        pl.when(several).then(pl.col("duration_s") - pl.col("duration_s").min().over(group)).alias("wait_s"),
        pl.col("kind").replace_strict(TRACKS).alias("track"),
    )
    if clocks.refused:
        own = pl.col("start_s") - pl.col("start_s").min().over("rank")
        events, note = events.with_columns(own), f"each rank begins at its own first event: {clocks.refused}"
    else:
        events = clocks.moved(events)
        spread = clocks.uncertainty_s * 1e6
        note = f"ranks within {spread:,.1f} us of each other" if spread else ""
    order = {track: at for at, track in enumerate(dict.fromkeys(TRACKS.values()))}
    us = [
        ((pl.col("start_s") - pl.col("start_s").min()) * 1e6).alias("start_us"),
        (pl.col("duration_s").clip(0.0) * 1e6).alias("duration_us"),
        (pl.col("wait_s") * 1e6).alias("wait_us"),
        pl.col("track").replace_strict(order, return_dtype=pl.Int64).alias("order"),
    ]
    return events.with_columns(us).sort("rank", "rank_class", "order", "start_us", nulls_last=True), note


def _rows(events: pl.DataFrame) -> tuple[list[TimelineRow], np.ndarray]:
    """Return the rows and where the events of each begin."""
    import numpy as np
    import polars as pl

    groups = events.group_by("rank", "rank_class", "order", maintain_order=True).agg(
        pl.len().alias("events"), pl.col("track", "host", "multiplicity").first()
    )
    rows = []
    for group in groups.iter_rows(named=True):
        if group["rank"] is not None:
            label = f"rank {group['rank']}"
        else:
            equal = f", {group['multiplicity']} equal" if (group["multiplicity"] or 1) > 1 else ""
            label = f"{group['rank_class'] or 'rank unknown'}{equal}"
        rows.append(TimelineRow(label, group["rank"], group["host"] or "", group["track"], group["events"]))
    return rows, np.concatenate([[0], np.cumsum([row.events for row in rows], dtype=np.int64)]).astype(np.int64)


def _operations(events: pl.DataFrame) -> tuple[list[str], np.ndarray]:
    """Return the operations that get a colour, those that take most time, and the number of each event's."""
    import numpy as np
    import polars as pl

    named = events.select(
        pl.when(pl.col("kind").is_in(["collective", "p2p"]))
        .then(pl.col("op").fill_null(pl.col("kind")))
        .otherwise(pl.col("kind"))
        .alias("named"),
        "duration_us",
    )
    by_time = (
        named.group_by("named").agg(pl.col("duration_us").sum()).sort("duration_us", "named", descending=[True, False])
    )
    kept = by_time["named"].to_list()
    if len(kept) > MOST_OPERATIONS:
        kept = [*kept[: MOST_OPERATIONS - 1], OTHER]
    numbers = {name: at for at, name in enumerate(kept)}
    of = named["named"].replace_strict(numbers, default=len(kept) - 1, return_dtype=pl.UInt8)
    return kept, of.to_numpy().astype(np.uint8)


def _names(events: pl.DataFrame) -> tuple[list[str], np.ndarray]:
    """Return what events are called, each name once, and the number of each event's."""
    import numpy as np
    import polars as pl

    called = events.select(
        pl.coalesce(pl.col("kernel"), pl.col("op"), pl.col("kernel_class"), pl.col("kind")).alias("called")
    )["called"]
    kept = called.unique(maintain_order=True)
    numbers = pl.DataFrame({"called": kept}).with_row_index("number")
    number = called.to_frame().join(numbers, on="called", how="left", maintain_order="left")["number"]
    return [name[:400] for name in kept.to_list()], number.to_numpy().astype(np.int32)


def _bins(
    columns: dict[str, np.ndarray], first: np.ndarray, operations: int, end_us: float
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the levels, coarsest first: what share of each bin an operation kept busy, and how many events begin in it."""
    import numpy as np

    rows = len(first) - 1
    if not rows or end_us <= 0.0:
        return [], []
    most_events = int(np.diff(first).max())
    bins = COARSEST
    while bins * FINER * rows * operations <= MOST_BINS and bins < most_events:
        bins *= FINER
    edges = np.linspace(0.0, end_us, bins + 1)
    busy, count = np.zeros((operations, rows, bins), np.uint8), np.zeros((rows, bins), np.uint32)
    fine = []
    sizes = []
    while bins >= COARSEST:
        sizes.append(bins)
        bins //= FINER
    coarser = [np.zeros((operations, rows, size), np.uint8) for size in sizes[1:]]
    for row in range(rows):
        part = slice(int(first[row]), int(first[row + 1]))
        start, length, of = (columns[name][part] for name in ("start_us", "duration_us", "operation"))
        at = np.minimum((start * (sizes[0] / end_us)).astype(np.int64), sizes[0] - 1)
        count[row] = np.bincount(at, minlength=sizes[0])
        for operation in np.unique(of):
            chosen = of == operation
            share = _covered(start[chosen], length[chosen].astype(np.float64), edges) * (sizes[0] / end_us)
            busy[operation, row] = _in_bytes(share)
            for level, size in zip(coarser, sizes[1:], strict=True):
                level[operation, row] = _in_bytes(share.reshape(size, -1).mean(axis=1))
    fine = [busy, *coarser]
    counts = [count] + [count.reshape(rows, size, -1).sum(axis=2, dtype=np.uint32) for size in sizes[1:]]
    return fine[::-1], counts[::-1]


def _in_bytes(share: np.ndarray) -> np.ndarray:
    """Return shares in steps of 1/255; what is there at all stays visible."""
    import numpy as np

    scaled = np.clip(share, 0.0, 1.0) * FULL
    return np.where(share > 0.0, np.maximum(scaled, 1.0), 0.0).astype(np.uint8)


def _covered(start: np.ndarray, length: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return for each bin the time that events cover in it, in us, those that overlap counted each.

    Up to an edge E events cover the sum of E - start of those that have begun less E - end of those that have ended.
    """
    import numpy as np

    end = np.sort(start + length)
    begun, ended = np.searchsorted(start, edges), np.searchsorted(end, edges)
    starts, ends = np.concatenate([[0.0], np.cumsum(start)]), np.concatenate([[0.0], np.cumsum(end)])
    until = (begun * edges - starts[begun]) - (ended * edges - ends[ended])
    covered: np.ndarray = np.maximum(np.diff(until), 0.0)
    return covered


def _links(trace: Trace, events: pl.DataFrame) -> np.ndarray:
    """Return pairs of timed events as numbers into the arrays: the n-th send to a peer, and that peer's n-th receive."""
    import numpy as np
    import polars as pl

    calls = (
        trace.scan("events")
        .with_row_index("event")
        .filter((pl.col("kind") == "p2p") & pl.col("communicator").is_not_null())
        .select("event", "op", "communicator", "comm_rank", "peer")
        .collect()
    )
    if not calls.height:
        return np.zeros((0, 2), np.int64)
    at = events.select("event", pl.int_range(pl.len(), dtype=pl.Int64).alias("at"))
    joined = message_pairs(calls.join(at, on="event", how="inner").sort("event"), "at").sort("send")
    return np.asarray(np.stack([joined["send"].to_numpy(), joined["recv"].to_numpy()], axis=1))
