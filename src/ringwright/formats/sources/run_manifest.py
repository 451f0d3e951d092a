"""A launcher's manifest: what was recorded with which settings, and how the job ended. Format ``run/1``."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.reader_rows import Gathered
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "run"
JOB_ENDED, JOB_SEEN, JOB_NAME = "job ended at", "job seen at", "run job"
MOST_BYTES = 4 << 20


def read_run_manifest(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return a Trace of claims: command, sources, exit; InputError where no manifest can be read."""
    import msgspec

    gathered = Gathered(KIND)
    for source in sources:
        if progress is not None:
            progress(0)
        try:
            document = msgspec.json.decode(source.head(MOST_BYTES).decode("utf-8", "replace"))
        except (msgspec.DecodeError, RecursionError) as error:
            gathered.note(source.name, "refused", f"no manifest: {error}")
            gathered.lose(f"{source.name}: the manifest cannot be read")
            continue
        if isinstance(document, dict):
            gathered.inputs.append(source.name)
            _tell(gathered, source.name, document)
    if not gathered.inputs:
        raise InputError("no manifest can be read", where=", ".join(source.name for source in sources[:3]))
    return gathered.trace(from_zero=False)


def _tell(gathered: Gathered, name: str, document: dict[str, Any]) -> None:
    host = document.get("host", "?")
    for field in ("command", "job", "ringwright_version", "kept"):
        value = document.get(field)
        if value:
            words = shlex.join(map(str, value)) if isinstance(value, list) else value
            gathered.claim(f"run {field}", words, name, note=f"launcher on {host}")
    sources = document.get("sources")
    for source, what in sources.items() if isinstance(sources, dict) else ():
        gathered.claim(f"recorded {source}", what, name, note=f"launcher on {host}")
    ended_ns = document.get("ended_ns")
    if isinstance(ended_ns, int) and not isinstance(ended_ns, bool):
        gathered.claim(JOB_ENDED, ended_ns, name, note=f"nanoseconds since 1970, launcher on {host}")
    else:
        gathered.claim(
            JOB_SEEN, time.time_ns(), name, note="nanoseconds since 1970 when this was read: no end is noted"
        )
    code = document.get("exit_code")
    if isinstance(code, int):
        by = document.get("signal")
        words = f"{code} (signal {by})" if by else "5 (out of time)" if document.get("is_late") else str(code)
        gathered.claim("exit code", words, name, note=f"launcher on {host}")
        if code:
            gathered.lose(f"the job ended with exit code {words}: what it did not come to is not here")
    else:
        gathered.claim(
            "exit code", "unknown", name, ground="assumed", note="the launcher was killed, or the job still runs"
        )
        gathered.lose("the launcher left no end: it was killed, or the job still runs")
