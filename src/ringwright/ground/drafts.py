"""The one gate out: what is written is a draft beside its target, and takes its place when it is whole.

``draft`` gives the place of a file to write, ``draft_folder`` that of a folder; at the end of the block what was
written is brought to the disk and renamed. Where the block ends in an error or by a signal, or the disk is full, the
draft goes and what stood there before stays. A draft is locked while it is written: a second writer of the same target
is refused, and what a killed process left is taken by the next. ``alone`` holds a folder that grows against every other
writer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from ringwright.ground.errors import OutputError, UsageError

PRIVATE = 0o600  # of a file that tells what a job was and where it ran
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_PLACE = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENXIO,
    errno.EIO,
    errno.ENODEV,
}
REFUSED = FULL | _CLOSED | _PLACE | {errno.EEXIST}  # what the system says where nothing can be written
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
_FULL_WORDS = ("no space left on device", "disk quota exceeded", "file too large")
_OPEN = ("/dev/fd/", "/dev/std", "/proc/self/fd/")
_ROOM = "free some space (df -h), or name another place with -o"
_TRIES = 100


@contextlib.contextmanager
def draft(target: str | Path, *, mode: int | None = None) -> Iterator[Path]:
    """Give the path of a draft to write; when the block ends, it is the file ``target``, whole.

    A link is followed; a pipe or device is written as it is. ``mode``: the file's permissions, otherwise those of the file that
    it replaces. Raises OutputError where it cannot be written, UsageError where another process is writing it.
    """
    path = Path(os.path.realpath(target))
    with writing(Path(target)):
        if _is_written_as_it_is(Path(target)):
            yield Path(target)
            return
        beside = _beside(path)
        lock = _taken_file(beside, Path(target), _mode(path, mode))
        try:
            yield beside
            _to_disk(beside)
            beside.replace(path)
            _to_disk(path.parent)
        finally:
            _drop(beside, lock)


@contextlib.contextmanager
def draft_folder(target: str | Path) -> Iterator[Path]:
    """Give the path of a folder to fill; when the block ends, it is the folder ``target`` and what stood there is gone.

    Whether it may go is for the caller to ask before. Raises as ``draft`` does.
    """
    path = Path(os.path.realpath(target))
    with writing(Path(target)):
        beside = _beside(path)
        lock = _taken_folder(beside, Path(target))
        try:
            with _not_in_use(path):
                yield beside
                for file in beside.rglob("*"):
                    _to_disk(file)
                _to_disk(beside)
                _swap(beside, path)
            _to_disk(path.parent)
        finally:
            _drop(beside, lock)


def write(target: str | Path, data: str | bytes, *, mode: int | None = None) -> Path:
    """Write a file whole and return its path; raise as ``draft`` does."""
    with draft(target, mode=mode) as path:
        path.write_bytes(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
    return Path(target)


@contextlib.contextmanager
def alone(folder: Path, *, with_others: bool = False) -> Iterator[None]:
    """Hold a folder against every other writer while the block runs; UsageError where another one holds it.

    ``with_others``: writers that say so too may hold it at the same time, as the launchers of one job do.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not _locked(lock, fcntl.LOCK_SH if with_others else fcntl.LOCK_EX):
            raise _in_use(folder)
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def grown(folder: Path) -> Iterator[None]:
    """Make a folder where there is none, and hold it as ``alone`` does while the block adds to it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        yield


@contextlib.contextmanager
def writing(target: Path, *, room: str = _ROOM) -> Iterator[None]:
    """Turn what the system says of writing ``target`` into an OutputError; ``room`` is the remedy for a full disk."""
    try:
        yield
    except OSError as error:
        found = _error(target, error.errno, str(error), error.filename, room)
        if found is None:
            raise
        raise found from error
    except Exception as error:
        words = str(error).lower()
        if any(each in words for each in _FULL_WORDS):  # a library's own error
            raise OutputError(_full(target), remedy=room) from error
        raise


def _full(target: Path) -> str:
    return f"{target} cannot be written: the disk is full; what stood there before is unchanged"


def _error(target: Path, number: int | None, words: str, name: object, room: str) -> OutputError | None:
    """Return our error; None for one that has nothing to do with writing."""
    if number in FULL or any(each in words.lower() for each in _FULL_WORDS):
        return OutputError(_full(target), remedy=room)
    if number not in _CLOSED | _PLACE:
        return None
    if name and not _is_ours(str(name), target):
        return None
    if number == errno.ENOENT and not target.parent.exists():
        return OutputError(f"the folder {target.parent} does not exist", remedy=f"mkdir -p {target.parent}")
    reason = os.strerror(number or 0).lower()
    return OutputError(
        f"{target} cannot be written: {reason}", remedy="name another place with -o, or mend its permissions"
    )


def _is_ours(name: str, target: Path) -> bool:
    path = Path(os.path.realpath(target))
    return name.startswith((str(target), str(path), str(_beside(path)), str(path.parent)))


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:200]}.draft")


def _mode(path: Path, mode: int | None) -> int:
    """Return the permissions of the new file: as asked, as the old one's, or as the user's mask leaves them."""
    if mode is not None:
        return mode
    with contextlib.suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _is_written_as_it_is(target: Path) -> bool:
    """Say whether a target is a pipe, a device or an open file; UsageError for a folder."""
    if target.is_dir():
        raise UsageError(f"{target} is a folder", remedy="name a file with -o")
    return str(target).startswith(_OPEN) or (target.exists() and not target.is_file())


def _taken_file(beside: Path, target: Path, mode: int) -> int:
    """Make or take a draft, locked and empty; another's that lives is left."""
    for _ in range(_TRIES):
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
        if _is_mine(lock, beside, target):
            os.fchmod(lock, mode)
            os.ftruncate(lock, 0)
            return lock
    raise _in_use(target)


def _taken_folder(beside: Path, target: Path) -> int:
    for _ in range(_TRIES):
        with contextlib.suppress(FileExistsError):
            beside.mkdir()
        lock = os.open(beside, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if _is_mine(lock, beside, target):
            _emptied(beside)
            return lock
    raise _in_use(target)


def _is_mine(lock: int, beside: Path, target: Path) -> bool:
    """Lock a draft; False where its last owner took it away meanwhile."""
    if not _locked(lock):
        os.close(lock)
        raise _in_use(target)
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(lock), os.stat(beside, follow_symlinks=False)):  # noqa: PTH116
            return True
    os.close(lock)
    return False


def _locked(lock: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock; where the file system knows no locks, do without."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NO_LOCKS
    return True


def _in_use(target: Path) -> UsageError:
    return UsageError(f"another process is writing {target}", remedy="wait for it, or name another output")


@contextlib.contextmanager
def _not_in_use(path: Path) -> Iterator[None]:
    """Hold the folder that is to be replaced, where there is one."""
    with contextlib.ExitStack() as stack:
        if path.is_dir():
            stack.enter_context(alone(path))
        yield


def _swap(beside: Path, path: Path) -> None:
    """Put the draft in its place; what stood there has its name for as long as it takes to remove it."""
    old = path.with_name(f".{path.name[:200]}.old")
    if path.exists():
        _removed(old)
        path.rename(old)
    try:
        beside.rename(path)
    except BaseException:
        if old.exists() and not path.exists():
            old.rename(path)
        raise
    _removed(old)


def _emptied(folder: Path) -> None:
    for path in folder.iterdir():
        _removed(path)


def _removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _drop(beside: Path, lock: int) -> None:
    """Take a draft away, unless it has become the target."""
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(lock), os.stat(beside, follow_symlinks=False)):  # noqa: PTH116
            _removed(beside)
    os.close(lock)


def _to_disk(path: Path) -> None:
    """Have the kernel write what it holds; where it cannot (a folder on some systems), it does so later."""
    if not path.is_file() and not path.is_dir():
        return
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(number)
