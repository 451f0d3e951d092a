"""From what DeepSpeed's communication logger wrote to a Trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.bounds.laws import reason
from ringwright.formats.sources.deepspeed_comms import grammar
from ringwright.formats.sources.deepspeed_comms.document import from_document
from ringwright.formats.sources.deepspeed_comms.emit import emit
from ringwright.formats.sources.deepspeed_comms.latencies import added_up, too_long
from ringwright.formats.sources.deepspeed_comms.logged import LoggedFile
from ringwright.formats.sources.deepspeed_comms.rates import breaks, world
from ringwright.formats.sources.members import Member, whole
from ringwright.formats.sources.reader_rows import Gathered
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "deepspeed-comms"
LONGEST_LINE = 1 << 16
MOST_CALLS = 1_000_000
_MOST_DOCUMENT = 256 << 20
_REMEDY = (
    'set "comms_logger": {"enabled": true, "verbose": true, "prof_all": true} and call deepspeed.comm.log_summary()'
)


def read_deepspeed_comms(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of what the logger wrote; InputError where there is neither a call nor a table."""
    gathered = Gathered(KIND)
    files: list[LoggedFile] = []
    for member in gathered.members(sources, progress):
        file = _read(gathered, member)
        gathered.inputs.append(member.name)
        if file.calls or file.tables:
            files.append(file)
    if not any(file.calls or any(table.rows for table in file.tables) for file in files):
        raise InputError(
            "no line and no table of DeepSpeed's communication logger",
            where=", ".join(source.name for source in sources[:3]),
            remedy=_REMEDY,
        )
    for file in files:
        emit(gathered, file)
    worlds = {file.world for file in files if file.world}
    return gathered.trace(world=max(worlds, default=None), from_zero=True, origin_ns=None, limits=_limits())


def _limits() -> list[str]:
    return [
        "the group of a call: DeepSpeed's logger does not name it, and rates it by the size of the world",
        "sizes: printed with two decimals of a power of 1024",
    ]


def _read(gathered: Gathered, member: Member) -> LoggedFile:
    """Return what one file holds; a document of ``log_summary(return_dict=True)`` is told by its first byte."""
    file = LoggedFile(member.name)
    if member.stream.peek(64).lstrip()[:1] == b"{":  # type: ignore[attr-defined]
        from_document(gathered, file, whole(member, _MOST_DOCUMENT))
        return file
    number = 0
    while data := member.stream.readline(LONGEST_LINE):
        number += data.endswith(b"\n") or len(data) < LONGEST_LINE
        _line(gathered, file, data.decode("utf-8", "replace").rstrip("\r\n"), number)
    _judge(gathered, file)
    return file


def _line(gathered: Gathered, file: LoggedFile, text: str, number: int) -> None:
    if grammar.CALL_BEGINS in text:
        call = grammar.call(text, number)
        if call is None or len(file.calls) >= MOST_CALLS:
            why = "a call whose line is cut" if call is None else f"calls beyond {MOST_CALLS:,}"
            gathered.note(file.name, "refused", why, at=number, example=text[:200])
            gathered.lose(f"{file.name}: {why}")
            return
        file.calls.append(call)
        gathered.note(file.name, "understood", "calls")
    elif file.reader.line(text, number):
        gathered.note(file.name, "understood", "lines of tables")
    else:
        file.release = file.release or grammar.release(text)
        gathered.note(file.name, "other", "not of the communication logger")


def _judge(gathered: Gathered, file: LoggedFile) -> None:
    """Say what the file's numbers mean, and refuse the times that cannot be."""
    rates = [(call.name, call.algbw, call.busbw) for call in file.calls]
    rates += [(row.name, *row.numbers[2:]) for table in file.tables for row in table.rows]
    file.world = world(rates)
    file.is_added = added_up(file.calls, file.release)
    if file.is_added:
        return
    impossible = too_long(file.calls)
    for call in file.calls:
        why = breaks(call, file.world)
        if why or call.line in impossible:
            law, detail = (
                ("algbw", why) if why else ("time", "longer than since the line before, though it was waited for")
            )
            gathered.note(file.name, "refused", reason(law, detail), at=call.line, example=detail)
            file.refused.add(call.line)
