"""NCCL Inspector: one JSON object per collective or send, one file per process, formats v4.0 to v4.3.

Sizes are per rank for all-gather and reduce-scatter (``algobw = size x ranks / time``), whole buffers otherwise. Ranks are
those of the communicator. From v4.3 on a ``dump_stats`` record carries the header of the records that follow it.
Format: NCCL ``plugins/profiler/inspector`` (README and ``inspector_json.cc``), releases 2.28 to 2.30.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.nccl_inspector.job import InspectorJob
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

REMEDY = "pass the folder that NCCL_INSPECTOR_DUMP_DIR names; see docs: Inspector and metrics"


def read_inspector(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of the Inspector files of one job; raise InputError when none holds a record."""
    from ringwright.formats.sources.nccl_inspector.job import InspectorJob

    job = InspectorJob()
    for source in sources:
        job.take(source, progress)
    require_records(job, [source.name for source in sources])
    losses = [f"{s.name}: byte {at:,}: {reason}" for s in sources for reason, at in s.losses]
    return job.trace([source.name for source in sources], losses)


def require_records(job: InspectorJob, names: list[str]) -> None:
    """Raise InputError where no record was understood."""
    if not job.understood:
        raise InputError("no Inspector record could be read", where=", ".join(names[:3]), remedy=REMEDY)
