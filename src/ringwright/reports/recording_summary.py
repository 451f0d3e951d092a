"""What a recording holds and how the job ended, then the summary; beside the job's own output."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, TextIO

from ringwright.reports import layout, terminal

if TYPE_CHECKING:
    from ringwright.capture.record import Recording


def write(done: Recording, file: TextIO, *, width: int | None = None) -> None:
    """Write the report of a recording; the summary last, with the next command."""
    name = shlex.quote(str(done.folder))
    out = layout.console(file, width=width)
    layout.line(out, f"ringwright: recorded into {name}: {_end(done)} after {done.ended.took_s:.1f} s", indent=0)
    for note in done.notes:
        layout.line(out, note, style="yellow", indent=0)
    if done.kept:
        layout.line(out, f"left as you had set them: {', '.join(done.kept)}", indent=0)
    if done.summary is not None:
        terminal.write(done.summary, file, width=width, following=f"ringwright report {name} -o job.html")


def _end(done: Recording) -> str:
    if done.ended.is_late:
        return "the job was ended: it was out of time"
    if done.ended.signal:
        return f"the job was ended by signal {done.ended.signal}"
    return "the job ended" if not done.ended.code else f"the job ended with exit code {done.ended.code}"
