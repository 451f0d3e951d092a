"""Tables that no check sum vouches for are decoded in a process of their own; only the copy that it made is read here.

The library that decodes is compiled, and some damage ends its process: a page that tells a negative number of values
asks for 2^61 bytes of memory. There it ends a process of bounded memory and time, and costs one table. A query that reads
files of others is answered there too, without bounds: it may be as large as whoever asks it likes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringwright.ground.drafts import writing
from ringwright.ground.scratch import ROOM, TemporaryFolder

if TYPE_CHECKING:
    import polars as pl

DECODER = Path(__file__).with_name("decoder.py")
LEAST_S = 30
BYTES_A_SECOND = 1 << 20
MEMORY_BYTES = 4 << 30  # of address space, besides the files themselves
COPY_BYTES = 1 << 30
COPY_RATIO = 20  # a copy may be so much larger than its files, beyond COPY_BYTES
_NO_NEWS = ("note:", "thread ", "stack backtrace")


@dataclass
class Copies:
    """The copies of some tables, and why there is none of the others. ``held`` keeps the copies alive."""

    held: TemporaryFolder | None = None
    found: dict[str, Path] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    @property
    def answered(self) -> set[str]:
        """The tables of which it is known what they came to."""
        return {*self.found, *self.lost}


def copies(tables: Mapping[str, Sequence[Path]], columns: Mapping[str, Iterable[str]]) -> Copies:
    """Decode tables, given by their files and the columns that are wanted, and return the copies.

    Raises OutputError where the copies find no room.
    """
    if not tables:
        return Copies()
    made = Copies(TemporaryFolder())
    while left := {name: files for name, files in tables.items() if name not in made.answered}:
        end = _decoded(left, columns, made)
        if unanswered := [name for name in left if name not in made.answered]:
            made.lost[unanswered[0]] = end  # the first that it did not answer for ended it
    return made


@dataclass(frozen=True)
class Answer:
    """The answer to a query; None where there is none, and ``why``: ``of_files`` says that they are to blame, not the query."""

    frame: pl.DataFrame | None = None
    why: str = ""
    of_files: bool = False


def answer(sql: str, tables: Mapping[str, pl.LazyFrame]) -> Answer:
    """Answer a query over tables and over files that it names itself.

    Raises OutputError where the tables, or the answer, find no room.
    """
    import polars as pl

    held = TemporaryFolder()
    target = held.path / "answer.arrow"
    copied = {}
    with writing(held.path, room=ROOM):
        for name, frame in tables.items():
            if re.search(rf"\b{name}\b", sql, re.IGNORECASE):
                copied[name] = str(held.path / f"{name}.parquet")
                frame.sink_parquet(copied[name])
    said, end = _run({"sql": sql, "tables": copied, "to": str(target)})
    if not said:
        return Answer(why=end, of_files=True)
    kind, why = said[0]
    if kind == "answer":
        return Answer(pl.read_ipc(BytesIO(target.read_bytes())))  # nothing of it is mapped
    with writing(held.path, room=ROOM):
        if "no space left" in why.lower():
            raise OSError(why)
    return Answer(why=why, of_files=kind == "files")


def _decoded(tables: Mapping[str, Sequence[Path]], columns: Mapping[str, Iterable[str]], made: Copies) -> str:
    """Run the decoder once, take what it says, and return how it ended."""
    if made.held is None:
        return "there is no place for its copy"
    size_bytes = sum(file.stat().st_size for files in tables.values() for file in files)
    time_s = LEAST_S + size_bytes // BYTES_A_SECOND
    asked = {
        "tables": {name: {"files": [*map(str, tables[name])], "columns": [*columns[name]]} for name in tables},
        "to": str(made.held.path),
        "time_s": time_s,
        "memory_bytes": MEMORY_BYTES + size_bytes,
        "file_bytes": COPY_BYTES + COPY_RATIO * size_bytes,
    }
    said, end = _run(asked, 2 * time_s, {"POLARS_MAX_THREADS": "2"})
    for name, words in said:
        with writing(made.held.path, room=ROOM):
            if "no space left" in words.lower():
                raise OSError(words)
        if words:
            made.lost[name] = words
        else:
            made.found[name] = made.held.path / f"{name}.parquet"
    return end


def _run(
    asked: dict[str, Any], timeout_s: float | None = None, settings: Mapping[str, str] | None = None
) -> tuple[list[tuple[str, str]], str]:
    """Return what the decoder said of each table that it came to, or of the query, and how it ended."""
    environment = {**os.environ, "RUST_BACKTRACE": "0", **(settings or {})}
    command = [sys.executable, "-P", str(DECODER)]
    try:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        return [], f"no process to decode it in could be started: {error.strerror}"
    with process:
        try:
            out, err = process.communicate(json.dumps(asked).encode(), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        except BaseException:
            process.kill()
            raise
    lines = out.decode("utf-8", "replace").splitlines()
    return [tuple(json.loads(line)) for line in lines if line.endswith("]")], _end(process.returncode, err)


def _end(code: int, err: bytes) -> str:
    """Return in words how the decoder ended, with the last of what it said of that."""
    if -code in (signal.SIGKILL, signal.SIGXCPU):
        return "decoding it takes too long, or more memory than there is"
    lines = [line for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
    last = next((line.strip() for line in reversed(lines) if not line.startswith(_NO_NEWS)), "")
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the process that decoded it ended by {how}" + (f": {last[:120]}" if last else "")
