"""NCCL's NVTX ranges: which call the host made, and the size that its payload carries."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringwright.sources.gathered import whole_number
from ringwright.sources.nccl_functions import OPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringwright.sources.nsys.database import Database

PUSH_POP, START_END, DOMAIN = 59, 60, 75
MOST_RANGES = 5_000_000
_CALL = re.compile(
    r"^(?:nccl|rccl)(AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|Send|Recv|AllToAll|AlltoAll|Gather|Scatter)\b"
)
_STEP = re.compile(r"(?:profiler)?step\s*[#=:]?\s*(\d+)|^iter(?:ation)?\s*[#_=:]?\s*(\d+)", re.IGNORECASE)


@dataclass(slots=True)
class NvtxRange:
    """One range of a process; times in nanoseconds."""

    start: int
    end: int
    thread: int
    text: str
    op: str | None = None
    size_bytes: int | None = None
    communicator: str | None = None
    root: int | None = None
    peer: int | None = None

    @property
    def step(self) -> int | None:
        """The number of a training step that a range names."""
        match = _STEP.search(self.text)
        return int(next(group for group in match.groups() if group)[:9]) if match else None


def ranges(database: Database, strings: dict[int, str]) -> Iterator[NvtxRange]:
    """Yield the finished ranges in order of their start; those of NCCL have an operation."""
    wanted = (
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
    )
    for count, row in enumerate(database.rows("NVTX_EVENTS", wanted, order="start")):
        start, end, kind, text, text_id, thread = row[:6]
        if count >= MOST_RANGES or kind not in (PUSH_POP, START_END, None):
            continue
        first, last = whole_number(start), whole_number(end)
        if first is None or last is None or last < first:
            continue
        spelled = text if isinstance(text, str) else strings.get(text_id, "") if isinstance(text_id, int) else ""
        nvtx_range = NvtxRange(first, last, whole_number(thread) or 0, spelled[:4096])
        call = _CALL.match(spelled)
        if call:
            nvtx_range.op = OPS[call[1]]
            _payload(nvtx_range, row, strings)
        yield nvtx_range


def _payload(nvtx_range: NvtxRange, row: tuple[Any, ...], strings: dict[int, str]) -> None:
    """Take size, root and communicator: NCCL sends them as a structure (JSON in the export), older ones only the size."""
    printed = row[9] if isinstance(row[9], str) else strings.get(row[10], "") if isinstance(row[10], int) else ""
    try:
        held = json.loads(printed) if printed else {}
    except (ValueError, RecursionError):
        held = {}
    for key, value in held.items() if isinstance(held, dict) else ():
        name = str(key).lower()
        number = whole_number(value)
        if "size" in name and number is not None and number >= 0:
            nvtx_range.size_bytes = number
        elif "communicator" in name:
            nvtx_range.communicator = str(value)[:64]
        elif "root" in name:
            nvtx_range.root = whole_number(value, 1 << 24)
        elif "peer" in name:
            nvtx_range.peer = whole_number(value, 1 << 24)
    if nvtx_range.size_bytes is None:
        number = whole_number(row[7]) if row[7] is not None else whole_number(row[8])
        nvtx_range.size_bytes = number if number is not None and number >= 0 else None
