"""A recording that grows in a test: files written in pieces cut at any byte, looked at after each piece."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.formats.sources.fusion import fuse
from ringwright.formats.sources.growing import GrowingJob
from ringwright.ground.errors import InputError
from ringwright.model.trace import Trace


def cut(files: Mapping[str, bytes], folder: Path, seed: int, times: int) -> Iterator[None]:
    """Write files in pieces, all of them in turns, cut at places drawn by a seed; yield after each."""
    draw = random.Random(seed)
    ends = {name: sorted(draw.randrange(len(data) + 1) for _ in range(times - 1)) for name, data in files.items()}
    begun = dict.fromkeys(files, 0)
    for turn in range(times):
        for name, data in files.items():
            end = ends[name][turn] if turn < times - 1 else len(data)
            with (folder / name).open("ab") as out:
                out.write(data[begun[name] : end])
            begun[name] = end
        yield


def look(job: GrowingJob, *, is_end: bool = False) -> Trace | None:
    """Look until nothing is left; return the Trace, None where there is nothing to read yet."""
    parts = None
    while True:
        try:
            looked = job.look(is_end=is_end)
        except InputError:
            return None
        parts = looked.parts or parts
        if not looked.left_bytes:
            break
    return None if parts is None else parts[0] if len(parts) == 1 else fuse(parts)


def followed(files: Mapping[str, bytes], folder: Path, seed: int, times: int = 5, **more: Any) -> Trace:
    """Return the Trace after the last look at a folder whose files came in pieces."""
    job = GrowingJob([str(folder)], **more)
    trace = None
    for _ in cut(files, folder, seed, times):
        trace = look(job) or trace
    trace = look(job, is_end=True) or trace
    assert trace is not None
    return trace


def said(trace: Trace) -> dict[str, Any]:
    """Return what must be the same however a recording was read: operations, communicators, ranks, bytes, the ledger."""
    summary = summarise(trace)
    communicators = [
        (row["size"], row["members"], row["ranks_seen"], row["operations"], row["bytes"], row["comm_id"])
        for row in summary["communicator_list"]
    ]
    keep = (
        "operations",
        "ranks_seen",
        "ranks_expected",
        "hosts",
        "ledger",
        "pair_bytes",
        "nic_bytes",
        "errors_total",
        "roles",
    )
    return {name: summary[name] for name in keep} | {"communicators": sorted(communicators, key=str)}


def agrees(
    files: Mapping[str, bytes], folder: Path, seed: int, keep: Callable[[Trace], Any] = said, **more: Any
) -> None:
    """Follow files in pieces and read them at once: both say the same."""
    folder.mkdir()
    assert keep(followed(files, folder, seed, **more)) == keep(read([str(folder)], events="folded"))
