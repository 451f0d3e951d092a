"""The meaning of the native scanner and joiner, in plain Python: the same results, some thirty times slower.

``Scanner`` reads chunks of an NCCL debug log. A *clean* COLL line obeys the grammar of ``twin_lines`` to the byte, behind
launcher prefixes or not, and becomes one row of columns. Two *repaired* lines, one that begins one clean line and ends
with all of another's, and one soon after that goes on with the first, become two rows. A *careful* line is returned as a
span for a patient reader; blank and other lines are only counted, so that ``lines == rows + careful + blank + other``
always holds.

``Joiner`` joins records of many members into logical operations. A *signature* is (group, op, count, datatype, redop,
root); an *entry* is one (signature, op_count, occurrence), where occurrence says how often the same member had shown
the same (signature, op_count) before. The order in which members arrive changes the numbering of entries, never their
contents.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.typing as npt

from ringwright.native import twin_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from ringwright.native.twin_lines import Clean

MOST_OPS = 256
MOST_MEMBERS = 1 << 20

_LONGEST_CUT = 4096
_FARTHEST_TAIL = 6
_BEFORE_NCCL = re.compile(rb"([A-Za-z0-9._-]+):[0-9]+:[0-9]+ \[[0-9]+\]\Z")


class ScanResult(TypedDict):
    """One chunk: thirteen columns of n records, the k careful and m repaired spans, and the counts of all lines.

    ``time_s`` is in seconds since 1970 as if the log's clock were UTC (NaN: no time stamp), ``global_rank`` is -1 where
    RCCL did not print it and ``launch_rank`` where no launcher did, ``line`` is absolute. ``careful`` is (k, 3) and
    ``repaired`` (m, 3): absolute line, offset in the chunk, length in bytes without the newline.
    """

    handle: npt.NDArray[np.int32]
    op: npt.NDArray[np.uint8]
    op_count: npt.NDArray[np.uint64]
    count: npt.NDArray[np.uint64]
    datatype: npt.NDArray[np.int16]
    redop: npt.NDArray[np.int16]
    root: npt.NDArray[np.int32]
    global_rank: npt.NDArray[np.int32]
    launch_rank: npt.NDArray[np.int32]
    time_s: npt.NDArray[np.float64]
    line: npt.NDArray[np.int64]
    stream: npt.NDArray[np.uint64]
    inplace: npt.NDArray[np.uint8]
    careful: npt.NDArray[np.int64]
    repaired: npt.NDArray[np.int64]
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
    ("launch_rank", np.int32),
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
        with self._alone:
            return self._scan(lines, first_line)

    def handles(self, first: int = 0) -> list[tuple[str, int, int]]:
        """Return (``HOST:PID:TID [DEV]``, communicator pointer, ranks) of every handle from number ``first`` on."""
        return [(prefix.decode("latin-1"), comm, nranks) for prefix, comm, nranks in list(self._handles)[first:]]

    def ops(self) -> list[str]:
        """Return the operation names seen so far, by number."""
        return [name.decode("latin-1") for name in self._ops]

    def _scan(self, lines: list[bytes], first_line: int) -> ScanResult:
        rows: list[tuple[Any, ...]] = []
        spans: dict[str, list[tuple[int, int, int]]] = {"careful": [], "repaired": []}
        counts = {"lines": len(lines), "blank": 0, "other": 0}
        offset, tail = 0, -1
        for index, line in enumerate(lines):
            kind, farther = ("repaired", tail) if index == tail else self._take(lines, index, first_line + index, rows)
            tail = farther if kind == "repaired" else tail
            if kind in spans:
                spans[kind].append((first_line + index, offset, len(line)))
            elif kind in counts:
                counts[kind] += 1
            offset += len(line) + 1
        result: dict[str, Any] = _columns(rows, _COLUMNS)
        result |= {kind: np.array(places, dtype=np.int64).reshape(-1, 3) for kind, places in spans.items()}
        return ScanResult(**{**result, **counts})  # type: ignore[typeddict-item]

    def _take(self, lines: list[bytes], index: int, number: int, rows: list[tuple[Any, ...]]) -> tuple[str, int]:
        """Add the rows of one line; return what kind of line it is and, of a repaired one, where its rest stands."""
        line = lines[index]
        row = twin_lines.parse_row(line)
        if row is not None and (row.op in self._ops or len(self._ops) < MOST_OPS):
            self._ops.setdefault(row.op, len(self._ops))
            self._handles.setdefault((row.prefix, row.comm, row.nranks), len(self._handles))
            rows.append(self._row(row, number))
            return "row", -1
        mended = self._mend(lines, index)
        if mended is not None:
            rows.extend(self._row(each, number) for each in mended[:2])
            return "repaired", mended[2]
        if len(line) > twin_lines.LONGEST_LINE_BYTES:
            return "careful", -1
        if not line.strip(b" \r"):
            return "blank", -1
        return "careful" if self._needles.search(line) else "other", -1

    def _row(self, row: Clean, number: int) -> tuple[Any, ...]:
        handle = self._handles[row.prefix, row.comm, row.nranks]
        what = (row.op_count, row.elements, row.datatype, row.redop, row.root, row.global_rank)
        when = (row.launch_rank, row.time_s, number)
        return handle, self._ops[row.op], *what, *when, row.stream, row.inplace

    def _known(self, row: Clean) -> bool:
        return row.op in self._ops and (row.prefix, row.comm, row.nranks) in self._handles

    def _mend(self, lines: list[bytes], index: int) -> tuple[Clean, Clean, int] | None:
        """Take apart a line that begins one clean line and ends with all of another's; find where the first goes on.

        Only handles and operations known already will do: what is made of pieces must introduce nothing.
        """
        line = lines[index]
        cut = self._find_whole(line) if len(line) <= _LONGEST_CUT else None
        if cut is None or not cut[0] or twin_lines.parse(line[: cut[0]]):
            return None
        for at in range(index + 1, min(index + 1 + _FARTHEST_TAIL, len(lines))):
            tail = lines[at]
            if twin_lines.parse_row(tail) is not None:
                continue
            joined = twin_lines.parse(line[: cut[0]] + tail) if len(tail) <= _LONGEST_CUT else None
            if joined is not None and self._known(joined):
                return cut[1], joined, at
            if len(tail) > _LONGEST_CUT or self._needles.search(tail):
                return None
        return None

    def _find_whole(self, line: bytes) -> tuple[int, Clean] | None:
        """Return where the whole line begins that ends this one; its host may have run into the cut text before it."""
        mark = line.rfind(b" NCCL INFO ")
        match = _BEFORE_NCCL.search(line[:mark]) if mark >= 0 else None
        parsed = twin_lines.parse(line[match.end(1) - 1 :]) if match else None
        if match is None or parsed is None:
            return None
        for start in range(max(match.start(1), match.end(1) - 255), match.end(1)):
            whole = parsed._replace(prefix=line[start:mark])
            if self._known(whole):
                stamp = twin_lines.stamp_before(line[:start])
                return (start, whole) if stamp is None else (stamp[0], whole._replace(time_s=stamp[1]))
        return None


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
