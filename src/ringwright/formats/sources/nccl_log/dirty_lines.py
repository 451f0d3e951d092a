"""The careful path: dirty lines are taken apart, cut ones put together again, and each gets its entry in the ledger.

A process whose write was interrupted leaves a *head*; its tail comes later, at the start of some other line. A head waits
here (the last ``WAITING``) until a tail makes a whole line of it, one that fits the grammar to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ringwright.bounds.laws import reason
from ringwright.formats.sources.nccl_log import dialect, framework, grammar, handlers, switch_lines
from ringwright.formats.sources.nccl_log.handlers import CollRecord, Place
from ringwright.formats.sources.nccl_log.segments import BARE, PREFIX, LineSegment, Split, segment_of, split
from ringwright.formats.sources.nccl_log.state import LogState

WAITING = 64
NEAR = 12  # lines within which the rest of a line that ended early is believed
_CUT = ("refused", "cut line, its other part not found")
_ODD = ("refused", reason("transport"))
UNKNOWN_LAYOUT = "an operation's line of unknown layout"
_SHORT = ("refused", "an operation's line cut short, or of unknown layout")
JOINED = ("repaired", "cut line put together with its other part")


@dataclass(eq=False)
class _Head:
    raw: str
    where: Place
    counted: tuple[str, str]
    interrupted: bool  # another process's prefix follows on the same line


Heads = tuple[_Head, ...]


class CarefulReader:
    """Takes the lines of one file one by one; collects collective records in ``records``.

    ``hosts`` are those that clean lines name, in any file of the job.
    """

    def __init__(self, state: LogState, hosts: set[str]) -> None:
        self.state = state
        self.records: list[CollRecord] = []
        self._heads: deque[_Head] = deque(maxlen=WAITING)
        self._hosts = hosts
        self._tails: deque[Place] = deque(maxlen=WAITING)  # unmarked lines taken: several heads may look at one
        self.left_a_head = False  # the last line left a head whose tail may come without any mark

    def line(self, text: str, where: Place) -> None:
        """Take one line (no newline); exactly one entry of the ledger results."""
        self.left_a_head = False
        parts = split(text)
        outcome = self._prefixed(parts, where) if parts.segments else self._bare(parts, where)
        self.state.ledger.add(where[0], outcome[0], outcome[1], where[1], text.strip()[:200])

    def know_host(self, host: str) -> None:
        """Remember a host that clean lines name, so that cut text glued in front of it can be told apart."""
        self._hosts.add(host)

    def heads(self) -> Heads:
        """Return the cut lines that wait for their other part."""
        return tuple(self._heads)

    def unmarked(self, text: str, where: Place, heads: Heads) -> None:
        """Take a line that nothing marks as NCCL's, soon after a cut one: it may be the tail of one of ``heads``."""
        if where not in self._tails and text.strip() and self._orphan(text, where, None, heads):
            self._tails.append(where)
            self.state.ledger.move(where[0], ("other", "not an NCCL line"), JOINED, where[1], text.strip())

    def _prefixed(self, parts: Split, where: Place) -> tuple[str, str]:
        lead, segments = self._mend_hosts(parts.lead, parts.segments)
        outcome = ("understood", "NCCL line")
        if lead.strip():
            outcome = self._lead(lead, where, parts)
        for segment in segments:
            segment_outcome = self._segment(segment, where, parts)
            if segment_outcome is not None:
                outcome = segment_outcome if outcome[0] == "understood" or segment_outcome[0] == "refused" else outcome
        if len(segments) > 1 and outcome[0] == "understood":
            outcome = ("repaired", "several processes on one line")
        if outcome[0] == "understood":
            self._hosts.add(segments[0].host)
        return outcome

    def _lead(self, lead: str, where: Place, parts: Split) -> tuple[str, str]:
        """Text before the first prefix: a tail, a framework's line, a head cut inside its prefix, or noise."""
        if self._orphan(lead, where, parts.stamp_s):
            return JOINED
        outcome = ("repaired", "other text before the prefix")
        if not framework.read(lead, self.state, where, parts.own_rank, parts.stamp_s) and len(lead) < 512:
            self._wait(lead, where, outcome, interrupted=True)
        return outcome

    def _mend_hosts(self, lead: str, segments: list[LineSegment]) -> tuple[str, list[LineSegment]]:
        """Give back what greedy host names took from a cut text before them: ``0x55c7node002`` is ``0x55c7`` and a host."""
        mended: list[LineSegment] = []
        for segment in segments:
            cut = self._glued(segment.host)
            taken = segment.host[:cut]
            if mended:
                mended[-1] = mended[-1]._replace(text=mended[-1].text + taken)
            else:
                lead += taken
            mended.append(segment._replace(host=segment.host[cut:]) if cut else segment)
        return lead, mended

    def _glued(self, host: str) -> int:
        """Return where a known host begins inside ``host``; 0 where it is known itself or ends in none."""
        if host in self._hosts:
            return 0
        return next((start for start in range(1, len(host)) if host[start:] in self._hosts), 0)

    def _without_bare(self, segment: LineSegment, where: Place, parts: Split) -> LineSegment:
        bare = BARE.search(segment.text) if "NCCL " in segment.text else None
        if bare is None or segment.level != "INFO" or bare.start() == 0:
            return segment
        tail = segment.text[bare.start() :]
        if not self._orphan(" " + tail, where, parts.stamp_s):
            self._orphan(tail, where, parts.stamp_s)
        return segment._replace(text=segment.text[: bare.start()].rstrip(), ended=False)

    def _segment(self, segment: LineSegment, where: Place, parts: Split) -> tuple[str, str] | None:
        """Take a segment; None when it was whole and understood, else the line's outcome."""
        segment = self._without_bare(segment, where, parts)
        segment = segment._replace(text=grammar.untagged(segment.text))
        self._process(segment, parts.rank)
        taken = handlers.take(segment, self.state, where, parts.stamp_s)
        if isinstance(taken, CollRecord):
            self.records.append(taken)
            return None
        if taken is not None:
            return None
        if not grammar.STRUCTURED.match(segment.text) and (segment.ended or segment.text):
            if not segment.ended:
                self._wait(_raw(segment), where, ("repaired", "several processes on one line"), interrupted=True)
                return ("repaired", "several processes on one line")
            return ("refused", UNKNOWN_LAYOUT) if grammar.holds_operation(segment.text) else None
        if segment.ended and grammar.is_of_unknown_layout(segment.text.rstrip()):
            return ("refused", UNKNOWN_LAYOUT)
        short = _SHORT if segment.ended and grammar.is_operation(segment.text) else _CUT
        counted = _ODD if handlers.odd_connection(segment, self.state) else short
        self._wait(_raw(segment), where, counted, interrupted=not segment.ended)
        return counted

    def _process(self, segment: LineSegment, rank: int | None) -> None:
        key = (segment.host, segment.pid)
        self.state.lines_of[key] += 1
        if segment.device >= 0:
            self.state.device_of[key][segment.device] += 1
        if rank is not None:
            self.state.process_rank.setdefault(key, rank)

    def _bare(self, parts: Split, where: Place) -> tuple[str, str]:
        """Take a line without a prefix: a framework's, a tail, or an NCCL text whose prefix is gone."""
        text = parts.lead.rstrip("\r\n ")
        if not text:
            return ("other", "blank")
        if framework.read(text, self.state, where, parts.own_rank, parts.stamp_s):
            return ("understood", "framework line")
        if self._heads and self._orphan(text, where, parts.stamp_s):
            return JOINED
        return self._without_prefix(text, where, parts)

    def _without_prefix(self, text: str, where: Place, parts: Split) -> tuple[str, str]:
        bare = BARE.search(text)
        if bare is None:
            if grammar.COLLECTIVE.search(text) or "[nranks=" in text:
                return ("refused", "collective without the process that wrote it")
            return ("other", "not an NCCL line")
        segment = LineSegment("", 0, 0, -1, bare["level"], "", None, text[bare.end() :].strip(" \r\n|"), ended=True)
        parsed = grammar.parse(segment.text) or grammar.parse(segment.text.split("   ")[0])
        if segment.level == "INFO" and parsed and parsed[0].startswith("tuning"):
            handlers.take(segment._replace(text=parsed[1][0]), self.state, where, parts.stamp_s)
            return ("repaired", "prefix missing")
        if segment.level == "WARN":
            handlers.take(segment, self.state, where, parts.stamp_s)
            return ("repaired", "prefix missing")
        if grammar.STRUCTURED.match(segment.text):
            return ("refused", "NCCL text without the process that wrote it")
        return ("other", "NCCL text without a prefix")

    def _wait(self, raw: str, where: Place, counted: tuple[str, str], *, interrupted: bool) -> None:
        if len(raw) <= 4096:
            self._heads.append(_Head(raw, where, counted, interrupted))
            self.left_a_head = True

    def _orphan(self, text: str, where: Place, stamp_s: float | None, among: Heads | None = None) -> bool:
        """Try ``text`` as the tail of a waiting head, interrupted and late ones first; say whether one became whole.

        With ``among`` only these: a line that comes with the next chunk meets those that waited before.
        """
        if len(text) > 4096 or not self._heads:
            return False
        for head in self._candidates(where):
            if among is not None and head not in among:
                continue
            whole = PREFIX.match(head.raw + text)
            if whole is None:
                continue
            joined = segment_of(whole, (head.raw + text)[whole.end() :], ended=True)
            if not self._fits(head, joined):
                continue
            self._heads.remove(head)
            self._process(joined, None)
            taken = handlers.take(joined, self.state, head.where, stamp_s)
            if isinstance(taken, CollRecord):
                self.records.append(taken)
            if head.where != where:
                self.state.ledger.move(head.where[0], head.counted, JOINED, head.where[1], head.raw)
            return True
        return False

    def _candidates(self, where: Place) -> Iterator[_Head]:
        """Heads that the text at ``place`` may complete: interrupted ones, latest first, then lines that ended early."""
        for head in reversed(tuple(self._heads)):
            if head.interrupted:
                yield head
        for head in reversed(tuple(self._heads)):
            if not head.interrupted and head.where[0] == where[0] and 0 < where[1] - head.where[1] <= NEAR:
                yield head

    def _fits(self, head: _Head, segment: LineSegment) -> bool:
        """A whole line fits the grammar; if the cut went through the prefix, a whole prefix of a known process will do."""
        parsed = grammar.parse(segment.text.rstrip())
        if parsed is not None and parsed[0] == "coll":
            return (parsed[1]["op"] or "").lower() in dialect.OPERATIONS
        if parsed is not None or switch_lines.begins(segment.text):
            return True
        return PREFIX.match(head.raw) is None and (segment.host, segment.pid) in self.state.lines_of


def _raw(segment: LineSegment) -> str:
    device = f"[{segment.device}] " if segment.device >= 0 else ""
    prefix = f"{segment.place} " if segment.place else ""
    return f"{segment.host}:{segment.pid}:{segment.tid} {device}{prefix}NCCL {segment.level} {segment.text}"
