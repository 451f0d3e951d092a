"""Network counters of a host, sampled beside a recorded job: samples become metric events. Format ``network/1``.

Each row is a counter's increase since the sample before, at the time of the sample: ``op`` is what was counted
(``tcp.RetransSegs``, ``rx_bytes``, ``carrier_changes``), ``text`` the interface or port.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringwright.formats.sources.gate.inputs import chunks
from ringwright.formats.sources.reader_rows import Gathered, whole_number
from ringwright.ground.errors import InputError

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

KIND = "network"
_MOST_COUNTERS = 4096


def read_network_counters(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the Trace of a job's counter files; InputError where none holds a line of the format."""
    gathered = Gathered(KIND)
    for source in sources:
        _File(gathered, source.name).read(source, progress)
        gathered.damage(source.name, source.losses)
    if not gathered.inputs:
        raise InputError("no network counters", where=", ".join(source.name for source in sources[:3]))
    return gathered.trace(from_zero=True)


class _File:
    """One host's counters on their way to rows."""

    def __init__(self, gathered: Gathered, name: str) -> None:
        self.gathered, self.name = gathered, name
        self.head: dict[str, Any] = {}
        self.last: dict[str, int] = {}

    def read(self, source: Source, progress: Callable[[int], None] | None) -> None:
        import msgspec

        number = understood = 0
        for chunk in chunks(source):
            if progress is not None:
                progress(len(chunk.data))
            for text in chunk.data.splitlines():
                number += 1
                try:
                    good = self._take(msgspec.json.decode(text), number)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    good = False
                understood += good
                if not good:
                    self.gathered.note(self.name, "refused", "no line of counters", at=number)
        self.gathered.note(self.name, "understood", "lines of network counters", understood)
        if understood:
            self.gathered.inputs.append(self.name)

    def _take(self, value: Any, line: int) -> bool:
        if isinstance(value, dict):
            self.head |= value
            return True
        if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], dict):
            return False
        at_ns = whole_number(value[0])
        if at_ns is None or len(value[1]) > _MOST_COUNTERS:
            return False
        wall, clock = (whole_number(self.head.get(name)) or 0 for name in ("wall_ns", "clock_ns"))
        now = {name: number for name, raw in value[1].items() if (number := whole_number(raw)) is not None}
        for name, number in now.items():
            self._row(name, number - self.last[name] if name in self.last else None, (at_ns + wall - clock) / 1e9, line)
        self.last = now
        return True

    def _row(self, name: str, more: int | None, at_s: float, line: int) -> None:
        """Add a row where a counter grew; one that went back was reset, and says nothing."""
        if not more or more < 0:
            return
        where, _, what = name.rpartition(".")
        op = f"tcp.{what}" if where == "tcp" else what
        self.gathered.events.add(
            kind="metric",
            op=op,
            text=where,
            value=float(more),
            start_s=at_s,
            rank=whole_number(self.head.get("rank")),
            host=self.head.get("host"),
            pid=self.head.get("pid"),
            clock=f"host:{self.head.get('host')}",
            source=KIND,
            file=self.name,
            line=line,
            ground="read",
            confidence=1.0,
            multiplicity=1,
            records=1,
        )
