"""Everything that broke a law between the input and the summary: lines of the ledger, and what an analysis refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ringwright.analysis.series import refusals as refused_series
from ringwright.bounds.laws import Refusals, of_ledger, reason, told_by

if TYPE_CHECKING:
    from ringwright.bounds.laws.ranks import Census
    from ringwright.model.trace import Trace


def judged(
    trace: Trace, counted: Census, bandwidth: Iterable[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return ``summary.laws`` and the whole ledger: the Trace's lines, then what was refused after reading (without lines)."""
    ledger = trace.table("ledger").to_dicts()
    late = Refusals()
    if counted.refused:
        late.refuse("ranks", counted.refused)
    for entry in bandwidth:
        if entry["law"]:
            which = f"{entry['op']} of {entry['table']}, {entry['size_bytes']} B"
            name, detail = told_by(entry["law"])
            late.refuse(name, f"{which}: {detail}")
    line = {
        "file": ", ".join(trace.meta.get("inputs", [])[:1]),
        "outcome": "refused",
        "lines": None,
        "example_line": None,
    }
    noted = [line | {"reason": reason(row["law"]), "example": row["example"]} for row in late.rows()]
    parts = (of_ledger(ledger), late, refused_series(trace))
    return _joined(parts), [*ledger, *noted]


def _joined(parts: Iterable[Refusals]) -> list[dict[str, Any]]:
    whole = Refusals()
    for part in parts:
        for row in part.rows():
            whole.refuse(row["law"], row["example"], row["refused"])
    return whole.rows()
