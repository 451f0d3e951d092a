"""Which rank, host and process a file is of."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ringwright.formats.sources.kineto.columns import RankFile
from ringwright.formats.sources.kineto.facts import LARGEST_GROUP, positive
from ringwright.formats.sources.ranks import rank_by_pattern

_IN_NAME = re.compile(r"(?:rank|worker)[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_HOST = re.compile(r"^([A-Za-z0-9][\w.-]*)_(\d{1,10})\.\d+(?:\.\d+)?\.pt\.trace")


@dataclass
class FileOrigin:
    """Where a file comes from; ``evidence`` says how its rank is known."""

    rank: int
    evidence: str
    ground: str
    said: int | None
    named: int | None
    world: int | None
    host: str | None
    pid: int | None
    device: int | None


def place(rank_file: RankFile, index: int) -> FileOrigin:
    """Return the place of file number ``index``."""
    info = rank_file.reading.header.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    said, world = _rank(info.get("rank")), positive(info.get("world_size"))
    base = re.split(r"[/\\]", rank_file.reading.name)[-1]
    in_name = _IN_NAME.search(base)
    named = rank_by_pattern(rank_file.reading.name)
    if named is None:
        named = int(in_name[1]) if in_name else None
    rank, evidence, ground = index, "position among the files", "assumed"
    if said is not None:
        rank, evidence, ground = said, "distributedInfo", "read"
    elif named is not None:
        rank, evidence, ground = named, "file name", "inferred"
    pid = _process(rank_file)
    host = _HOST.match(base)
    is_host = host is not None and pid is not None and int(host[2]) == pid
    device = Counter(number for number in rank_file.kernels.device[:1000] if number >= 0).most_common(1)
    return FileOrigin(
        rank,
        evidence,
        ground,
        said,
        named,
        world if world and world <= LARGEST_GROUP else None,
        host[1] if host and is_host else None,
        pid,
        device[0][0] if device else None,
    )


def settle(places: list[FileOrigin]) -> list[str]:
    """Give files that claim one rank the ranks of their names, where these differ; return what is to be said of it."""
    notes = []
    twice = {rank for rank, count in Counter(origin.rank for origin in places).items() if count > 1}
    if twice:
        names = [origin.named for origin in places]
        if None not in names and len(set(names)) == len(names):
            for origin in places:
                if origin.named is not None:
                    origin.rank, origin.evidence, origin.ground = origin.named, "file name", "inferred"
            notes.append("several files say they are the same rank; the ranks in their names are used")
        else:
            notes.append(
                f"several files of rank {', '.join(map(str, sorted(twice)[:8]))}: taken as parts of one profile"
            )
    notes += [
        f"the file name says rank {origin.named}, distributedInfo rank {origin.said}; the latter is used"
        for origin in places
        if None not in (origin.said, origin.named) and origin.said != origin.named and origin.rank == origin.said
    ]
    return notes


def _rank(value: Any) -> int | None:
    rank = positive(value)
    return rank if rank is not None and rank < LARGEST_GROUP else None


def _process(rank_file: RankFile) -> int | None:
    """Return the process that made most calls."""
    counts: Counter[Any] = Counter()
    for table in (rank_file.calls, rank_file.records, rank_file.notes):
        counts.update(rank_file.threads[thread][0] for thread in table.thread[:1000])
    ids = [pid for pid, _ in counts.most_common() if type(pid) is int and 0 <= pid < 1 << 40]
    return ids[0] if ids else None
