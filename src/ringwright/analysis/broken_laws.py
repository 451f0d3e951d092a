"""Everything that broke a law between the input and the summary: lines of the ledger, and what an analysis refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ringwright.analysis.series import refusals as refused_series
from ringwright.bounds.laws import Refusals, of_ledger, reason, told_by
from ringwright.bounds.laws.messages import Messages, unlike

if TYPE_CHECKING:
    import polars as pl

    from ringwright.bounds.laws.ranks import Census
    from ringwright.model.trace import Trace


def judged(
    trace: Trace, counted: Census, bandwidth: Iterable[dict[str, Any]], points: pl.DataFrame
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return ``summary.laws`` and the whole ledger: the Trace's lines, then what was refused after reading (without lines)."""
    ledger = trace.table("ledger").to_dicts()
    late = Refusals()
    if counted.refused:
        late.refuse("ranks", counted.refused)
    for entry in bandwidth:
        if entry["law"]:
            which = f"{entry['op']} of {entry['table']}, {entry['size_bytes']} B"
            name, detail = told_by(entry["law"])
            late.refuse(name, f"{which}: {detail}")
    for told in unmatched(points, is_whole=counted.seen == counted.expected):
        late.refuse("messages", told)
    line = {
        "file": ", ".join(trace.meta.get("inputs", [])[:1]),
        "outcome": "refused",
        "lines": None,
        "example_line": None,
    }
    noted = [line | {"reason": reason(row["law"]), "example": row["example"]} for row in late.rows()]
    parts = (of_ledger(ledger), late, refused_series(trace))
    return _joined(parts), [*ledger, *noted]


def unmatched(points: pl.DataFrame, *, is_whole: bool) -> Iterator[str]:
    """Yield for each communicator whose sends and receives differ by how much; ``is_whole``: all ranks of the job are read.

    ``points`` are those of :func:`ringwright.analysis.logical_operations.point_to_point`. Messages to ranks that were not read
    are left out; where one names no peer, or no direction, only a whole job can be judged.
    """
    import polars as pl

    mine = points.filter(pl.col("op").is_in(["send", "recv", "send-recv"])).with_columns(
        me=pl.coalesce("comm_rank", "rank")
    )
    for (number,), rows in mine.group_by("communicator", maintain_order=True):
        is_told = rows["peer"].null_count() + rows["me"].null_count() == 0
        if rows["op"].eq("send-recv").any() or not (is_told or is_whole):
            continue
        both = rows.filter(pl.col("peer").is_in(rows["me"].unique().implode())) if is_told else rows
        sides = [both.filter(pl.col("op") == op) for op in ("send", "recv")]
        if broken := unlike(*(_messages(side) for side in sides)):
            yield f"communicator {number}: {broken}"


def _messages(side: pl.DataFrame) -> Messages:
    is_sized = not side["size_bytes"].null_count()
    size = int((side["size_bytes"] * side["operations"]).sum()) if is_sized else None
    return Messages(int(side["operations"].sum()), size)


def _joined(parts: Iterable[Refusals]) -> list[dict[str, Any]]:
    whole = Refusals()
    for part in parts:
        for row in part.rows():
            whole.refuse(row["law"], row["example"], row["refused"])
    return whole.rows()
