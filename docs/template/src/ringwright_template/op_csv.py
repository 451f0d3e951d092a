"""Operations as CSV, one a line: rank, operation, bytes, when it began and how long it took in microseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.formats.sources.reader_rows import Gathered
from ringwright.ground.errors import InputError
from ringwright.model.collective import OPS

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

HEAD = b"rank,op,bytes,start_us,time_us"


def looks_like(head: bytes, name: str) -> bool:
    """Return whether a file that begins with ``head`` is one of ours; any file is asked, so this must be quick."""
    return head.startswith(HEAD)


def read_op_csv(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Read operations as CSV. What cannot be read is counted, not raised; InputError where nothing could be."""
    gathered = Gathered("op-csv")
    world = gathered.communicator("world")
    turns: Counter[tuple[int, str]] = Counter()
    for source in sources:
        gathered.inputs.append(source.name)
        with source.open() as stream:
            lines = stream.read().decode("utf-8", "replace").splitlines()
        for number, line in enumerate(lines[1:], 2):
            if _row(gathered, world, turns, line):
                gathered.note(source.name, "understood", "operation")
            else:
                gathered.note(source.name, "refused", "not a line of this table", at=number, example=line)
    if not gathered.events.total:
        raise InputError("no operation could be read", where=sources[0].name, remedy="a first line, then one a line")
    return gathered.trace(from_zero=True)


def _row(gathered: Gathered, world: int, turns: Counter[tuple[int, str]], line: str) -> bool:
    """Add one line; False for one that is none."""
    words = line.split(",")
    if len(words) != 5 or words[1] not in OPS:
        return False
    try:
        rank, size_bytes = int(words[0]), int(words[2])
        start_us, time_us = float(words[3]), float(words[4])
    except ValueError:
        return False
    gathered.device(rank)  # so that the rank counts as seen
    gathered.of(world)["ranks"].add(rank)
    gathered.events.add(
        kind="collective",
        op=words[1],
        rank=rank,
        communicator=world,
        sequence=turns[rank, words[1]],
        size_bytes=size_bytes,
        start_s=start_us / 1e6,
        duration_s=time_us / 1e6,
        clock="wall",
        multiplicity=1,
        records=1,
        source="op-csv",
        ground="read",
        confidence=1.0,
    )
    turns[rank, words[1]] += 1
    return True
