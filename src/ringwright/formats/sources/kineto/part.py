"""One trace file, read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from ringwright.formats.sources.kineto.ranks import FileOrigin


@dataclass
class TraceFile:
    """One file, read: its rows with times from ``wall_ns``, which is None where the file does not tell."""

    name: str
    origin: FileOrigin
    wall_ns: int | None
    operations: pl.DataFrame
    rest: pl.LazyFrame
    header: dict[str, Any]
