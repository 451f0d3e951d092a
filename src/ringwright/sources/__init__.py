"""Readers: one per input format, each from paths to a Trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringwright.errors import UsageError

if TYPE_CHECKING:
    from ringwright.trace import Trace

_KINDS = ("auto", "all", "folded")


def read(
    paths: str | Path | Sequence[str | Path], *, events: str = "auto", progress: Callable[[int], None] | None = None
) -> Trace:
    """Return the Trace of logs or of a saved capture.

    ``paths``: files, folders, globs or ``-`` for standard input. ``events``: ``all`` keeps one event per record (beyond
    a million in a temporary folder that lives as long as the Trace), ``folded`` keeps weighted rows only, ``auto``
    keeps events up to a million records. ``progress`` is called with the bytes of each chunk. Raises InputError when
    nothing can be read.
    """
    from ringwright.sources.inputs import find
    from ringwright.sources.nccl_log.fold import ROWS_IN_MEMORY
    from ringwright.sources.nccl_log.reader import read_log
    from ringwright.trace import Trace, is_capture

    if events not in _KINDS:
        raise UsageError(f"events is '{events}'", remedy="use auto, all or folded")
    names = [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]
    if len(names) == 1 and is_capture(Path(names[0])):
        return Trace.open(names[0])
    limit = 0 if events == "folded" else ROWS_IN_MEMORY
    return read_log(find(names), keep_rows=limit, every_row=events == "all", progress=progress)
