"""What one export holds, and what the making of NCCL's communicators tells of its processes: their ranks, and who is together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ringwright.formats.sources.kernel_names import KernelKind
from ringwright.formats.sources.nsys.matching import CommunicationKernel
from ringwright.formats.sources.nsys.ranges import NvtxRange
from ringwright.formats.sources.reader_rows import MOST_MEMBERS, Gathered, whole_number

_PID = 0xFFFFFF


@dataclass(slots=True)
class NcclGroup:
    """What the making of a communicator told: how many ranks, and which process has which."""

    nranks: int | None = None
    comm_ranks: dict[int, int] = field(default_factory=dict)  # process -> rank in the communicator


@dataclass
class ExportFile:
    """One export: its processes and what ran in them."""

    name: str
    origin_ns: int | None
    shift_ns: int = 0
    strings: dict[int, str] = field(default_factory=dict)
    rank_of: dict[int, int | None] = field(default_factory=dict)  # pid -> rank
    kernels: dict[int, list[CommunicationKernel]] = field(default_factory=lambda: defaultdict(list))
    groups: dict[str, NcclGroup] = field(default_factory=dict)  # communicator -> who
    said: dict[int, list[NvtxRange]] = field(default_factory=lambda: defaultdict(list))  # pid -> its ranges
    kinds: dict[str, KernelKind] = field(default_factory=dict)
    rows: int = 0


def process_of(value: Any) -> int:
    """Return the process of a globalPid or globalTid: bits 24 to 47."""
    return (whole_number(value) or 0) >> 24 & _PID


def note_groups(file: ExportFile) -> None:
    """Note who made which communicator."""
    for pid, said in file.said.items():
        for item in said:
            if not item.is_init or item.communicator is None:
                continue
            group = file.groups.setdefault(item.communicator, NcclGroup())
            group.nranks = group.nranks or item.nranks
            if item.comm_rank is not None and item.comm_rank < (group.nranks or 0):
                group.comm_ranks[pid] = item.comm_rank


def ranks_of_nccl(file: ExportFile) -> dict[int, int]:
    """Return process -> rank in the largest communicator it is in, where all of that size agree."""
    ranks: dict[int, int] = {}
    largest = max((group.nranks or 0 for group in file.groups.values()), default=0)
    wholes = [group for group in file.groups.values() if group.nranks == largest and largest > 1]
    for pid in {pid for group in wholes for pid in group.comm_ranks}:
        told = {group.comm_ranks[pid] for group in wholes if pid in group.comm_ranks}
        if len(told) == 1:
            ranks[pid] = told.pop()
    return ranks


def note_members(gathered: Gathered, files: Sequence[ExportFile]) -> None:
    """Give each communicator its members, as far as the processes that made it were recorded."""
    for name, row in gathered.comms.items():
        held = [(file, file.groups[name]) for file in files if name in file.groups]
        size = next((group.nranks for _, group in held if group.nranks), None)
        if size is None or size > MOST_MEMBERS:
            continue
        members = [-1] * size
        for file, group in held:
            for pid, comm_rank in group.comm_ranks.items():
                rank = file.rank_of.get(pid)
                members[comm_rank] = rank if rank is not None and comm_rank < size else -1
        row["members"], row["size"] = members, size
