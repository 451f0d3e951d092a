"""Results of a run that has not ended yet, in the user's cache, so that it goes on where it was cut short; gone when it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ringwright.ground import drafts
from ringwright.ground.cache_folder import cache_folder
from ringwright.ground.errors import RingwrightError

FOLDER = "RINGWRIGHT_TASKS"
OLD_S = 14 * 86_400.0  # what a run that was cut short left, and nobody went on with


def folder() -> Path:
    """Return where results are kept: ``RINGWRIGHT_TASKS``, else a folder of the user's cache."""
    return cache_folder("tasks", FOLDER)


class KeptResults:
    """Results by the names of their tasks; where nothing can be written nothing is kept, and nothing else happens."""

    def __init__(self) -> None:
        self._written: set[Path] = set()

    def __len__(self) -> int:
        return len(self._written)

    @property
    def is_any(self) -> bool:
        """Whether anything is kept."""
        return folder().is_dir()

    def of(self, names: Sequence[str]) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each task of which an earlier run kept the result, and that."""
        for number, name in enumerate(names):
            path = self._path(name)
            try:
                result = path.read_bytes()
            except OSError:
                continue
            self._written.add(path)
            yield number, result

    def keep(self, name: str, result: bytes) -> None:
        """Write a result."""
        path = self._path(name)
        with suppress(OSError, RingwrightError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            drafts.write(path, result)
            self._written.add(path)

    def forget(self) -> None:
        """Remove what this run kept, and took over: it has ended."""
        for path in self._written:
            path.unlink(missing_ok=True)
        self._written.clear()
        with suppress(OSError):
            for left in folder().glob("*.msgpack"):
                if time.time() - left.stat().st_mtime > OLD_S:
                    left.unlink(missing_ok=True)
            folder().rmdir()

    @staticmethod
    def _path(name: str) -> Path:
        return folder() / f"{name}.msgpack"
