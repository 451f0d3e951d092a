"""Records that are missing, by the sequence numbers of those that are there: lines of the ledger, outcome ``missing``."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ringwright.bounds.laws import reason
from ringwright.bounds.laws.records import Gap, gap

if TYPE_CHECKING:
    import polars as pl

    from ringwright.ground.trace_tables import Row


def entry(file: str, what: str, gap: Gap) -> Row:
    """Return the ledger's line of one gap; ``what`` names whose numbers they are."""
    return {
        "file": file,
        "outcome": "missing",
        "reason": reason("records"),
        "lines": gap.missing,
        "example": f"{what}: {gap}",
    }


def of_collectives(events: pl.DataFrame, names: dict[int, str]) -> list[Row]:
    """Return the ledger's lines of collectives that are missing, from columns communicator, comm_rank, op, sequence and file.

    Numbers begin for every rank where they begin for its group. A library numbers each operation for itself, or all together:
    where no number occurs in two operations, the reading with fewer gaps is taken. ``names`` are those of communicators.
    """
    import polars as pl

    mine = events.filter((pl.col("kind") == "collective") & pl.col("sequence").is_not_null())
    entries: list[Row] = []
    first = _firsts(mine)
    suspects = _suspects(mine)
    for part in suspects.partition_by("communicator", "comm_rank", maintain_order=True):
        number, rank, file = part.select("communicator", "comm_rank", "file").row(0)
        numbers: dict[str, list[int]] = {
            str(op): rows["sequence"].to_list() for (op,), rows in part.partition_by("op", as_dict=True).items()
        }
        whose = f"communicator {names.get(number, number)}, rank {rank}"
        entries += [entry(file or "", f"{whose}, {op}", each) for op, each in _gaps(numbers, first[number]).items()]
    return entries


def _firsts(mine: pl.DataFrame) -> dict[int, dict[str, int]]:
    """Return where the numbers of each operation of each communicator begin."""
    import polars as pl

    firsts: dict[int, dict[str, int]] = defaultdict(dict)
    for number, op, first in mine.group_by("communicator", "op").agg(pl.col("sequence").min()).rows():
        firsts[number][str(op)] = first
    return firsts


def _suspects(mine: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of ranks whose numbers are not one run per operation, beginning where their group's do."""
    import polars as pl

    group, rank = ["communicator", "op"], ["communicator", "comm_rank", "op"]
    begin = pl.col("sequence").min().over(group)
    span = pl.col("sequence").max().over(rank) - begin + 1
    holed = mine.with_columns((span > pl.col("sequence").n_unique().over(rank)).alias("holed"))
    keep = pl.col("holed").any().over("communicator", "comm_rank")
    return holed.filter(keep).select("communicator", "comm_rank", "op", "sequence", "file")


def _gaps(numbers: dict[str, list[int]], first: dict[str, int]) -> dict[str, Gap]:
    """Return the gaps of one rank by operation, or under "all operations" where these share one counter."""
    apart = {op: each for op, held in numbers.items() if (each := gap(held, first[op])) is not None}
    together = [number for held in numbers.values() for number in set(held)]
    if len(numbers) < 2 or len(set(together)) < len(together):
        return apart
    joint = gap(together, min(first.values()))
    if joint is None:
        return {}
    return {"all operations": joint} if joint.missing < sum(each.missing for each in apart.values()) else apart
