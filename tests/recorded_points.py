"""The calls of a grid point, as the closed forms say, and those of a workload that was replayed from its recording."""

from __future__ import annotations

from collections import Counter

from ringwright.model.workload import Workload
from ringwright_lab.sweep.point import GridPoint
from ringwright_lab.sweep.program import must_issue


def counts_of(workload: Workload) -> Counter[tuple[str, str, int]]:
    return Counter((each.role, each.op, each.size_bytes) for each in workload.payloads)


def closed(point: GridPoint) -> Counter[tuple[str, str, int]]:
    """Return what a rank must issue in an iteration after the second, sends by their receivers' side left out."""
    found: Counter[tuple[str, str, int]] = Counter()
    for row in must_issue(point):
        if row.when in ("each", "later"):
            found[row.role, row.op, row.size_bytes] += row.count
    return found
