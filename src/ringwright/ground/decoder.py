"""Run as a program by ``untrusted_tables``: decode the tables that standard input names, and write each anew; or answer a query.

Standard input is one JSON object: ``tables`` (name -> ``files``, ``columns``), ``to`` (a folder), and what this process
may take: ``memory_bytes``, ``time_s``, ``file_bytes``. Each table gives one line: its name, and why it could not be decoded
(nothing where it could). Of a query it is ``sql``, ``tables`` (name -> file) and ``to`` (a file), and the one line is
``answer``, or ``query`` or ``files``, whichever is to blame, and why.
Nothing of the package is loaded here: what damage can end should be small.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
from pathlib import Path
from typing import Any

FORMATS = ("parquet", "ipc", "out-of-spec")  # how the library's errors about what a file holds begin


def limit(asked: dict[str, Any]) -> None:
    """Bound this process: bytes of address space, seconds of processor time, bytes of a file; no core file."""
    bounds = {"RLIMIT_AS": "memory_bytes", "RLIMIT_CPU": "time_s", "RLIMIT_FSIZE": "file_bytes"}
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, key in bounds.items():
        with contextlib.suppress(KeyError, ValueError, OSError, AttributeError):  # not asked, or not to be had here
            resource.setrlimit(getattr(resource, name), (int(asked[key]),) * 2)


def decode(files: list[str], columns: list[str], target: Path) -> None:
    """Read every value of a table and write it again; what the library raises goes on."""
    import polars as pl

    frame = pl.scan_parquet(files, glob=False)
    present = frame.collect_schema().names()
    draft = target.with_suffix(".draft")
    frame.select(name for name in columns if name in present).sink_parquet(draft, compression="lz4")
    draft.replace(target)


def query(sql: str, tables: dict[str, str], target: str) -> tuple[str, str]:
    """Answer a query, and return ``answer``, or who is to blame for none, and why."""
    import polars as pl

    try:
        context = pl.SQLContext({name: pl.scan_parquet(file, glob=False) for name, file in tables.items()})
        context.execute(sql, eager=True).write_ipc(target)
    except pl.exceptions.PolarsError as error:
        words = str(error)
        return ("files" if words.lower().startswith(FORMATS) else "query"), words
    except BaseException as error:  # noqa: BLE001 - a panic of the library is no Exception
        return "files", str(error) or type(error).__name__
    return "answer", ""


def main() -> None:
    """Decode table by table, and say what came of each; or answer a query."""
    asked = json.load(sys.stdin)
    limit(asked)
    if "sql" in asked:
        sys.stdout.write(json.dumps(query(asked["sql"], asked["tables"], asked["to"])) + "\n")
        return
    for name, table in asked["tables"].items():
        words = ""
        try:
            decode(table["files"], table["columns"], Path(asked["to"]) / f"{name}.parquet")
        except BaseException as error:  # noqa: BLE001 - a panic of the library is no Exception
            words = " ".join(f"{error}".split())[:200] or type(error).__name__
        sys.stdout.write(json.dumps([name, words]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
