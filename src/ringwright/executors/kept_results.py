"""Results of a run that has not ended yet, in the user's cache, so that it goes on where it was cut short; gone when it ends."""

from __future__ import annotations

import os
import socket
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ringwright.ground.cache_folder import cache_folder

FOLDER = "RINGWRIGHT_TASKS"
SUFFIX = ".msgpack"
LEFT = ".tables"  # of what a worker leaves beside a result
ASKS = ".asks"  # of what tells a worker that it sees the folder
OLD_S = 14 * 86_400.0  # what a run that was cut short left, and nobody went on with


def folder() -> Path:
    """Return where results are kept: ``RINGWRIGHT_TASKS``, else a folder of the user's cache."""
    return cache_folder("tasks", FOLDER)


class KeptResults:
    """Results by the names of their tasks; where nothing can be written nothing is kept, and nothing else happens."""

    def __init__(self) -> None:
        self._written: set[Path] = set()

    def __len__(self) -> int:
        return sum(path.suffix == SUFFIX for path in self._written)

    @property
    def is_any(self) -> bool:
        """Whether anything is kept."""
        return folder().is_dir()

    def of(self, names: Sequence[str]) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each task of which an earlier run kept the result, and that."""
        for number, name in enumerate(names):
            path = self._path(name)
            try:
                digest, result = struct.unpack("<I", (data := path.read_bytes())[:4])[0], data[4:]
            except (OSError, struct.error):
                continue
            self._written.add(path)
            if digest == zlib.crc32(result):
                yield number, result

    def beside(self) -> str:
        """Return a file in the folder, of this machine's name: who sees it sees the folder; empty where none can be written."""
        seen = folder() / f"{socket.gethostname()}{ASKS}"
        with suppress(OSError):
            folder().mkdir(parents=True, exist_ok=True, mode=0o700)
            seen.touch()
            return str(seen)
        return ""

    def owns(self, path: Path) -> None:
        """Take over a file that a worker left beside its result: it goes when they do."""
        self._written.add(path)

    def keep(self, name: str, result: bytes) -> None:
        """Write a result: no wait for the disk, a machine that fails costs what the digest does not fit."""
        path = self._path(name)
        draft = path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft.write_bytes(struct.pack("<I", zlib.crc32(result)) + result)
            draft.replace(path)
            self._written.add(path)
            return
        with suppress(OSError):
            draft.unlink(missing_ok=True)  # of a full disk

    def forget(self) -> None:
        """Remove what this run kept, and took over: it has ended."""
        for path in self._written:
            path.unlink(missing_ok=True)
        self._written.clear()
        with suppress(OSError):
            for left in [*folder().glob(f"*{SUFFIX}"), *folder().glob(f"*{LEFT}")]:
                if time.time() - left.stat().st_mtime > OLD_S:
                    left.unlink(missing_ok=True)
            if all(left.suffix == ASKS for left in folder().iterdir()):  # no other run of this machine keeps anything
                for left in folder().iterdir():
                    left.unlink(missing_ok=True)
                folder().rmdir()

    @staticmethod
    def _path(name: str) -> Path:
        return folder() / f"{name}{SUFFIX}"
