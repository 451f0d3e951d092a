"""From Nsight Systems exports to a Trace."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.c10d import POINTWISE
from ringwright.formats.sources.kernel_names import classify
from ringwright.formats.sources.nsys.database import Database, opened
from ringwright.formats.sources.nsys.export_file import (
    ExportFile,
    NcclGroup,
    note_groups,
    note_members,
    process_of,
    ranks_of_nccl,
)
from ringwright.formats.sources.nsys.matching import CommunicationKernel, match
from ringwright.formats.sources.nsys.ranges import GROUP_END, NvtxRange, ranges
from ringwright.formats.sources.ranks import rank_in_name, world_of
from ringwright.formats.sources.reader_rows import Gathered, whole_number
from ringwright.ground.errors import InputError
from ringwright.ground.trace_tables import Row

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "nsys"
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
# NCCL's message size of these is one rank's part; the whole is that times the ranks
_PARTS = ("all-gather", "gather", "reduce-scatter", "scatter", "all-to-all")
_RECEIVED = ("reduce-scatter", "scatter")


def read_nsys(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's exports; InputError where none holds a kernel, copy or range."""
    gathered = Gathered(KIND)
    reasons: list[str] = []
    origin = _origin(sources)
    ranks: set[int] = set()
    known: list[ExportFile] = []
    for number, source in enumerate(sources):
        try:
            with opened(source, progress) as held:
                if held is None:
                    reasons.append(f"{source.name} is no SQLite file")
                    gathered.lose(reasons[-1])
                    continue
                file = ExportFile(held[0], _session_start(held[1]))
                file.shift_ns = (file.origin_ns - origin) if origin and file.origin_ns else 0
                known.append(file)
                _read(gathered, file, held[1], number if len(sources) > 1 else None)
                ranks |= {rank for rank in file.rank_of.values() if rank is not None}
                gathered.inputs.append(file.name)
        except (sqlite3.Error, OSError, OverflowError, ValueError) as error:
            reasons.append(f"{source.name}: {type(error).__name__}: {error}")
            gathered.note(source.name, "refused", f"SQLite: {error}")
            gathered.lose(reasons[-1])
        gathered.damage(source.name, source.losses)
    note_members(gathered, known)
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


def _read(gathered: Gathered, file: ExportFile, database: Database, number: int | None) -> None:
    file.strings = {key: text for key, text in database.rows("StringIds", ("id", "value")) if isinstance(text, str)}
    try:
        for item in ranges(database, file.strings):
            file.said[process_of(item.thread)].append(item)
    except sqlite3.Error as error:  # a table that is damaged does not cost the others
        gathered.note(file.name, "refused", f"NVTX ranges: {error}")
        gathered.lose(f"{file.name}: NVTX ranges from a damaged part on: {error}")
    note_groups(file)
    _processes(gathered, file, database, number)
    launches = _launches(database)
    _kernels(gathered, file, database, launches)
    _copies(gathered, file, database)
    _steps(gathered, file)
    for pid, kernels in file.kernels.items():
        _emit(gathered, file, pid, kernels)
    file.kernels.clear()
    file.said.clear()
    gathered.note(file.name, "understood", "kernels, copies and ranges", file.rows)
    known = {"CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"} & database.columns.keys()
    if not known:
        gathered.lose(f"{file.name}: no table of kernels and none of NVTX ranges (record with -t cuda,nvtx)")


def _processes(gathered: Gathered, file: ExportFile, database: Database, number: int | None) -> None:
    """Give each process its rank: by the table of MPI ranks, else by the file's name, else by its device."""
    host = next(
        (str(v) for n, v in database.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value")) if n == "Hostname"), None
    )
    used: dict[int, int | None] = {}
    of_nccl = ranks_of_nccl(file)
    for pid, device in database.rows("CUPTI_ACTIVITY_KIND_KERNEL", ("globalPid", "deviceId")):
        used.setdefault(process_of(pid), whole_number(device))
    said = {
        process_of(pid): whole_number(rank, 1 << 24) for pid, rank in database.rows("MPI_RANKS", ("globalPid", "rank"))
    }
    named = rank_in_name(file.name)
    for pid, device in used.items():
        rank, ground = said.get(pid), "read"
        if rank is None:
            if pid in of_nccl:
                rank, ground = of_nccl[pid], "inferred"
            elif len(used) > 1:
                rank, ground = device, "assumed"
            else:
                rank, ground = (number or 0, "assumed") if named is None else (named, "inferred")
        file.rank_of[pid] = rank
        gathered.device(rank, host, pid, device)
        if ground != "read":
            how = "no rank is recorded (device or place in the list taken)"
            if ground == "inferred":
                how = "that in NCCL's largest communicator" if pid in of_nccl else "from the file's name"
            gathered.claim("rank", rank, file.name, ground=ground, confidence=0.6, note=f"process {pid}: {how}")
    for gpu in {str(name) for (name,) in database.rows("TARGET_INFO_GPU", ("name",)) if name}:
        gathered.claim("gpu", gpu, file.name)


def _launches(database: Database) -> dict[tuple[int, int], tuple[int, int | None]]:
    """Return when and where the host launched: (process, correlation) -> start, thread."""
    wanted = ("globalTid", "correlationId", "start")
    return {
        (process_of(thread), correlation): (start, whole_number(thread))
        for thread, correlation, start in database.rows("CUPTI_ACTIVITY_KIND_RUNTIME", wanted)
        if isinstance(correlation, int) and isinstance(start, int)
    }


def _kernels(
    gathered: Gathered, file: ExportFile, database: Database, launches: dict[tuple[int, int], tuple[int, int | None]]
) -> None:
    """Write compute kernels, keep those of communication."""
    for row in database.rows("CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL, order="start"):
        start, end = whole_number(row[0]), whole_number(row[1])
        if start is None or end is None or end < start:
            gathered.note(file.name, "refused", "a kernel without start and end")
            continue
        file.rows += 1
        name = _name(file, row[6:9])
        kind = file.kinds.setdefault(name, classify(name))
        pid = process_of(row[4])
        enqueue, thread = launches.get((pid, row[5]), (None, None)) if isinstance(row[5], int) else (None, None)
        if kind.op is not None:
            is_graph = row[9] is not None or row[10] is not None
            kernel = CommunicationKernel(start, end, str(row[3]), name, kind, enqueue, thread, is_graph)
            file.kernels[pid].append(kernel)
            continue
        gathered.events.add(
            kind="compute",
            kernel=name,
            kernel_class=kind.kernel_class,
            **_common(file, pid, row[2], row[3]),
            **_times(file, pid, start, end, enqueue),
        )


def _name(file: ExportFile, ids: tuple[Any, ...]) -> str:
    """Return a kernel's name: the demangled one, else the short one; a number stands for a string of the file."""
    for value in ids:
        name = file.strings.get(value, "") if isinstance(value, int) else value if isinstance(value, str) else ""
        if name:
            return name[:4096]
    return "unnamed kernel"


def _common(file: ExportFile, pid: int, device: Any, stream: Any) -> dict[str, Any]:
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


def _times(file: ExportFile, pid: int, start: int, end: int, enqueue: int | None) -> dict[str, Any]:
    rank = file.rank_of.get(pid)
    return {
        "start_s": (start + file.shift_ns) * 1e-9,
        "duration_s": (end - start) * 1e-9,
        "enqueue_s": (enqueue + file.shift_ns) * 1e-9 if enqueue is not None else None,
        "clock": f"gpu:{rank if rank is not None else pid}",
    }


def _copies(gathered: Gathered, file: ExportFile, database: Database) -> None:
    for table, op in (("CUPTI_ACTIVITY_KIND_MEMCPY", "copy"), ("CUPTI_ACTIVITY_KIND_MEMSET", "set")):
        wanted = ("start", "end", "deviceId", "streamId", "globalPid", "bytes")
        for start, end, device, stream, process, size in database.rows(table, wanted, order="start"):
            first, last = whole_number(start), whole_number(end)
            if first is None or last is None or last < first:
                continue
            file.rows += 1
            pid = process_of(process)
            gathered.events.add(
                kind="memory",
                op=op,
                kernel_class="memory",
                size_bytes=whole_number(size),
                **_common(file, pid, device, stream),
                **_times(file, pid, first, last, None),
            )


def _steps(gathered: Gathered, file: ExportFile) -> None:
    """Write the ranges that name a training step, and count those of NCCL."""
    for pid, said in file.said.items():
        for item in said:
            file.rows += 1
            if item.op is not None or item.step is None:
                continue
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


def _emit(gathered: Gathered, file: ExportFile, pid: int, kernels: list[CommunicationKernel]) -> None:
    """Write a process's communication kernels with the sizes of the calls that they belong to."""
    said = file.said.get(pid, [])
    matched = match(
        kernels, [item for item in said if item.op is not None], [item for item in said if item.text == GROUP_END]
    )
    for op, why in matched.reasons.items():
        gathered.claim(f"sizes of {op}", "not matched", file.name, ground="inferred", confidence=0.0, note=why)
    counters: Counter[int] = Counter()
    for index, kernel in enumerate(kernels):
        row = _common(file, pid, None, kernel.stream) | _times(file, pid, kernel.start, kernel.end, kernel.enqueue)
        row |= {"kernel": kernel.name, "kernel_class": kernel.kind.kernel_class}
        row |= {"algorithm": kernel.kind.algorithm, "protocol": kernel.kind.protocol}
        row["graph_replay"] = 1 if kernel.is_graph else None
        calls: list[NvtxRange | None] = [*matched.calls.get(index, ())]
        for call in calls or [None]:
            _call(gathered, file, pid, row, kernel, call, counters)
            # one kernel that does several calls: its time counts once
            row |= {"kernel": None, "kernel_class": None}


def _call(
    gathered: Gathered,
    file: ExportFile,
    pid: int,
    common: Row,
    kernel: CommunicationKernel,
    call: NvtxRange | None,
    counters: Counter[int],
) -> None:
    """Write one call, or a kernel of which no call is known."""
    name = call.communicator if call and call.communicator else f"stream {kernel.stream}"
    ground = "read" if call and call.communicator else "inferred"
    number = gathered.communicator(name, name=name, ground=ground, confidence=1.0 if ground == "read" else 0.5)
    gathered.of(number)["ranks"].add(file.rank_of.get(pid))
    op = call.op if call else kernel.kind.op
    is_pointwise = op in POINTWISE
    sequence = None
    if not is_pointwise:
        sequence, counters[number] = counters[number], counters[number] + 1
    group = file.groups.get(name, NcclGroup())
    row: Row = {"kind": "p2p" if is_pointwise else "collective", "op": op, "communicator": number, "sequence": sequence}
    row |= {"nranks": group.nranks, "comm_rank": group.comm_ranks.get(pid)}
    if call:
        row |= {"root": call.root, "peer": call.peer, "reduce_op": call.reduce_op} | _sizes(op, call, group.nranks)
    gathered.events.add(**common, **row)


def _sizes(op: str | None, call: NvtxRange, nranks: int | None) -> Row:
    """Return the sizes of a call: NCCL's is one message, of some operations one rank's part."""
    message = call.size_bytes
    if message is None or op not in _PARTS:
        size = {"size_bytes": message}
        return size | ({"received_bytes": message} if op == "recv" else {"sent_bytes": message})
    whole = whole_number(message * nranks) if nranks else None
    if op in _RECEIVED:
        return {"size_bytes": whole, "sent_bytes": whole if op == "reduce-scatter" else None, "received_bytes": message}
    sent = whole if op == "all-to-all" else message
    return {"size_bytes": whole, "sent_bytes": sent, "received_bytes": whole if op != "gather" else None}
