"""PyTorch Flight Recorder: one dump per rank, pickle or JSON, versions 2.4 to 2.9 and what is compatible with them.

A dump holds the rank's last operations with sequence, sizes, state and stack, its process groups, and counters of how far
each group came. Pickled dumps are read by an interpreter of plain data (``opcodes``): nothing in them can run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ringwright.formats.sources.gate.packed import parsed
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.flight_recorder.columns import DumpedRank
    from ringwright.formats.sources.source import Source
    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

REMEDY = "pass the dumps of one job, one per rank (TORCH_NCCL_DUMP_ON_TIMEOUT=1, TORCH_FR_BUFFER_SIZE=2000)"


def read_flight_recorder(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of the dumps of one job. ``progress`` is called with the bytes of each file.

    A dump that is damaged or no dump is noted and left out; InputError is raised when none could be read.
    """
    from ringwright.formats.sources.flight_recorder.build import DumpedJob

    losses: list[str] = []
    refused: list[Row] = []
    with _no_collection():
        job = DumpedJob()
        for dumped in _read(sources, losses, refused, progress):
            job.add(dumped)
        if not job.dumps:
            what = losses[0] if losses else "no file was given"
            raise InputError(f"no Flight Recorder dump could be read: {what}", where=_where(sources), remedy=REMEDY)
        for source in sources:
            losses += [f"{source.name}: byte {at:,}: {reason}" for reason, at in source.losses]
        return job.trace([source.name for source in sources], losses, refused)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Hold back the search for cycles: millions of containers are made, and none is garbage before the end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(
    sources: list[Source], losses: list[str], refused: list[Row], progress: Callable[[int], None] | None
) -> Iterator[DumpedRank]:
    from ringwright.formats.sources.flight_recorder.columns import read_columns
    from ringwright.formats.sources.flight_recorder.opcodes import RefusedError

    taken: dict[int, str] = {}
    for source in sources:
        reason, at = "", 0
        try:
            dumped = parsed(source, read_columns, progress)
            dump = dumped.dump
            if dump.rank is not None and dump.rank in taken:
                reason = f"rank {dump.rank} was already read from {taken[dump.rank]}"
        except RefusedError as error:
            reason, at = error.what, max(error.at, 0)
        except OSError as error:
            reason = error.strerror or type(error).__name__
        if reason:
            losses.append(f"{source.name}: byte {at:,}: {reason}")
            refused.append({"file": source.name, "outcome": "refused", "reason": reason, "lines": 1})
            continue
        if dump.rank is not None:
            taken[dump.rank] = source.name
        yield dumped


def _where(sources: list[Source]) -> str:
    names = ", ".join(source.name for source in sources[:3])
    return f"{names}, ..." if len(sources) > 3 else names
