"""NCCL's NVTX ranges: which call the host made, what its payload carries, and how the communicator was made.

Entries by release: 2.19 ``Message size [bytes]`` (broadcast, send and receive: ``Bytes``), ``Root``, ``Peer rank``, ``Reduction
operation``; later ``NCCL communicator ID`` too. The size is one message, so of all-gather, reduce-scatter, gather, scatter and
all-to-all one rank's part. Sources: ``src/collectives.cc``, ``src/include/nvtx_payload_schemas.h`` of NVIDIA/nccl.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.nccl_functions import OPS
from ringwright.formats.sources.nsys.payloads import Payloads
from ringwright.formats.sources.reader_rows import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringwright.formats.sources.nsys.database import Database

PUSH_POP, START_END, DOMAIN = 59, 60, 75
MOST_RANGES = 5_000_000
GROUP_END = "ncclGroupEnd"
_CALL = re.compile(
    r"^(?:nccl|rccl)(AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|Send|Recv|AllToAll|AlltoAll|Gather|Scatter)\b"
)
_INIT = re.compile(r"^ncclComm(?:InitRank|InitRankConfig|InitRankScalable|Split|Shrink)\b")
_STEP = re.compile(r"(?:profiler)?step\s*[#=:]?\s*(\d+)|^iter(?:ation)?\s*[#_=:]?\s*(\d+)", re.IGNORECASE)
_RANKS = 1 << 24
_MASK = (1 << 64) - 1
# ncclRedOp_t, where the export lacks the names of its values
_REDUCTIONS = {0: "sum", 1: "prod", 2: "max", 3: "min", 4: "avg", "product": "prod", "average": "avg"}
_WANTED = (
    "start",
    "end",
    "eventType",
    "text",
    "textId",
    "globalTid",
    "domainId",
    "uint64Value",
    "int64Value",
    "jsonText",
    "jsonTextId",
    "binaryData",
)


@dataclass(slots=True)
class NvtxRange:
    """One range of a process; times in nanoseconds. Of NCCL's: the operation, or ``is_init`` where a communicator was made."""

    start: int
    end: int
    thread: int
    text: str
    op: str | None = None
    size_bytes: int | None = None
    communicator: str | None = None
    root: int | None = None
    peer: int | None = None
    reduce_op: str | None = None
    is_init: bool = False
    nranks: int | None = None
    comm_rank: int | None = None

    @property
    def step(self) -> int | None:
        """The number of a training step that a range names."""
        match = _STEP.search(self.text)
        return int(next(group for group in match.groups() if group)[:9]) if match else None

    @property
    def tells(self) -> bool:
        """Whether it says anything: a call, a group of calls, a communicator, a step."""
        return self.op is not None or self.is_init or self.text == GROUP_END or self.step is not None


def ranges(database: Database, strings: dict[int, str]) -> Iterator[NvtxRange]:
    """Yield the finished ranges that say anything, in order of their start; those of NCCL with what their payload holds."""
    payloads = Payloads(database)
    for count, row in enumerate(database.rows("NVTX_EVENTS", _WANTED, order="start")):
        start, end, kind, text, text_id, thread = row[:6]
        if count >= MOST_RANGES or kind not in (PUSH_POP, START_END, None):
            continue
        first, last = whole_number(start), whole_number(end)
        if first is None or last is None or last < first:
            continue
        spelled = text if isinstance(text, str) else strings.get(text_id, "") if isinstance(text_id, int) else ""
        nvtx_range = NvtxRange(first, last, whole_number(thread) or 0, spelled[:4096])
        call = _CALL.match(spelled)
        nvtx_range.op, nvtx_range.is_init = (OPS[call[1]] if call else None), bool(_INIT.match(spelled))
        if call or nvtx_range.is_init:
            _take(nvtx_range, _json(row, strings) or payloads.fields(row[11]), row)
        if nvtx_range.tells:
            yield nvtx_range


def _json(row: tuple[Any, ...], strings: dict[int, str]) -> dict[str, Any]:
    """Return the payload of an export that holds it as text."""
    printed = row[9] if isinstance(row[9], str) else strings.get(row[10], "") if isinstance(row[10], int) else ""
    try:
        held = json.loads(printed) if printed else {}
    except (ValueError, RecursionError):
        held = {}
    return held if isinstance(held, dict) else {}


def _take(nvtx_range: NvtxRange, held: Mapping[str, Any], row: tuple[Any, ...]) -> None:
    """Take what the entries say, by their names; the first releases sent the size alone, as a number."""
    for key, value in held.items():
        name = str(key).lower()
        if "size" in name or name == "bytes":
            nvtx_range.size_bytes = _size(value)
        elif "communicator" in name and "parent" not in name:
            nvtx_range.communicator = _identity(value)
        elif name == "root":
            nvtx_range.root = _rank(value)
        elif "peer" in name:
            nvtx_range.peer = _rank(value)
        elif name == "no. of ranks":
            nvtx_range.nranks = _rank(value) or None
        elif name == "rank":
            nvtx_range.comm_rank = _rank(value)
        elif "reduction" in name:
            nvtx_range.reduce_op = _reduction(value)
    if nvtx_range.size_bytes is None and nvtx_range.op is not None:
        nvtx_range.size_bytes = _size(row[8] if row[7] is None else row[7])


def _size(value: object) -> int | None:
    number = whole_number(value)
    return number if number is not None and number >= 0 else None


def _identity(value: Any) -> str:
    """Return a communicator's hash as NCCL's log prints it; SQLite has it as a signed number."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    return f"0x{number & _MASK:x}" if number is not None else str(value)[:64]


def _rank(value: Any) -> int | None:
    number = whole_number(value, _RANKS)
    return number if number is not None and number >= 0 else None


def _reduction(value: Any) -> str | None:
    spelled = value.lower().removeprefix("nccl") if isinstance(value, str) else value
    known = _REDUCTIONS.get(spelled) if isinstance(spelled, str | int) else None
    return known or (spelled if isinstance(spelled, str) and spelled in _REDUCTIONS.values() else None)
