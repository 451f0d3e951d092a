"""Events and edges of a job from those of its files, now that the ranks and their groups are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ringwright.formats.sources.chakra_et.file import PER_RANK, CallGroup, ChakraFile
from ringwright.formats.sources.reader_rows import text
from ringwright.ground.trace_tables import conform

if TYPE_CHECKING:
    from ringwright.formats.sources.reader_rows import Gathered

_LARGEST = (1 << 63) - 1  # size in bytes that a table can hold
_OF_GROUP = {"communicator": pl.Int32, "nranks": pl.Int32, "comm_rank": pl.Int32}


def emit(
    gathered: Gathered,
    files: list[ChakraFile],
    members: dict[str, list[int]],
    texts: dict[str, str],
    world: int | None,
) -> None:
    """Write the rows of all files: kernels, behind them calls, and what waits for what. ``members``, ``texts``: of groups."""
    _add(gathered, [_of_file(file, file.kernels) for file in files if len(file.kernels)])
    behind = gathered.events.total
    everyone = [*range(world or 0)]
    told: list[tuple[int, int | None, int | None]] = []
    calls: list[pl.DataFrame] = []
    for file in files:
        if len(file.calls):
            calls.append(_of_file(file, file.calls).with_columns(pl.col("communicator") + len(told)))
        numbers = (_communicator(gathered, group, members, texts, everyone) for group in file.groups)
        told += [_told(gathered, number, file.rank) for number in numbers]
    _add(gathered, calls, pl.DataFrame(told, schema=_OF_GROUP, orient="row"))
    _edges(gathered, files, behind)


def _of_file(file: ChakraFile, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(rank=pl.lit(file.rank, pl.Int32), file=pl.lit(text(file.name)))


def _add(gathered: Gathered, frames: list[pl.DataFrame], told: pl.DataFrame | None = None) -> None:
    """Add rows of several files; of calls what is ``told`` of their groups, each by its number there."""
    if not frames:
        return
    rows = conform("events", pl.concat(frames, how="diagonal"))
    if told is not None:
        rows = _sized(gathered, rows.with_columns(told[rows["communicator"]]))
    clock = pl.when(pl.col("start_s").is_not_null()).then(pl.format("gpu:{}", "rank"))
    gathered.events.extend(rows.with_columns(clock.alias("clock")))


def _told(gathered: Gathered, number: int, rank: int) -> tuple[int, int | None, int | None]:
    """Return a communicator, its size, and a rank's own rank in it."""
    facts = gathered.of(number)
    facts["ranks"].add(rank)
    held = facts["members"] or []
    return number, facts["size"], held.index(rank) if rank in held else None


def _communicator(
    gathered: Gathered,
    group: CallGroup,
    members: dict[str, list[int]],
    texts: dict[str, str],
    everyone: list[int],
) -> int:
    name, label = group
    if name and name in members:
        return gathered.communicator(
            name, name=f"process group {texts.get(name, name)}", members=members[name] or everyone
        )
    if not name and not label:
        return gathered.communicator("world", name="all ranks", members=everyone, ground="inferred", confidence=0.8)
    called = f"process group {name}, members not in the trace" if name else f"dimensions {label}"
    return gathered.communicator(name or f"dims:{label}", name=called, ground="inferred", confidence=0.5)


def _sized(gathered: Gathered, calls: pl.DataFrame) -> pl.DataFrame:
    """Return calls with what takes the size and the members of their groups."""
    said, op, ranks = pl.col("size_bytes"), pl.col("op"), pl.col("nranks")
    size = pl.when(said <= pl.lit(_LARGEST) // ranks).then(said * ranks)
    received = pl.when(op == "all-gather").then(size).when(op == "reduce-scatter").then(said // ranks)
    turn = pl.int_range(pl.len()).over("communicator", "rank", "kind")
    return calls.with_columns(
        pl.when(op.is_in(PER_RANK)).then(size).otherwise(said).alias("size_bytes"),
        received.otherwise("received_bytes").alias("received_bytes"),
        pl.when(pl.col("kind") == "collective").then(turn).alias("sequence"),
        _peers(gathered, calls).alias("peer"),
    )


def _peers(gathered: Gathered, calls: pl.DataFrame) -> pl.Series:
    """Return who sends or receives, as a rank in the communicator where its members are known."""
    ranked = {}
    for row in gathered.comms.values():
        held = row["members"] or []
        ranked[row["communicator"]] = dict(zip(reversed(held), range(len(held) - 1, -1, -1), strict=True))
    said = calls.select("communicator", "peer").iter_rows()
    peers = [other if other is None else ranked[number].get(other, other) for number, other in said]
    return pl.Series(peers, dtype=pl.Int32)


def _edges(gathered: Gathered, files: list[ChakraFile], behind: int) -> None:
    """Add the edges of all files; the first call is the event numbered ``behind``."""
    kernel, call = 0, behind
    for file in files:
        kernels = len(file.kernels)
        ends = pl.col("src_event", "dst_event")
        row = pl.when(ends < kernels).then(ends + kernel).otherwise(ends - kernels + call)
        gathered.edges.extend(file.edges.with_columns(row))
        kernel, call = kernel + kernels, call + len(file.calls)
