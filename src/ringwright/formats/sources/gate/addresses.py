"""Objects of a store as inputs: they are read as streams; what has to lie on a disk is copied there first, within bounds."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from ringwright.formats.sources.gate.archives import CAPTURED, copy_bounded
from ringwright.ground.errors import InputError
from ringwright.ground.scratch import ROOM, TemporaryFolder
from ringwright.ground.stores import answering, connected, shown

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK_BYTES = 4 << 20  # asked for at a time
_SKIPPED_SUFFIXES = {".html", ".parquet", ".xml", ".py", ".png", ".svg", ".toml", ".md"}


@dataclass(frozen=True)
class StoredObject:
    """An object of a store: ``name`` is what is shown of it, ``within`` its path below what was named."""

    name: str
    path: str
    within: PurePosixPath
    size_bytes: int
    system: Any

    def open(self) -> BinaryIO:
        """Return its bytes as a stream; InputError where the store does not give them."""
        is_web = self.name.startswith("http")  # whose servers need not know how to begin in the middle
        with answering(self.name):
            stream = self.system.open(self.path, "rb", block_size=0 if is_web else _BLOCK_BYTES)
        return io.BufferedReader(_Answering(stream, self.name, can_seek=not is_web), _BLOCK_BYTES >> 4)


class _Answering(io.RawIOBase):
    """A stream of a store whose errors are ours: a network that fails is no damage of the file."""

    def __init__(self, stream: Any, name: str, *, can_seek: bool) -> None:
        self._stream, self._name, self._can_seek = stream, name, can_seek

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._can_seek

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        with answering(self._name):
            data = self._stream.read(len(view))
        view[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        self._stream.close()
        super().close()


def worth_reading(within: PurePath) -> bool:
    """Say whether what lies below a folder can be a recording, by its name."""
    if any(part.endswith(".draft") for part in within.parts):
        return False  # somebody is just writing it
    return within.suffix.lower() not in _SKIPPED_SUFFIXES and not within.name.startswith((".", "SOURCES"))


def objects(address: str) -> list[StoredObject]:
    """Return the objects that an address names (one, a folder's, a pattern's), sorted.

    Raises InputError where there is none, MissingExtraError and UsageError as ``connected`` does.
    """
    return listed(*connected(address), address)


def listed(system: Any, path: str, address: str) -> list[StoredObject]:
    """Return the objects at a path of a store; raise as ``objects`` does."""
    top, is_folder = path, False
    with answering(address):
        try:
            about = system.info(path)
            is_folder = about["type"] == "directory"
            entries = system.find(path, detail=True) if is_folder else {path: about}
        except FileNotFoundError:
            entries = system.glob(path, detail=True)
            top = re.split(r"[*?\[]", path)[0].rpartition("/")[0]
    made = []
    for name, each in sorted(entries.items()):
        within = PurePosixPath(name[len(top) :].lstrip("/") or PurePosixPath(name).name)
        is_wanted = not is_folder or worth_reading(within) or CAPTURED.search(name)
        if is_wanted and each.get("type", "file") == "file" and not name.endswith("/") and ".." not in within.parts:
            shown_as = shown(system.unstrip_protocol(name))
            made.append(StoredObject(shown_as, name, within, int(each.get("size") or 0), system))
    if not made:
        raise InputError(f"nothing at {shown(address)}", where=shown(address), remedy="ringwright summary --sample")
    return made


def copied(wanted: Sequence[StoredObject], folder: Path) -> list[Path]:
    """Copy objects below a folder and return the files; InputError where they would take more than half of what is free."""
    allowed = shutil.disk_usage(folder).free // 2
    is_less = sum(each.size_bytes for each in wanted) <= allowed
    files = []
    for each in wanted if is_less else ():
        target = folder / each.within
        target.parent.mkdir(parents=True, exist_ok=True)
        with each.open() as stream:
            size, is_less = copy_bounded(stream, target, allowed)
        if not is_less:
            break
        allowed -= size
        files.append(target)
    if not is_less:
        raise InputError("it is more than half of the free space here", where=wanted[0].name, remedy=ROOM)
    return files


def fetched(address: str) -> tuple[Path, TemporaryFolder]:
    """Copy all that an address names; return the folder or the one file, and what to hold as long as it is needed."""
    held, wanted = TemporaryFolder(), objects(address)
    names = [
        re.sub(r"[*?]", "_", part).strip(".") for part in shown(address).partition("://")[2].rstrip("/").split("/")
    ]
    is_file = len(wanted) == 1 and wanted[0].within.name == names[-1]
    top = held.path / (["", *names][-2 if is_file else -1] or "store")
    top.mkdir()
    files = copied(wanted, top)
    return files[0] if is_file else top, held
