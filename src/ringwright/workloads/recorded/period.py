"""Steps of a log that marks none: the calls repeat, and one repetition of them is a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from ringwright.model.trace import Trace

LONGEST = 20_000  # calls of a step that are looked for


def one_step(calls: pl.DataFrame, trace: Trace) -> tuple[pl.DataFrame, str] | None:
    """Return the calls of one step that every rank has in full, and what it is called; None where nothing repeats.

    ``calls`` are those of all ranks, each rank's in order, numbered within their communicator (``sequence``).
    """
    import polars as pl

    usable = calls.filter(pl.col("kind") == "collective")
    if usable.is_empty() or usable["sequence"].null_count() or usable.height < calls.height:
        return None
    counts = Counter(usable["rank"].to_list())
    rank = max(sorted(counts), key=lambda each: counts[each])
    mine = usable.filter(pl.col("rank") == rank)
    keys = list(mine.select("communicator", "op", "size_bytes").iter_rows())
    length = period(keys, _steps(trace))
    if length is None:
        return None
    per_group = {
        number: max(1, round((last + 1) * length / len(keys)))
        for number, last in usable.group_by("communicator").agg(pl.col("sequence").max()).iter_rows()
    }
    sized = usable.join(
        usable.group_by("communicator").agg(pl.col("sequence").max().alias("last")), on="communicator", how="left"
    ).with_columns(pl.col("communicator").replace_strict(per_group, return_dtype=pl.Int64).alias("each"))
    turned = sized.with_columns(((pl.col("last") - pl.col("sequence")) // pl.col("each")).alias("back"))
    wanted = turned.select("rank", "communicator", "each").unique()
    for back in range(1, max(2, len(keys) // length)):
        step = turned.filter(pl.col("back") == back)
        have = step.group_by("rank", "communicator").agg(pl.len().cast(pl.Int64).alias("have"))
        joined = wanted.join(have, on=["rank", "communicator"], how="left")
        if joined.filter(pl.col("have").fill_null(0) != pl.col("each")).is_empty():
            events = step["event"].to_list()
            label = f"repetition {len(keys) // length - back} of {len(keys) // length}"
            return calls.filter(pl.col("event").is_in(events)), label
    return None


def _steps(trace: Trace) -> int | None:
    """Return how many steps the source counts, on the rank where it counts most."""
    import polars as pl

    marked = trace.scan("events").filter(pl.col("kind") == "step").group_by("rank").len().collect()
    return int(marked["len"].max()) if marked.height else None  # type: ignore[arg-type]


def period(keys: Sequence[object], steps: int | None = None) -> int | None:
    """Return after how many calls the last ones repeat: the shortest repetition, or the one that makes ``steps`` steps."""
    lengths = [
        length
        for length in range(1, min(len(keys) // 2, LONGEST) + 1)
        if keys[-1] == keys[-1 - length] and keys[-length:] == keys[-2 * length : -length]
    ]
    if not lengths:
        return None
    if steps:
        return min(lengths, key=lambda length: (abs(len(keys) / length - steps), length))
    return lengths[0]
