"""From logs of RCCL's Recorder to a Trace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringwright.formats.sources.c10d import POINTWISE, ROOTED
from ringwright.formats.sources.members import Member
from ringwright.formats.sources.nccl_functions import OPS
from ringwright.formats.sources.nccl_log.dialect import DATATYPES, PER_RANK_COUNT, REDUCE_OPS, REDUCING
from ringwright.formats.sources.ranks import world_of
from ringwright.formats.sources.rccl_recorder.lines import RecorderCall, RecorderLines
from ringwright.formats.sources.reader_rows import MOST_MEMBERS, Gathered, whole_number
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

KIND = "rccl-recorder"
LONGEST_LINE = 1 << 21
MOST_CALLS = 2_000_000
_REMEDY = "run the job with RCCL_REPLAY_FILE=rccl.json (RCCL of ROCm 7.0 or newer), and give one file a process"
_CALLS = {**OPS, "AllToAllv": "all-to-all", "AllReduceWithBias": "all-reduce"}
_FILE = re.compile(r"\.(\d{1,10})\.([^/\\]{1,255}?)\.json(?:\.gz)?$")
_MOST_ELEMENTS = 1 << 56
_RANKS = 1 << 24


@dataclass
class _Process:
    """One process: who it is, its calls, and of its communicators by pointer the identity and size."""

    name: str
    host: str | None
    pid: int | None
    calls: list[RecorderCall]
    identity: dict[str, tuple[str, int | None, str]] = field(default_factory=dict)  # pointer -> identity, size, ground
    ranks: dict[int, int] = field(default_factory=dict)  # device -> global rank


def read_rccl_recorder(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's logs, one a process; InputError where none holds a call or a communicator."""
    gathered = Gathered(KIND)
    processes: list[_Process] = []
    for member in gathered.members(sources, progress):
        processes.append(_read(gathered, member))
        gathered.inputs.append(member.name)
    for process in processes:
        _identify(process)
        _rank_devices(gathered, process)
    for process in processes:
        _emit(gathered, process)
    if not gathered.events.total and not gathered.comms:
        where = ", ".join(source.name for source in sources[:3])
        raise InputError("no call and no communicator in RCCL's log", where=where, remedy=_REMEDY)
    sizes = [size for process in processes for _, size, _ in process.identity.values() if size]
    world = max(sizes, default=0) or world_of(rank for process in processes for rank in process.ranks.values())
    return gathered.trace(
        world=world, library="rccl", from_zero=True, limits=["how long calls took: the host's call is recorded"]
    )


def _read(gathered: Gathered, member: Member) -> _Process:
    lines, number = RecorderLines(), 0
    while data := member.stream.readline(LONGEST_LINE):
        number += 1
        text = data.decode("utf-8", "replace").rstrip("\r\n")
        is_full = len(lines.calls) >= MOST_CALLS
        why = f"calls beyond {MOST_CALLS:,}" if is_full else lines.take(text, number) if text.strip() else ""
        gathered.note(
            member.name,
            "refused" if why else "understood",
            why or "lines",
            at=number if why else None,
            example=text[:200] if why else "",
        )
        if why:
            gathered.lose(f"{member.name}: {why}")
    gathered.note(member.name, "other", "sends and receives inside an all-to-all, gather or scatter", lines.inner)
    named = _FILE.search(member.name)
    host = lines.host or (named[2] if named else None)
    return _Process(member.name, host, int(named[1]) if named else None, lines.calls)


def _identify(process: _Process) -> None:
    """Name each communicator: by the unique id it was made with; split ones by parent, order and color, where all are used."""
    splits: list[RecorderCall] = []
    for call in process.calls:
        if call.name == "CommInitDev":
            process.identity[call.fields.get("comm", "")] = (
                call.fields.get("uniqueID", ""),
                _size(call, "size"),
                "read",
            )
        elif call.name == "CommSplit" and (call.number("color") or 0) >= 0:
            splits.append(call)
    used = {call.fields["comm"]: call for call in process.calls if call.name in _CALLS and "comm" in call.fields}
    unknown = [pointer for pointer in used if pointer not in process.identity]
    for index, pointer in enumerate(unknown):
        size = _size(used[pointer], "nranks")
        if len(unknown) == len(splits):
            parent = process.identity.get(splits[index].fields.get("comm", ""), ("?", None, ""))[0]
            identity, ground = f"{parent} split {index} color {splits[index].fields.get('color')}", "inferred"
        else:
            identity, ground = f"{pointer} of {process.host} {process.pid or process.name}", "assumed"
        process.identity[pointer] = (identity, size, ground)


def _size(call: RecorderCall, key: str) -> int | None:
    size = call.number(key)
    return size if size is not None and 0 < size <= MOST_MEMBERS else None


def _rank_devices(gathered: Gathered, process: _Process) -> None:
    """Give each device of a process the rank that it has in the largest communicator."""
    largest: dict[int, int] = {}
    for call in process.calls:
        size = _size(call, "size" if call.name == "CommInitDev" else "nranks")
        rank = call.number("rank" if call.name == "CommInitDev" else "globalrank")
        device = call.number("dev" if call.name == "CommInitDev" else "device")
        if size is None or rank is None or device is None or not 0 <= rank < size:
            continue
        if size > largest.get(device, 0):
            largest[device], process.ranks[device] = size, rank
    for device, rank in process.ranks.items():
        gathered.device(rank, process.host, process.pid, device)


def _emit(gathered: Gathered, process: _Process) -> None:
    counted: Counter[tuple[int, int | None]] = Counter()
    for call in process.calls:
        if call.name == "CommInitDev":
            _communicator(gathered, process, call.fields.get("comm", ""), call.number("rank"), call.number("dev"))
        op = _CALLS.get(call.name)
        if op is None or "comm" not in call.fields:
            continue
        if call.number("captured") == 1:
            gathered.note(process.name, "other", "calls captured in a graph, written again when they run")
            continue
        own, device = call.number("globalrank"), call.number("device")
        number = _communicator(gathered, process, call.fields["comm"], own, device)
        row: Row = {
            "kind": "p2p" if op in POINTWISE else "collective",
            "op": op,
            "communicator": number,
            "device": device,
        }
        if op not in POINTWISE:
            row["sequence"], counted[number, own] = counted[number, own], counted[number, own] + 1
        rank = process.ranks.get(device) if device is not None else None
        row |= {"rank": rank, "host": process.host, "pid": process.pid, "thread": call.number("thread")}
        row |= {"text": call.name, "file": process.name, "line": call.line, "stream": call.fields.get("stream")}
        time_s = call.time_s
        row |= {"enqueue_s": time_s, "clock": f"host:{process.host or 'unknown'}" if time_s is not None else None}
        gathered.events.add(**row, **_what(gathered, call, op, number, own))


def _communicator(gathered: Gathered, process: _Process, pointer: str, own: int | None, device: int | None) -> int:
    identity, size, ground = process.identity.get(pointer, (f"{pointer} of {process.name}", None, "assumed"))
    sure = {"read": 1.0, "inferred": 0.6, "assumed": 0.3}[ground]
    number = gathered.communicator(identity, name=identity, size=size, ground=ground, confidence=sure)
    facts, rank = gathered.of(number), process.ranks.get(device) if device is not None else None
    facts["ranks"].add(rank)
    if facts["size"] and rank is not None and own is not None and 0 <= own < facts["size"]:
        facts["members"] = facts["members"] or [-1] * facts["size"]
        facts["members"][own] = rank
    return number


def _what(gathered: Gathered, call: RecorderCall, op: str, number: int, own: int | None) -> Row:
    """Return elements, type and sizes of a call; a count is one rank's part where NCCL's is."""
    p = gathered.of(number)["size"]
    kind, width = DATATYPES.get(call.number("datatype") or 0, (None, None))
    root = _below(call.number("root"), _RANKS)
    return {
        "nranks": p,
        "comm_rank": _below(own, _RANKS),
        "op_count": call.number("opCount", 16),
        "datatype": kind,
        "element_bytes": width,
        **_sizes(call, op, p, width),
        "reduce_op": REDUCE_OPS.get(call.number("op") or 0) if op in REDUCING else None,
        "root": root if op in ROOTED else None,
        "peer": root if op in POINTWISE else None,
    }


def _sizes(call: RecorderCall, op: str, p: int | None, width: int | None) -> Row:
    count = _below(call.number("count"), _MOST_ELEMENTS + 1)
    held = {key: min(sum(parts), _MOST_ELEMENTS) for key, parts in call.counts.items()}
    part = count * width if count is not None and width else None
    whole = whole_number(part * p) if part is not None and p and op in PER_RANK_COUNT else part
    sent = whole if op in ("all-to-all", "reduce-scatter") else None if op in ("recv", "scatter") else part
    received = whole if op in ("all-to-all", "all-gather") else None if op in ("send", "gather") else part
    if held and width:
        sent, received = (held.get(key, 0) * width for key in ("sendcounts", "recvcounts"))
        whole, count = sent, held.get("sendcounts", count)
    size = whole if op not in PER_RANK_COUNT or p or held else None
    return {"count": count, "size_bytes": size, "sent_bytes": sent, "received_bytes": received}


def _below(number: int | None, end: int) -> int | None:
    return number if number is not None and 0 <= number < end else None
