"""Calls files of one job to a Trace: groups become communicators, calls events, iterations steps.

A call's end is known only where the host sees it (gloo, MPI); a NCCL call is enqueued, and its time comes from another source.
Ranks that a process manager started again are told apart: a second life has communicators of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ringwright.formats.sources.calls.batches import EventBatches
from ringwright.formats.sources.calls.build import KIND, placed, read_process
from ringwright.formats.sources.calls.file import CallsFile
from ringwright.formats.sources.gate.packed import head_alone
from ringwright.formats.sources.gate.temporary import Store
from ringwright.formats.sources.reader_rows import Gathered
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from ringwright.executors.fan_out import FanOut
    from ringwright.formats.sources.gate.packed import PackedPart
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

_MOST_WORLD = 1 << 20


def read_calls(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's calls files; InputError where none holds a line of the format."""

    def files() -> Iterator[tuple[CallsFile, PackedPart | None]]:
        for source in sources:
            part = source.part() if source.part is not None else None
            process = head_alone(part, read_process, source.name) if part else read_process(source, progress)
            process.losses = source.losses
            yield process, part

    fan = next((source.fan for source in sources if source.fan is not None), None)
    return made([source.name for source in sources], files(), fan)


def made(names: list[str], files: Iterable[tuple[CallsFile, PackedPart | None]], fan: FanOut | None = None) -> Trace:
    """Return the Trace of prepared files, which are used up; InputError where none holds a line of the format.

    Of one whose rows wait in a part only the head is looked at here.
    """
    gathered = Gathered(KIND)
    processes: list[CallsFile] = []
    batches = EventBatches(fan)
    for process, part in files:
        gathered.damage(process.name, process.losses)
        _account(gathered, process)
        if process.head or process.first_ns is not None:
            processes.append(process)
            batches.add(process, part)
            gathered.inputs.append(process.name)
    if not processes:
        remedy = "ringwright run -- torchrun train.py writes such files"
        raise InputError("no calls file", where=", ".join(names[:3]), remedy=remedy)
    processes.sort(key=lambda process: (process.head.get("wall_ns", 0), process.name))
    origin_ns = min((first for process in processes if (first := _first_ns(process)) is not None), default=0)
    at = [
        placed(gathered, batches.number[id(process)], process, life, origin_ns)
        for process, life in zip(processes, lives(processes), strict=True)
    ]
    return _trace(gathered, processes, batches.events(at), origin_ns, batches.store)


def _account(gathered: Gathered, process: CallsFile) -> None:
    """Note in the ledger what was read, refused and lost."""
    gathered.note(process.name, "understood", "lines of a calls file", process.lines - process.refused)
    for line, text in process.examples:
        gathered.note(process.name, "refused", "no line of a calls file", at=line, example=text)
    gathered.note(process.name, "refused", "no line of a calls file", process.refused - len(process.examples))
    who = f"rank {process.rank}" if process.rank is not None else process.name
    for reason, records in process.lost.items():
        gathered.note(process.name, "refused", f"not recorded: {reason}", records)
        gathered.lose(f"{who}: {records:,} records are missing ({reason})")
    if process.died is not None and process.head:
        gathered.lose(f"{who}: its recording stops early: {process.died.in_short}")
    elif process.head and not process.ended:
        gathered.lose(f"{who}: its recording stops without an end: it was killed, or still runs")


def _first_ns(process: CallsFile) -> int | None:
    firsts = [first for first in (process.first_step_ns, process.first_ns) if first is not None]
    return process.offset_ns + min(firsts) if firsts else None


def lives(processes: list[CallsFile]) -> list[int]:
    """Return which life of the job each process belongs to; ``processes`` in order of their beginning.

    Ranks that one launcher started together say so by the same ``life``; a rank that comes again under the same one is, by order,
    in a further life.
    """
    order: dict[tuple[str, int], int] = {}
    seen: Counter[tuple[str, int]] = Counter()
    numbers = []
    for process in processes:
        life, rank = str(process.head.get("life", "")), process.rank
        turn = seen[life, rank] if rank is not None else 0
        if rank is not None:
            seen[life, rank] += 1
        numbers.append(order.setdefault((life, turn), len(order)))
    return numbers


def _trace(gathered: Gathered, processes: list[CallsFile], events: pl.LazyFrame, origin_ns: int, store: Store) -> Trace:
    worlds = [world for process in processes if (world := process.head.get("world"))]
    seen = {process.rank for process in processes if process.rank is not None}
    world = max(worlds, default=None)
    if not any("fake" in group.backend for process in processes for group in process.groups.values()):
        missing = sorted(set(range(min(world or 0, _MOST_WORLD))) - seen)
        if missing:
            listed = ", ".join(map(str, missing[:32])) + (", ..." if len(missing) > 32 else "")
            gathered.claim("missing ranks", listed, KIND, note=f"{len(missing)} of {world} ranks have no calls file")
    ends = Counter(process.ended or "none" for process in processes)
    gathered.claim("end of processes", ", ".join(f"{count} {how}" for how, count in sorted(ends.items())), KIND)
    gathered.claim(
        "clock", "host", KIND, note="times are those of each host's clock; hosts are not aligned with each other"
    )
    backends = Counter(group.backend for process in processes for group in process.groups.values())
    library = backends.most_common(1)[0][0] if backends else None
    trace = gathered.trace(world=world, origin_ns=origin_ns or None, library=library)
    return replace(trace, tables={**trace.tables, "events": events}, held=store.folder)
