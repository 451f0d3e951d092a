"""The dictionary that ``log_summary(return_dict=True)`` returns, written as JSON: exact sizes, the rank and the world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ringwright.formats.sources.deepspeed_comms.grammar import PrintedRow
from ringwright.formats.sources.deepspeed_comms.logged import LoggedFile
from ringwright.formats.sources.deepspeed_comms.tables import SummaryTable
from ringwright.formats.sources.reader_rows import Gathered, fitting, whole_number

_SUMMARY = ("total_latency_ms", "avg_latency_ms", "tput_avg_gbps", "busbw_avg_gbps")
_STRAGGLERS = ("total_comm_lat_ms", "total_straggler_ms", "avg_comm_lat_ms", "avg_straggler_ms")
_MOST_RANKS = 1 << 24
_MOST_BYTES = 1 << 62


def from_document(gathered: Gathered, file: LoggedFile, data: bytes) -> None:
    """Put the entries of a document into a file; what is no entry is noted."""
    import msgspec

    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        gathered.note(file.name, "refused", f"the JSON is damaged: {str(error)[:120]}")
        gathered.lose(f"{file.name}: the JSON is damaged: {str(error)[:120]}")
        return
    held: Mapping[str, Any] = document if isinstance(document, dict) else {}
    table = SummaryTable(0)
    table.rows = list(_rows(gathered, file, held.get("summary"), _SUMMARY))
    table.breakdown = list(_rows(gathered, file, held.get("straggler_analysis"), _STRAGGLERS))
    if table.rows:
        file.tables.append(table)
    told = held.get("metadata")
    metadata = told if isinstance(told, dict) else {}
    world, rank = (whole_number(metadata.get(name), _MOST_RANKS) for name in ("world_size", "rank"))
    file.world, file.world_ground = (world if world and world > 0 else None), "read"
    file.rank = rank if rank is not None and rank >= 0 else 0
    # the dictionary came with 0.17, the sums with 0.18.3: which release wrote it does not stand in it
    file.is_exact = True


def _rows(gathered: Gathered, file: LoggedFile, operations: Any, names: tuple[str, ...]) -> Iterator[PrintedRow]:
    for name, sizes in operations.items() if isinstance(operations, dict) else ():
        for size, entry in sizes.items() if isinstance(sizes, dict) else ():
            row = _row(str(name)[:300], size, entry, names) if isinstance(entry, dict) else None
            if row is not None:
                gathered.note(file.name, "understood", "entries")
                yield row
            else:
                gathered.note(file.name, "refused", "an entry without count, size and times", example=f"{name} {size}")


def _row(name: str, size: str, entry: Mapping[str, Any], names: tuple[str, ...]) -> PrintedRow | None:
    size_bytes = whole_number(entry.get("msg_size_bytes", size), _MOST_BYTES)
    count = whole_number(entry.get("count"))
    numbers = [fitting(entry.get(each), "f64") for each in names]
    if size_bytes is None or size_bytes < 0 or count is None or count < 1 or None in numbers or min(numbers) < 0:
        return None
    return PrintedRow(0, name, size_bytes, count, (numbers[0], numbers[1], numbers[2], numbers[3]))
