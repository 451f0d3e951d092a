"""A Trace as one file of JSON lines: a first line with the schema, then one object per row with its ``table``."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.formats.exports.placement import claim_file
from ringwright.ground.drafts import draft
from ringwright.ground.trace_tables import TABLES
from ringwright.model.trace import SCHEMA_VERSION

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

EXPORTS = {"jsonl": "jsonl"}
SCHEMA = "ringwright.trace/1"


def jsonl(trace: Trace, path: str | Path, *, force: bool = False) -> list[Path]:
    """Write all tables to ``path``, events last; return the file; raise UsageError if it exists."""
    import polars as pl

    target = claim_file(path, force=force)
    header = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "tables": list(TABLES), "meta": dict(trace.meta)}
    with draft(target) as beside, beside.open("wb") as out:
        out.write(json.dumps(header, default=str).encode() + b"\n")
        for name in [*(n for n in TABLES if n != "events"), "events"]:
            # Not every release of the library writes to an open file: each table goes to a file beside, and is appended.
            with tempfile.NamedTemporaryFile(dir=beside.parent, prefix=f".{beside.name}.") as rows:
                trace.scan(name).select(pl.lit(name).alias("table"), pl.all()).sink_ndjson(rows.name)
                with Path(rows.name).open("rb") as written:
                    shutil.copyfileobj(written, out, 1 << 20)
    return [target]
