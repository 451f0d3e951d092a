"""Logs whose lines lie in something else: JSON records of a container runtime or log service, a terminal's frame, HTML.

Each line of the input gives one line of text, so that the numbers of lines stay those of the file; a line may end in CR alone.
"""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO

from ringwright.formats.sources.detect import PEEK_BYTES
from ringwright.formats.sources.kinds import WORDS, kinds
from ringwright.formats.sources.launchers import UNNAMED

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

_NO_BREAK, _MARK = "\u00a0".encode(), b"\xef\xbb\xbf"
_COLOURS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
LEAST_WIDTH, MOST_WIDTH, LEAST_CUT = 60, 260, 2  # of a terminal; of lines that it cut
MOST_BARS = 20  # of progress, in a line
MOST_CUT = 0.85  # of the lines: each ends in a piece that is shorter
_JSON, _INDENTED = re.compile(rb"\s*(?:[{<]|\[\s*(?:[\[{\"]|\n))"), re.compile(rb"\s+[^\s\d-]")
_DIGITS, _NOTHING = re.compile(rb"[0-9]+"), re.compile(rb"(?!)")
_PUT_BEFORE = re.compile(
    rb"\[\d{1,6}\]:? |\d{1,6}: |\[\d+,\d+\](?:<std\w+>)?: ?|\[pod/[\w./-]+\] |[\w.-]+ \| |> |\w{3} [ \d]\d [\d:]{8} \S+ \S+: "
    rb"|\d{4}-\d\d-\d\dT[\d:.]+Z |\(\w+ pid=\d+[^)]*\) "
)
LEAST_ROWS, _RESTS = 3, 0.8  # of a table that was cut; of its second pieces, that look like one
_REST = re.compile(rb"[ \t]{8}|[ \t]*[\d.,%+-]|[a-z]{1,12}(?:[ \t)\](]|$)")
_ROW = re.compile(rb"\s*#|[\w.-]+:\d+:\d+ \[|\[[\w ,:-]+\]|\d{4}-\d\d-\d\d")
_LEVEL = rb"(?:[\w./+-]{1,200}:\d{1,7} )?NCCL (?:INFO|WARN|TRACE|CALL) "
_PROCESS = re.compile(rb"(?<![\w.-])[\w.-]{1,255}:\d{1,10}:\d{1,10} (?:\[\d{1,4}\] )?" + _LEVEL)
_DEVICE_ALONE = re.compile(
    rb"^(?P<put>[ \t]*(?:" + _PUT_BEFORE.pattern + rb")*?)(?:[^\s:]{0,64}:[^\s:]{0,32}:[^\s:]{0,32} |[^\w\s\[]{1,32} )?"
    rb"\[(?P<device>\d{1,4})\] (?=" + _LEVEL + rb")",
    re.MULTILINE,
)
BLOCK_BYTES = 1 << 20
_CUT = 0.5  # of the lines behind those of full width, that begin as no line does: fewer, and they are no pieces
# Rows of tables, hosts and processes, launchers, times, levels, and what ranks say of themselves.
_BEGINNING = re.compile(
    rb"\d+ {8}|\s*(?:#|\||\xe2|[{}<>]|\d+[ \t]+\d+[ \t]+\w|[\w.-]+:\d+:\d+ \[|\[[\w,: -]+\]|\d{4}-\d\d-\d\d"
    rb"|\w{3} [ \d]\d \d\d:|\d+: |[A-Z]{4,8}\b[:\s]|\([\w. ]+pid=)"
)

Unwrap = Callable[[bytes], bytes]
Alter = Callable[[bytes], bytes]


def unwrapped(source: Source, head: bytes) -> Source:
    """Return a source that begins with ``head``, or one of the lines inside where these are a log or a table."""
    alters: list[Alter] = []
    for tried in (_line_feeds, _undressed, partial(_inside, name=source.name), _joined, _identified):
        alter = tried(head) if b"\0" not in head else None
        if alter is not None:
            head = alter(head)
            alters.append(alter)
    if not alters:
        return source
    peek = source.peek
    return replace(
        source,
        open=lambda: io.BufferedReader(_Altered(source.open(), alters), PEEK_BYTES),
        peek=None if peek is None else lambda size: _all(alters, peek(size)),
    )


def _all(alters: Sequence[Alter], block: bytes) -> bytes:
    for alter in alters:
        block = alter(block)
    return block


def _line_feeds(head: bytes) -> Alter | None:
    """Put LF in the place of CR where lines end in CR alone: a line of bars of progress has some of them too."""
    alone = head.count(b"\r") - head.count(b"\r\n")
    return (lambda block: block.replace(b"\r", b"\n")) if alone > MOST_BARS * head.count(b"\n") else None


def _undressed(head: bytes) -> Alter | None:
    """Take off a terminal's colours and an editor's mark, and put blanks in the place of those that a page does not break."""
    if b"\x1b[" not in head and _NO_BREAK not in head and not head.startswith(_MARK):
        return None
    return lambda block: _COLOURS.sub(b"", block).replace(_NO_BREAK, b" ").removeprefix(_MARK)


def _joined(head: bytes) -> Alter | None:
    """Join lines that a terminal cut at its width; behind one that was joined stand as many empty ones as it had pieces more.

    A piece begins as no line does, and stands behind a line of full width; what a launcher puts before each line it put before
    each piece too.
    """
    if _JSON.match(head):
        return None
    lines = [line.rstrip(b"\r") for line in head.split(b"\n")]
    width, told = max(map(len, lines)), [line for line in lines if line]
    if not LEAST_WIDTH <= width <= MOST_WIDTH:
        return None
    peel = _PUT_BEFORE if sum(_PUT_BEFORE.match(line) is not None for line in told) > 0.95 * len(told) else _NOTHING
    pieces = [peel.sub(b"", line, count=1) for line in lines]
    is_cut_table = _is_cut_table(lines, pieces, width)
    if _is_table(told, width) and not is_cut_table:
        return None

    def is_full(line: bytes, piece: bytes) -> bool:  # or the next word had no room
        return len(line) == width or (line[-1:] == b" " and len(line) + len(piece.split(b" ", 1)[0]) > width)

    starts = _starts(pieces, width)

    def begins(piece: bytes) -> bool:
        if is_cut_table:
            return _ROW.match(piece) is not None
        return _BEGINNING.match(piece) is not None or _shape(piece) in starts

    after = [piece for line, piece in zip(lines, pieces[1:], strict=False) if piece and is_full(line, piece)]
    cut = [each for each in after if not (_INDENTED.match(each) or begins(each))]
    if not is_cut_table and len(cut) < max(LEAST_CUT, _CUT * len(after)):
        return None

    def joined(block: bytes) -> bytes:
        made, count, before = list[bytes](), 1, b""
        for line in block.split(b"\n"):
            whole = line.rstrip(b"\r")
            piece = peel.sub(b"", whole, count=1)
            if piece and is_full(before, piece) and not begins(piece):
                made[-count] += piece
                made.append(b"")
                count += 1
            else:
                made.append(line)
                count = 1
            before = whole
        return b"\n".join(made)

    return joined


def _starts(pieces: list[bytes], width: int) -> set[bytes]:
    """Return how lines begin that stand behind one that was not cut."""
    return {
        _shape(piece)
        for before, piece in pairwise([b"", *pieces])
        if piece and len(before) < width and before[-1:] != b" "
    }


def _is_cut_table(lines: list[bytes], pieces: list[bytes], width: int) -> bool:
    """Whether rows wider than a terminal were cut: what follows a full line is shorter, and begins as the rest of a row does."""
    after = [
        (line, piece) for line, full, piece in zip(lines[1:], lines, pieces[1:], strict=False) if len(full) == width
    ]
    rests = [piece for line, piece in after if len(line) < width and _REST.match(piece) and not _ROW.match(piece)]
    ended = [line for line, _ in after if len(line) < width]
    return len(ended) >= LEAST_ROWS and len(rests) >= _RESTS * len(ended)


def _identified(head: bytes) -> Alter | None:
    """Put a process that nobody names before lines of NCCL's whose host:pid:tid was cut off or blackened, one for each device."""
    if _PROCESS.search(head) or not _DEVICE_ALONE.search(head):
        return None
    name = UNNAMED.encode()
    return lambda block: _DEVICE_ALONE.sub(rb"\g<put>" + name + rb":\g<device>:\g<device> [\g<device>] ", block)


def _is_table(lines: list[bytes], width: int) -> bool:
    """Whether nearly all lines are of the full width, or those that are end in the blanks of a column."""
    full = [line for line in lines if len(line) == width]
    return len(full) > MOST_CUT * len(lines) or all(line[-2:].isspace() for line in full)


def _shape(line: bytes) -> bytes:
    """Return how a line begins: its first words, whatever their numbers."""
    return b" ".join(word[:8] for word in _DIGITS.sub(b"0", line[:64]).split()[:3])


def _inside(head: bytes, *, name: str) -> Alter | None:
    unwrap = _unwrap_of(head, name)
    return None if unwrap is None else partial(_all_of, unwrap=unwrap)


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


class _Altered(io.RawIOBase):
    """A stream in blocks of whole lines, each altered."""

    def __init__(self, inner: BinaryIO, alters: Sequence[Alter]) -> None:
        self._inner, self._alters, self._rest = inner, alters, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        while not self._rest:
            block = self._inner.read(BLOCK_BYTES)
            if not block:
                return 0
            if not block.endswith(b"\n"):
                block += self._inner.readline(LONGEST_LINE)
            self._rest = _all(self._alters, block)
        taken = self._rest[: len(view)]
        self._rest = self._rest[len(view) :]
        view[: len(taken)] = taken
        return len(taken)

    def close(self) -> None:
        self._inner.close()
        super().close()
