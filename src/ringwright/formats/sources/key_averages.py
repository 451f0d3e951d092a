"""The table of ``key_averages().table()`` of PyTorch's profiler: kernels of communication and of compute, summed by name.

Of its rows those are kernels that took time on the device and none on the host; what the host called (``c10d::allreduce_``)
holds the same time again. Names are cut at a width that the caller chose. Source: ``torch/autograd/profiler_util.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.formats.sources.c10d import POINTWISE, operation
from ringwright.formats.sources.kernel_names import LIMITS, library_of, printed_kernel
from ringwright.formats.sources.launchers import plain
from ringwright.formats.sources.members import Member
from ringwright.formats.sources.ranks import rank_in_name
from ringwright.formats.sources.reader_rows import Gathered, whole_number
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

KIND = "key-averages"
LONGEST_LINE = 1 << 16
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_TIME = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(us|ms|s)")
_TOTAL = re.compile(r"^\s*Self (\w+) time total: (\S+)\s*$")
_ANNOTATED = "nccl:"  # how PyTorch names the stretch of its own kernels on the device
_DEVICE = re.compile(r"Self (?!CPU)(\w+)")


@dataclass(frozen=True, slots=True)
class SummedKernel:
    """All kernels of a name: seconds on the device in all, and how many."""

    name: str
    total_s: float
    count: int
    line: int


def read_key_averages(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the kernels of such tables; InputError where none holds one."""
    gathered = Gathered(KIND)
    for member in gathered.members(sources, progress):
        gathered.inputs.append(member.name)
        kernels = list(_kernels(gathered, member))
        named = {each.name: printed_kernel(each.name) for each in kernels}
        called = {row.get("op") for name, row in named.items() if not name.startswith(_ANNOTATED)}
        for each in kernels:
            row = named[each.name]
            if each.name.startswith(_ANNOTATED):
                op = operation(each.name.removeprefix(_ANNOTATED).partition(" ")[0])
                if op is None or op in called:  # its kernels have rows of their own
                    continue
                row = {
                    "kind": "p2p" if op in POINTWISE else "collective",
                    "op": op,
                    "kernel": each.name,
                    "kernel_class": "nccl",
                }
            _emit(gathered, member, each, row)
    if not gathered.events.total:
        raise InputError(
            "no kernel in a table of key_averages()",
            where=", ".join(source.name for source in sources[:3]),
            remedy="record with ProfilerActivity.CUDA and print(prof.key_averages().table(row_limit=-1))",
        )
    library = library_of(gathered.events.frame())
    return gathered.trace(library=library, limits=[*LIMITS, "when kernels ran: sums by name are printed"])


def _kernels(gathered: Gathered, member: Member) -> Iterator[SummedKernel]:
    columns: list[str] = []
    number = 0
    while data := member.stream.readline(LONGEST_LINE):
        number += 1
        text = plain(data.decode("utf-8", "replace").rstrip("\r\n"))
        words = re.split(r"\s{2,}|\t", text.strip())
        if words[0] == "Name" and "# of Calls" in words:
            columns = words
            continue
        total = _TOTAL.match(text)
        if total and (seconds := _seconds(total[2])) is not None:
            gathered.claim(f"time on {total[1]} in all", f"{seconds:.6g} s", member.name)
        if len(words) < 3 or len(words) != len(columns):
            continue
        kernel = _kernel(dict(zip(columns, words, strict=True)), number)
        gathered.note(
            member.name, "understood" if kernel else "other", "kernels" if kernel else "of what the host called"
        )
        if kernel:
            yield kernel


def _kernel(under: dict[str, str], line: int) -> SummedKernel | None:
    """Return the kernel of a row, None where the host took time for it or the device none."""
    device = next((match[1] for name in under if (match := _DEVICE.fullmatch(name))), "CUDA")
    own, host = _seconds(under.get(f"Self {device}", "")), _seconds(under.get("CPU total", ""))
    count = whole_number(under.get("# of Calls"))
    if not own or host or not count or count < 1:
        return None
    return SummedKernel(under["Name"], own, count, line)


def _seconds(text: str) -> float | None:
    match = _TIME.fullmatch(text)
    return float(match[1]) * _SECONDS[match[2]] if match else None


def _emit(gathered: Gathered, member: Member, kernel: SummedKernel, row: Row) -> None:
    rank = rank_in_name(member.name)
    if rank is not None:
        gathered.device(rank)
    row = row | {"rank": rank, "multiplicity": kernel.count, "records": 1, "text": kernel.name}
    gathered.events.add(**row, duration_s=kernel.total_s / kernel.count, file=member.name, line=kernel.line)
