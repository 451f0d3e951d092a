"""Archives of recordings (tar, compressed or not, and zip) as the files in them, unpacked into a folder of their own.

Only plain files are taken, under names of our own: links, devices and paths that climb out of the archive have no way in. What
expands beyond all reason is stopped and reported.
"""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from ringwright.formats.sources.source import BOMB_FLOOR, Source
from ringwright.ground.drafts import writing
from ringwright.ground.errors import InputError, OutputError
from ringwright.ground.scratch import ROOM, TemporaryFolder
from ringwright.ground.trace_tables import TABLES

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
MOST_FILES = 100_000
UNPACKED_RATIO = 100  # of an archive on disk; recordings become 10 to 50 times as large
_PIECE_BYTES = 1 << 20
# A file of a saved Trace, at the end of its path: nothing that climbs can match.
CAPTURED = re.compile(rf"(?:^|/)(?:meta\.json|(?:{'|'.join(TABLES)})\.parquet|events/part-[\w-]{{1,40}}\.parquet)$")
# NotImplementedError: a zip of a later kind; RuntimeError: one with a password.
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)


def is_archive(path: Path) -> bool:
    """Say whether a file is an archive, by its name."""
    return path.name.lower().endswith(SUFFIXES)


def unpack(path: Path) -> list[Source]:
    """Return the files of an archive as sources; raise InputError where nothing in it can be read."""
    held = TemporaryFolder()
    allowed, bound = _allowed(path, held.path)
    sources: list[Source] = []
    losses: list[tuple[str, int]] = []
    total = 0
    folders: dict[str, int] = {}
    members = _zip(path) if path.suffix.lower() == ".zip" else _tar(path)
    try:
        for name, stream in members:
            target = _target(held.path, name, len(sources), folders)
            size, whole = copy_bounded(stream, target, allowed - total)
            total += size
            sources.append(_source(f"{path}!{name}", target, held))
            if not whole or len(sources) >= MOST_FILES:
                losses.append((f"archive expands beyond {bound}, rest not read", total))
                break
    except OutputError:
        raise
    except _DAMAGE as error:
        losses.append((f"archive damaged, rest not read: {error}", total))
    if not sources:
        what = losses[0][0] if losses else "the archive holds no file"
        raise InputError(what, where=str(path), remedy="unpack it by hand and name the files")
    sources[-1].losses.extend(losses)
    return sorted(sources, key=lambda source: source.name)


def _target(top: Path, name: str, number: int, folders: dict[str, int]) -> Path:
    """Return where a member goes: files of a saved Trace stay together under their names, all others get one of ours."""
    part = CAPTURED.search(name)
    if part is None:
        return top / f"{number:06d}{Path(name).suffix}"
    folder = top / f"trace-{folders.setdefault(name[: part.start()], len(folders)):06d}"
    target = folder / part[0].lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target if not target.exists() else top / f"{number:06d}{target.suffix}"


def _allowed(path: Path, scratch: Path) -> tuple[int, str]:
    """Return how many bytes an archive may become on disk, and what that bound is."""
    reason = max(BOMB_FLOOR, UNPACKED_RATIO * path.stat().st_size)
    room = shutil.disk_usage(scratch).free // 2
    return (reason, "all reason") if reason <= room else (room, f"half of the free space at {scratch.parent}")


def _tar(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None and not Path(member.name).name.startswith("."):
                yield member.name, stream


def _zip(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.is_dir() and not Path(member.filename).name.startswith("."):
                with archive.open(member) as stream:
                    yield member.filename, stream


def copy_bounded(stream: IO[bytes], target: Path, most: int) -> tuple[int, bool]:
    """Copy at most ``most`` bytes; return how many, and whether that is all. Of what is damaged stays what came before."""
    size = 0
    with writing(target.parent, room=ROOM), target.open("wb") as out:
        while size <= most:
            piece = stream.read(_PIECE_BYTES)
            if not piece:
                return size, True
            out.write(piece)
            size += len(piece)
    return size, False


def _source(name: str, target: Path, held: TemporaryFolder) -> Source:
    def opened() -> BinaryIO:
        if not held.path.exists():  # the folder lives as long as this function does
            raise FileNotFoundError(name)
        return gzip.open(target, "rb") if target.suffix == ".gz" else target.open("rb")  # type: ignore[return-value]

    return Source(name, opened, target.stat().st_size if target.suffix == ".gz" else 0, file=target)
