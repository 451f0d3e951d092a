"""A Trace as a folder of Parquet files: the capture format itself, which every verb reads again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.ground.errors import UsageError

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

EXPORTS = {"parquet": "parquet"}
READER = "ringwright.formats.sources:read"


def parquet(trace: Trace, path: str | Path, *, force: bool = False) -> list[Path]:
    """Write ``path/<table>.parquet`` and ``path/meta.json``; return the files; raise UsageError if ``path`` exists."""
    if not Path(path).parent.is_dir():
        raise UsageError(f"the folder {Path(path).parent} does not exist", remedy=f"mkdir -p {Path(path).parent}")
    folder = trace.save(path, force=force)
    return [*sorted(folder.rglob("*.parquet")), folder / "meta.json"]
