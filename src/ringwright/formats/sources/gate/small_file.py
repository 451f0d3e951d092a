"""A small text file, whole: bounded, and refused in one way."""

from __future__ import annotations

from pathlib import Path

from ringwright.ground.errors import InputError

MOST_BYTES = 16 << 20


def read_whole(path: Path, what: str, remedy: str) -> str:
    """Return the text of a file of at most 16 MiB; InputError says why ``what`` cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {what}: {error.strerror or error}", where=str(path), remedy=remedy) from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{what} is larger than {MOST_BYTES >> 20} MiB", where=str(path), remedy=remedy)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is not text: byte {error.start}", where=str(path), remedy=remedy) from None
