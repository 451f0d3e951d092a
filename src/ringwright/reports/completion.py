"""The reports' view of a summary object: every key present, so that a template never meets a hole.

An absent addition becomes its empty value; the reports then say that it is absent instead of printing a zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ringwright.analysis.summary_view import SeenFinding, SeenSummary
from ringwright.ground.documents import read_json
from ringwright.ground.units import format_count

LEDGER_KEYS = ("lines", "understood", "repaired", "refused", "other", "missing")
_SEVERITY = {"error": 0, "warning": 1, "info": 2}


def complete(summary: Mapping[str, Any] | SeenSummary) -> SeenSummary:
    """Return a summary with every part there; what is null has the default of its field."""
    if isinstance(summary, SeenSummary):
        return summary
    seen = read_json(SeenSummary, {key: value for key, value in summary.items() if value is not None})
    counts = {key: int(seen.ledger.get(key) or 0) for key in LEDGER_KEYS}
    seen = replace(seen, ledger={key: count for key, count in counts.items() if count or key != "missing"})
    told = {f"{finding.title}: {finding.detail}" for finding in seen.findings}
    return replace(
        seen,
        coverage=seen.coverage or _coverage(seen),
        findings=sorted(seen.findings, key=lambda finding: _SEVERITY.get(finding.severity or "", 3)),
        warnings=[warning for warning in seen.warnings if warning not in told],
    )


def _coverage(summary: SeenSummary) -> str:
    """Say in one line what was seen, for a summary that brings no line of its own."""
    expected = summary.ranks_expected
    ranks = f"{summary.ranks_seen} of {expected if expected is not None else 'an unknown number of'} ranks"
    versions = ", ".join(summary.nccl_versions) or "version not seen"
    return f"{ranks} on {summary.hosts} hosts, NCCL {versions}, {format_count(summary.ledger['lines'])} lines"


def absence(summary: SeenSummary) -> str:
    """Say why a summary holds no operation; the empty string when it holds some."""
    if any(operation.count for operation in summary.operations):
        return ""
    ledger = summary.ledger
    if summary.kind not in ("", "nccl-log"):
        if summary.bandwidth:
            return "No operation of a job: a benchmark's table was read; see bandwidth."
        return "No operation was recorded: ringwright doctor says what may be missing."
    if not ledger["lines"]:
        return "No operation: the input is empty. Was NCCL_DEBUG=INFO set in the job's environment on every host?"
    if not (ledger["understood"] or ledger["repaired"]):
        return (
            "No operation: no line of NCCL was recognised. "
            "Set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL and run again."
        )
    return (
        "No operation: NCCL lines are there, but none from its COLL subsystem, so calls were not logged. "
        "Run again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL."
    )


def no_timeline(summary: SeenSummary) -> str:
    """Say why a summary holds no course over time."""
    if not summary.operations:
        return "No operation was read, so nothing can be placed in time."
    return (
        "The input carries no time stamps. NCCL 2.26 and later writes them with "
        "NCCL_DEBUG_TIMESTAMP_LEVELS=INFO,WARN; a profiler trace carries them always."
    )


def short_place(file: Any, line: Any) -> str:
    """Return where something stands, without the folders, which are long and always the same."""
    name = str(file or "").rstrip("/").rpartition("/")[2]
    return f"{name}:{line}" if name and line else name


@dataclass(frozen=True, slots=True)
class ShareOfSize:
    """An operation at a size: calls, bytes, and the share of all bytes."""

    op: str
    size_bytes: int
    count: int
    bytes: int
    share: float = 0.0


def size_rows(summary: SeenSummary) -> list[ShareOfSize]:
    """Return every operation and size, most bytes first."""
    rows = [
        ShareOfSize(
            operation.op,
            entry.size_bytes,
            entry.count,
            entry.size_bytes * entry.count if entry.bytes is None else entry.bytes,
        )
        for operation in summary.operations
        for entry in operation.size_histogram or []
        if entry.size_bytes is not None
    ]
    total = sum(row.bytes for row in rows)
    rows = [replace(row, share=row.bytes / total if total else 0.0) for row in rows]
    return sorted(rows, key=lambda row: (-row.bytes, -row.count, row.op, row.size_bytes))


@dataclass(frozen=True, slots=True)
class OperationRow:
    """An operation: its smallest, median and largest size (None without a histogram), and the share of all bytes."""

    op: str
    count: int
    records: int | None
    bytes: int | None
    share: float
    min_bytes: int | None
    median_bytes: int | None
    max_bytes: int | None


def operation_rows(summary: SeenSummary) -> list[OperationRow]:
    """Return one row per operation, most bytes first."""
    total = sum(operation.bytes or 0 for operation in summary.operations)
    rows = []
    for operation in summary.operations:
        histogram = operation.size_histogram or []
        sizes = sorted((entry.size_bytes, entry.count) for entry in histogram if entry.size_bytes is not None)
        rows.append(
            OperationRow(
                op=operation.op,
                count=operation.count or 0,
                records=operation.records,
                bytes=operation.bytes,
                share=(operation.bytes or 0) / total if total else 0.0,
                min_bytes=sizes[0][0] if sizes else None,
                median_bytes=_median(sizes),
                max_bytes=sizes[-1][0] if sizes else None,
            )
        )
    return sorted(rows, key=lambda row: (-(row.bytes or 0), -row.count, row.op))


def _median(sizes: list[tuple[int, int]]) -> int | None:
    """Return the lower weighted median of sorted (size, count)."""
    half = sum(count for _, count in sizes) / 2
    passed = 0
    for size, count in sizes:
        passed += count
        if passed >= half:
            return size
    return None


def beside_the_verdict(view: SeenSummary) -> list[SeenFinding]:
    """Return the findings less the one that is the verdict, which the answer tells already."""
    verdict = view.verdict
    if not verdict or not view.answer:
        return view.findings
    return [each for each in view.findings if each.evidence != verdict.evidence]
