"""Tables of perftest, what two ends of an RDMA link reach without any library of collectives: ``ib_write_bw`` and its kin.

MB/sec there are 2^20 B/s, Gb/sec 10^9 bit/s; a bidirectional test prints both directions together. A latency is half of a
round trip, that of a read a whole one. Source: ``src/perftest_parameters.h`` of linux-rdma/perftest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringwright.formats.sources.bench.reader import read_printed
from ringwright.formats.sources.tables.printed_tables import TableTool, TimedTable, TitledRows, column_names, timed_by

if TYPE_CHECKING:
    from ringwright.formats.sources.source import Source
    from ringwright.model.trace import Trace

_COLUMN = re.compile(
    r"#bytes\b|#iterations\b|\bBW (?:peak|average)\[(?:MB|Gb|MiB)/sec\]|\bMsgRate\[Mpps\]|\bt_\w+\[usec\]"
    r"|\b[\d.]+% percentile\[usec\]|\btps average\b|\bCPU_Util\[%\]"
)
_TIMES = ("t_avg[usec]", "t_typical[usec]")
_RATES = {"BW average[MB/sec]": 1 << 20, "BW average[MiB/sec]": 1 << 20, "BW average[Gb/sec]": 1e9 / 8}  # B/s
_OPS = (("write", "send"), ("read", "recv"), ("send", "send-recv"))


def _table(state: TitledRows) -> TimedTable:
    words = state.heading.lower()
    op = next((op for word, op in _OPS if word in words), "" if "atomic" in words else "send-recv")
    both = "bidirectional" in words
    facts = {"bandwidth as printed": "both directions together"} if both else {}
    return TimedTable(op, 2, timed_by("#bytes", _TIMES, _RATES, 2 if both else 1), facts=facts)


_SAID: Callable[[str], re.Pattern[str]] = lambda name: re.compile(rf"\b{name}\s*: (\S+)")  # noqa: E731
TOOL = TableTool(
    re.compile(r"^\s*(?P<title>(?:RDMA_?\w*|Send|Atomic \w+|Raw Ethernet)[ \w]{0,40}?(?:BW|Bandwidth|Latency) Test)\b"),
    lambda line: column_names(_COLUMN, line),
    (
        ("nic", _SAID("Device")),
        ("link", _SAID("Link type")),
        ("mtu", _SAID("Mtu")),
        ("queue pairs", _SAID("Number of qps")),
        ("connection", _SAID("Connection type")),
    ),
    _table,
    more=1,  # a rate of messages whose column some releases do not name
)


def read_perftest(sources: list[Source], *, progress: Callable[[int], None] | None = None) -> Trace:
    """Return the measurements of perftest; InputError where no file holds a row."""
    remedy = "give what ib_write_bw and its kin print, the line of column names too"
    return read_printed("perftest", TOOL, sources, remedy, progress)
