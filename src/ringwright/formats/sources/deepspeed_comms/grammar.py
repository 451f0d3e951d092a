"""The lines that DeepSpeed's communication logger prints, and the names that it gives to operations."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from ringwright.formats.sources.c10d import operation

_NUMBER = r"-?\d{1,15}(?:\.\d{1,6})?"
_SIZE = r"\d{1,15}(?:\.\d{1,4})? ?[KMGTPEZY]?B"
_NAME = r"[A-Za-z_][\w.\-/]{0,120}(?: \| \[Caller Func: [^\]|\n]{1,200}\])?"
# (before 0.10 "rank=0 | comm op:", and a blank behind each rate)
_CALL = re.compile(
    rf"comm op: (?P<name>{_NAME}) \| time \(ms\): (?P<time>{_NUMBER}) \| msg size: (?P<size>{_SIZE}) \| "
    rf"algbw \(Gbps\): (?P<algbw>{_NUMBER}) {{1,2}}\| busbw \(Gbps\): (?P<busbw>{_NUMBER})"
)
CALL_BEGINS = "comm op: "
_STAMP = re.compile(r"\[(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2},\d{3})\]")
_RANK = re.compile(r"\[Rank (\d{1,7})\]")
_RELEASE = re.compile(r"DeepSpeed info: version=(\d{1,3}\.\d{1,3}\.\d{1,3})")
# (the waiting stood between total and average, before stragglers had a table of their own)
_HEADER = re.compile(
    r"Comm\. Op {2,}Message Size {2,}Count {2,}"
    r"(?:Total Latency\(ms\)(?P<waited> +Total straggler\(ms\))?|(?P<apart>Total comm lat)\(ms\))"
)
_ROW = re.compile(
    rf"^ {{8,}}(?P<size>{_SIZE}) +(?P<count>\d{{1,15}}) +"
    rf"(?P<a>{_NUMBER})(?P<waited> +{_NUMBER})? +(?P<b>{_NUMBER}) +(?P<c>{_NUMBER}) +(?P<d>{_NUMBER})\s*$"
)
_ENTRY = re.compile(rf"^{_NAME}\s*$")
_CALLER = re.compile(r" \| \[Caller Func: (.*)\]$")
_UNITS = {name: 1024**power for power, name in enumerate(("B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"))}
# DeepSpeed's functions, a longer name before one that it holds; a log name of one's own may hold one of them.
_FUNCTIONS = (
    ("reduce_scatter", "reduce-scatter"),
    ("all_gather", "all-gather"),
    ("allgather", "all-gather"),
    ("all_to_all", "all-to-all"),
    ("all_reduce", "all-reduce"),
    ("allreduce", "all-reduce"),
    ("broadcast", "broadcast"),
    ("batch_isend_irecv", "send-recv"),
    ("isend", "send"),
    ("irecv", "recv"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
)


@dataclass(frozen=True, slots=True)
class PrintedCall:
    """One call as printed: ms, Gbit/s; ``stamp_s`` is when the line was printed, by a clock without a zone."""

    line: int
    name: str
    time_ms: float
    size_bytes: int
    algbw: float
    busbw: float
    stamp_s: float | None = None
    rank: int = 0


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """One row of a table: the four numbers behind the count, as printed, and the ms waited where they stand among these."""

    line: int
    name: str
    size_bytes: int
    count: int
    numbers: tuple[float, float, float, float]
    waited_ms: float | None = None


def call(text: str, line: int) -> PrintedCall | None:
    """Return the call that a line tells of, None where it tells of none."""
    match = _CALL.search(text)
    if match is None:
        return None
    rank = _RANK.search(text[: match.start()])
    return PrintedCall(
        line,
        match["name"],
        float(match["time"]),
        size(match["size"]),
        float(match["algbw"]),
        float(match["busbw"]),
        _stamp(text[: match.start()]),
        int(rank[1]) if rank else 0,
    )


def _stamp(text: str) -> float | None:
    """Return seconds of the last time stamp before the message."""
    stamps = _STAMP.findall(text)
    try:
        return datetime.strptime(stamps[-1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC).timestamp() if stamps else None
    except (ValueError, OverflowError):
        return None


def release(text: str) -> str:
    """Return the release of DeepSpeed that a line names, else ""."""
    match = _RELEASE.search(text)
    return match[1] if match else ""


def header(text: str) -> tuple[int, bool, bool] | None:
    """Return the column at which a table begins, whether it is the one of stragglers, and whether rows hold a wait; or None."""
    match = _HEADER.search(text)
    return (match.start(), bool(match["apart"]), bool(match["waited"])) if match else None


def row(text: str, line: int, name: str, *, is_waited: bool = False) -> PrintedRow | None:
    """Return a row of a table, None for a line that is none; ``is_waited``: its header has a column of waiting."""
    match = _ROW.match(text)
    if match is None or is_waited != bool(match["waited"]):
        return None
    numbers = (float(match["a"]), float(match["b"]), float(match["c"]), float(match["d"]))
    waited_ms = float(match["waited"]) if is_waited else None
    return PrintedRow(line, name, size(match["size"]), int(match["count"]), numbers, waited_ms)


def entry(text: str) -> str:
    """Return the name that heads the rows of an operation, "" for another line."""
    return text.strip() if _ENTRY.match(text) else ""


def size(spelled: str) -> int:
    """Return bytes of ``678.86 MB``: units are powers of 1024, the number was rounded to two decimals."""
    number = spelled.rstrip("KMGTPEZYB ")
    unit: int = _UNITS[spelled[len(number) :].strip()]
    return round(float(number) * unit)


def caller(name: str) -> str | None:
    """Return the function that made the call, which ``debug`` adds to a name."""
    match = _CALLER.search(name)
    return match[1] if match else None


def op_of(name: str) -> str:
    """Return the operation that a log name stands for, "unknown" where it names none."""
    bare = _CALLER.sub("", name)
    known = operation(bare)
    if known not in (None, "unknown"):
        return known
    spelled = bare.lower()
    return next(
        (op for function, op in _FUNCTIONS if re.search(rf"(?:^|[_./-]){function}(?:$|[_./-])", spelled)), "unknown"
    )
