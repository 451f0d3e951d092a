"""What kind of recording a file is, told by its first bytes and not by its name: every kind is asked, the surest is taken."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from ringwright.formats.sources.kinds import ANY_TEXT, MAGIC, NO, kinds

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source

PEEK_BYTES = 256 << 10
_TAR = slice(257, 262)


def detect(source: Source, head: bytes | None = None) -> tuple[str, ...]:
    """Return the kind of a source, nothing for what is no recording; a log may hold what others print as well."""
    head = source.head(PEEK_BYTES) if head is None else head
    kind = kind_of(head, source.name) if head else None
    if kind is None:
        return ()
    also = [each.name for each in kinds().values() if kind in each.within and each.lies_in and each.lies_in(head)]
    return (kind, *also)


def further_kinds(source: Source, tried: str) -> list[str]:
    """Return the other kinds that more speaks for than that a source is text, the surest first; one was tried in vain."""
    head = source.head(PEEK_BYTES)
    sure = {kind.name: kind.sure(head, source.name) for kind in kinds().values() if kind.name != tried}
    return sorted((name for name, answer in sure.items() if answer > ANY_TEXT), key=lambda name: -sure[name])


def is_recording(source: Source) -> bool:
    """Say whether a source is of a kind that more speaks for than that it is text."""
    head = source.head(PEEK_BYTES)
    packed = kind_of(head, source.name) if _is_gzip(head) or _is_tar(head) else None
    return packed is not None or _surest(head, source.name, least=ANY_TEXT + 1) is not None


def kind_of(head: bytes, name: str = "", *, is_packed: bool = False) -> str | None:
    """Return the kind of a file that begins with ``head``; the name decides only between what bytes leave open.

    ``is_packed``: the file lies in a tar; archives in archives are not looked into.
    """
    if is_packed or not (_is_gzip(head) or _is_tar(head)):
        return _surest(head, name)
    if _surest(head, name, least=MAGIC):
        return _surest(head, name)
    if _is_gzip(head):  # .tgz, or compressed twice
        try:
            head = zlib.decompressobj(31).decompress(head, PEEK_BYTES)
        except zlib.error:
            return None
    return _tar(head) if _is_tar(head) else _surest(head, name, most=MAGIC - 1)


def _is_gzip(head: bytes) -> bool:
    return head[:2] == b"\x1f\x8b"


def _is_tar(head: bytes) -> bool:
    return head[_TAR] == b"ustar"


def _surest(head: bytes, name: str, *, least: int = NO + 1, most: int = MAGIC) -> str | None:
    """Return the kind that is surest of a head, the first of equals, among answers from ``least`` to ``most``."""
    surest, sure = None, least - 1
    for kind in kinds().values():
        if kind.surest > sure and sure < (answer := kind.sure(head, name)) <= most:
            surest, sure = kind.name, answer
    return surest


def _tar(head: bytes) -> str | None:
    """Return the kind of the first file in a tar that is of one; its content may be cut by the end of ``head``."""
    at = 0
    while at + 512 < len(head):
        name = head[at : at + 100].split(b"\0", 1)[0].decode("utf-8", "replace").rsplit("/", 1)[-1]
        digits = head[at + 124 : at + 136].strip(b" \0")
        if not digits.isdigit():
            return None
        try:
            size = int(digits, 8)
        except ValueError:
            return None
        is_file = head[at + 156 : at + 157] in (b"0", b"\0") and not name.startswith("._")
        kind = kind_of(head[at + 512 : at + 512 + size], name, is_packed=True) if is_file and size else None
        if kind is not None and (kind != "nccl-log" or not name.endswith((".txt", ".csv"))):
            return kind
        at += 512 + -(-size // 512) * 512
    return None
