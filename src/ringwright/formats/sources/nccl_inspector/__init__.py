"""NCCL Inspector: one JSON object per collective or send, one file per process, formats v4.0 to v4.3.

Sizes are per rank for all-gather and reduce-scatter (``algobw = size x ranks / time``), whole buffers otherwise. Ranks are
those of the communicator. From v4.3 on a ``dump_stats`` record carries the header of the records that follow it.
Format: NCCL ``plugins/profiler/inspector`` (README and ``inspector_json.cc``), releases 2.28 to 2.30.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace


def read_inspector(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of the Inspector files of one job; raise InputError when none holds a record."""
    from ringwright.formats.sources.gate.packed import parsed
    from ringwright.formats.sources.nccl_inspector.file import read_file
    from ringwright.formats.sources.nccl_inspector.job import joined

    files = [(source.name, parsed(source, read_file, progress)) for source in sources]
    losses = [f"{s.name}: byte {at:,}: {reason}" for s in sources for reason, at in s.losses]
    return joined([source.name for source in sources], files, losses)
