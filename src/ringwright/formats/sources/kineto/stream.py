"""The events of a trace file, in batches, with memory bounded by the block and not by the file.

A trace is one JSON object whose ``traceEvents`` array may hold gigabytes. The array is cut where one event seems to
end and the next to begin; the decoder then proves the cut: a piece that starts between two events and is a valid list
of events also ends between two. A ``]`` that closes the array shows as text behind the list. What cannot be decoded is
repaired where the damage is a known one (bare ``inf`` and ``nan``, a lone backslash, bytes that are no UTF-8), else
the event is refused, counted, and its neighbours are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ringwright.formats.sources.kineto.marks import VARIABLE
from ringwright.formats.sources.kineto.pieces import EVENT_START, Reading, cuts, decode, repair, whole
from ringwright.formats.sources.kineto.records import BAD_JSON, Event, decode_any
from ringwright.formats.sources.source import BOMB_FLOOR, BOMB_RATIO, Source, is_damage

BLOCK_BYTES = 8 << 20
READ_BYTES = 256 << 10  # what an archive gives at a time: damage costs no more than this
LONGEST_EVENT = 64 << 20
_KEY = re.compile(rb'"((?:[^"\\]|\\.){0,200})"\s*:\s*')
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]|"', re.DOTALL)
_EVENT = re.compile(rb'\{\s*"(?:ph|cat|name|pid|tid|ts)"\s*:')
_BASE_TIME = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})')
_HEADERS = {
    "schemaVersion",
    "distributedInfo",
    "deviceProperties",
    "traceName",
    "baseTimeNanoseconds",
    "displayTimeUnit",
}


class _Feed:
    """Bytes of one source behind a cursor: ``data`` from ``at`` on is unread."""

    def __init__(self, source: Source, reading: Reading, progress: Callable[[int], None] | None) -> None:
        self.source, self.reading, self.progress = source, reading, progress
        self.stream = source.open()
        self.data, self.at, self.total, self.is_over = b"", 0, 0, False

    def more(self) -> bool:
        """Append a block; say whether there was one."""
        if self.is_over:
            return False
        block = self._block()
        self.data = self.data[self.at :] + block if self.at < len(self.data) else block
        self.at = 0
        self.total += len(block)
        if self.source.compressed_bytes and self.total > max(BOMB_FLOOR, BOMB_RATIO * self.source.compressed_bytes):
            self._lose("archive expands beyond all reason, rest not read")
        if block and self.progress is not None:
            self.progress(len(block))
        return bool(block)

    def _block(self) -> bytes:
        pieces: list[bytes] = []
        size = BLOCK_BYTES
        read: Callable[[int], bytes] = getattr(self.stream, "read1", self.stream.read)
        step = READ_BYTES if self.source.compressed_bytes else BLOCK_BYTES
        while size > 0 and not self.is_over:
            try:
                pieces.append(read(min(step, size)))
            except Exception as error:
                if not is_damage(error):
                    raise
                self._lose(f"input damaged, rest not read: {type(error).__name__}")
                break
            size -= len(pieces[-1])
            self.is_over = not pieces[-1]
        return b"".join(pieces)

    def _lose(self, reason: str) -> None:
        self.source.losses.append((reason, self.total))
        self.reading.losses.append(f"{reason} (after {self.total:,} bytes)")
        self.is_over = True

    def token(self) -> bytes:
        """Return the next byte that is no blank, unread; empty at the end."""
        while True:
            rest = re.compile(rb"\s*").match(self.data, self.at)
            self.at = rest.end() if rest else self.at
            if self.at < len(self.data):
                return self.data[self.at : self.at + 1]
            if not self.more():
                return b""


def batches(source: Source, reading: Reading, progress: Callable[[int], None] | None = None) -> Iterator[list[Event]]:
    """Yield the events of a source in order, in batches; ``reading`` is filled as they come."""
    feed = _Feed(source, reading, progress)
    with feed.stream:
        feed.more()
        if feed.data.startswith(b"\xef\xbb\xbf"):
            feed.at = 3
        first = feed.token()
        if first == b"[":  # the array form has no header, and its end may be missing
            feed.at += 1
            yield from _array(feed)
        elif first == b"{" and _EVENT.match(feed.data, feed.at):
            reading.losses.append("what stands before the first event is missing")
            yield from _array(feed)
        elif first == b"{":
            feed.at += 1
            yield from _object(feed)
        else:
            reading.losses.append("neither an object nor an array: not a trace")
    if not source.is_whole():
        reading.losses.append("archive cut short, rest not read")


def _object(feed: _Feed) -> Iterator[list[Event]]:
    """Walk the keys of the document; ``traceEvents`` is streamed, known headers are kept, the rest is passed over."""
    reading = feed.reading
    while (here := feed.token()) not in (b"", b"}"):
        if here == b",":
            feed.at += 1
            continue
        if here == b"{" and reading.found_array:  # a stray bracket closed the array
            reading.losses.append("traceEvents ends amid its events; the rest was read on")
            yield from _array(feed)
            continue
        key = _KEY.match(feed.data, feed.at)
        if key is None or key.end() == len(feed.data):
            if len(feed.data) - feed.at < BLOCK_BYTES and feed.more():
                continue
            reading.losses.append("text that is no JSON between the keys of the document, rest not read")
            return
        feed.at = key.end()
        if key[1] == b"traceEvents" and feed.token() == b"[":
            feed.at += 1
            yield from _array(feed)
        elif not _header(feed, key[1].decode("utf-8", "replace")):
            return
    if feed.token() == b"":
        reading.losses.append("the document ends before it is closed")


def _header(feed: _Feed, key: str) -> bool:
    """Take or pass one value; False when the document ends or is broken here."""
    end = _value_end(feed.data, feed.at)
    while end is None:
        if len(feed.data) - feed.at > LONGEST_EVENT or not feed.more():
            feed.reading.losses.append(f"the value of {key[:60]} has no end, rest not read")
            return False
        end = _value_end(feed.data, feed.at)
    raw = feed.data[feed.at : end]
    feed.at = end
    if key in _HEADERS or VARIABLE.match(key):
        try:
            feed.reading.header[key] = decode_any(raw)
        except BAD_JSON:
            try:
                feed.reading.header[key] = decode_any(repair(raw))
            except BAD_JSON:
                feed.reading.losses.append(f"{key} is not JSON")
    return True


def _value_end(data: bytes, at: int) -> int | None:
    """Return where the JSON value that begins at ``at`` ends, None when the data end first."""
    depth = 0
    for token in _TOKEN.finditer(data, at):
        mark = token[0][:1]
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth <= 0:
                return token.end() if depth == 0 else token.start()
        elif mark == b",":
            if depth == 0:
                return token.start()
        elif len(token[0]) == 1:
            return None  # a string without its end
    return None


def _array(feed: _Feed) -> Iterator[list[Event]]:
    """Yield the events of an array whose bracket was read; the cursor ends behind the closing bracket."""
    reading = feed.reading
    reading.found_array = True
    while True:
        places = cuts(feed.data, feed.at)
        if not places and len(feed.data) - feed.at < LONGEST_EVENT and feed.more():
            continue
        if not places:
            yield from _rest(feed)
            return
        cut = whole(feed.data, feed.at, places)
        if cut is None and len(feed.data) - feed.at <= max(BLOCK_BYTES, READ_BYTES) and feed.more():
            continue  # what looked like the end of an event may be text inside one
        if cut is not None:
            events, cut_at, end = cut
            reading.events += len(events)
        else:
            cut_at = places[0]
            events, end, text = decode(feed.data[feed.at : cut_at], reading)
            if end is not None:
                feed.data, feed.at = text + feed.data[cut_at:], 0
        yield events
        if end is not None:
            feed.at += end
            return
        feed.at = feed.data.index(b",", cut_at) + 1
        if not feed.more():
            yield from _rest(feed)
            return


def _rest(feed: _Feed) -> Iterator[list[Event]]:
    """The last events: up to the closing bracket, or to where the file was cut; or an event beyond all reason."""
    reading = feed.reading
    if not feed.is_over:
        reading.events, reading.refused = reading.events + 1, reading.refused + 1
        reading.losses.append(f"an event longer than {LONGEST_EVENT >> 20} MiB was left out")
        yield from _resume(feed)
        return
    # a cut behind a comma leaves whatever is before it whole
    events, end, feed.data = decode(feed.data[feed.at :].rstrip(b", \t\r\n"), reading, is_last=True)
    feed.at = len(feed.data) if end is None else end
    yield events
    if end is None:
        found = _BASE_TIME.search(feed.data)
        if found:
            reading.header.setdefault("baseTimeNanoseconds", int(found[1]))
        reading.losses.append(f"traceEvents has no end: the file is cut after {reading.events:,} events")


def _resume(feed: _Feed) -> Iterator[list[Event]]:
    """Pass over an endless event: go on where the next one seems to begin."""
    while (found := EVENT_START.search(feed.data, feed.at + 1)) is None:
        feed.at = max(feed.at, len(feed.data) - 64)
        if not feed.more():
            feed.reading.losses.append("no event begins behind it, rest not read")
            return
    feed.at = found.end()
    yield from _array(feed)
