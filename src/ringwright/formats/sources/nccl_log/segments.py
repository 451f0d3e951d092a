"""Cut a dirty line into what each process wrote: NCCL's own prefix is searched anywhere, launcher prefixes are peeled.

Ranks, launchers and progress bars write into each other's lines; so a line may hold several prefixes, or the end of one
that began lines ago. ``split`` returns what stands before the first prefix and one segment per prefix.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ringwright.formats.sources.launchers import parse_time, peel

_TIME = r"(?:\[(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)\] )?"
_WHO = r"(?P<host>[A-Za-z0-9._-]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) "
# RCCL of 2019 prints microseconds since the epoch behind the device.
_WHERE = (
    r"(?:\[(?P<dev>\d{1,4})\] )?(?:(?P<micros>\d{13,17}) )?"
    r"(?P<place>(?:[\w./+-]{1,200}:\d{1,7} |[\d.]{1,20} [\w:~<>]{1,120}:\d{1,7} ))?"
)
PREFIX = re.compile(_TIME + _WHO + _WHERE + r"NCCL (?P<level>INFO|WARN|TRACE|CALL|VERSION|ABORT|ERROR) ?")
BARE = re.compile(r"(?:\[(?P<dev>\d{1,4})\] )?(?P<place>[\w./+-]{1,200}:\d{1,7} )?NCCL (?P<level>INFO|WARN|CALL) ?")


class LineSegment(NamedTuple):
    """What one process wrote on a line. ``ended`` is false when another process's prefix cut it off."""

    host: str
    pid: int
    tid: int
    device: int
    level: str
    place: str  # file:line of a warning
    time_s: float | None
    text: str
    ended: bool


class Split(NamedTuple):
    """A line's parts: rank and clock of the launcher and the rank that PyTorch says, if any; text before NCCL's; segments."""

    rank: int | None
    stamp_s: float | None
    own_rank: int | None
    lead: str
    segments: list[LineSegment]


def split(line: str) -> Split:
    """Return the parts of one line (without its newline)."""
    rank, stamp, own_rank, line = peel(line)
    prefixes = _prefixes(line)
    if not prefixes:
        return Split(rank, stamp, own_rank, line, [])
    segments = []
    for index, match in enumerate(prefixes):
        last = index + 1 == len(prefixes)
        end = len(line) if last else prefixes[index + 1].start()
        segments.append(segment_of(match, line[match.end() : end], ended=last))
    return Split(rank, stamp, own_rank, line[: prefixes[0].start()], segments)


def _prefixes(line: str) -> list[re.Match[str]]:
    """Return all prefixes of a line. Each ``NCCL`` is looked at from where its prefix would start; a search of every
    place, ten times slower, is left for the shapes that this does not hit."""
    prefixes: list[re.Match[str]] = []
    at = line.find(" NCCL ")
    while at >= 0:
        match = _prefix_before(line, at, prefixes[-1].end() if prefixes else 0)
        if match is None:
            return list(PREFIX.finditer(line))
        prefixes.append(match)
        at = line.find(" NCCL ", match.end())
    return prefixes


def _prefix_before(line: str, at: int, floor: int) -> re.Match[str] | None:
    """Return the prefix whose ``NCCL`` stands after ``at``, by the blanks before it: ``who [device] NCCL``."""
    device = line.rfind(" ", floor, at)
    who = line.rfind(" ", floor, device) + 1 if device >= 0 else floor
    start = max(who, floor)
    if start >= 22 and line[start - 2 : start] == "] ":
        stamp = line.rfind("[", max(floor, start - 40), start)
        match = PREFIX.match(line, stamp) if stamp >= 0 else None
        if match is not None and match.start("level") == at + 6:
            return match
    match = PREFIX.match(line, start)
    return match if match is not None and match.start("level") == at + 6 else None


def segment_of(match: re.Match[str], text: str, *, ended: bool) -> LineSegment:
    """Return the segment of a prefix and the text that follows it."""
    dev = match["dev"]
    return LineSegment(
        host=match["host"],
        pid=int(match["pid"]),
        tid=int(match["tid"]),
        device=int(dev) if dev else -1,
        level=match["level"],
        place=(match["place"] or "").strip(),
        time_s=_time(match),
        text=text.rstrip("\r\n"),
        ended=ended,
    )


def _time(match: re.Match[str]) -> float | None:
    if match["time"]:
        return parse_time(match["time"])
    return int(match["micros"]) * 1e-6 if match["micros"] else None
