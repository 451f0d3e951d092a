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

import msgspec

from ringwright.executors.fan_out import FanOut
from ringwright.formats.sources import ranks
from ringwright.formats.sources.captures import kinds_of
from ringwright.formats.sources.gate.inputs import sources_in
from ringwright.formats.sources.gate.packed import packed
from ringwright.formats.sources.kinds import kinds
from ringwright.formats.sources.part_files import PartHead
from ringwright.formats.sources.source import Source
from ringwright.ground.drafts import writing
from ringwright.ground.errors import UsageError
from ringwright.ground.scratch import ROOM, TemporaryFolder

Told = list[tuple[Source, tuple[str, ...]]]
IN_MEMORY_BYTES = 256 << 20  # of parts; further ones wait in a folder


class SourcePart(msgspec.Struct):
    """What one source says: ``parsed`` by the reader of its kind, None where it has to be read with the others."""

    kind: str
    losses: list[tuple[str, int]]
    parsed: bytes | None


def source_part(path: Path, name: str, kind: str, rank_from: str | None) -> SourcePart:
    """Return the part of a file of a kind, under the name by which the user knows it: a task, for whoever works."""
    try:
        (source,) = sources_in(path)
        text, _ = kinds_of(replace(source, name=name))
    except OSError:  # it is gone, or another's: who reads them all says so
        return SourcePart(kind, [], None)
    return part_of(text, kind, rank_from)


def part_of(source: Source, kind: str, rank_from: str | None = None) -> SourcePart:
    """Return the part of a source; one that its reader refuses is left to the reading of all, which says why."""
    parse = _parser(kinds()[kind].parser)
    try:
        with ranks.named_by(rank_from):
            made = packed(parse(source, None))
    except Exception:  # noqa: BLE001 - whatever it is, it comes again where the file is read with the others
        return SourcePart(kind, [], None)
    return SourcePart(kind, source.losses, made)


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
        made[number] = replace(source, part=partial(coming.part, index)), of
        coming.sources.append(made[number][0])
    return made


class _Coming:
    """The parts of some sources, as they come."""

    def __init__(self, fan: FanOut, told: Told, progress: Callable[[int], None] | None) -> None:
        given = [(Path(source.name).resolve(), source.name, of[0], ranks.told_pattern()) for source, of in told]
        self.sources: list[Source] = []
        self._progress, self._store = progress, _PartStore()
        self._sizes = [path.stat().st_size for path, *_ in given]
        self._parts: dict[int, Callable[[], bytes | None]] = {}
        self._stream = fan.stream(
            source_part, given, title=lambda path, *_: path.name, paths=[str(path) for path, *_ in given[:1]]
        )

    def part(self, index: int) -> bytes | None:
        """Return the part of a source, None where its reader has to read it."""
        while index not in self._parts:
            number, part = next(self._stream)
            self.sources[number].losses[:] = part.losses
            self._parts[number] = self._store.kept(part.parsed) if part.parsed is not None else lambda: None
            if self._progress is not None and part.parsed is not None:
                self._progress(self._sizes[number])
        return self._parts[index]()


def _is_alone(source: Source, of: Sequence[str]) -> bool:
    """Whether a source is a file that a reader reads alone, and of which there is no part yet."""
    return source.kinds is None and len(of) == 1 and bool(kinds()[of[0]].parser) and Path(source.name).is_file()


class _PartStore:
    """Packed parts, in memory as long as they are small, then in a folder that lives as long as anybody reads them."""

    def __init__(self) -> None:
        self._held, self._count = 0, 0
        self._folder: TemporaryFolder | None = None

    def kept(self, data: bytes) -> Callable[[], bytes]:
        """Keep a part; return what gives it back."""
        self._held += len(data)
        if self._held <= IN_MEMORY_BYTES:
            return lambda: data
        folder = self._folder = self._folder or TemporaryFolder()
        path = folder.path / f"{self._count:07}.part"
        self._count += 1
        with writing(folder.path, room=ROOM):
            path.write_bytes(data)
        return lambda: _read(path, folder)


def _read(path: Path, _held: TemporaryFolder) -> bytes:
    return path.read_bytes()


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
            yield PartHead(source.name, of[0], source.losses), partial(io.BytesIO, part)
            continue
        file = Path(source.name.partition("!")[0])  # of an archive all that it holds
        if not file.is_file():
            raise UsageError(f"{source.name} is no file", remedy="save it to one first: parts are made of files")
        if str(file) not in files:
            files.add(str(file))
            yield PartHead(str(file), "", []), partial(_bytes, file)


def _bytes(file: Path) -> BinaryIO:
    return file.open("rb")
