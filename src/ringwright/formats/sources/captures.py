"""Saved Traces wherever they lie: a folder, a folder in a folder or in an archive, loose files side by side, standard input.

A saved Trace is a folder, so what names it may be its folder, the archive that it was packed into, its files one by one, or a
stream of that archive. What else lies beside it is left to the readers of recordings.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from ringwright.formats.sources.detect import PEEK_BYTES, detect, is_recording
from ringwright.formats.sources.gate.addresses import copied, listed, objects, worth_reading
from ringwright.formats.sources.gate.archives import CAPTURED, is_archive, unpack
from ringwright.formats.sources.gate.inputs import files, find, sources_in, sources_of
from ringwright.formats.sources.gate.wrappers import unwrapped
from ringwright.formats.sources.part_files import in_order
from ringwright.ground import drafts, saved_trace
from ringwright.ground.errors import InputError
from ringwright.ground.scratch import ROOM, TemporaryFolder
from ringwright.ground.stores import is_address, shown
from ringwright.model.trace import META_FILE, Trace, is_capture

if TYPE_CHECKING:
    from ringwright.formats.sources.gate.addresses import StoredObject
    from ringwright.formats.sources.source import Source

STDIN = "-"
FORMAT = "ringwright.trace"
_HEAD = 512  # bytes that tell an archive
_MAGIC = ((b"PK\x03\x04", ".zip"), (b"BZh", ".tar.bz2"), (b"\xfd7zXZ\x00", ".tar.xz"))
_GZIP, _TAR, _TAR_AT = b"\x1f\x8b", b"ustar", 257


@dataclass(frozen=True)
class SavedTrace:
    """A folder that holds a saved Trace: ``name`` is what the user named, ``losses`` what was lost on the way to it."""

    name: str
    folder: Path
    held: object = None  # keeps the folder alive where it was unpacked
    losses: Sequence[str] = ()

    def open(self) -> Trace:
        """Return the Trace; it keeps the folder for as long as it lives."""
        trace = Trace.open(self.folder)
        meta = {"inputs": [self.name], **trace.meta}
        if self.losses:
            meta["losses"] = [*meta.get("losses", []), *self.losses]
        return replace(trace, meta=meta, held=(trace.held, self.held))


@dataclass
class Parted:
    """What some names stand for: saved Traces, and sources for the readers."""

    saved: dict[Path, SavedTrace] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)

    def add(self, saved: SavedTrace) -> None:
        """Add a saved Trace, once."""
        self.saved.setdefault(saved.folder.resolve(), saved)


def parted(names: Sequence[str]) -> Parted:
    """Return the saved Traces among some inputs, and the sources of all others; InputError where a name stands for nothing."""
    made = Parted()
    for name in names:
        if name == STDIN:
            _of_stream(made)
        elif is_address(name):
            _of_address(made, name)
        elif is_capture(Path(name)):
            made.add(SavedTrace(name, Path(name)))
        else:
            _of_name(made, name)
    made.sources = in_order(made.sources)
    return made


def _of_name(made: Parted, name: str) -> None:
    here = Path(name)
    saved = [SavedTrace(str(folder), folder) for folder in _saved_below(here)] if here.is_dir() else []
    rest: list[Source] = []
    for file in files(name) if not saved else _readable(name):
        if is_archive(file):
            _of_archive(made, file, str(file))
        elif (of := _folder_of(file)) is None:
            rest += sources_in(file)
        elif not here.is_dir():
            made.add(SavedTrace(str(of), of))
    _choose(made, name, saved, rest)


def _choose(made: Parted, name: str, saved: Sequence[SavedTrace], rest: Sequence[Source]) -> None:
    """Take the recordings in a folder or archive, or the saved Trace in it: one that lies beside its recordings says the same.

    Raises InputError where several lie there: whether they are parts of one job, only who saved them knows.
    """
    if not saved or any(is_recording(kinds_of(each)[0]) for each in rest):
        made.sources += rest
        return
    if len(saved) > 1:
        names = ", ".join(sorted(each.folder.name for each in saved)[:4])
        remedy = "name one of them, or several that are parts of one job"
        raise InputError(f"{len(saved)} saved Traces lie here: {names}", where=name, remedy=remedy)
    made.add(saved[0])


def kinds_of(source: Source) -> tuple[Source, tuple[str, ...]]:
    """Return a source, or the lines inside where they lie in something else, with the kinds of recordings that it is of."""
    if source.kinds is not None:
        return source, source.kinds
    head = source.head(PEEK_BYTES)
    text = unwrapped(source, head)
    return text, detect(text, head if text is source else None)


def _readable(name: str) -> list[Path]:
    try:
        return files(name)
    except InputError:
        return []


def _saved_below(folder: Path) -> Iterator[Path]:
    for meta in sorted(folder.rglob(META_FILE)):
        if not any(part.endswith(".draft") for part in meta.relative_to(folder).parts) and is_ours(meta.parent):
            yield meta.parent


def is_ours(folder: Path) -> bool:
    """Say whether a folder holds a saved Trace of ours, and not another program's ``meta.json``."""
    try:
        return saved_trace.document(folder / META_FILE).get("format") == FORMAT
    except (OSError, ValueError):
        return False


def _folder_of(file: Path) -> Path | None:
    """Return the saved Trace that a loose file is part of, None where it is part of none."""
    if not CAPTURED.search(file.as_posix()):
        return None
    return next((folder for folder in (file.parent, file.parent.parent) if is_ours(folder)), None)


def _of_archive(made: Parted, file: Path, name: str) -> None:
    """Take what an archive holds; sources are called by ``name`` and their own."""
    sources = unpack(file)
    losses = tuple(reason for each in sources for reason, _ in each.losses)
    saved: dict[Path, SavedTrace] = {}
    rest: list[Source] = []
    for each in sources:
        folder = _folder_of(each.file) if each.file else None
        if folder is None:
            rest.append(replace(each, name=name + each.name.removeprefix(str(file))))
        else:
            saved.setdefault(folder, SavedTrace(name, folder, each, losses))
    _choose(made, name, [*saved.values()], rest)


def _of_address(made: Parted, address: str) -> None:
    """Take what a store holds: a saved Trace and an archive are copied, all else is read as it comes."""
    saved: dict[str, SavedTrace | None] = {}
    rest: list[Source] = []
    for each in objects(address):
        if is_archive(Path(each.path)):
            held = TemporaryFolder()
            _of_archive(made, copied([each], held.path)[0], each.name)
            continue
        part = CAPTURED.search(each.path)
        folder = each.path[: part.start()] if part else ""
        if part and folder not in saved:
            saved[folder] = _copied_trace(each, folder)
        if saved.get(folder) is None and worth_reading(each.within):
            rest += sources_of(each)
    known = {each.name for each in made.saved.values()}
    _choose(made, shown(address), [each for each in saved.values() if each and each.name not in known], rest)


def _copied_trace(part: StoredObject, folder: str) -> SavedTrace | None:
    """Return the saved Trace that an object is part of, None where it is part of none."""
    held, name = TemporaryFolder(), shown(part.system.unstrip_protocol(folder))
    try:
        copied([replace(part, path=f"{folder}/{META_FILE}", within=PurePosixPath(META_FILE), size_bytes=0)], held.path)
    except InputError:
        return None
    if not is_ours(held.path):
        return None
    copied([each for each in listed(part.system, folder, name) if CAPTURED.fullmatch(str(each.within))], held.path)
    return SavedTrace(name, held.path, held)


def _of_stream(made: Parted) -> None:
    """Take standard input: an archive is kept in a file of its own first, a log is read as it comes."""
    (source,) = find([STDIN])
    suffix = _suffix(source.head(_HEAD))
    if not suffix:
        made.sources.append(source)
        return
    held = TemporaryFolder()
    kept = held.path / f"stdin{suffix}"
    with drafts.writing(kept, room=ROOM), source.open() as stream, kept.open("wb") as out:
        shutil.copyfileobj(stream, out)
    if is_archive(kept):
        _of_archive(made, kept, source.name)
        return
    (inner,) = sources_in(kept)
    made.sources.append(replace(inner, name=source.name, open=lambda: _opened(inner, held)))


def _opened(source: Source, _held: TemporaryFolder) -> BinaryIO:
    return source.open()


def _suffix(head: bytes) -> str:
    """Return what a file would end in that begins so; empty for one that is neither archive nor compressed."""
    if head.startswith(_GZIP):
        return ".tar.gz" if _is_tar(_unzipped(head)) else ".gz"
    if _is_tar(head):
        return ".tar"
    return next((suffix for magic, suffix in _MAGIC if head.startswith(magic)), "")


def _unzipped(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, _HEAD)
    except zlib.error:
        return b""


def _is_tar(head: bytes) -> bool:
    return head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR
