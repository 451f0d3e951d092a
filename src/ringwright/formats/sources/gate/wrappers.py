"""Logs whose lines lie in something else: JSON records of a container runtime or log service, a terminal's frame, HTML.

Each line of the input gives one line of text, so that the numbers of lines stay those of the file; a line may end in CR alone.
"""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

from ringwright.formats.sources.detect import PEEK_BYTES
from ringwright.formats.sources.kinds import WORDS, kinds

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from ringwright.formats.sources.source import Source

LONGEST_LINE = 1 << 20
TEXTS = ("nccl-log", "bench")  # kinds of recordings that are text, line by line
# Docker and Fluentd, Google Cloud, journald, CloudWatch and ELK, Loki, Azure.
_TEXT = re.compile(
    rb'"(?:log|textPayload|MESSAGE|message|msg|line|LogMessage|LogEntry)"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)"\s*(?:[,}]|$)'
)
_BARS = ("\u2502".encode(), "\u2503".encode(), "\u2551".encode())
_ESCAPED = re.compile(rb"-&gt;|&lt;std(?:out|err)&gt;")
_LEAST_SHARE = 0.8  # of the lines, that lie in it

_SIGNS = (b'"', *_BARS, b"&gt;")  # none of them: plain text

Unwrap = Callable[[bytes], bytes]


def unwrapped(source: Source, head: bytes) -> Source:
    """Return a source that begins with ``head``, or one of the lines inside where these are a log or a table."""
    if _ends_in_cr(head):
        source, head = _with_line_feeds(source), head.replace(b"\r", b"\n")
    unwrap = _unwrap_of(head, source.name)
    if unwrap is None:
        return source
    peek = source.peek
    return replace(
        source,
        open=lambda: io.BufferedReader(_Unwrapped(source.open(), unwrap), PEEK_BYTES),
        peek=None if peek is None else lambda size: _all_of(peek(size), unwrap),
    )


def _ends_in_cr(head: bytes) -> bool:
    """Whether lines end in CR alone, as where a terminal's log is copied: a bar of progress has fewer of them than lines."""
    alone = head.count(b"\r") - head.count(b"\r\n")
    return alone > head.count(b"\n") and b"\0" not in head


def _with_line_feeds(source: Source) -> Source:
    peek = source.peek
    return replace(
        source,
        open=lambda: io.BufferedReader(_LineFeeds(source.open()), PEEK_BYTES),
        peek=None if peek is None else lambda size: peek(size).replace(b"\r", b"\n"),
    )


def _unwrap_of(head: bytes, name: str) -> Unwrap | None:
    """Return what takes a line out of what it lies in, None where lines lie in nothing."""
    if not any(each in head for each in _SIGNS):
        return None
    lines = [line for line in head.split(b"\n")[:200] if line.strip()]
    for tried, unwrap in ((_in_records, _of_record), (_in_frame, _of_frame), (_in_html, _of_html)):
        if tried(lines) and _is_text(_all_of(head, unwrap), name):
            return unwrap
    return None


def _is_text(head: bytes, name: str) -> bool:
    return any(kinds()[kind].sure(head, name) >= WORDS for kind in TEXTS)


def _all_of(head: bytes, unwrap: Unwrap) -> bytes:
    return b"\n".join(unwrap(line) for line in head.split(b"\n"))


def _in_records(lines: list[bytes]) -> bool:
    """Whether the first lines are records, or a list of records begins, that have a text each."""
    if not lines or lines[0].lstrip()[:1] not in (b"{", b"["):
        return False
    records = [
        line for line in lines[:-1] or lines if line.lstrip().startswith(b"{") and line.rstrip(b", \r").endswith(b"}")
    ]
    if records:
        return any(map(_is_record, records[:3])) and sum(map(_is_record, records)) >= _LEAST_SHARE * len(records)
    return sum(_TEXT.search(line) is not None for line in lines) > 2  # records of several lines


def _is_record(line: bytes) -> bool:
    if _TEXT.search(line) is None:
        return False
    try:
        record = json.loads(line.rstrip(b", \r"))
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict)


def _of_record(line: bytes) -> bytes:
    match = _TEXT.search(line)
    if match is None:
        return b""
    try:
        text = json.loads(b'"' + match[1] + b'"')
    except ValueError:
        return b""
    return str(text).rstrip("\r\n").replace("\n", " ").encode("utf-8", "replace")


def _in_frame(lines: list[bytes]) -> bool:
    inside = sum(_of_frame(line) is not line for line in lines)
    return inside > 0 and inside >= _LEAST_SHARE * len(lines)


def _of_frame(line: bytes) -> bytes:
    """Return what stands between the bars at both ends; the line itself where there are none."""
    inside = line.strip(b" \t\r")
    if len(inside) < 2 * len(_BARS[0]) or not inside.startswith(_BARS) or not inside.endswith(_BARS):
        return line
    inside = inside[len(_BARS[0]) : -len(_BARS[0])].rstrip(b" \t")
    return inside.removeprefix(b" ")


def _in_html(lines: list[bytes]) -> bool:
    return any(_ESCAPED.search(line) for line in lines)


def _of_html(line: bytes) -> bytes:
    return html.unescape(line.decode("utf-8", "replace")).encode("utf-8", "replace") if b"&" in line else line


class _LineFeeds(io.RawIOBase):
    """A stream with LF in the place of CR."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self._inner.read(len(view))
        view[: len(data)] = data.replace(b"\r", b"\n")
        return len(data)

    def close(self) -> None:
        self._inner.close()
        super().close()


class _Unwrapped(io.RawIOBase):
    """The lines of a stream, each taken out of what it lies in."""

    def __init__(self, inner: BinaryIO, unwrap: Unwrap) -> None:
        self._inner, self._unwrap, self._rest = inner, unwrap, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        while not self._rest:
            line = self._inner.readline(LONGEST_LINE)
            if not line:
                return 0
            is_ended = line.endswith(b"\n")
            self._rest = self._unwrap(line[:-1] if is_ended else line) + (b"\n" if is_ended else b"")
        taken = self._rest[: len(view)]
        self._rest = self._rest[len(view) :]
        view[: len(taken)] = taken
        return len(taken)

    def close(self) -> None:
        self._inner.close()
        super().close()
