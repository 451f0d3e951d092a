"""From logs of torchcomms' ClogHook to a Trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ringwright.formats.sources.c10d import POINTWISE, ROOTED, operation, sizes
from ringwright.formats.sources.datatypes import BYTES, datatype
from ringwright.formats.sources.members import Member
from ringwright.formats.sources.ranks import rank_in_name, world_of
from ringwright.formats.sources.reader_rows import Gathered, whole_number
from ringwright.formats.sources.torchcomms_log.lines import ClogCall, ClogFile
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

KIND = "torchcomms-log"
LONGEST_LINE = 1 << 20
_REMEDY = 'register torchcomms.hooks.ClogHook(output=FILE, events=["ALL"]) with the communicators'
_REPLAYS = (
    1 << 40
)  # numbers of replayed calls begin here: when a replay is seen says nothing of its order among other calls
_MOST_ELEMENTS = 1 << 56
_LIMIT = "times: to a millisecond, and as late as the hook learnt of them"


def read_torchcomms_log(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's logs, one a rank; InputError where none holds a call or a communicator."""
    gathered = Gathered(KIND)
    files: list[ClogFile] = []
    for member in gathered.members(sources, progress):
        files.append(_read(gathered, member))
        gathered.inputs.append(member.name)
    if not any(file.calls or file.comms for file in files):
        where = ", ".join(source.name for source in sources[:3])
        raise InputError("no call and no communicator of torchcomms' log", where=where, remedy=_REMEDY)
    ranks = _ranks(gathered, files)
    for file, rank in zip(files, ranks, strict=True):
        _emit(gathered, file, rank)
    worlds = [size for file in files for _, size in file.comms.values()]
    world = max(worlds, default=0) or world_of(ranks)
    return gathered.trace(world=world, from_zero=True, limits=[_LIMIT])


def _read(gathered: Gathered, member: Member) -> ClogFile:
    file, number = ClogFile(member.name), 0
    while data := member.stream.readline(LONGEST_LINE):
        number += 1
        text = data.decode("utf-8", "replace").rstrip("\r\n")
        why = file.take(text, number) if text else ""
        if why:
            gathered.note(file.name, "refused", why, at=number, example=text[:200])
            gathered.lose(f"{file.name}: {why}")
        else:
            gathered.note(file.name, "understood", "lines")
    for warning in file.warnings[:1]:
        gathered.note(file.name, "other", "warnings of the hook", len(file.warnings), example=warning)
    return file


def _ranks(gathered: Gathered, files: list[ClogFile]) -> list[int]:
    """Return the rank of each file: that in its largest communicator, else its name's, else its position."""
    taken: set[int] = set()
    ranks = []
    for file in files:
        options = [rank for rank in (file.rank, rank_in_name(file.name)) if rank is not None and rank not in taken]
        rank = options[0] if options else next(each for each in range(len(taken) + 1) if each not in taken)
        if rank != file.rank:
            note = "two logs have one rank, or the log makes no communicator"
            gathered.claim("rank", rank, file.name, ground="assumed", confidence=0.4, note=note)
        taken.add(rank)
        ranks.append(rank)
        gathered.device(rank)
    return ranks


def _emit(gathered: Gathered, file: ClogFile, rank: int) -> None:
    """Write a rank's calls; each communicator counts its own, replays apart."""
    numbers = {name: _communicator(gathered, file, rank, name) for name in _names(file)}
    counted: Counter[tuple[int, bool]] = Counter()
    for call in _in_order(file):
        spelled, fields = file.signatures[call.signature]
        op = operation(spelled)
        if spelled == "batch_op_issue" or op is None:
            gathered.note(file.name, "other", "issues of a batch, whose operations have lines of their own")
            continue
        number = numbers[fields["comm"]]
        row: Row = {"kind": "p2p" if op in POINTWISE else "collective", "op": op, "communicator": number, "rank": rank}
        if op not in POINTWISE:
            key = (number, call.replay is not None)
            row["sequence"], counted[key] = (
                counted[key] + (_REPLAYS if call.replay is not None else 0),
                counted[key] + 1,
            )
        row |= {"text": spelled, "file": file.name, "line": call.line, "op_count": call.work}
        gathered.events.add(**row, **_when(file, call, rank), **_what(gathered, op, fields, number, rank))


def _names(file: ClogFile) -> list[str]:
    called = [fields["comm"] for _, fields in file.signatures.values()]
    return [*dict.fromkeys([*file.comms, *called])]


def _communicator(gathered: Gathered, file: ClogFile, rank: int, name: str) -> int:
    """Return the number of a communicator; groups of one name with other members are others."""
    size = file.comms.get(name, (0, 0))[1] or None
    ranks = file.splits.get(name, [])
    if not ranks and size and size == max(size for _, size in file.comms.values()):
        ranks = list(range(size))
    ranks = ranks if not size or len(ranks) == size else []
    is_whole = bool(ranks)
    identity = (
        name if is_whole and ranks == list(range(len(ranks))) else f"{name} {ranks[0] if ranks else f'of rank {rank}'}"
    )
    ground = "read" if name in file.splits and is_whole else "inferred" if is_whole else "assumed"
    number = gathered.communicator(
        identity, name=name, size=size or len(ranks) or None, members=ranks, ground=ground, confidence=0.9
    )
    gathered.of(number)["ranks"].add(rank)
    return number


def _in_order(file: ClogFile) -> list[ClogCall]:
    """Return the calls as they were made; those of a replay as they were captured, for its events come in any order."""
    captured: dict[tuple[int | None, int], int] = {}
    for index, call in enumerate(call for call in file.calls if call.graph is not None and call.replay is None):
        captured.setdefault((call.graph, call.signature), index)
    first: dict[tuple[int | None, int], int] = {}
    for index, call in enumerate(file.calls):
        if call.replay is not None:
            first.setdefault((call.graph, call.replay), index)

    def key(item: tuple[int, ClogCall]) -> tuple[int, int, int]:
        index, call = item
        if call.replay is None:
            return index, 0, 0
        return first[call.graph, call.replay], captured.get((call.graph, call.signature), 0), index

    return [call for _, call in sorted(enumerate(file.calls), key=key)]


def _when(file: ClogFile, call: ClogCall, rank: int) -> Row:
    ends = call.end_s is not None and call.start_s is not None and call.end_s >= call.start_s
    return {
        "enqueue_s": file.base_s + call.queued_s if call.queued_s is not None else None,
        "start_s": file.base_s + call.start_s if call.start_s is not None else None,
        "duration_s": call.end_s - call.start_s if ends else None,  # type: ignore[operator]
        "clock": f"host:rank{rank}",
        "state": "completed" if call.end_s is not None else "started" if call.start_s is not None else "scheduled",
        "graph_captured": True if call.graph is not None and call.replay is None else None,
        "graph_replay": call.replay,
    }


def _what(gathered: Gathered, op: str, fields: Mapping[str, str], number: int, rank: int) -> Row:
    """Return elements, type, sizes, root and peer of a call."""
    facts = gathered.of(number)
    kind = datatype(fields.get("dtype"))
    width = BYTES[kind] if kind else None
    counts = [_elements(fields, side) for side in ("in", "out")]
    inside, outside = (count * width if count is not None and width else None for count in counts)
    held = sizes(op, inside, outside, facts["size"])
    mine = facts["members"] or []
    return {
        "nranks": facts["size"],
        "comm_rank": mine.index(rank) if rank in mine else None,
        "count": counts[0] or counts[1],
        "datatype": kind,
        "element_bytes": width,
        "size_bytes": held.size,
        "sent_bytes": held.sent,
        "received_bytes": held.received,
        "reduce_op": fields.get("red_op"),
        "root": whole_number(fields.get("root"), 1 << 24) if op in ROOTED else None,
        "peer": whole_number(fields.get("peer"), 1 << 24) if op in POINTWISE else None,
    }


def _elements(fields: Mapping[str, str], side: str) -> int | None:
    """Return the elements of one side: a count, or the sum of a list of them."""
    for key in (f"{side}_count", f"{side}_counts", f"{side}_splits"):
        parts = [whole_number(part, _MOST_ELEMENTS) for part in fields[key].split(",")] if key in fields else []
        if parts and None not in parts:
            return min(sum(part for part in parts if part is not None), _MOST_ELEMENTS)
    return None
