"""From the files of a Chakra execution trace to a Trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.formats.sources.chakra_et.edges import MOST_THROUGH
from ringwright.formats.sources.chakra_et.events import emit
from ringwright.formats.sources.chakra_et.file import MOST_EDGES, ChakraFile, read_source
from ringwright.formats.sources.gate.packed import parsed
from ringwright.formats.sources.ranks import rank_in_name, world_of
from ringwright.formats.sources.reader_rows import Gathered
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "chakra-et"
_REMEDY = "write it with chakra_converter of mlcommons/chakra, one file per rank: PREFIX.0.et, PREFIX.1.et, ..."


def read_chakra_et(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's execution traces; InputError where no node could be read, with the reason."""
    gathered = Gathered(KIND)
    files: dict[int, ChakraFile] = {}  # by rank
    members: dict[str, list[int]] = {}
    texts: dict[str, str] = {}
    refusals: list[str] = []
    room = MOST_EDGES
    for source in sources:
        read = parsed(source, read_source, progress)
        for file in read.files:
            _rank(gathered, file, files)
            if not file.nodes:
                refusals.append(file.refused or f"{file.name} holds no node")
                if file.refused:
                    gathered.note(file.name, "refused", file.refused)
                    gathered.lose(f"{file.name}: {file.refused}")
                continue
            files[file.rank] = file
            room -= _account(gathered, file, room)
            members = file.members | members
            texts |= file.texts
            file.members = {}  # of all ranks in each file
        gathered.damage(source.name, read.losses)
    if not files:
        what = refusals[0] if refusals else "no file holds a node"
        raise InputError(
            f"no Chakra execution trace: {what}", where=", ".join(s.name for s in sources[:3]), remedy=_REMEDY
        )
    world = world_of(files)
    emit(gathered, [*files.values()], members, texts, world)
    if any(file.says_per_rank for file in files.values()):
        note = "the size column is comm_size x ranks; it is empty where the size of the group is not known"
        said = "comm_size of all-gather", "what one rank hands in", KIND
        gathered.claim(*said, ground="assumed", confidence=0.8, note=note)
    return gathered.trace(world=world, from_zero=True)


def _rank(gathered: Gathered, file: ChakraFile, taken: dict[int, ChakraFile]) -> None:
    """Give a file its rank: that of its name, else its turn; where that is another's, the first that is free."""
    named = rank_in_name(file.title)
    file.rank = len(taken) if named is None else named
    if named is None or file.rank in taken:
        if file.rank in taken:
            file.rank = next(rank for rank in range(len(taken) + 1) if rank not in taken)
        note = f"{file.name}: no rank of its own in the name"
        gathered.claim("rank", file.rank, file.name, ground="assumed", confidence=0.5, note=note)


def _account(gathered: Gathered, file: ChakraFile, room: int) -> int:
    """Account for a file that was read; return how many edges are kept of it, at most ``room``."""
    if file.cut:
        gathered.note(file.name, "refused", f"the rest is not read: {file.cut}")
        gathered.lose(f"{file.name}: {file.nodes} nodes read, the rest not: {file.cut}")
    gathered.inputs.append(file.name)
    gathered.device(file.rank, pid=file.pid)
    gathered.note(file.name, "understood", "nodes", file.nodes - file.twins)
    gathered.note(file.name, "other", "host twin of a collective, not counted again", file.twins)
    gathered.claim("Chakra schema", file.version, file.name)
    if file.unknown:
        note = "the traced window is cut there; taken as done"
        gathered.claim("dependencies on nodes outside", file.unknown, file.name, note=note)
    if len(file.edges) > room:
        file.edges = file.edges.head(room)
        gathered.lose(f"{file.name}: more than {MOST_EDGES} dependencies, the rest left out")
    if file.contracted:
        note = f"behind so many host operators only {MOST_THROUGH} events each are kept as dependencies"
        gathered.claim("dependencies cut", file.contracted, file.name, note=note)
    if not len(file.calls):
        gathered.lose(f"{file.name}: no collective of a device among {file.nodes} nodes")
    return len(file.edges)
