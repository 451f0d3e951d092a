"""Events of a Trace from calls and tables: each call once, be it printed alone, in a table, or in both."""

from __future__ import annotations

from collections import Counter, defaultdict

from ringwright.formats.sources.c10d import POINTWISE
from ringwright.formats.sources.deepspeed_comms.grammar import PrintedCall, caller, op_of
from ringwright.formats.sources.deepspeed_comms.latencies import single
from ringwright.formats.sources.deepspeed_comms.logged import LoggedFile
from ringwright.formats.sources.deepspeed_comms.tables import ROUNDED_MS, Key, SummaryTable, closing
from ringwright.formats.sources.reader_rows import Gathered, whole_number
from ringwright.ground.trace_tables import Row

_GROUP = "group not named"
_UNSURE = 0.6
_DOUBTED = 0.5  # of times whose release is not known
_MOST_MS = 1e12


def emit(gathered: Gathered, file: LoggedFile) -> None:
    """Write the calls of one file."""
    number = _group(gathered, file)
    gathered.device(file.rank)
    _say(gathered, file)
    alone = single(file.calls) if file.is_added else {}
    for call in file.calls:
        _call(gathered, file, call, number, alone.get(call.line, call.time_ms))
    before = 0
    for sequence, table in enumerate(closing(file.tables)):
        _table(gathered, file, table, number, before, sequence << 32)
        before = table.line


def _group(gathered: Gathered, file: LoggedFile) -> int:
    number = gathered.communicator(
        _GROUP, name="the world, as DeepSpeed takes it", size=file.world, ground="assumed", confidence=_UNSURE
    )
    gathered.of(number)["ranks"].add(file.rank)
    if file.world:
        how = "busbw over algbw is (n-1)/n" if file.world_ground == "inferred" else "metadata of the dictionary"
        sure = 0.9 if file.world_ground == "inferred" else 1.0
        gathered.claim("world", file.world, file.name, ground=file.world_ground, confidence=sure, note=how)
    return number


def _say(gathered: Gathered, file: LoggedFile) -> None:
    if file.release:
        gathered.claim("deepspeed release", file.release, file.name)
    if not file.is_exact:
        note = "the logger prints on rank 0 alone"
        gathered.claim("rank", file.rank, file.name, ground="inferred", confidence=0.9, note=note)
    gathered.claim("rates as printed", "Gbit/s", file.name, note="by the size of the world; not used beyond that size")
    if file.is_added:
        note = "from release 0.18.3 on the printed latency is the sum of all so far of that name"
        gathered.claim(
            "latency", "differences of what is printed", file.name, ground="inferred", confidence=0.9, note=note
        )
    elif file.is_added is None and file.tables:
        note = "the release is not in the file; from 0.18.3 on latencies add up within a name, and are then too long"
        gathered.claim("latency", "as printed", file.name, ground="assumed", confidence=_DOUBTED, note=note)


def _call(gathered: Gathered, file: LoggedFile, call: PrintedCall, number: int, time_ms: float) -> None:
    lasted = time_ms * 1e-3 if call.line not in file.refused and 0 < time_ms < _MOST_MS else None
    row = _row(file, call.name, call.size_bytes, number) | {"line": call.line, "duration_s": lasted, "rank": call.rank}
    if call.rank != file.rank:
        gathered.device(call.rank)
    if call.stamp_s is not None and lasted is not None:
        row |= {"start_s": call.stamp_s - lasted, "clock": f"host:rank{call.rank}"}
    gathered.events.add(**row)


def _printed(file: LoggedFile, after: int, before: int) -> tuple[Counter[Key], defaultdict[Key, float]]:
    """Return how many calls of each kind were printed between two lines, and the milliseconds that they took."""
    printed, took = Counter[Key](), defaultdict[Key, float](float)
    for call in file.calls:
        if after < call.line < before:
            printed[call.name, call.size_bytes] += 1
            took[call.name, call.size_bytes] += call.time_ms
    return printed, took


def _table(
    gathered: Gathered, file: LoggedFile, table: SummaryTable, number: int, after: int, first_sequence: int
) -> None:
    """Write what a table holds beyond the calls that were printed before it and after the last one."""
    printed, took = _printed(file, after, table.line)
    of_name: Counter[str] = Counter()
    for (name, _), (count, _) in table.sums().items():
        of_name[name] += count
    _tell_waits(gathered, file, table)
    waits = table.waits()
    for sequence, (key, (count, total_ms)) in enumerate(table.sums().items(), first_sequence):
        rest = count - printed[key]
        if rest <= 0:
            continue
        is_sure = not file.is_added or of_name[key[0]] == 1
        mean_ms = (total_ms - took[key]) / rest if is_sure else None
        row = _row(file, *key, number) | {"line": table.line or None, "multiplicity": rest}
        row |= {"ground": "assumed", "confidence": _DOUBTED} if file.is_added is None else {}
        if mean_ms is not None and 0 < mean_ms < _MOST_MS:
            row["duration_s"] = mean_ms * 1e-3
        elif not is_sure:
            gathered.note(file.name, "refused", "latencies that add up, in a table", at=table.line, example=key[0])
            gathered.lose(f"{file.name}: times in tables add up within a name (release {file.release or '0.18.3 on'})")
        _with_waits(gathered, file, row, waits.get(key) if rest == count and is_sure else None, total_ms, sequence)


def _tell_waits(gathered: Gathered, file: LoggedFile, table: SummaryTable) -> None:
    """Claim the waiting that rows of an early table print beside their total."""
    for each in table.rows:
        if each.waited_ms is not None:
            note = f"{each.name}, {each.size_bytes} bytes, {each.count} calls"
            _waiting(gathered, file, each.waited_ms, each.numbers[0], note)


def _with_waits(
    gathered: Gathered,
    file: LoggedFile,
    row: Row,
    told: tuple[int, float, float] | None,
    total_ms: float,
    sequence: int,
) -> None:
    """Write a row of a table, and beside it that of whichever rank was fastest: what it took is the transfer."""
    if told is None or told[0] != row["multiplicity"] or row["kind"] == "p2p":
        gathered.events.add(**row)
        return
    count, least_ms, waited_ms = told
    if abs(least_ms + waited_ms - total_ms) > 3 * ROUNDED_MS + 1e-5 * total_ms or not 0 < least_ms < _MOST_MS:
        gathered.note(
            file.name, "refused", "a breakdown that is not the sum of transfer and waiting", example=row["text"]
        )
        gathered.events.add(**row)
        return
    gathered.events.add(**row, sequence=sequence)
    fastest = {"rank": None, "duration_s": least_ms / count * 1e-3, "sequence": sequence}
    gathered.events.add(**{**row, **fastest, "text": f"{row['text']}: the fastest rank of each call"})
    note = f"{row['text']}, {row.get('sent_bytes', row.get('received_bytes'))} bytes, {count} calls"
    _waiting(gathered, file, waited_ms, total_ms, note)


def _waiting(gathered: Gathered, file: LoggedFile, waited_ms: float, total_ms: float, note: str) -> None:
    """Claim how long this rank waited in all calls of a name and size."""
    said = f"{waited_ms:.2f} of {total_ms:.2f} ms"
    gathered.claim(f"waiting of rank {file.rank}", said, file.name, note=note)


def _row(file: LoggedFile, name: str, size_bytes: int, number: int) -> Row:
    op = op_of(name)
    row: Row = {"op": op, "kind": "p2p" if op in POINTWISE else "collective", "communicator": number, "text": name}
    row |= {"rank": file.rank, "records": 1, "multiplicity": 1, "phase": caller(name), "file": file.name}
    return row | _sizes(op, size_bytes, file.world)


def _sizes(op: str, logged: int, n: int | None) -> Row:
    """Return the sizes of a call whose logged size is that of the argument ``tensor``: the input, of a scatter the output."""
    if op in ("all-gather", "gather"):
        return {"sent_bytes": logged, **_total(logged, n)}
    if op == "scatter":
        return {"received_bytes": logged, **_total(logged, n)}
    if op == "recv":
        return {"size_bytes": logged, "received_bytes": logged}
    if op == "unknown":
        return {"sent_bytes": logged}
    return {"size_bytes": logged, "sent_bytes": logged}


def _total(part: int, n: int | None) -> Row:
    """Return the total over the ranks of the world, which DeepSpeed takes for the group: an assumption."""
    total = whole_number(part * n) if n else None
    return {"size_bytes": total, "ground": "assumed", "confidence": _UNSURE} if total is not None else {}
