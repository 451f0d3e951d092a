"""What one line of a log is to the scanner's twin: a clean COLL line, perhaps behind a launcher's prefixes.

Launchers put ranks (``mpirun --tag-output``, ``srun --label``, ``torchrun``), time stamps of container runtimes, names
and colours in front of every line; up to four of them are peeled.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import NamedTuple

LONGEST_LINE_BYTES = 65536

_POINTER = rb"(0x[0-9a-fA-F]{1,16}|0|\(nil\))"
_CLEAN = re.compile(
    rb"(?:\[([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?\] )?"
    rb"([A-Za-z0-9._-]{1,255}:([0-9]{1,10}):([0-9]{1,10}) \[([0-9]{1,10})\])"
    rb" NCCL INFO ([A-Za-z]{1,32}): opCount ([0-9a-fA-F]{1,16})"
    rb" sendbuff %(pointer)b recvbuff %(pointer)b(?: acc %(ignored)b)? count ([0-9]{1,20})"
    rb" datatype ([0-9]{1,5}) op ([0-9]{1,5}) root ([0-9]{1,10})"
    rb" comm %(pointer)b \[nranks=([0-9]{1,10})\] stream %(pointer)b"
    rb"(?: task ([0-9]{1,10}) globalrank ([0-9]{1,10}))?[ \r]*"
    % {b"pointer": _POINTER, b"ignored": rb"(?:0x[0-9a-fA-F]{1,16}|0|\(nil\))"}
)
_OWN_STAMP = re.compile(rb"\[([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?\] ")
_STAMP = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,9}))?"
    rb"(?:Z|([+-])([0-9]{2}):?([0-9]{2}))?(?: (?:stdout|stderr) [FP] |:?[ \t]+)"
)
_LAUNCHERS = [
    re.compile(rb"\[[0-9]{1,10},(?P<rank>[0-9]{1,10})\](?:<std(?:out|err|diag)>)?:[ \t]?"),
    re.compile(rb"(?:\[default[0-9]{1,10}\]:|\[[0-9]{1,10}\] (?=\[rank))"),
    re.compile(rb"\[rank(?P<rank>[0-9]{1,10})\]:[ \t]?"),
    re.compile(rb"(?P<rank>[0-9]{1,6}): "),
    re.compile(rb"\((?:[A-Za-z0-9._]{1,97} )?pid=[0-9]{1,20}(?:, ip=[^)\n]*)?\) "),
    re.compile(rb"\x1b\[[0-9;]*m"),
    re.compile(rb"[A-Za-z0-9._/-]{1,97} \| "),
]
_MOST_LAUNCHERS = 4
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_INT16_MAX = 2**15 - 1
_INT32_MAX = 2**31 - 1
_UINT64_MAX = 2**64 - 1
_EXACT = 2**53  # microseconds beyond it are not exact in a double


class Clean(NamedTuple):
    """The fields of one clean line; pointers are numbers, ``inplace`` is 0 or 1, -1 stands for a rank not printed."""

    prefix: bytes
    op: bytes
    comm: int
    nranks: int
    op_count: int
    elements: int
    datatype: int
    redop: int
    root: int
    global_rank: int
    time_s: float
    stream: int
    inplace: int
    launch_rank: int = -1


def parse(line: bytes) -> Clean | None:
    """Return the fields of a clean line without a launcher's prefix."""
    match = _CLEAN.fullmatch(line)
    if match is None:
        return None
    fields = match.groups()
    time_s = _time_s(fields[:6], fields[6]) if fields[0] is not None else math.nan
    prefix, pid, tid, device, name, op_count, send, receive, count, datatype, redop, root = fields[7:19]
    comm, nranks, stream, task, rank = fields[19:]
    wide = [int(each) for each in (pid, tid, device, root, nranks, task or b"0", rank or b"0")]
    if max(int(datatype), int(redop)) > _INT16_MAX or max(wide) > _INT32_MAX or int(count) > _UINT64_MAX:
        return None
    if time_s is None:
        return None
    numbers = (_address(comm), int(nranks), int(op_count, 16), int(count), int(datatype), int(redop), int(root))
    global_rank = -1 if rank is None else int(rank)
    inplace = int(_address(send) == _address(receive))
    return Clean(prefix, name, *numbers, global_rank, time_s, _address(stream), inplace)


def parse_row(line: bytes) -> Clean | None:
    """Return the fields of a clean line that may stand behind a launcher's prefixes."""
    if len(line) > LONGEST_LINE_BYTES:
        return None
    row = parse(line)
    if row is not None:
        return row
    rank, stamp_s, rest = _peel(line)
    row = parse(rest) if len(rest) < len(line) else None
    if row is None:
        return None
    return row._replace(launch_rank=rank, time_s=stamp_s if math.isnan(row.time_s) else row.time_s)


def stamp_before(text: bytes) -> tuple[int, float] | None:
    """Return where a line's own time stamp begins that ends ``text``, and its time; None where there is none."""
    bracket = text.rfind(b"[", max(0, len(text) - 32))
    match = _OWN_STAMP.fullmatch(text, bracket) if bracket >= 0 else None
    time_s = _time_s(match.groups()[:6], match[7]) if match else None
    return None if time_s is None else (bracket, time_s)


def _peel(line: bytes) -> tuple[int, float, bytes]:
    rank, stamp_s, at = -1, math.nan, 0
    for _ in range(_MOST_LAUNCHERS):
        match = _STAMP.match(line, at)
        if match is not None:
            micros = _micros(match)
            if micros is None:
                break
            stamp_s = micros / 1e6
        else:
            match = next(filter(None, (launcher.match(line, at) for launcher in _LAUNCHERS)), None)
            if match is None:
                break
            said = match.groupdict().get("rank")
            rank = rank if said is None else int(said)
            if rank > _INT32_MAX:
                return -1, math.nan, line
        at = match.end()
    return rank, stamp_s, line[at:]


def _micros(match: re.Match[bytes]) -> int | None:
    whole_s = _time_s(match.groups()[:6], None)
    fraction, sign, hours, minutes = match.groups()[6:]
    if whole_s is None or (sign and (int(hours) > 23 or int(minutes) > 59)):
        return None
    offset_s = (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == b"-" else 1) if sign else 0
    micros = (int(whole_s) - offset_s) * 1_000_000 + int((fraction or b"0")[:6].ljust(6, b"0"))
    return micros if abs(micros) < _EXACT else None


def _address(text: bytes) -> int:
    return int(text, 16) if text.startswith(b"0x") else 0


def _time_s(parts: tuple[bytes, ...], fraction: bytes | None) -> float | None:
    try:
        year, month, day, hour, minute, second = map(int, parts)
        since = dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC) - _EPOCH
    except ValueError:
        return None
    whole_s = float(since.days * 86400 + since.seconds)
    return whole_s + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)
