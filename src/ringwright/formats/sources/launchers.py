"""What launchers, container runtimes and terminals put before the lines of a program, and the lines without it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_LAUNCHERS = [
    re.compile(rf"^(?P<stamp>{_STAMP}) (?:stdout|stderr) [FP] "),  # container runtimes
    re.compile(rf"^(?P<stamp>{_STAMP}):?\s+"),
    re.compile(r"^\[\d+,(?P<rank>\d{1,7})\](?:<std(?:out|err|diag)>)?:\s?"),  # mpirun --tag-output
    re.compile(r"^(?:\[default\d+\]:|\[\d+\] (?=\[rank))"),
    re.compile(r"^\[rank(?P<own>\d{1,7})\]:\s?"),  # PyTorch itself
    re.compile(r"^(?P<rank>\d{1,6}): "),  # srun --label
    re.compile(r"^\((?:[\w.]+(?:\[[\w=, ]*\])? )?(?:pid=\d+)(?:, ip=[^)]*)?\) "),  # Ray
    re.compile(r"^\x1b\[[0-9;]*m"),
    re.compile(r"^(?:[a-z0-9]+(?:-[a-z0-9]+)+|[\w./-]+) \| "),  # compose and stern
]
_LAUNCHER_STARTS = frozenset("0123456789[(\x1b")
# What a log reader need not take off, as it looks for NCCL's own prefix anywhere in a line.
_OTHERS = [
    _LAUNCHERS[0],
    re.compile(rf"^{_STAMP}:? "),  # blanks behind it are a table's own
    *_LAUNCHERS[2:-1],
    re.compile(r"^(?=[\w.-]*[A-Za-z])[\w./-]{1,255} +\| "),  # compose pads names
    re.compile(r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,255} \S{1,255}: "),  # syslog and journalctl
    re.compile(r"^\[pod/[\w.-]+/[\w.-]+\] "),  # kubectl logs --prefix
    re.compile(r"^\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]? "),
    re.compile(r"^\s*\d{1,6}:\s"),  # srun --label, numbers flush right
    re.compile(r"^\w[\w.-]*:\s(?=\s*#|\s+\d)"),  # pdsh, and the name of a pod
    re.compile(r"^(?:> ?|\+(?=[\s#]))"),  # quoted, or of a difference
    re.compile(r"^\[\d{1,6}\]:? "),  # the number of a rank alone
]
_COLOURS = re.compile(r"\x1b\[[0-9;]*[mK]")
UNNAMED = "-"  # the host of lines whose host:pid:tid somebody took off
MOST_LAYERS = 4  # of prefixes on one line


class Peeled(NamedTuple):
    """What stands before a line: the rank and time that launchers say, the rank that PyTorch says itself; and the line."""

    rank: int | None
    stamp_s: float | None
    own_rank: int | None
    text: str


def peel(line: str) -> Peeled:
    """Return the ranks and time that launcher prefixes carry, and the line without them."""
    rank: int | None = None
    own: int | None = None
    stamp: float | None = None
    if line[:1] not in _LAUNCHER_STARTS and " | " not in line[:100]:
        return Peeled(rank, stamp, own, line)
    for _ in range(MOST_LAYERS):
        for pattern in _LAUNCHERS:
            match = pattern.match(line)
            if match is None:
                continue
            groups = match.groupdict()
            rank = int(groups["rank"]) if groups.get("rank") else rank
            own = int(groups["own"]) if groups.get("own") else own
            stamp = parse_time(groups["stamp"]) if groups.get("stamp") else stamp
            line = line[match.end() :]
            break
        else:
            break
    return Peeled(rank if own is None else own, stamp, own, line)


def parse_time(text: str) -> float | None:
    """Return seconds since the epoch, read as UTC where no zone is printed; None when it is no date."""
    plain = text.replace(",", ".").replace("Z", "+00:00")
    head, dot, tail = plain.partition(".")
    if dot:
        digits = re.match(r"\d+", tail)
        width = digits.end() if digits else 0
        plain = f"{head}.{tail[:width][:6].ljust(6, '0')}{tail[width:]}"
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def plain(line: str) -> str:
    """Return a line without whatever is known to be put before it, without colours; what stands behind is as it was."""
    if line.startswith("#") or " NCCL " in line or (line.startswith(" ") and ":" not in line[:10]):
        return line  # most lines of a log, and of a table
    if "\x1b" in line:
        line = _COLOURS.sub("", line)
    for _ in range(MOST_LAYERS):
        prefix = next((match for pattern in _OTHERS if (match := pattern.match(line))), None)
        if prefix is None:
            break
        line = line[prefix.end() :]
    return line
