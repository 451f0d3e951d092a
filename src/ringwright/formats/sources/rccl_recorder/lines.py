"""The lines of RCCL's Recorder: one call each, groups as braces on lines of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_CALL = re.compile(
    r"^\s*(?P<name>[A-Z][A-Za-z]{1,40}) : \[(?P<held>.*?)context : \[(?P<context>[^\]]*)\] ?\](?P<rest>.*)$"
)
_FIELD = re.compile(r"([A-Za-z# ]{1,20}?) : (\(nil\)|-?[\w.]{1,40})")
_COUNT = re.compile(r"[0-9]{1,18}")
_LIST = re.compile(r"(sendcounts|recvcounts) : \[([\d, ]{0,1000000})\]")
_HEAD = re.compile(r"^\s*(?:hostname : (?P<host>[^,]{1,255}), )?version : (?P<version>\d{1,4}),?\s*$")
_BUFFERS = re.compile(r"(?:sendbuff|recvbuff|buff) : \[[^\]]*\], ")
_NESTED = ("AllToAll", "AllToAllv", "Gather", "Scatter")  # done by sends and receives, which older builds write as well


@dataclass(slots=True)
class RecorderCall:
    """One call: its name, its fields and its context as text; ``counts`` are the lists of an all-to-all of unequal parts."""

    name: str
    line: int
    fields: dict[str, str]
    counts: dict[str, list[int]] = field(default_factory=dict)

    def number(self, key: str, base: int = 10) -> int | None:
        """Return a field as a number, None where it is none."""
        try:
            return int(self.fields.get(key, ""), base) if len(self.fields.get(key, "")) <= 24 else None
        except ValueError:
            return None

    @property
    def time_s(self) -> float | None:
        """When the host made the call; it is written in milliseconds."""
        try:
            value = float(self.fields.get("time", "")) / 1e3
        except ValueError:
            return None
        return value if 0 < value < 1e12 else None


class RecorderLines:
    """Takes the lines of one file in turn, and keeps its calls."""

    def __init__(self) -> None:
        self.host: str | None = None
        self.calls: list[RecorderCall] = []
        self.inner = 0  # sends and receives inside a call that is made of them
        self._depth = 0
        self._inside = -1
        self._last = ""

    def take(self, text: str, number: int) -> str:
        """Take a line; return "" or why it is refused."""
        bare = text.strip().rstrip(",")
        if bare == "{":
            self._depth += 1
            if self._last in _NESTED and self._inside < 0:
                self._inside = self._depth
            self._last = ""
            return ""
        if bare == "}":
            if self._depth == self._inside:
                self._inside = -1
            self._depth, self._last = max(self._depth - 1, 0), ""
            return ""
        head = _HEAD.match(text)
        if head is not None:
            self.host = head["host"] or self.host
            return ""
        return self._call(text, number)

    def _call(self, text: str, number: int) -> str:
        match = _CALL.match(text)
        if match is None:
            return (
                ""
                if re.fullmatch(r"\s*[A-Za-z]{1,60} : \[time : [\d.]{1,30}\],?\s*", text)
                else "a line that is no whole call"
            )
        name = match["name"]
        self._last = name
        if self._inside >= 0 and name in ("Send", "Recv"):
            self.inner += 1
            return ""
        fields = {key.strip(): value for key, value in _FIELD.findall(_BUFFERS.sub("", match["held"]))}
        fields |= {key.strip(): value for key, value in _FIELD.findall(match["context"])}
        lists = {key: [part.strip() for part in held.split(",")] for key, held in _LIST.findall(match["rest"])}
        if not all(_COUNT.fullmatch(part) for parts in lists.values() for part in parts if part):
            return "a list of counts that are none"
        counts = {key: [int(part) for part in parts if part] for key, parts in lists.items()}
        self.calls.append(RecorderCall(name, number, fields, counts))
        return ""
