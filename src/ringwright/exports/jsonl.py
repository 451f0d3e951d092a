"""A Trace as one file of JSON lines: a first line with the schema, then one object per row with its ``table``."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.exports.placement import claim_file
from ringwright.trace import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from ringwright.trace import Trace

SCHEMA = "ringwright.trace/1"


def jsonl(trace: Trace, path: str | Path, *, force: bool = False) -> list[Path]:
    """Write all tables to ``path``, events last; return the file; raise UsageError if it exists."""
    import polars as pl

    target = claim_file(path, force=force)
    header = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "tables": list(TABLES), "meta": dict(trace.meta)}
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".ringwright-") as scratch, target.open("wb") as out:
        out.write(json.dumps(header, default=str).encode() + b"\n")
        for name in [*(n for n in TABLES if n != "events"), "events"]:
            part = Path(scratch) / f"{name}.jsonl"
            trace.scan(name).select(pl.lit(name).alias("table"), pl.all()).sink_ndjson(part)
            with part.open("rb") as rows:
                shutil.copyfileobj(rows, out, 1 << 20)
            part.unlink()
    return [target]
