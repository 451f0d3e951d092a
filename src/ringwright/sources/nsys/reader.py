"""From Nsight Systems exports to a Trace."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.errors import InputError
from ringwright.sources.gathered import Gathered, whole_number
from ringwright.sources.kernel_names import KernelKind, classify
from ringwright.sources.nsys.database import Database, opened
from ringwright.sources.nsys.ranges import NvtxRange, ranges
from ringwright.sources.ranks import rank_in_name, world_of

if TYPE_CHECKING:
    from ringwright.sources.source import Source
    from ringwright.trace import Trace

KIND = "nsys"
_PID = 0xFFFFFF
_REMEDY = "nsys export --type sqlite -o report.sqlite report.nsys-rep"
_KERNEL = (
    "start",
    "end",
    "deviceId",
    "streamId",
    "globalPid",
    "correlationId",
    "demangledName",
    "shortName",
    "mangledName",
    "graphNodeId",
    "graphId",
)
_CALLED = ("nccl", "rccl")  # whose calls the ranges are; kernels of others have none
_PARTS = ("all-gather", "gather")  # NCCL's message size of these is one rank's part


@dataclass(slots=True)
class _Kernel:
    """A communication kernel, kept until the ranges are known."""

    start: int
    end: int
    stream: str
    name: str
    kind: KernelKind
    enqueue: int | None
    is_graph: bool


@dataclass
class _File:
    """One export: its processes and what ran in them."""

    name: str
    origin_ns: int | None
    shift_ns: int = 0
    strings: dict[int, str] = field(default_factory=dict)
    rank_of: dict[int, int | None] = field(default_factory=dict)  # pid -> rank
    kernels: dict[int, list[_Kernel]] = field(default_factory=lambda: defaultdict(list))
    kinds: dict[str, KernelKind] = field(default_factory=dict)
    rows: int = 0


def read_nsys(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's exports; InputError where none holds a kernel, copy or range."""
    gathered = Gathered(KIND)
    reasons: list[str] = []
    origin = _origin(sources)
    ranks: set[int] = set()
    for number, source in enumerate(sources):
        try:
            with opened(source, progress) as held:
                if held is None:
                    reasons.append(f"{source.name} is no SQLite file")
                    gathered.lose(reasons[-1])
                    continue
                file = _File(held[0], _session_start(held[1]))
                file.shift_ns = (file.origin_ns - origin) if origin and file.origin_ns else 0
                _read(gathered, file, held[1], number if len(sources) > 1 else None)
                ranks |= {rank for rank in file.rank_of.values() if rank is not None}
                gathered.inputs.append(file.name)
        except (sqlite3.Error, OSError, OverflowError, ValueError) as error:
            reasons.append(f"{source.name}: {type(error).__name__}: {error}")
            gathered.note(source.name, "refused", f"SQLite: {error}")
            gathered.lose(reasons[-1])
        gathered.damage(source.name, source.losses)
    if not gathered.events.total:
        what = reasons[0] if reasons else "no kernel, copy or range in these exports"
        raise InputError(f"nothing to read: {what}", where=", ".join(s.name for s in sources[:3]), remedy=_REMEDY)
    return gathered.trace(world=world_of(ranks), library="nccl", origin_ns=origin)


def _session_start(database: Database) -> int | None:
    start = whole_number(database.first("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"))
    return start if start and start > 0 else None


def _origin(sources: list[Source]) -> int | None:
    """Return the earliest session start: time 0 of the Trace, as every export counts from its own."""
    starts = []
    for source in sources:
        try:
            with opened(source, None) as held:
                start = _session_start(held[1]) if held else None
        except (sqlite3.Error, OSError, ValueError):
            continue
        if start:
            starts.append(start)
    return min(starts, default=None)


def _read(gathered: Gathered, file: _File, database: Database, number: int | None) -> None:
    file.strings = {key: text for key, text in database.rows("StringIds", ("id", "value")) if isinstance(text, str)}
    _processes(gathered, file, database, number)
    launches = _launches(database)
    _kernels(gathered, file, database, launches)
    _copies(gathered, file, database)
    calls = _ranges(gathered, file, database)
    for pid, kernels in file.kernels.items():
        _emit(gathered, file, pid, kernels, calls.get(pid, []))
    gathered.note(file.name, "understood", "kernels, copies and ranges", file.rows)
    known = {"CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"} & database.columns.keys()
    if not known:
        gathered.lose(f"{file.name}: no table of kernels and none of NVTX ranges (record with -t cuda,nvtx)")


def _processes(gathered: Gathered, file: _File, database: Database, number: int | None) -> None:
    """Give each process its rank: by the table of MPI ranks, else by the file's name, else by its device."""
    host = next(
        (str(v) for n, v in database.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value")) if n == "Hostname"), None
    )
    used: dict[int, int | None] = {}
    for pid, device in database.rows("CUPTI_ACTIVITY_KIND_KERNEL", ("globalPid", "deviceId")):
        used.setdefault(_pid(pid), whole_number(device))
    said = {_pid(pid): whole_number(rank, 1 << 24) for pid, rank in database.rows("MPI_RANKS", ("globalPid", "rank"))}
    named = rank_in_name(file.name)
    for pid, device in used.items():
        rank, ground = said.get(pid), "read"
        if rank is None and len(used) == 1:
            rank, ground = (
                (named, "inferred") if named is not None else (number if number is not None else 0, "assumed")
            )
        elif rank is None:
            rank, ground = device, "assumed"
        file.rank_of[pid] = rank
        gathered.device(rank, host, pid, device)
        if ground != "read":
            how = (
                "from the file's name"
                if ground == "inferred"
                else "no rank is recorded (device or place in the list taken)"
            )
            gathered.claim("rank", rank, file.name, ground=ground, confidence=0.6, note=f"process {pid}: {how}")
    for gpu in {str(name) for (name,) in database.rows("TARGET_INFO_GPU", ("name",)) if name}:
        gathered.claim("gpu", gpu, file.name)


def _pid(value: Any) -> int:
    """Return the process of a globalPid or globalTid: bits 24 to 47."""
    return (whole_number(value) or 0) >> 24 & _PID


def _launches(database: Database) -> dict[tuple[int, int], int]:
    """Return when the host launched: (process, correlation) -> start."""
    wanted = ("globalTid", "correlationId", "start")
    return {
        (_pid(thread), correlation): start
        for thread, correlation, start in database.rows("CUPTI_ACTIVITY_KIND_RUNTIME", wanted)
        if isinstance(correlation, int) and isinstance(start, int)
    }


def _kernels(gathered: Gathered, file: _File, database: Database, launches: dict[tuple[int, int], int]) -> None:
    """Write compute kernels, keep those of communication."""
    for row in database.rows("CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL, order="start"):
        start, end = whole_number(row[0]), whole_number(row[1])
        if start is None or end is None or end < start:
            gathered.note(file.name, "refused", "a kernel without start and end")
            continue
        file.rows += 1
        name = _name(file, row[6:9])
        kind = file.kinds.setdefault(name, classify(name))
        pid = _pid(row[4])
        enqueue = launches.get((pid, row[5])) if isinstance(row[5], int) else None
        if kind.op is not None:
            is_graph = row[9] is not None or row[10] is not None
            file.kernels[pid].append(_Kernel(start, end, str(row[3]), name, kind, enqueue, is_graph))
            continue
        gathered.events.add(
            kind="compute",
            kernel=name,
            kernel_class=kind.kernel_class,
            **_common(file, pid, row[2], row[3]),
            **_times(file, pid, start, end, enqueue),
        )


def _name(file: _File, ids: tuple[Any, ...]) -> str:
    """Return a kernel's name: the demangled one, else the short one; a number stands for a string of the file."""
    for value in ids:
        name = file.strings.get(value, "") if isinstance(value, int) else value if isinstance(value, str) else ""
        if name:
            return name[:4096]
    return "unnamed kernel"


def _common(file: _File, pid: int, device: Any, stream: Any) -> dict[str, Any]:
    return {
        "rank": file.rank_of.get(pid),
        "pid": pid,
        "device": whole_number(device),
        "stream": str(stream),
        "records": 1,
        "multiplicity": 1,
        "source": KIND,
        "file": file.name,
        "ground": "read",
        "confidence": 1.0,
    }


def _times(file: _File, pid: int, start: int, end: int, enqueue: int | None) -> dict[str, Any]:
    rank = file.rank_of.get(pid)
    return {
        "start_s": (start + file.shift_ns) * 1e-9,
        "duration_s": (end - start) * 1e-9,
        "enqueue_s": (enqueue + file.shift_ns) * 1e-9 if enqueue is not None else None,
        "clock": f"gpu:{rank if rank is not None else pid}",
    }


def _copies(gathered: Gathered, file: _File, database: Database) -> None:
    for table, op in (("CUPTI_ACTIVITY_KIND_MEMCPY", "copy"), ("CUPTI_ACTIVITY_KIND_MEMSET", "set")):
        wanted = ("start", "end", "deviceId", "streamId", "globalPid", "bytes")
        for start, end, device, stream, process, size in database.rows(table, wanted, order="start"):
            first, last = whole_number(start), whole_number(end)
            if first is None or last is None or last < first:
                continue
            file.rows += 1
            pid = _pid(process)
            gathered.events.add(
                kind="memory",
                op=op,
                kernel_class="memory",
                size_bytes=whole_number(size),
                **_common(file, pid, device, stream),
                **_times(file, pid, first, last, None),
            )


def _ranges(gathered: Gathered, file: _File, database: Database) -> dict[int, list[NvtxRange]]:
    """Return NCCL's calls by process; ranges that name a training step become steps."""
    calls: dict[int, list[NvtxRange]] = defaultdict(list)
    for item in ranges(database, file.strings):
        pid = _pid(item.thread)
        if item.op is not None:
            calls[pid].append(item)
            file.rows += 1
        elif item.step is not None:
            file.rows += 1
            gathered.events.add(
                kind="step",
                rank=file.rank_of.get(pid),
                iteration=item.step,
                text=item.text,
                records=1,
                multiplicity=1,
                start_s=(item.start + file.shift_ns) * 1e-9,
                duration_s=(item.end - item.start) * 1e-9,
                source=KIND,
                clock=f"host:rank{file.rank_of.get(pid)}",
                file=file.name,
                ground="read",
                confidence=1.0,
            )
    return calls


def _emit(gathered: Gathered, file: _File, pid: int, kernels: list[_Kernel], calls: list[NvtxRange]) -> None:
    """Write a process's communication kernels with the sizes of the calls that they belong to."""
    matched = _matched(gathered, file, kernels, calls)
    counters: Counter[int] = Counter()
    rank = file.rank_of.get(pid)
    for index, kernel in enumerate(kernels):
        call = matched.get(index)
        name = call.communicator if call and call.communicator else f"stream {kernel.stream}"
        ground = "read" if call and call.communicator else "inferred"
        number = gathered.communicator(name, name=name, ground=ground, confidence=1.0 if ground == "read" else 0.5)
        gathered.of(number)["ranks"].add(rank)
        is_pointwise = kernel.kind.op == "send-recv"
        sequence = None
        if not is_pointwise:
            sequence, counters[number] = counters[number], counters[number] + 1
        size = call.size_bytes if call and kernel.kind.op not in _PARTS else None
        row = _common(file, pid, None, kernel.stream) | _times(file, pid, kernel.start, kernel.end, kernel.enqueue)
        row |= {"kind": "p2p" if is_pointwise else "collective", "op": kernel.kind.op, "communicator": number}
        row |= {
            "sequence": sequence,
            "kernel": kernel.name,
            "kernel_class": kernel.kind.kernel_class,
            "size_bytes": size,
        }
        row |= {"sent_bytes": call.size_bytes if call else None, "graph_replay": 1 if kernel.is_graph else None}
        row |= {
            "algorithm": kernel.kind.algorithm,
            "protocol": kernel.kind.protocol,
            "root": call.root if call else None,
        }
        gathered.events.add(**row)


def _matched(gathered: Gathered, file: _File, kernels: list[_Kernel], calls: list[NvtxRange]) -> dict[int, NvtxRange]:
    """Return kernel -> call by order within an operation, only where both are equally many (no graphs, no fusing)."""
    by_op: dict[str, list[NvtxRange]] = defaultdict(list)
    for call in calls:
        by_op[call.op or ""].append(call)
    places: dict[str, list[int]] = defaultdict(list)
    for index, kernel in enumerate(kernels):
        if kernel.kind.kernel_class in _CALLED:
            places[kernel.kind.op or ""].append(index)
    matched: dict[int, NvtxRange] = {}
    for op, mine in places.items():
        said = by_op.get(op, [])
        if len(said) == len(mine):
            matched.update(zip(mine, said, strict=True))
        elif said:
            reason = (
                f"{op}: {len(said)} calls and {len(mine)} kernels, so no size is given (grouped calls, or CUDA graphs)"
            )
            gathered.claim(f"sizes of {op}", "not matched", file.name, ground="inferred", confidence=0.0, note=reason)
    return matched
