"""What lines say about switches that add: the CollNet plug-in, SHARP's leases and locks, NVLS.

NCCL's own lines (``src/init.cc``, ``src/transport/coll_net.cc``, ``src/transport/nvls.cc``) and those of its plug-in carry NCCL's
prefix. The SHARP library beneath prints to the same stream without it: ``[host:0:pid - comm.c:379] ERROR Failed to lock ...``.
Lines are searched, not matched to their end, for the two are printed into each other. What names one of these and has no known
form is kept as it stands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ringwright.formats.sources.nccl_log.segments import LineSegment
    from ringwright.formats.sources.nccl_log.state import LogState

Where = tuple[str, int]
UNKNOWN = "unknown"
MOST_KEPT = 100_000  # different ones; more are counted
MOST_TEXT = 160
_HEX = r"(?:0x)?[0-9a-fA-F]{1,16}"


class AddingForm(NamedTuple):
    """A form of line: what it says, and its shape; ``name``, ``number`` and ``rank`` are what is kept of it."""

    what: str
    pattern: re.Pattern[str]


class AddingLine(NamedTuple):
    """Lines that said the same in one process: what, of which communicator's end (-1: not told), a name and a number.

    ``rank`` is the one in the communicator, -1 where the line names none.
    """

    what: str
    host: str
    pid: int
    device: int
    handle: int
    rank: int
    name: str
    number: int


def _form(what: str, pattern: str) -> AddingForm:
    return AddingForm(what, re.compile(pattern))


FORMS = (
    _form(
        "plugin", r"(?:Loaded|Using|Initialized|Assigned) [Cc]oll[Nn]et plugin (?P<name>[\w.-]{1,40}(?: \(v\d{1,3}\))?)"
    ),
    _form("no plugin", r"Failed to find (?P<name>ncclCollNetPlugin(?:_v\d{1,3})?) symbol"),
    _form(
        "initialised",
        r"S(?:HARP|harp) rank \d{1,7}/(?P<number>\d{1,7}) initialized on (?P<name>[\w.-]{1,40}(?::\d{1,3})?)",
    ),
    _form(
        "connection",
        r"Coll(?:Net)? \d{1,4}(?:/\d{1,4})? : (?P<rank>\d{1,7}) \[(?:send|receive)\] via COLLNET/(?P<name>[\w.-]{1,40})/\d{1,6}",
    ),
    _form("connected", r"(?:rank (?P<rank>\d{1,7}) )?Connected (?P<name>CollNet|collnet \+ chain|Collnet Chains)"),
    _form("threshold", r"Communicator has (?P<number>\d{1,6}) nodes which is less than CollNet node threshold \d{1,6}"),
    _form(
        "ignored", r"CollNet is not supported or fails to initialize, ignoring (?P<name>NCCL_\w{1,40}(?:=\w{1,40})?)"
    ),
    _form("lock refused", r"SHARP group create: Streaming Tree lock failed \((?P<number>-?\d{1,9})\)"),
    _form(
        "refused",
        r"(?P<name>S(?:HARP|harp) (?:group create failed|coll init error)): ?[^()]{0,80}\((?P<number>-?\d{1,9})\)",
    ),
    _form("types", r"SHARP (?P<name>[\w,]{1,60}) Datatypes not supported"),
    _form("nvls", r"NVLS multicast support is available on dev (?P<number>\d{1,5})"),
    _form("no nvls", r"NVLS multicast support is not available on dev (?P<number>\d{1,5})"),
    _form("nvls set up", rf"NVLS comm {_HEX} headRank -?\d{{1,6}} nHeads (?P<number>\d{{1,6}})"),
    _form(
        "nvls refused",
        r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory(?:[^:]{0,80}: CUDA error (?P<number>\d{1,6}))?",
    ),
)
# What the library prints behind its prefix.
LIBRARY = (
    _form(
        "lease",
        rf"(?:tree_info: +|tree_)type:(?P<name>LLT|SAT) tree[ _]idx:\d{{1,6}} +"
        rf"treeID:(?P<tree>{_HEX})(?:.{{0,40}}?osts:(?P<number>\d{{1,6}}))?",
    ),
    _form("group", r"\[group#:\d{1,9}\].{0,60}?tree_type:(?P<name>LLT|SAT) .{0,40}?group size:(?P<number>\d{1,7})"),
    _form("lock refused", rf"Failed to lock SAT tree ?\(ID:(?P<name>{_HEX})"),
    _form("request", r"job \(ID: ?\d{1,24}\) resource request quota"),
)
_LIBRARY_PREFIX = re.compile(
    r"\[(?P<host>[\w.-]{1,255}):\d{1,9}:(?P<pid>\d{1,10}) - \w{1,40}\.c:\d{1,7}\](?:\[[\d :.-]{1,40}\])? +"
    r"(?P<level>INFO|WARN|ERROR) +"
)
LIBRARY_MARK = r" - \w{1,40}\.c:\d{1,7}\]"
NEEDLES = [b" - comm.c:", b" - context.c:", b" - tree_ops.c:"]
_WORDS = re.compile(r"SHARP|Sharp rank|[Cc]oll[Nn]et|COLLNET|NVLS|SAT tree")


class AddingLines:
    """What was said, and how often; the first line of each."""

    def __init__(self) -> None:
        self.said: dict[AddingLine, tuple[int, Where]] = {}
        self.dropped = 0

    def add(self, line: AddingLine, where: Where) -> None:
        """Count a line; of those beyond ``MOST_KEPT`` different ones only how many there were is known."""
        count, first = self.said.get(line, (0, where))
        if not count and len(self.said) >= MOST_KEPT:
            self.dropped += 1
            return
        self.said[line] = count + 1, first


def take(segment: LineSegment, state: LogState, where: Where) -> str | None:
    """Take what an NCCL line says of switches that add; its kind, None where it says nothing of them."""
    if _WORDS.search(segment.text) is None:
        return None
    is_library = read_library(segment.text, state, where)
    thread = (segment.host, segment.pid, segment.tid)
    own = _LIBRARY_PREFIX.split(segment.text, maxsplit=1)[0] if is_library else segment.text
    matches = [(form.what, match) for form in FORMS for match in form.pattern.finditer(own)]
    for what, match in matches:
        rank = _number(match, "rank", -1)
        line = _line(what, match, segment.host, segment.pid, segment.device, _end_of(state, thread, rank), rank)
        state.adding.add(line, where)
    if not matches and _WORDS.search(own) is not None:
        text = own.strip()[:MOST_TEXT]
        state.adding.add(AddingLine(UNKNOWN, segment.host, segment.pid, segment.device, -1, -1, text, -1), where)
    return "adding" if matches or is_library else None


def read_library(text: str, state: LogState, where: Where) -> bool:
    """Take the SHARP library's own lines, as many as stand in a text; say whether there was one."""
    starts = list(_LIBRARY_PREFIX.finditer(text))
    for number, start in enumerate(starts):
        following = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        _library(start, text[start.end() : following], state, where)
    return bool(starts)


def _library(prefix: re.Match[str], text: str, state: LogState, where: Where) -> None:
    host, pid = prefix["host"], int(prefix["pid"])
    for form in LIBRARY:
        match = form.pattern.search(text)
        if match is not None:
            line = _line(form.what, match, host, pid, -1, _end_of(state, (host, pid, -1), -1), -1)
            state.adding.add(line, where)
            return
    what = "refused" if prefix["level"] == "ERROR" else UNKNOWN
    state.adding.add(AddingLine(what, host, pid, -1, -1, -1, text.strip()[:MOST_TEXT], -1), where)


def begins(text: str) -> bool:
    """Say whether a text is one of NCCL's forms from its beginning on."""
    return any(form.pattern.match(text) is not None for form in FORMS)


def _line(what: str, match: re.Match[str], host: str, pid: int, device: int, handle: int, rank: int) -> AddingLine:
    known = match.groupdict()
    name = known.get("name") or ""
    if known.get("tree"):
        name = f"{name} {_tree(known['tree'])}"
    return AddingLine(what, host, pid, device, handle, rank, name, _number(match, "number", -1))


def _tree(text: str) -> str:
    """Return the number of a tree as one spelling: releases print it with and without 0x."""
    return hex(int(text, 16)) if text.startswith("0x") else hex(int(text)) if text.isdecimal() else text


def _number(match: re.Match[str], name: str, otherwise: int) -> int:
    said = match.groupdict().get(name)
    return otherwise if said is None else int(said)


def _end_of(state: LogState, thread: tuple[str, int, int], rank: int) -> int:
    """Return the end of a communicator that a process is setting up, by the thread or, alone in it, by another; -1: unclear.

    Where nothing is being set up it is the process's one end among several hosts: CollNet connects when it is first used.
    """
    building = list(state.building.get(thread, ()))
    if not building:
        building = [index for known, ends in state.building.items() if known[:2] == thread[:2] for index in ends]
    if not building:
        building = [
            index
            for (host, pid, _, _), ends in state.by_pointer.items()
            if (host, pid) == thread[:2]
            for index in ends
            if state.handles[index].nnodes is None or (state.handles[index].nnodes or 0) > 1
        ]
    fitting = [index for index in building if rank < 0 or state.handles[index].rank in (None, rank)]
    return fitting[0] if len(fitting) == 1 else -1
