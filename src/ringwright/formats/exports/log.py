"""A raw log, redacted so that it can be shared and still reads to the same counts."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ringwright.formats.exports.placement import claim_file
from ringwright.formats.exports.redact import Redactor
from ringwright.ground.drafts import draft


def log(pieces: Callable[[], Iterable[bytes]], path: str | Path, *, salt: str = "", force: bool = False) -> list[Path]:
    """Write a redacted log to ``path`` (compressed when it ends in .gz) and return the file.

    ``pieces`` is called twice, once to learn the names and once to replace them, and yields whole lines each time.
    Bytes that are no UTF-8 pass through unchanged.
    """
    target = claim_file(path, force=force)
    redactor = Redactor(salt)
    for piece in pieces():
        redactor.learn(piece.decode("utf-8", "surrogateescape"))
    with draft(target) as beside, _writer(beside, is_packed=target.suffix == ".gz") as out:
        for piece in pieces():
            text = redactor.text(piece.decode("utf-8", "surrogateescape"))
            out.write(text.encode("utf-8", "surrogateescape"))
    return [target]


@contextmanager
def _writer(path: Path, *, is_packed: bool) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """Open for writing; a compressed file carries neither its name nor the time, which are private too."""
    with path.open("wb") as plain:
        if not is_packed:
            yield plain
            return
        with gzip.GzipFile(filename="", fileobj=plain, mode="wb", mtime=0) as packed:
            yield packed
