"""The careful path: dirty lines are taken apart, cut ones put together again, and each gets its entry in the ledger.

A process whose write was interrupted leaves a *head*; its tail comes later, at the start of some other line. A head waits
here (the last ``WAITING``) until a tail makes a whole line of it, one that fits the grammar to its end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ringwright.sources.nccl_log import framework, grammar, handlers
from ringwright.sources.nccl_log.handlers import CollRecord, Place
from ringwright.sources.nccl_log.segments import BARE, PREFIX, Segment, Split, split
from ringwright.sources.nccl_log.state import LogState

WAITING = 64
_CUT = ("refused", "cut line, its other part not found")
_JOINED = ("repaired", "cut line put together with its other part")


@dataclass
class _Head:
    raw: str
    place: Place
    counted: tuple[str, str]


class CarefulReader:
    """Takes lines one by one; collects collective records in ``records``."""

    def __init__(self, state: LogState) -> None:
        self.state = state
        self.records: list[CollRecord] = []
        self._heads: deque[_Head] = deque(maxlen=WAITING)

    def line(self, text: str, place: Place) -> None:
        """Take one line (no newline); exactly one entry of the ledger results."""
        parts = split(text)
        if parts.segments:
            outcome = self._prefixed(parts, place)
        else:
            outcome = self._bare(parts, place)
        self.state.ledger.add(place[0], outcome[0], outcome[1], place[1], text.strip()[:200])

    def _prefixed(self, parts: Split, place: Place) -> tuple[str, str]:
        lead, segments = self._mend_host(parts.lead, parts.segments)
        outcome = ("understood", "NCCL line")
        if lead.strip():
            joined = self._orphan(lead, place, parts.stamp_s)
            said = not joined and framework.read(lead, self.state, place, parts.rank, parts.stamp_s)
            if not joined and not said and ":" in lead:
                self._wait(lead, place, ("repaired", "other text before the prefix"))
            outcome = _JOINED if joined else ("repaired", "other text before the prefix")
        for segment in segments:
            found = self._segment(segment, place, parts)
            if found is not None:
                outcome = found if outcome[0] == "understood" or found[0] == "refused" else outcome
        if len(segments) > 1 and outcome[0] == "understood":
            outcome = ("repaired", "several processes on one line")
        return outcome

    def _mend_host(self, lead: str, segments: list[Segment]) -> tuple[str, list[Segment]]:
        """Give back to the lead what the greedy host name took from a cut prefix: ``3049526x3200c0`` -> ``x3200c0``."""
        first = segments[0]
        known = self.state.lines_of
        if (first.host, first.pid) in known:
            return lead, segments
        for start in range(1, len(first.host)):
            if (first.host[start:], first.pid) in known:
                mended = first._replace(host=first.host[start:])
                return lead + first.host[:start], [mended, *segments[1:]]
        return lead, segments

    def _segment(self, segment: Segment, place: Place, parts: Split) -> tuple[str, str] | None:
        """Take a segment; None when it was whole and understood, else the line's outcome."""
        bare = BARE.search(segment.text)
        if bare is not None and segment.level == "INFO" and bare.start() > 0:
            tail = segment.text[bare.start() :]
            segment = segment._replace(text=segment.text[: bare.start()].rstrip(), ended=False)
            self._orphan(" " + tail, place, parts.stamp_s)
        self._process(segment, parts.rank)
        taken = handlers.take(segment, self.state, place, parts.stamp_s)
        if isinstance(taken, CollRecord):
            self.records.append(taken)
            return None
        if taken is not None:
            return None
        if not grammar.STRUCTURED.match(segment.text) and (segment.ended or segment.text):
            if not segment.ended:
                self._wait(_raw(segment), place, ("repaired", "several processes on one line"))
                return ("repaired", "several processes on one line")
            return None
        self._wait(_raw(segment), place, _CUT)
        return _CUT

    def _process(self, segment: Segment, rank: int | None) -> None:
        key = (segment.host, segment.pid)
        self.state.lines_of[key] += 1
        if segment.device >= 0:
            self.state.device_of[key][segment.device] += 1
        if rank is not None:
            self.state.process_rank.setdefault(key, rank)

    def _bare(self, parts: Split, place: Place) -> tuple[str, str]:
        """Take a line without a prefix: a framework's, a tail, or an NCCL text whose prefix is gone."""
        text = parts.lead.rstrip("\r\n ")
        if not text:
            return ("other", "blank")
        if framework.read(text, self.state, place, parts.rank, parts.stamp_s):
            return ("understood", "framework line")
        if self._orphan(text, place, parts.stamp_s):
            return _JOINED
        return self._without_prefix(text, place, parts)

    def _without_prefix(self, text: str, place: Place, parts: Split) -> tuple[str, str]:
        bare = BARE.search(text)
        if bare is None:
            if grammar.COLLECTIVE.search(text) or "[nranks=" in text:
                return ("refused", "collective without the process that wrote it")
            return ("other", "not an NCCL line")
        segment = Segment("", 0, 0, -1, bare["level"], "", None, text[bare.end() :].strip(" \r\n|"), ended=True)
        parsed = grammar.parse(segment.text) or grammar.parse(segment.text.split("   ")[0])
        if segment.level == "INFO" and parsed and parsed[0].startswith("tuning"):
            handlers.take(segment._replace(text=parsed[1][0]), self.state, place, parts.stamp_s)
            return ("repaired", "prefix missing")
        if segment.level == "WARN":
            handlers.take(segment, self.state, place, parts.stamp_s)
            return ("repaired", "prefix missing")
        if grammar.STRUCTURED.match(segment.text):
            return ("refused", "NCCL text without the process that wrote it")
        return ("other", "NCCL text without a prefix")

    def _wait(self, raw: str, place: Place, counted: tuple[str, str]) -> None:
        if len(raw) <= 4096:
            self._heads.append(_Head(raw, place, counted))

    def _orphan(self, text: str, place: Place, stamp_s: float | None) -> bool:
        """Try ``text`` as the tail of a waiting head, the latest first; say whether one became whole."""
        if len(text) > 4096:
            return False
        for head in reversed(self._heads):
            whole = PREFIX.match(head.raw + text)
            if whole is None:
                continue
            segment = split(head.raw + text).segments[0]
            if not self._fits(head, segment):
                continue
            self._heads.remove(head)
            self._process(segment, None)
            taken = handlers.take(segment, self.state, head.place, stamp_s)
            if isinstance(taken, CollRecord):
                self.records.append(taken)
            if head.counted != _JOINED:
                self.state.ledger.move(head.place[0], head.counted, _JOINED, head.place[1], head.raw)
            return True
        return False

    def _fits(self, head: _Head, segment: Segment) -> bool:
        """A whole line fits the grammar; if the cut went through the prefix, a whole prefix of a known process will do."""
        if grammar.parse(segment.text.rstrip()) is not None:
            return True
        return PREFIX.match(head.raw) is None and (segment.host, segment.pid) in self.state.lines_of


def _raw(segment: Segment) -> str:
    device = f"[{segment.device}] " if segment.device >= 0 else ""
    place = f"{segment.place} " if segment.place else ""
    return f"{segment.host}:{segment.pid}:{segment.tid} {device}{place}NCCL {segment.level} {segment.text}"
