"""Check sums of a capture's tables: which of them are as they were written."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from ringwright.ground.errors import InputError


def checksums(folder: Path) -> dict[str, list[int]]:
    """Return ``file -> [bytes, CRC-32]`` of a capture's tables."""
    paths = sorted(path for path in folder.rglob("*.parquet") if path.is_file())
    return {str(path.relative_to(folder)): [path.stat().st_size, _sum(path)] for path in paths}


def _sum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def compared(folder: Path, told: Any) -> tuple[dict[str, str], set[str]]:
    """Return what is wrong with which files of a capture, and the files that are as the writer told.

    Where the writer told no sums, as older releases did not, nothing is wrong and no file is vouched for.
    """
    if not isinstance(told, dict):
        return {}, set()
    try:
        now = checksums(folder)
    except OSError as error:
        raise InputError(f"the capture cannot be read: {error.strerror}", where=str(folder)) from error
    wrong = dict.fromkeys(sorted(set(map(str, told)) - set(now)), "is missing")
    same = {name for name, is_ in now.items() if told.get(name) == is_}
    return wrong | {name: "was changed since it was written" for name in now if name not in same}, same
