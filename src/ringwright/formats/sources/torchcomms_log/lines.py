"""The lines of a ClogHook log: what one rank did, call by call."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from ringwright.formats.sources.reader_rows import whole_number

VERSION = 1
MOST_CALLS = 2_000_000
_SIGNATURE = re.compile(r"C(\d{1,18})\|sig\|([a-z_]{1,40})((?:\|[^|]*)*)$")
_EVENT = re.compile(
    r"(?:G(?P<graph>\d{1,20})\|)?(?:R(?P<replay>\d{1,18})\|)?C(?P<id>\d{1,18})\|(?P<what>[QSEW])(?:\|work_id=(?P<work>\d{1,18}))?"
    r"\|\+(?P<at>-?\d{1,12}(?:\.\d{1,9})?)$"
)
_HEAD = re.compile(r"V\|(\d{1,3})\|base_timestamp=(\d{1,12}(?:\.\d{1,9})?)$")
_RANKS = 1 << 24


@dataclass(slots=True)
class ClogCall:
    """One call: which signature, and when what of it was seen; seconds after the file's base."""

    signature: int
    line: int
    work: int | None = None
    queued_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    graph: int | None = None
    replay: int | None = None


@dataclass
class ClogFile:
    """What one rank wrote."""

    name: str
    base_s: float = 0.0
    signatures: dict[int, tuple[str, dict[str, str]]] = field(default_factory=dict)  # id -> operation, parameters
    comms: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> own rank, size
    splits: dict[str, list[int]] = field(default_factory=dict)  # name -> global ranks
    calls: list[ClogCall] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    waiting: dict[tuple[int, int | None, int | None, str], deque[ClogCall]] = field(default_factory=dict)

    @property
    def rank(self) -> int | None:
        """The rank in the largest communicator: the first of that size."""
        largest = max((size for _, size in self.comms.values()), default=0)
        return next((rank for rank, size in self.comms.values() if size == largest), None)

    def take(self, text: str, number: int) -> str:
        """Take a line; return "" or why it is refused."""
        if text.startswith(("C", "G")):
            return self._signature(text) if "|sig|" in text else self._event(text, number)
        kind, _, rest = text.partition("|")
        fields = dict(part.partition("=")[::2] for part in rest.split("|"))
        if kind == "V":
            return self._head(text)
        if kind == "new_comm":
            rank, size = (whole_number(fields.get(key), _RANKS) for key in ("rank", "world_size"))
            if rank is None or size is None or not 0 <= rank < size:
                return "a communicator without rank and size"
            self.comms[fields.get("comm", "")[:200]] = (rank, size)
            return ""
        if kind == "split":
            ranks = [whole_number(part, _RANKS) for part in fields.get("ranks", "").split(",")]
            known = [rank for rank in ranks if rank is not None and rank >= 0]
            self.splits[fields.get("child", "")[:200]] = known if len(set(known)) == len(ranks) else []
            return ""
        if kind == "WARN":
            self.warnings.append(rest[:200])
            return ""
        return "a line of no known kind"

    def _head(self, text: str) -> str:
        match = _HEAD.match(text)
        if match is None:
            return "a header without a time"
        self.base_s = float(match[2])
        return (
            ""
            if int(match[1]) == VERSION
            else f"version {match[1]}, of which only what is as in version {VERSION} is read"
        )

    def _signature(self, text: str) -> str:
        match = _SIGNATURE.match(text)
        if match is None:
            return "a signature that is cut"
        fields = dict(part.partition("=")[::2] for part in match[3].split("|") if part)
        if "comm" not in fields:
            return "a signature that is cut"
        self.signatures[int(match[1])] = (match[2], fields)
        return ""

    def _event(self, text: str, number: int) -> str:
        match = _EVENT.match(text)
        if match is None:
            return "an event that is cut"
        signature, at = int(match["id"]), float(match["at"])
        if signature not in self.signatures:
            return "an event of a call without a signature"
        graph, replay = (int(match[key]) if match[key] else None for key in ("graph", "replay"))
        if match["what"] == "Q" or (replay is not None and match["what"] == "S"):
            if len(self.calls) >= MOST_CALLS:
                return f"calls beyond {MOST_CALLS:,}"
            work = int(match["work"]) if match["work"] else None
            call = ClogCall(signature, number, work, graph=graph, replay=replay)
            call.queued_s, call.start_s = (None, at) if replay is not None else (at, None)
            self.calls.append(call)
            for what in "E" if replay is not None else "SE":
                self.waiting.setdefault((signature, graph, replay, what), deque()).append(call)
            return ""
        return self._seen(match["what"], (signature, graph, replay), at)

    def _seen(self, what: str, whose: tuple[int, int | None, int | None], at: float) -> str:
        """Give a beginning or end to the first call of the signature that has none: the lines name no call."""
        if what == "W":
            return ""
        waiting = self.waiting.get((*whose, what))
        if not waiting:
            return "an event of a call that was not made"
        call = waiting.popleft()
        if what == "S":
            call.start_s = at
        else:
            call.end_s = at
        return ""
