"""Parts: what each source says, read alone on whatever worker; the reader of their kind joins them as if it had read them itself.

A part is the reader's own reading of one file, not a Trace: what joins the files of a job (which groups are one communicator,
how clocks lie, which rank has no file) needs all of them, so it is done once, over all parts, in whatever order they came.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import msgspec

from ringwright.executors.fan_out import FanOut
from ringwright.executors.kept_results import LEFT
from ringwright.formats.sources import ranks
from ringwright.formats.sources.captures import kinds_of
from ringwright.formats.sources.gate.inputs import sources_in
from ringwright.formats.sources.gate.packed import PackedPart, packed
from ringwright.formats.sources.kinds import kinds
from ringwright.formats.sources.part_files import PartHead, together
from ringwright.formats.sources.source import Source
from ringwright.ground.drafts import writing
from ringwright.ground.errors import UsageError
from ringwright.ground.scratch import ROOM, TemporaryFolder

Told = list[tuple[Source, tuple[str, ...]]]
IN_MEMORY_BYTES = 256 << 20  # of tables that travelled; further ones wait in a folder
TRAVEL_BYTES = 2 << 10  # of tables, below which they travel with their head


class SourcePart(msgspec.Struct):
    """What one source says: the ``head`` of its part, None where it has to be read with the others, and its tables.

    They travel, or wait in a file that whoever asked sees too.
    """

    kind: str
    losses: list[tuple[str, int]]
    head: bytes | None = None
    tables: bytes = b""
    file: str = ""


def source_part(path: Path, name: str, kind: str, rank_from: str | None, beside: str = "") -> SourcePart:
    """Return the part of a file of a kind, under the name by which the user knows it: a task, for whoever works.

    Large tables stay beside the file ``beside``, where that is seen from here.
    """
    try:
        (source,) = sources_in(path)
        text, _ = kinds_of(replace(source, name=name))
    except OSError:  # it is gone, or another's: who reads them all says so
        return SourcePart(kind, [])
    part = part_of(text, kind, rank_from)
    if len(part.tables) < TRAVEL_BYTES or not beside or not Path(beside).is_file():
        return part
    file = Path(beside).with_name(f"{uuid4().hex}{LEFT}")
    file.write_bytes(part.tables)
    return msgspec.structs.replace(part, tables=b"", file=str(file))


def part_of(source: Source, kind: str, rank_from: str | None = None) -> SourcePart:
    """Return the part of a source; one that its reader refuses is left to the reading of all, which says why."""
    parse = _parser(kinds()[kind].parser)
    try:
        with ranks.named_by(rank_from):
            made = packed(parse(source, None))
    except Exception:  # noqa: BLE001 - whatever it is, it comes again where the file is read with the others
        return SourcePart(kind, [])
    return SourcePart(kind, source.losses, made.head, made.table_bytes()) if made else SourcePart(kind, source.losses)


def apart(told: Told, fan: FanOut, progress: Callable[[int], None] | None) -> Told:
    """Return sources with their kinds, those that can be read alone with the parts that whoever works makes.

    A reader that asks for a part takes all that have come by then, and waits for its own: it joins while others still read.
    """
    asked = [number for number, (source, of) in enumerate(told) if _is_alone(source, of)]
    if len(asked) < 2:
        return told
    coming = _Coming(fan, [told[number] for number in asked], progress)
    made = [*told]
    for index, number in enumerate(asked):
        source, of = told[number]
        made[number] = replace(source, part=partial(coming.part, index), fan=fan), of
        coming.sources.append(made[number][0])
    return made


class _Coming:
    """The parts of some sources, as they come."""

    def __init__(self, fan: FanOut, told: Told, progress: Callable[[int], None] | None) -> None:
        rank_from, beside = ranks.told_pattern(), fan.beside()
        given = [(Path(source.name).resolve(), source.name, of[0], rank_from, beside) for source, of in told]
        self.sources: list[Source] = []
        self._fan, self._progress, self._store = fan, progress, _PartStore()
        self._sizes = [path.stat().st_size for path, *_ in given]
        self._parts: dict[int, PackedPart | None] = {}
        self._stream = fan.stream(
            source_part, given, title=lambda path, *_: path.name, paths=[str(path) for path, *_ in given[:1]]
        )

    def part(self, index: int) -> PackedPart | None:
        """Return the part of a source, once; None where its reader has to read it."""
        while index not in self._parts:
            number, part = next(self._stream)
            self.sources[number].losses[:] = part.losses
            self._parts[number] = self._taken(part)
            if self._progress is not None and part.head is not None:
                self._progress(self._sizes[number])
        mine, self._parts[index] = self._parts[index], None
        return mine

    def _taken(self, part: SourcePart) -> PackedPart | None:
        if part.head is None:
            return None
        if part.file:
            self._fan.owns(Path(part.file))
            return PackedPart(part.head, Path(part.file)) if Path(part.file).is_file() else None
        return PackedPart(part.head, self._store.kept(part.tables))


def _is_alone(source: Source, of: Sequence[str]) -> bool:
    """Whether a source is a file that a reader reads alone, and of which there is no part yet."""
    return source.kinds is None and len(of) == 1 and bool(kinds()[of[0]].parser) and Path(source.name).is_file()


class _PartStore:
    """Tables of parts, in memory as long as they are few, then in a folder that lives as long as this."""

    def __init__(self) -> None:
        self._held, self._count = 0, 0
        self._folder: TemporaryFolder | None = None

    def kept(self, tables: bytes) -> bytes | Path:
        """Keep tables; return them, or where they are."""
        self._held += len(tables)
        if self._held <= IN_MEMORY_BYTES:
            return tables
        folder = self._folder = self._folder or TemporaryFolder()
        path = folder.path / f"{self._count:07}{LEFT}"
        self._count += 1
        with writing(folder.path, room=ROOM):
            path.write_bytes(tables)
        return path


@cache
def _parser(spelled: str) -> Callable[..., Any]:
    module, _, function = spelled.partition(":")
    parse: Callable[..., Any] = getattr(import_module(module), function)
    return parse


def parts(told: Told) -> Iterator[tuple[PartHead, Callable[[], BinaryIO]]]:
    """Yield what a part file is made of, for each source: its reader's reading of it, or where there is none the file itself."""
    files: set[str] = set()
    for source, of in told:
        if source.part is not None and (part := source.part()) is not None:
            yield PartHead(source.name, of[0], source.losses), partial(_opened, part)
            continue
        file = Path(source.name.partition("!")[0])  # of an archive all that it holds
        if not file.is_file():
            raise UsageError(f"{source.name} is no file", remedy="save it to one first: parts are made of files")
        if str(file) not in files:
            files.add(str(file))
            yield PartHead(str(file), "", []), partial(_bytes, file)


def _opened(part: PackedPart) -> BinaryIO:
    return io.BytesIO(together(part))


def _bytes(file: Path) -> BinaryIO:
    return file.open("rb")
