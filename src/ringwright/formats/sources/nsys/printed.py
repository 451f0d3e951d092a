"""What ``nsys stats`` prints of kernels, as columns or CSV: each (``cuda_gpu_trace``), or sums by name (``cuda_gpu_kern_sum``).

Sums are read where no table of single kernels is: both tell of the same ones. Numbers may have commas between thousands, and
columns of text may be empty: of a kernel the first two, the device in brackets and the last two are told.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringwright.formats.sources.kernel_names import LIMITS, library_of, printed_kernel
from ringwright.formats.sources.launchers import plain
from ringwright.formats.sources.members import Member
from ringwright.formats.sources.ranks import rank_in_name
from ringwright.formats.sources.reader_rows import Gathered, whole_number
from ringwright.formats.sources.tables.printed_tables import column_names
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "nsys-text"
LONGEST_LINE = 1 << 16
MOST_ROWS = 5_000_000
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_COLUMN = re.compile(
    r"\bTime ?\(%\)|\bTotal Time \(\w+\)|\bInstances\b|\b(?:Avg|Med|Min|Max|StdDev|Start|Duration) \(\w+\)|\bCorrId\b"
    r"|\bGrd[XYZ]\b|\bBlk[XYZ]\b|\bReg/Trd\b|\b(?:StcSMem|DymSMem|Bytes|Throughput) \([\w/]+\)|\b(?:Src|Dst)MemKd\b|\bDevice\b"
    r"|\bCtx\b|\bGreenCtx\b|\bStrm\b|\bName\b"
)
_ROW = re.compile(r"\s*(?P<a>[\d,.]+)\s+(?P<b>[\d,.]+)\s+\d+\s(?P<rest>.*)")
_BEHIND = re.compile(r".*\((?P<device>\d{1,4})\)\s+\d+\s+(?:\d+\s+)?(?P<stream>\d+)\s+(?P<name>\S.*)")
_DEVICE = re.compile(r"\((\d{1,4})\)$")


@dataclass(frozen=True, slots=True)
class PrintedKernel:
    """One kernel, or all of a name: seconds, how many, and of one when, where and in which stream."""

    name: str
    duration_s: float
    line: int
    count: int = 1
    start_s: float | None = None
    device: int | None = None
    stream: str | None = None


def read_nsys_text(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the kernels that such tables hold; InputError where none holds one."""
    gathered = Gathered(KIND)
    for member in gathered.members(sources, progress):
        gathered.inputs.append(member.name)
        kernels = list(_kernels(gathered, member))
        single = [each for each in kernels if each.start_s is not None]
        for each in single or kernels:
            _emit(gathered, member, each)
    if not gathered.events.total:
        raise InputError(
            "no kernel in what nsys stats printed",
            where=", ".join(source.name for source in sources[:3]),
            remedy="nsys stats --report cuda_gpu_trace --format csv FILE.nsys-rep, or: nsys export --type sqlite",
        )
    return gathered.trace(from_zero=True, library=library_of(gathered.events.frame()), limits=list(LIMITS))


def _kernels(gathered: Gathered, member: Member) -> Iterator[PrintedKernel]:
    """Yield the kernels of a file; a blank line ends a table."""
    columns: tuple[str, ...] = ()
    number = 0
    while (data := member.stream.readline(LONGEST_LINE)) and number < MOST_ROWS:
        number += 1
        text = plain(data.decode("utf-8", "replace").rstrip("\r\n"))
        names = column_names(_COLUMN, text.replace(",", " ").replace('"', " "))
        if names and names[-1] == "Name":
            columns = names
            continue
        columns = columns if text.strip() else ()
        if not columns or not text.strip(" -"):
            continue
        kernel = _of_csv(text, number, columns) or _of_text(text, number, columns)
        gathered.note(member.name, "understood" if kernel else "other", "kernels" if kernel else "of no kernel")
        if kernel:
            yield kernel


def _unit(columns: tuple[str, ...], name: str) -> tuple[int, float] | None:
    """Return where a column of times stands, and its unit in seconds."""
    for at, column in enumerate(columns):
        if column.startswith(f"{name} ("):
            unit = _SECONDS.get(column[len(name) + 2 : -1])
            return (at, unit) if unit else None
    return None


def _of_csv(text: str, line: int, columns: tuple[str, ...]) -> PrintedKernel | None:
    try:
        words = next(csv.reader([text]), [])
    except csv.Error:
        return None
    if len(words) != len(columns):
        return None
    device = _DEVICE.search(dict(zip(columns, words, strict=True)).get("Device", ""))
    stream = dict(zip(columns, words, strict=True)).get("Strm")
    return _kernel(words, words[-1].strip(), line, columns, device[1] if device else None, stream)


def _of_text(text: str, line: int, columns: tuple[str, ...]) -> PrintedKernel | None:
    if _unit(columns, "Start") is None:
        words = text.split(None, len(columns) - 1)
        return _kernel(words, words[-1].strip(), line, columns) if len(words) == len(columns) else None
    row = _ROW.fullmatch(text)
    if row is None:
        return None
    chunks = re.split(r"\s{2,}", row["rest"].strip())
    behind = _BEHIND.fullmatch(row["rest"])
    if behind:
        return _kernel([row["a"], row["b"]], behind["name"].strip(), line, columns, behind["device"], behind["stream"])
    return _kernel([row["a"], row["b"]], chunks[-1], line, columns, None, chunks[-2] if len(chunks) > 1 else None)


def _kernel(
    words: list[str],
    name: str,
    line: int,
    columns: tuple[str, ...],
    device: str | None = None,
    stream: str | None = None,
) -> PrintedKernel | None:
    """Return the kernel of a row whose first words are times; None where they are none."""
    start, lasted, mean = (_seconds(words, _unit(columns, column)) for column in ("Start", "Duration", "Avg"))
    if start is not None and lasted is not None:
        return PrintedKernel(name, lasted, line, 1, start, whole_number(device), stream)
    at = columns.index("Instances") if "Instances" in columns else len(words)
    count = whole_number(words[at].replace(",", "").strip()) if at < len(words) else None
    return PrintedKernel(name, mean, line, count) if mean is not None and count and count > 0 else None


def _seconds(words: list[str], unit: tuple[int, float] | None) -> float | None:
    if unit is None or unit[0] >= len(words):
        return None
    try:
        value = float(words[unit[0]].replace(",", "")) * unit[1]
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


def _emit(gathered: Gathered, member: Member, kernel: PrintedKernel) -> None:
    rank = rank_in_name(member.name)
    if rank is not None:
        gathered.device(rank)
    row = printed_kernel(kernel.name) | {"rank": rank, "multiplicity": kernel.count, "records": 1, "text": kernel.name}
    row |= {
        "start_s": kernel.start_s,
        "duration_s": kernel.duration_s,
        "device": kernel.device,
        "stream": kernel.stream,
    }
    clock = f"gpu:{rank if rank is not None else member.title}" if kernel.start_s is not None else None
    gathered.events.add(**row, clock=clock, file=member.name, line=kernel.line)
