"""From TraceLens' tables to a Trace: each call once, told by the most detailed table of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.bounds.laws import reason
from ringwright.formats.sources.c10d import POINTWISE
from ringwright.formats.sources.members import whole
from ringwright.formats.sources.ranks import rank_in_name, world_of
from ringwright.formats.sources.reader_rows import Gathered
from ringwright.formats.sources.tracelens.tables import (
    Call,
    Fields,
    Grain,
    Table,
    call,
    contradiction,
    microseconds,
    no_time,
    number,
    rank,
    table,
    times,
)
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.ground.trace_tables import Row
    from ringwright.model.trace import Trace

KIND = "tracelens"
MOST_BYTES = 512 << 20
_REMEDY = (
    "give CSV files of TraceLens_generate_multi_rank_collective_report_pytorch --output_csvs_dir, or coll_analysis.csv"
)
_PLACED = 0.6  # how sure a rank is that is a file's place in a list, and a group that stands for others


def read_tracelens(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of the tables of a job; InputError where none holds a collective."""
    gathered = Gathered(KIND)
    tables: list[Table] = []
    for member in gathered.members(sources, progress):
        read = table(member.name, whole(member, MOST_BYTES))
        if read is not None:
            tables.append(read)
            gathered.inputs.append(member.name)
    ranks = _ranks(gathered, tables)
    for of_one_report in _reports(tables):
        _report(gathered, of_one_report, ranks)
    if not gathered.events.total:
        raise InputError(
            "no collective in TraceLens' tables", where=", ".join(source.name for source in sources[:3]), remedy=_REMEDY
        )
    sizes = [row["size"] for row in gathered.comms.values() if row["size"]]
    seen = world_of(row["rank"] for row in gathered.devices.values())
    return gathered.trace(world=max([*sizes, seen or 0], default=0) or None, from_zero=True, limits=_limits())


def _limits() -> list[str]:
    return [
        "durations: a kernel's, with what it waited for other ranks",
        "the peer of a send or receive: TraceLens does not keep it",
    ]


def _ranks(gathered: Gathered, tables: list[Table]) -> dict[str, int]:
    """Return the ranks of files that are of one rank each, of which TraceLens says 0: from their names, else by place."""
    alone = [each for each in tables if each.grain in (Grain.OF_RANK, Grain.CALL) and _is_of_rank_zero(each)]
    if len(alone) < 2:
        for each in tables:
            if each.grain in (Grain.OF_RANK, Grain.CALL, Grain.RANKS):
                note = "TraceLens numbers ranks by the place of their traces in its list"
                gathered.claim("ranks", "as TraceLens numbers them", each.name, confidence=0.9, note=note)
        return {}
    named = [_named(each.name) for each in alone]
    is_named = None not in named and len(set(named)) == len(named)
    ranks = {each.name: named[i] if is_named else i for i, each in enumerate(alone)}
    for name, own in ranks.items():
        note = "by its name" if is_named else "by its place: each of these tables says rank 0, as it is of one trace"
        sure = 0.9 if is_named else _PLACED
        gathered.claim("rank", own, name, ground="inferred" if is_named else "assumed", confidence=sure, note=note)
    return {name: own for name, own in ranks.items() if own is not None}


def _is_of_rank_zero(each: Table) -> bool:
    return {rank(fields) for _, fields in each.rows() if isinstance(fields, dict)} == {0}


def _named(name: str) -> int | None:
    """Return the rank in the name of a file, or of its folder: all files of a kind have one name."""
    own = rank_in_name(name)
    folder = name.replace("\\", "/").rpartition("/")[0]
    return own if own is not None or not folder else rank_in_name(folder)


def _reports(tables: list[Table]) -> list[list[Table]]:
    by_folder: defaultdict[str, list[Table]] = defaultdict(list)
    for each in tables:
        by_folder[each.folder].append(each)
    return [sorted(held, key=lambda each: -each.grain) for held in by_folder.values()]


def _report(gathered: Gathered, tables: list[Table], ranks: dict[str, int]) -> None:
    """Write the rows of one report's tables; what a more detailed table of it told is not told again."""
    told: dict[str, Grain] = {}
    for each in tables:
        for line, fields in each.rows():
            if isinstance(fields, str):
                gathered.note(each.name, "refused", fields, at=line)
                gathered.lose(f"{each.name}: {fields}")
                continue
            if each.grain is Grain.STRAGGLERS:
                _straggler(gathered, each, fields)
                gathered.note(each.name, "understood", "ranks")
                continue
            name = fields.get("Collective name", "")
            is_told = told.setdefault(name, each.grain) != each.grain
            gathered.note(
                each.name, *(("other", "told in more detail by another table") if is_told else ("understood", "rows"))
            )
            if each.grain is Grain.SUMMARY:
                _apart(gathered, each, fields)
            if not is_told:
                _rows(gathered, each, line, fields, ranks.get(each.name))


def _straggler(gathered: Gathered, each: Table, fields: Fields) -> None:
    waited = f"{fields.get('total_wait_time_us', '')[:20]} us, last in {fields.get('times_arrived_last', '')[:20]}"
    note = f"of {fields.get('num_collectives', '')[:20]} collectives, by the clocks of the traces as they are"
    gathered.claim(f"waiting of rank {rank(fields)}", waited, each.name, note=note)


def _apart(gathered: Gathered, each: Table, fields: Fields) -> None:
    """Say how far ranks began apart, and what the fastest took: that is beside the time of each rank."""
    apart, took = number(fields.get("skew in start time_mean")), number(fields.get("comm_latency_mean"))
    if apart is None or took is None:
        return
    what = f"{fields.get('Collective name', '')[:80]} of {fields.get('Full msg size (MB)', '')[:20]} MB"
    note = f"mean of {fields.get('count', '')[:20]}, by the clocks of the traces as they are"
    gathered.claim(f"fastest rank, {what}", f"{took:.6g} us, starts {apart:.6g} us apart", each.name, note=note)


def _rows(gathered: Gathered, each: Table, line: int, fields: Fields, own: int | None) -> None:
    if each.grain is Grain.RANKS:
        for one in each.ranks:
            if fields.get(f"rank_{one}_dur"):
                _add(gathered, each, line, call(fields, one), one, fields, f"rank_{one}_")
        return
    said = call(fields)
    if each.grain in (Grain.CALL, Grain.COLLECTIVE):
        _add(gathered, each, line, said, own if own is not None else rank(fields), fields)
        return
    count, wrong = times(fields), contradiction(fields)
    if count is None:
        gathered.note(each.name, "refused", "a row that does not say of how many calls", at=line)
        gathered.lose(f"{each.name}: rows without a count")
        return
    row = _row(gathered, each, line, said, own if own is not None else rank(fields))
    if wrong:
        gathered.note(each.name, "refused", reason("time", wrong), at=line, example=wrong)
    mean = fields.get("dur_mean") or fields.get("comm_latency_mean") or fields.get("wall_time (us)_mean")
    row |= {"multiplicity": count, "duration_s": None if wrong else microseconds(mean)}
    gathered.events.add(**row)


def _add(
    gathered: Gathered, each: Table, line: int, said: Call, own: int | None, fields: Fields, before: str = ""
) -> None:
    """Write one call, of one rank or of whichever was fastest."""
    row = _row(gathered, each, line, said, own)
    took = fields.get(f"{before}dur") or fields.get("comm_latency") or fields.get("wall_time (us)")
    row["duration_s"] = microseconds(took)
    if why := no_time(took):
        gathered.note(each.name, "refused", reason("time", why), at=line, example=str(took)[:80])
    start = number(fields.get(f"{before}ts"))
    if start is not None and own is not None and 0 <= start < 1e17:
        row |= {"start_s": start * 1e-6, "clock": f"host:rank{own}"}
    if said.op not in POINTWISE:
        row["sequence"] = _sequence(fields)
    gathered.events.add(**row)


def _sequence(fields: Fields) -> int | None:
    """Return the place of a collective among its group's, in the order of their starts: its identity ends with it."""
    last = fields.get("collective_id", "").rpartition("_")[2]
    return int(last) if last.isdecimal() and last.isascii() and len(last) < 10 else None


def _row(gathered: Gathered, each: Table, line: int, said: Call, own: int | None) -> Row:
    row: Row = {
        "kind": "p2p" if said.op in POINTWISE else "collective",
        "op": said.op,
        "text": said.name,
        "rank": own,
        "communicator": _group(gathered, said, own, is_sure=each.grain is not Grain.SUMMARY),
        "nranks": said.size,
        "datatype": said.dtype,
        "count": said.count,
        "size_bytes": said.sizes.size,
        "sent_bytes": said.sizes.sent,
        "received_bytes": said.sizes.received,
        "file": each.name,
        "line": line,
    }
    if own is not None:
        gathered.device(own)
    return row


def _group(gathered: Gathered, said: Call, own: int | None, *, is_sure: bool) -> int | None:
    """Return the communicator; a summary names the first group of those that it puts together."""
    if said.group is None and not said.members:
        return None
    name = said.group or "group not named"
    identity = f"{name} {list(said.members)}" if said.members else f"{name} of {said.size}"
    ground, sure = ("read", 1.0) if is_sure else ("inferred", _PLACED)
    number_ = gathered.communicator(
        identity, name=name, size=said.size, members=said.members, ground=ground, confidence=sure
    )
    gathered.of(number_)["ranks"].add(own)
    return number_
