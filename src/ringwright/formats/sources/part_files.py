"""Part files: what each of some files says, so that whoever has the parts of a job reads it as one who had the files.

``convert --format parts -o NODE.zip`` writes an archive of them on each node; naming all archives joins them, in any order. A
part is a line that says what it is, the length of a head, the head (MessagePack), and what the reader of its kind made of the
file; of kinds whose files are read together it is the file itself.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import IO, BinaryIO

import msgspec

from ringwright.formats.sources.gate.inputs import sources_in
from ringwright.formats.sources.gate.packed import PackedPart
from ringwright.formats.sources.source import Source
from ringwright.ground import drafts
from ringwright.ground.errors import InputError, UsageError
from ringwright.ground.scratch import ROOM, TemporaryFolder
from ringwright.ground.version import VERSION

SUFFIX = ".part"
MAGIC = b"ringwright.part/1\n"
_PIECE = 1 << 20
_MOST_HEAD = 1 << 24


class PartHead(msgspec.Struct):
    """Of what a part is: the file, its ``kind`` where it is parsed, what was lost of it, and the digest of the rest."""

    name: str
    kind: str
    losses: list[tuple[str, int]]
    sha256: str = ""
    release: str = VERSION


def in_order(sources: Sequence[Source]) -> list[Source]:
    """Return sources by name, so that no answer depends on the order they are named in; part files as what they hold, once."""
    plain = [source for source in sources if not source.name.endswith(SUFFIX)]
    held: dict[tuple[str, str], list[Source]] = {}
    for source in sources:
        if source.name.endswith(SUFFIX):
            head, at = _head(source)
            if (head.name, head.sha256) not in held:
                held[head.name, head.sha256] = _opened(source, head, at)
    parts = [each for _, of_part in sorted(held.items()) for each in of_part]
    return sorted([*plain, *parts], key=lambda source: PurePath(source.name))


def write(target: Path, parts: Iterable[tuple[PartHead, Callable[[], BinaryIO]]]) -> list[Path]:
    """Write an archive of parts, each its head, whose digest is added here, and how to open the rest; return the file."""
    if target.suffix.lower() != ".zip":
        raise UsageError(
            f"parts are an archive, and {target} is not named so", remedy=f"-o {target.with_suffix('.zip')}"
        )
    with drafts.draft(target) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        for number, (head, opened) in enumerate(parts):
            digest = hashlib.sha256()
            with opened() as stream:
                for piece in _pieces(stream):
                    digest.update(piece)
            told = msgspec.msgpack.encode(msgspec.structs.replace(head, sha256=digest.hexdigest()))
            entry = zipfile.ZipInfo(f"{number:07}{SUFFIX}")  # of no date: the same files give the same archive
            entry.compress_type = zipfile.ZIP_DEFLATED
            with made.open(entry, "w", force_zip64=True) as out, opened() as stream:
                out.write(MAGIC + len(told).to_bytes(8, "little") + told)
                for piece in _pieces(stream):
                    out.write(piece)
    return [target]


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    while piece := stream.read(_PIECE):
        yield piece


def _head(source: Source) -> tuple[PartHead, int]:
    """Return a part's head and where the rest begins; InputError for what is no part, or is damaged."""
    digest = hashlib.sha256()
    try:
        with source.open() as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                raise ValueError("it does not begin as one")
            size = int.from_bytes(stream.read(8), "little")
            if size > _MOST_HEAD:
                raise ValueError("its head is too long")
            head = msgspec.msgpack.decode(stream.read(size), type=PartHead)
            for piece in _pieces(stream):
                digest.update(piece)
        if digest.hexdigest() != head.sha256:
            raise ValueError("it is cut, or was changed")
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise InputError(f"no part of a recording: {error}", where=source.name, remedy="write it again") from error
    return head, len(MAGIC) + 8 + size


def _opened(source: Source, head: PartHead, at: int) -> list[Source]:
    """Return what a part holds: one source as its reader left it, or the sources in the file itself."""
    if head.kind:
        return [replace(source, name=head.name, losses=head.losses, kinds=(head.kind,), part=lambda: _rest(source, at))]
    held = TemporaryFolder()
    kept = held.path / PurePath(head.name).name
    with drafts.writing(held.path, room=ROOM), source.open() as stream, kept.open("wb") as out:
        stream.read(at)
        shutil.copyfileobj(stream, out, _PIECE)
    return [
        replace(each, name=head.name + each.name.removeprefix(str(kept)), open=_holding(each.open, held))
        for each in sources_in(kept)
    ]


def _holding(opened: Callable[[], BinaryIO], held: TemporaryFolder) -> Callable[[], BinaryIO]:
    """Return what opens a source and keeps the folder that it lies in."""

    def again(_held: TemporaryFolder = held) -> BinaryIO:
        return opened()

    return again


def together(part: PackedPart) -> bytes:
    """Return a part as it stands behind its head in a file."""
    return len(part.head).to_bytes(8, "little") + part.head + part.table_bytes()


def _rest(source: Source, at: int) -> PackedPart:
    with source.open() as stream:
        stream.read(at)
        return PackedPart(stream.read(int.from_bytes(stream.read(8), "little")), stream.read())
