"""Benchmarks whose times hold what a first call costs: no warm-up, one call a size, out of place far slower than in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.analysis import remedies
from ringwright.analysis.benchmarks import BenchmarkTimes, tables

if TYPE_CHECKING:
    from ringwright.analysis.document import JobFinding, Row
    from ringwright.model.trace import Trace

COLD = "measured cold"  # what the title of a finding begins with where the times are no measure of the system
MUCH_SLOWER = 3.0  # out of place, which nccl-tests runs first, than in place


def first_calls(trace: Trace, rates: list[Row] | None = None) -> list[JobFinding]:
    """Return a finding for each table that was measured without warm-up or by one call, or whose first run is far slower.

    ``rates`` is the Trace's bandwidth where that is known already.
    """
    told = [(table, _title(table)) for table in tables(trace, rates) if table.kind == "benchmark" and table.sizes]
    return [
        {
            "severity": "warning",
            "title": title,
            "detail": f"{table.label}: what a first call costs (connections, kernels to load) is in its times",
            "evidence": _sides(table),
            "command": remedies.perf(table.op, table.sizes[0], table.sizes[-1]) or remedies.report(trace.meta),
        }
        for table, title in told
        if title
    ]


def _title(table: BenchmarkTimes) -> str:
    cold = ["no warm-up (-w 0)"] * (table.warmups == 0) + ["one call a size (-n 1)"] * (table.calls == 1)
    factor = _slower(table)
    slower = f"out of place takes {factor:.0f} times as long as in place" if factor >= MUCH_SLOWER else ""
    if table.warmups == 0 or (table.calls == 1 and slower):
        return f"{COLD}: {', '.join([*cold, slower] if slower else cold)}"
    return slower


def _slower(table: BenchmarkTimes) -> float:
    """Return how many times the largest size takes out of place what it takes in place; 1 where one of them is not known."""
    both = sorted(table.times_s.keys() & table.inplace_s.keys())
    return table.times_s[both[-1]] / table.inplace_s[both[-1]] if both and table.inplace_s[both[-1]] else 1.0


def _sides(table: BenchmarkTimes) -> list[str]:
    both = sorted(table.times_s.keys() & table.inplace_s.keys())[-1:]
    return [
        f"{table.times_s[size] * 1e6:,.1f} us out of place, {table.inplace_s[size] * 1e6:,.1f} us in place"
        for size in both
    ]
