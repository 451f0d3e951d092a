"""What a table of nccl-tests is, whatever shape it came in: one run of one operation, and only rows that keep the laws."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from ringwright.bounds.laws.ceilings import above, ceiling
from ringwright.bounds.laws.tables import Printed, Side, factor_of, judge
from ringwright.ground.units import format_size

OPS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "alltoallv": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send-recv",
    "hypercube": "all-gather",
}
_SQUASHED = re.compile(r"[^a-z]")


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One size: seconds out of place and in place (None where not measured)."""

    size_bytes: int
    time_s: float
    inplace_s: float | None = None
    count: int | None = field(default=None, compare=False)  # elements as printed
    busbw_gbs: float | None = field(default=None, compare=False)  # as printed, out of place
    inplace_busbw_gbs: float | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)  # of the file; 0 where it has none
    sides: tuple[Side, ...] = field(default=(), compare=False)  # both runs as printed
    others: tuple[tuple[str, float], ...] = field(
        default=(), compare=False
    )  # what stands in further columns, in their units

    @property
    def steady_s(self) -> float:
        """The out-of-place time, or the in-place one where the former is half as long again.

        nccl-tests warms up with its largest and smallest size; a size between them that runs another kernel pays for
        loading that kernel in its first loop, which is the out-of-place one.
        """
        if self.inplace_s is not None and 0 < self.inplace_s < self.time_s / 1.5:
            return self.inplace_s
        return self.time_s


@dataclass(frozen=True, slots=True)
class TableRefusal:
    """What a law refused of a table: a row at its line, or (line 0) what the table says of itself."""

    law: str
    line: int
    detail: str


@dataclass(frozen=True)
class NcclTestsTable:
    """One run of one operation; a field that the file does not say is empty, 0 or None."""

    op: str
    rows: tuple[SizeRow, ...]
    name: str
    ranks: int = 0
    nodes: int = 0
    gpu: str = ""
    release: str = ""
    dtype: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)  # rank -> host, of the ranks that the file lists
    line: int = 0  # of the header
    setting: str = ""  # type, reduction and root, where one header stands above several
    is_op_told: bool = True  # False where only a name or a heading tells the operation
    refused: tuple[TableRefusal, ...] = ()


def lawful(table: NcclTestsTable) -> NcclTestsTable:
    """Return the table without the rows that break a law; these stand in ``refused``, each with its line and the reason."""
    printed = [Printed(row.size_bytes, row.sides) for row in table.rows]
    judged = judge(table.op, table.ranks, printed, is_op_told=table.is_op_told)
    rows = tuple(row for at, row in enumerate(table.rows) if at not in judged.broken)
    refused = [TableRefusal(law, table.rows[at].line, detail) for at, (law, detail) in judged.broken.items()]
    # What the ratio of both bandwidths settles counts, whatever the file is called; an open operation has the loosest ceiling.
    settled = replace(table, op=table.op or ("all-reduce" if _exceeds(rows) else ""))
    told = [(row, _too_fast(row, settled)) for row in rows]
    rows = tuple(row for row, detail in told if not detail)
    refused += [TableRefusal("ceiling", row.line, detail) for row, detail in told if detail]
    ranks, op = table.ranks, table.op
    if judged.ranks_refused:
        ranks, rows = 0, tuple(replace(row, busbw_gbs=None, inplace_busbw_gbs=None) for row in rows)
        refused.append(TableRefusal("ranks", 0, judged.ranks_refused))
    if judged.op_refused:
        op = ""
        refused.append(TableRefusal("busbw", 0, judged.op_refused))
    op = op or ("all-reduce" if _exceeds(rows) else "")
    return replace(table, op=op, ranks=ranks, rows=rows, refused=(*table.refused, *refused))


def _too_fast(row: SizeRow, table: NcclTestsTable) -> str:
    """Return how a row breaks the law of ceilings, "" where it holds."""
    limit = ceiling(table.op, table.ranks or None, table.nodes or None, table.gpu)
    factor = factor_of(table.op, table.ranks)
    runs = ((row.time_s, row.busbw_gbs), (row.inplace_s, row.inplace_busbw_gbs))
    rates = (row.size_bytes / time_s / 1e9 * factor if time_s and factor is not None else bus for time_s, bus in runs)
    told = (above(rate, limit) for rate in rates)
    return next((f"{format_size(row.size_bytes)}: {text}" for text in told if text), "")


def _exceeds(rows: tuple[SizeRow, ...]) -> bool:
    """Say whether bus bandwidth is above algorithm bandwidth: no operation but all-reduce has a factor above 1."""
    rates = [
        (float(side.algbw_gbs), float(side.busbw_gbs))
        for row in rows
        for side in row.sides
        if side.algbw_gbs and side.busbw_gbs
    ]
    return any(algorithm > 1 and bus > 1.01 * algorithm for algorithm, bus in rates[-8:])


def op_in(name: str) -> str:
    """Return the operation that a name mentions, "" for none: ``n8.g4__all_reduce_output.dat`` -> all-reduce."""
    squashed = _SQUASHED.sub("", name.lower())
    for spelling, op in OPS.items():
        if spelling.replace("_", "") in squashed and (spelling != "reduce" or "reducescatter" not in squashed):
            return op
    return ""
