"""Communication traces of PARAM (commsTraceReplay): one JSON a rank, a list of calls, of compute, or both.

``in_msg_size`` and ``out_msg_size`` are ELEMENTS of ``dtype``. ``init`` entries name groups, ``wait`` is no collective.
A basic trace has start times of the host at most; what a replay wrote (``latency_us``) is the time of the replay.
Source: ``et_replay/comm/commsTraceParser.py`` and ``comms_utils.py`` of facebookresearch/param.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.c10d import POINTWISE, ROOTED, operation, sizes
from ringwright.formats.sources.datatypes import BYTES, datatype
from ringwright.formats.sources.members import Member, whole
from ringwright.formats.sources.ranks import rank_in_name, world_of
from ringwright.formats.sources.reader_rows import Gathered, whole_number
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "param-comms"
_LISTS = ("commsTrace", "comms_trace", "trace", "comms", "entries", "nodes")
_EPOCH_NS = 10**18  # nanoseconds since 1970 passed this in 2001
_RANK, _ELEMENTS = 1 << 24, 1 << 48
Entry = dict[str, Any]


@dataclass
class _File:
    name: str
    entries: list[tuple[int, Entry]] = field(default_factory=list)  # place, entry
    rank: int = 0


def read_param_comms(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's communication traces; InputError where none could be read."""
    gathered = Gathered(KIND)
    files: list[_File] = []
    reasons: list[str] = []
    for member in gathered.members(sources, progress):
        entries = _entries(gathered, member, reasons)
        if entries:
            files.append(_File(member.name, entries))
            gathered.inputs.append(member.name)
    if not files:
        raise InputError(
            f"no communication trace of PARAM: {reasons[0] if reasons else 'no entry with comms or compute'}",
            where=", ".join(source.name for source in sources[:3]),
            remedy='give JSON lists with entries such as {"comms": "all_reduce", "in_msg_size": 1024, "dtype": "float", ...}',
        )
    _rank_files(gathered, files)
    world = _world(files)
    starts = [
        start for file in files for _, entry in file.entries if (start := whole_number(entry.get("startTime_ns")))
    ]
    origin = min(starts, default=0)
    for file in files:
        _groups(gathered, file)
    for file in files:
        _emit(gathered, file, world, origin)
    gathered.claim(
        "in_msg_size", "elements", KIND, note="PARAM counts elements, not bytes; bytes = elements x size of dtype"
    )
    return gathered.trace(world=world, origin_ns=origin if origin > _EPOCH_NS else None)


def _entries(gathered: Gathered, member: Member, reasons: list[str]) -> list[tuple[int, Entry]]:
    """Return the entries of a file that are calls or compute."""
    import msgspec

    from ringwright.formats.sources.gate.salvage import whole_objects

    data = whole(member)
    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        document = whole_objects(data)
        reason = f"the JSON is damaged, {len(document)} entries kept: {str(error)[:120]}"
        gathered.note(member.name, "refused", reason)
        gathered.lose(f"{member.name}: {reason}")
    if isinstance(document, dict):
        document = next((document[key] for key in _LISTS if isinstance(document.get(key), list)), [])
    entries = list(enumerate(document)) if isinstance(document, list) else []
    kept = [
        (position, entry)
        for position, entry in entries
        if isinstance(entry, dict) and ("comms" in entry or "compute" in entry)
    ]
    gathered.note(member.name, "understood", "entries", len(kept))
    gathered.note(member.name, "refused", "an entry that is neither comms nor compute", len(entries) - len(kept))
    if not kept:
        reasons.append(f"{member.title} has no entry with comms or compute")
    return kept


def _rank_files(gathered: Gathered, files: list[_File]) -> None:
    """Give each file a rank: its entries' own, else its name's, else its place."""
    taken: set[int] = set()
    for file in files:
        said = next((rank for _, e in file.entries if (rank := whole_number(e.get("rank"), _RANK)) is not None), None)
        options = [rank for rank in (said, rank_in_name(file.name)) if rank is not None and rank not in taken]
        file.rank = options[0] if options else next(rank for rank in range(len(taken) + 1) if rank not in taken)
        if not options:
            note = "neither its entries nor its name say a rank of its own"
            gathered.claim("rank", file.rank, file.name, ground="assumed", confidence=0.5, note=note)
        taken.add(file.rank)
        gathered.device(file.rank)
    files.sort(key=lambda file: file.rank)


def _world(files: list[_File]) -> int | None:
    """Return the number of ranks: the largest group that an entry states, or the ranks seen without a gap."""
    stated = [whole_number(entry.get("world_size"), _RANK) or 0 for file in files for _, entry in file.entries]
    listed = [len(entry["global_ranks"]) for file in files for _, entry in file.entries if _ranks(entry)]
    return max([*stated, *listed, world_of(file.rank for file in files) or 0], default=0) or None


def _ranks(entry: Entry) -> list[int]:
    held = entry.get("global_ranks")
    ranks = [whole_number(rank, _RANK) for rank in held] if isinstance(held, list) else []
    return [rank for rank in ranks if rank is not None] if None not in ranks else []


def _groups(gathered: Gathered, file: _File) -> None:
    for _, entry in file.entries:
        if entry.get("pg_id") is not None and _ranks(entry):
            ranks = _ranks(entry)
            gathered.communicator(str(entry["pg_id"]), name=f"process group {entry['pg_id']}", members=ranks)


def _emit(gathered: Gathered, file: _File, world: int | None, origin: int) -> None:
    counters: Counter[int] = Counter()
    for position, entry in file.entries:
        common: dict[str, Any] = {
            "rank": file.rank,
            "records": 1,
            "source": KIND,
            "file": file.name,
            "line": position,
            "ground": "read",
            "confidence": 1.0,
            "layer": _marks(entry),
            "task": str(position),
            **_times(entry, file.rank, origin),
        }
        if "compute" in entry and "comms" not in entry:
            count = whole_number(entry.get("count"), _ELEMENTS)
            gathered.events.add(
                kind="compute",
                kernel=str(entry["compute"]),
                kernel_class="compute",
                multiplicity=max(count or 1, 1),
                **common,
            )
            continue
        spelled = str(entry.get("comms", ""))
        op = operation(spelled)
        if op is None:
            gathered.note(file.name, "other", "wait and init, no collectives")
            continue
        number = _communicator(gathered, entry, world)
        facts = gathered.of(number)
        facts["ranks"].add(file.rank)
        sequence = None
        if op not in POINTWISE:
            sequence, counters[number] = counters[number], counters[number] + 1
        gathered.events.add(
            sequence=sequence, multiplicity=1, text=spelled, **_call(entry, op, facts, file.rank), **common
        )


def _times(entry: Entry, rank: int, origin: int) -> dict[str, Any]:
    """Return when the host made the call, and how long a replay took for it."""
    start = whole_number(entry.get("startTime_ns"))
    lasted = entry.get("latency_us", entry.get("global_latency_us"))
    if not isinstance(lasted, int | float) or isinstance(lasted, bool) or not 0 < lasted < 1e12:
        lasted = None
    return {
        "enqueue_s": (start - origin) * 1e-9 if start else None,
        "duration_s": lasted * 1e-6 if lasted is not None else None,
        "clock": f"host:rank{rank}" if start else None,
    }


def _marks(entry: Entry) -> str | None:
    held = entry.get("markers", entry.get("marker_stack"))
    marks = [str(mark) for mark in held] if isinstance(held, list) else [str(held)] if held else []
    return "/".join(marks) or None


def _communicator(gathered: Gathered, entry: Entry, world: int | None) -> int:
    name = entry.get("pg_id")
    size = whole_number(entry.get("world_size"), _RANK)
    if name is not None:
        everyone = range(world) if world and size == world else ()
        return gathered.communicator(str(name), name=f"process group {name}", size=size or None, members=everyone)
    members = range(world) if world else ()
    return gathered.communicator(
        "world", name="all ranks", size=world, members=members, ground="inferred", confidence=0.8
    )


def _call(entry: Entry, op: str, facts: dict[str, Any], rank: int) -> dict[str, Any]:
    spelled = str(entry.get("dtype", ""))
    kind = datatype(spelled)
    width = BYTES[kind] if kind else None
    counts = [_count(entry, side) for side in ("in", "out")]
    inside, outside = (count * width if count is not None and width else None for count in counts)
    held = sizes(op, inside, outside, facts["size"])
    members = facts["members"] or []
    is_pointwise = op in POINTWISE
    other = _peer(entry, op) if is_pointwise else None
    return {
        "kind": "p2p" if is_pointwise else "collective",
        "op": op,
        "communicator": facts["communicator"],
        "nranks": facts["size"],
        "comm_rank": members.index(rank) if rank in members else None,
        "size_bytes": held.size,
        "sent_bytes": held.sent,
        "received_bytes": held.received,
        "count": counts[0],
        "datatype": kind,
        "element_bytes": width,
        "op_count": whole_number(entry.get("req")),
        "root": whole_number(entry.get("root"), _RANK) if op in ROOTED else None,
        "peer": members.index(other) if other in members else other,
    }


def _count(entry: Entry, side: str) -> int | None:
    """Return the elements of one side; the split list of an all-to-all-v is more exact than the total."""
    split = entry.get(f"{side}_split")
    parts = [whole_number(part, _ELEMENTS) for part in split] if isinstance(split, list) else []
    counts = [part for part in parts if part is not None]
    if counts and len(counts) == len(parts):
        return min(sum(counts), _ELEMENTS)
    count = whole_number(entry.get(f"{side}_msg_size"), _ELEMENTS)
    return count if count is not None and count >= 0 else None


def _peer(entry: Entry, op: str) -> int | None:
    keys = ("dst_rank", "dst", "root", "srcOrDst") if op == "send" else ("src_rank", "src", "root", "srcOrDst")
    return next((rank for key in keys if (rank := whole_number(entry.get(key), _RANK)) is not None), None)
