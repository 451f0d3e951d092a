"""The meaning of the native scanner and joiner, in plain Python: the same results, some thirty times slower.

``Scanner`` reads chunks of an NCCL debug log. A *clean* COLL line obeys the grammar ``_CLEAN`` to the byte and becomes
one row of columns; a *careful* line is returned as a span for a patient reader; blank and other lines are only counted,
so that ``lines == rows + careful + blank + other`` always holds.

``Joiner`` joins records of many members into logical operations. A *signature* is (group, op, count, datatype, redop,
root); an *entry* is one (signature, op_count, occurrence), where occurrence says how often the same member had shown
the same (signature, op_count) before. The order in which members arrive changes the numbering of entries, never their
contents.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import threading
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

LONGEST_LINE_BYTES = 65536
MOST_OPS = 256
MOST_MEMBERS = 1 << 20

_POINTER = rb"(0x[0-9a-fA-F]{1,16}|0|\(nil\))"
_CLEAN = re.compile(
    rb"(?:\[([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?\] )?"
    rb"([A-Za-z0-9._-]{1,255}:([0-9]{1,10}):([0-9]{1,10}) \[([0-9]{1,10})\])"
    rb" NCCL INFO ([A-Za-z]{1,32}): opCount ([0-9a-fA-F]{1,16})"
    rb" sendbuff %(pointer)b recvbuff %(pointer)b count ([0-9]{1,20})"
    rb" datatype ([0-9]{1,5}) op ([0-9]{1,5}) root ([0-9]{1,10})"
    rb" comm %(pointer)b \[nranks=([0-9]{1,10})\] stream %(pointer)b"
    rb"(?: task ([0-9]{1,10}) globalrank ([0-9]{1,10}))?[ \r]*" % {b"pointer": _POINTER}
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_INT16_MAX = 2**15 - 1
_INT32_MAX = 2**31 - 1
_UINT64_MAX = 2**64 - 1


class ScanResult(TypedDict):
    """One chunk: twelve columns of n clean lines, the k careful spans, and the counts of all lines.

    ``time_s`` is in seconds since 1970 as if the log's clock were UTC (NaN: no time stamp), ``global_rank`` is -1 where
    RCCL did not print it, ``line`` is absolute. ``careful`` is (k, 3): absolute line, offset in the chunk, length in
    bytes without the newline.
    """

    handle: npt.NDArray[np.int32]
    op: npt.NDArray[np.uint8]
    op_count: npt.NDArray[np.uint64]
    count: npt.NDArray[np.uint64]
    datatype: npt.NDArray[np.int16]
    redop: npt.NDArray[np.int16]
    root: npt.NDArray[np.int32]
    global_rank: npt.NDArray[np.int32]
    time_s: npt.NDArray[np.float64]
    line: npt.NDArray[np.int64]
    stream: npt.NDArray[np.uint64]
    inplace: npt.NDArray[np.uint8]
    careful: npt.NDArray[np.int64]
    lines: int
    blank: int
    other: int


class JoinTables(TypedDict):
    """``signatures``, ``entries``, ``member_bits`` and ``totals``, each a dict of columns.

    Bit m % 64 of ``words[offsets[e] + m // 64]`` says that member m was seen in entry e; an entry has only as many
    words as its highest member needs. ``first_op_count`` and ``last_op_count`` are in order of arrival.
    """

    signatures: dict[str, npt.NDArray[Any]]
    entries: dict[str, npt.NDArray[Any]]
    member_bits: dict[str, npt.NDArray[Any]]
    totals: dict[str, npt.NDArray[Any]]


_Names = tuple[tuple[str, type[np.generic]], ...]
_COLUMNS: _Names = (
    ("handle", np.int32),
    ("op", np.uint8),
    ("op_count", np.uint64),
    ("count", np.uint64),
    ("datatype", np.int16),
    ("redop", np.int16),
    ("root", np.int32),
    ("global_rank", np.int32),
    ("time_s", np.float64),
    ("line", np.int64),
    ("stream", np.uint64),
    ("inplace", np.uint8),
)


class Scanner:
    """Reads chunks of a log; ``needles`` are words that make a line without ``NCCL`` careful too.

    Operation names and communicator handles are interned across chunks. Raises ValueError for a needle that is empty or
    holds a newline.
    """

    def __init__(self, needles: Sequence[bytes]) -> None:
        for needle in needles:
            if not needle:
                raise ValueError("a needle is empty: it would match every line")
            if b"\n" in needle:
                raise ValueError("a needle holds a newline: it could match no line")
        self._needles = re.compile(b"|".join(map(re.escape, [*needles, b"NCCL"])))
        self._ops: dict[bytes, int] = {}
        self._handles: dict[tuple[bytes, int, int], int] = {}
        self._alone = threading.Lock()

    def scan(self, data: Buffer, first_line: int) -> ScanResult:
        """Read whole lines (the last may lack its newline); ``first_line`` is the absolute number of the first."""
        text = bytes(memoryview(data).cast("B"))
        lines = text.split(b"\n")
        if not lines[-1]:
            lines.pop()
        rows: list[tuple[Any, ...]] = []
        careful: list[tuple[int, int, int]] = []
        blank = other = offset = 0
        for number, line in enumerate(lines, first_line):
            with self._alone:
                row = self._row(line, number)
            if row is not None:
                rows.append(row)
            elif len(line) > LONGEST_LINE_BYTES:
                careful.append((number, offset, len(line)))
            elif not line.strip(b" \r"):
                blank += 1
            elif self._needles.search(line):
                careful.append((number, offset, len(line)))
            else:
                other += 1
            offset += len(line) + 1
        result: dict[str, Any] = _columns(rows, _COLUMNS)
        result["careful"] = np.array(careful, dtype=np.int64).reshape(-1, 3)
        return ScanResult(**{**result, "lines": len(lines), "blank": blank, "other": other})  # type: ignore[typeddict-item]

    def handles(self) -> list[tuple[str, int, int]]:
        """Return (``HOST:PID:TID [DEV]``, communicator pointer, ranks) of every handle so far, by number."""
        return [(prefix.decode("latin-1"), comm, nranks) for prefix, comm, nranks in self._handles]

    def ops(self) -> list[str]:
        """Return the operation names seen so far, by number."""
        return [name.decode("latin-1") for name in self._ops]

    def _row(self, line: bytes, number: int) -> tuple[Any, ...] | None:
        if len(line) > LONGEST_LINE_BYTES or (match := _CLEAN.fullmatch(line)) is None:
            return None
        fields = match.groups()
        time_s = _time_s(fields[:6], fields[6]) if fields[0] is not None else math.nan
        prefix, pid, tid, device, name, op_count, send, receive, count, datatype, redop, root = fields[7:19]
        comm, nranks, stream, task, rank = fields[19:]
        narrow = [int(datatype), int(redop)]
        wide = [int(each) for each in (pid, tid, device, root, nranks, task or b"0", rank or b"0")]
        if max(narrow) > _INT16_MAX or max(wide) > _INT32_MAX or int(count) > _UINT64_MAX or time_s is None:
            return None
        if (op := self._op(name)) is None:
            return None
        key = (prefix, _address(comm), int(nranks))
        handle = self._handles.setdefault(key, len(self._handles))
        global_rank = -1 if rank is None else int(rank)
        head = (handle, op, int(op_count, 16), int(count), *narrow, int(root), global_rank, time_s, number)
        return *head, _address(stream), int(_address(send) == _address(receive))

    def _op(self, name: bytes) -> int | None:
        if name not in self._ops and len(self._ops) == MOST_OPS:
            return None
        return self._ops.setdefault(name, len(self._ops))


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


def _columns(rows: Sequence[tuple[Any, ...]], names: _Names) -> dict[str, npt.NDArray[Any]]:
    values = list(zip(*rows, strict=True)) or [()] * len(names)
    return {name: np.array(column, dtype=dtype) for (name, dtype), column in zip(names, values, strict=True)}


_SIGNATURE_COLUMNS: _Names = (
    ("group", np.int32),
    ("op", np.int32),
    ("count", np.uint64),
    ("datatype", np.int16),
    ("redop", np.int16),
    ("root", np.int32),
)
_TOTAL_COLUMNS: _Names = (
    ("signature", np.int32),
    ("member", np.int32),
    ("records", np.int64),
    ("first_op_count", np.uint64),
    ("last_op_count", np.uint64),
)


class Joiner:
    """Joins records into entries; members are numbered from 0 within their group, at most 2**20 of them."""

    def __init__(self) -> None:
        self._signatures: dict[tuple[int, ...], int] = {}
        self._entries: dict[tuple[int, int, int], int] = {}
        self._members: list[int] = []  # per entry, bit m for member m
        self._seen: dict[tuple[int, int, int], int] = {}
        self._totals: dict[tuple[int, int], list[int]] = {}
        self._alone = threading.Lock()

    def add(
        self,
        group: npt.NDArray[np.int32],
        member: npt.NDArray[np.int32],
        op: npt.NDArray[np.uint8] | npt.NDArray[np.int32],
        op_count: npt.NDArray[np.uint64],
        count: npt.NDArray[np.uint64],
        datatype: npt.NDArray[np.int16],
        redop: npt.NDArray[np.int16],
        root: npt.NDArray[np.int32],
    ) -> npt.NDArray[np.int64]:
        """Add n records; return the entry of each, int64 (n,), numbered in order of first appearance.

        Raises TypeError for a column of another dtype, ValueError for columns of different lengths or a member out of
        range; nothing is added then.
        """
        columns = (group, member, op, op_count, count, datatype, redop, root)
        _require_dtypes(columns)
        if len({len(column) for column in columns}) > 1:
            raise ValueError("the columns have different lengths")
        if len(member) and (int(member.min()) < 0 or int(member.max()) >= MOST_MEMBERS):
            raise ValueError("a member is not in [0, 1048576): number the members of a group from 0")
        rows = zip(*(column.tolist() for column in columns), strict=True)
        with self._alone:
            ids = [self._place((g, o, c, d, r, t), m, n) for g, m, o, n, c, d, r, t in rows]
        return np.array(ids, dtype=np.int64)

    def export(self) -> JoinTables:
        """Return all tables; rows are in order of first appearance."""
        words, offsets = _pack(self._members)
        keys = list(self._entries)
        return {
            "signatures": _columns(list(self._signatures), _SIGNATURE_COLUMNS),
            "entries": {
                "signature": np.array([key[0] for key in keys], dtype=np.int32),
                "op_count": np.array([key[1] for key in keys], dtype=np.uint64),
                "occurrence": np.array([key[2] for key in keys], dtype=np.uint32),
                "members_seen": np.array([bits.bit_count() for bits in self._members], dtype=np.int32),
            },
            "member_bits": {"words": words, "offsets": offsets},
            "totals": _columns([(*key, *total) for key, total in self._totals.items()], _TOTAL_COLUMNS),
        }

    def _place(self, signature: tuple[int, ...], member: int, op_count: int) -> int:
        number = self._signatures.setdefault(signature, len(self._signatures))
        occurrence = self._seen.get((number, op_count, member), 0)
        self._seen[number, op_count, member] = occurrence + 1
        entry = self._entries.setdefault((number, op_count, occurrence), len(self._entries))
        if entry == len(self._members):
            self._members.append(0)
        self._members[entry] |= 1 << member
        total = self._totals.setdefault((number, member), [0, op_count, op_count])
        total[0] += 1
        total[2] = op_count
        return entry


def _require_dtypes(columns: Sequence[npt.NDArray[Any]]) -> None:
    names = ("group", "member", "op", "op_count", "count", "datatype", "redop", "root")
    wanted = ("int32", "int32", "int32 or uint8", "uint64", "uint64", "int16", "int16", "int32")
    for name, column, dtypes in zip(names, columns, wanted, strict=True):
        if column.ndim != 1 or column.dtype.name not in dtypes.split(" or "):
            raise TypeError(f"column '{name}' must be 1-d {dtypes}, not {column.ndim}-d {column.dtype.name}")


def _pack(members: Sequence[int]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    widths = [(bits.bit_length() + 63) // 64 for bits in members]
    packed = b"".join(bits.to_bytes(width * 8, "little") for bits, width in zip(members, widths, strict=True))
    offsets = np.concatenate([[0], np.cumsum(widths, dtype=np.int64)]).astype(np.int64)
    return np.frombuffer(packed, dtype="<u8").astype(np.uint64), offsets
