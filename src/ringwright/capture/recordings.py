"""What kinds of recordings some paths hold, and what was read of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources import detected
from ringwright.formats.sources.kinds import kinds as known_kinds

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

SCHEMA = "ringwright.read/1"


def document(paths: list[str], read: Callable[[list[str]], Trace]) -> dict[str, Any]:
    """Return the object of schema ``ringwright.read/1``: a row per file, and one line about the Trace."""
    trace = read(paths)
    saved, others = detected([path for path in paths if path != "-"])
    files = [{"file": path, "kind": "capture", "what": "saved Trace"} for path in saved]
    sources = str(trace.meta.get("source")).split("+")
    for source, kinds in others:
        named = [known_kinds()[kind] for kind in kinds if kind == kinds[0] or kind in sources]
        files.append(
            {
                "file": source.name,
                "kind": "+".join(kind.name for kind in named) or "unknown",
                "what": " with a ".join(kind.what for kind in named) or "no recording that is known",
            }
        )
    return {"schema": SCHEMA, "files": files, "read": about(trace)}


def about(trace: Trace) -> str:
    """Return one line: how many calls of how many ranks in how many groups, and from what."""
    import polars as pl

    events = trace.scan("events")
    counts = dict(events.group_by("kind").agg(pl.col("multiplicity").fill_null(1).sum()).collect().iter_rows())
    ranks = events.select(pl.col("rank").drop_nulls().n_unique()).collect().item()
    groups = trace.table("communicators").height
    named = {kind: count for kind, count in counts.items() if kind}
    parts = [f"{count:,} {kind}" for kind, count in sorted(named.items(), key=lambda item: (-item[1], item[0]))]
    return f"{trace.meta.get('source') or 'capture'}: {', '.join(parts) or 'no event'}; {ranks} ranks, {groups} communicators"
