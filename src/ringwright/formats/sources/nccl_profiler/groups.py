"""Whose files these are: communicators, global ranks, and one frame per kind of record over all files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.nccl_profiler import records

if TYPE_CHECKING:
    import polars as pl

    from ringwright.formats.sources.nccl_profiler.file import ProfilerFile

_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")
_WORLD_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE")
_LOCAL_VARIABLES = ("LOCAL_RANK", "SLURM_LOCALID")


@dataclass
class CommunicatorMember:
    """One rank's part in a communicator: a context of the plug-in."""

    file: int
    context: int
    communicator: int
    comm_rank: int
    version: int
    rank: int | None = None


@dataclass
class ProfilerCommunicator:
    """A communicator over all files."""

    comm_id: str
    name: str
    nranks: int | None
    nnodes: int | None
    members: list[CommunicatorMember] = field(default_factory=list)
    world: int = 0  # processes of the job as its launcher said; 0 unknown

    @property
    def trusted_nranks(self) -> int | None:
        """Ranks as told, or as seen where every process of the job was seen; None when some may be missing."""
        everyone = {member.comm_rank for member in self.members} == set(range(self.size))
        return self.nranks or (self.size if everyone and self.world == len({m.file for m in self.members}) else None)

    @property
    def size(self) -> int:
        """Ranks as told, else one more than the highest rank seen."""
        return self.nranks or 1 + max(member.comm_rank for member in self.members)


def groups_of(files: list[ProfilerFile]) -> list[ProfilerCommunicator]:
    """Return the communicators, largest first; those of equal hash and name are one."""
    groups: dict[tuple[int, str], ProfilerCommunicator] = {}
    for number, recorded in enumerate(files):
        for record in recorded.arrays.get(records.COMM, ()):
            name = record["name"].decode("utf-8", "replace")
            comm_hash, nranks, nnodes = int(record["hash"]), int(record["nranks"]), int(record["nnodes"])
            comm_id = f"0x{comm_hash:x}" if comm_hash else (name or f"{recorded.name}:{record['context']}")
            key = (comm_hash, "" if comm_hash else comm_id)
            group = groups.setdefault(key, ProfilerCommunicator(comm_id, name, None, None))
            group.nranks = max(group.nranks or 0, nranks) or None if nranks > 0 else group.nranks
            group.nnodes = nnodes if nnodes > 0 else group.nnodes
            group.world = max(group.world, _variable(recorded, _WORLD_VARIABLES) or 0)
            comm_rank, version = int(record["rank"]), int(record["version"])
            group.members.append(CommunicatorMember(number, int(record["context"]), -1, comm_rank, version))
    ordered = sorted(groups.values(), key=lambda group: (-group.size, group.comm_id))
    for number, group in enumerate(ordered):
        for member in group.members:
            member.communicator = number
    return ordered


def place_ranks(files: list[ProfilerFile], groups: list[ProfilerCommunicator]) -> str:
    """Give every member its global rank and return how: by environment, by the widest communicator, or not at all."""
    by_file: dict[int, list[CommunicatorMember]] = {}
    for group in groups:
        for member in group.members:
            by_file.setdefault(member.file, []).append(member)
    named = [_variable(recorded, _RANK_VARIABLES) for recorded in files]
    one_rank = all(
        len({(m.communicator, m.comm_rank) for m in ms}) == len({m.communicator for m in ms}) for ms in by_file.values()
    )
    if one_rank and None not in named and len(set(named)) == len(named):
        for file, members in by_file.items():
            for member in members:
                member.rank = named[file]
        return "environment"
    widest = groups[0] if groups else None
    if widest is None:
        return "nothing"
    for member in widest.members:
        member.rank = member.comm_rank
    for members in by_file.values():
        ranks = {member.rank for member in members if member.rank is not None}
        if len(ranks) == 1:
            for member in members:
                member.rank = next(iter(ranks))
    return "widest communicator"


def _variable(recorded: ProfilerFile, names: tuple[str, ...]) -> int | None:
    values = [value for name in names if (value := recorded.number(name)) is not None and value < records.MOST_RANKS]
    return values[0] if values else None


def device_of(recorded: ProfilerFile) -> int | None:
    """Return the process's number on its host, which launchers use as the device."""
    return _variable(recorded, _LOCAL_VARIABLES)


def frame(files: list[ProfilerFile], kind: int) -> pl.DataFrame:
    """Return all records of a kind with the number of their file; waits become one column each."""
    import numpy as np
    import polars as pl

    layout = records.LAYOUTS[kind]
    parts = [(number, recorded.arrays[kind]) for number, recorded in enumerate(files) if kind in recorded.arrays]
    data = np.concatenate([array for _, array in parts]) if parts else np.empty(0, layout)
    columns: dict[str, Any] = {"file": np.repeat([n for n, _ in parts], [len(a) for _, a in parts]).astype(np.int32)}
    for name in layout.names or ():
        if name in ("spare", "words", "kind"):
            continue
        if name == "wait_ns":
            columns |= {f"wait{i}": np.ascontiguousarray(data[name][:, i]) for i in range(len(records.WAITS))}
        elif layout[name].kind == "S":
            columns[name] = _text(data[name])
        else:
            columns[name] = np.ascontiguousarray(data[name])
    return pl.DataFrame(columns)


def _text(field: Any) -> pl.Series:
    """Decode each different text once."""
    import numpy as np
    import polars as pl

    different, which = np.unique(field, return_inverse=True)
    words = pl.Series([word.decode("utf-8", "replace") for word in different], dtype=pl.String)
    return words.gather(which) if len(words) else pl.Series([], dtype=pl.String)


def members_frame(groups: list[ProfilerCommunicator]) -> pl.DataFrame:
    """Return one row per context: its communicator and ranks."""
    import polars as pl

    rows = [
        {
            "file": m.file,
            "context": m.context,
            "communicator": m.communicator,
            "comm_rank": m.comm_rank,
            "global_rank": m.rank,
            "nranks": group.trusted_nranks,
            "nnodes": group.nnodes,
            "version": m.version,
        }
        for group in groups
        for m in group.members
    ]
    types: dict[str, Any] = dict.fromkeys(
        ("file", "communicator", "comm_rank", "global_rank", "nranks", "nnodes", "version"), pl.Int32
    )
    return pl.DataFrame(rows, schema={**types, "context": pl.UInt16}).unique(["file", "context"], keep="first")
