"""Recordings that grow: what reads one kind of them, and how far the ranks have come, by which those behind are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringwright.model.trace import Trace

Each = TypeVar("Each")


class Reached(NamedTuple):
    """How many calls of one communicator a rank has made; ``process`` is its host and pid, where no line tells a rank."""

    communicator: int
    comm_rank: int | None
    rank: int | None
    calls: int
    process: str = ""


class Growing(Protocol):
    """What reads the files of one kind while they grow. Files come in pieces of whole lines, in turns."""

    reached: list[Reached]  # at the last Trace that was asked for
    head_bytes: int  # at a file's beginning that are written again and again; 0 for lines of text

    def head(self, name: str, head: bytes) -> None:
        """Take the first bytes of a file, whenever it has grown."""

    def take(self, name: str, pieces: Iterable[bytes]) -> None:
        """Take the next pieces of a file."""

    def lose(self, name: str, reason: str, at: int) -> None:
        """Note what could not be read of a file."""

    def rename(self, names: Mapping[str, str]) -> None:
        """Go on with files under the names that they have now."""

    def trace(self, names: list[str]) -> Trace:
        """Return what has come so far; InputError where nothing of it is of the kind."""
        ...


def renamed(files: Mapping[str, Each], names: Mapping[str, str]) -> dict[str, Each]:
    """Return what is known of files under the names that they have now; one that another took the name of is forgotten."""
    left = {name: each for name, each in files.items() if name not in names}
    return left | {names[name]: each for name, each in files.items() if name in names}


def reached(trace: Trace) -> list[Reached]:
    """Return how far each rank has come by the sequence numbers of its calls; nothing where a source has none."""
    import polars as pl

    mine = trace.scan("events").filter(
        (pl.col("kind") == "collective") & pl.col("sequence").is_not_null() & (pl.col("nranks").fill_null(2) > 1)
    )
    keys = ("communicator", "comm_rank", "rank")
    table = mine.group_by(keys).agg(pl.col("sequence").max() + 1).drop_nulls("communicator").sort(keys).collect()
    return [Reached(*row) for row in table.rows()]
