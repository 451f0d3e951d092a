"""The reports' view of a summary object: every key present, so that a template never meets a hole.

An absent addition becomes its empty value; the reports then say that it is absent instead of printing a zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ringwright.analysis.document import JobFinding, Summary
from ringwright.ground.units import format_count

_EMPTY: dict[str, Any] = {
    "schema": "ringwright.summary/1",
    "nccl_versions": [],
    "hosts": 0,
    "ranks_seen": 0,
    "ranks_expected": None,
    "communicators": [],
    "operations": [],
    "roles": {},
    "pair_bytes": [],
    "truncated": False,
    "losses": [],
    "ledger": {},
    "verdict": None,
    "warnings": [],
    "coverage": "",
    "inputs": [],
    "source": "",
    "size_classes": [],
    "communicator_list": [],
    "by_role": [],
    "by_phase": [],
    "algorithms": [],
    "host_pair_bytes": [],
    "nic_bytes": [],
    "pair_ground": None,
    "ranks": [],
    "timeline": None,
    "concurrency": [],
    "iterations": [],
    "provision": None,
    "answer": None,
    "findings": [],
    "claims": [],
    "in_network": None,
    "ledger_detail": [],
    "limits": [],
    "errors": [],
    "kind": "",
    "steps_us": {},
    "kernels": [],
    "exposed_us": None,
    "overlapped_us": None,
    "overlap": {},
    "bandwidth": [],
    "normal": [],
    "normal_unknown": [],
    "culprits": [],
    "waits": [],
    "bars": None,
    "bursts": None,
    "bursts_unknown": "",
    "topology": None,
}
LEDGER_KEYS = ("lines", "understood", "repaired", "refused", "other", "missing")
_SEVERITY = {"error": 0, "warning": 1, "info": 2}


def complete(summary: Mapping[str, Any]) -> Summary:
    """Return ``summary`` with every key of the contract; unknown keys are kept, null lists become empty."""
    full: dict[str, Any] = {key: summary.get(key, value) for key, value in _EMPTY.items()}
    full = {key: _EMPTY[key] if value is None else value for key, value in full.items()}
    counts = {key: int(full["ledger"].get(key) or 0) for key in LEDGER_KEYS}
    full["ledger"] = {key: count for key, count in counts.items() if count or key != "missing"}
    full["coverage"] = full["coverage"] or _coverage(full)
    full["findings"] = sorted(full["findings"], key=lambda finding: _SEVERITY.get(finding.get("severity", ""), 3))
    told = {f"{finding['title']}: {finding.get('detail')}" for finding in full["findings"]}
    full["warnings"] = [warning for warning in full["warnings"] if warning not in told]
    return cast("Summary", {**summary, **full})


def _coverage(summary: Mapping[str, Any]) -> str:
    """Say in one line what was seen, for a summary that brings no line of its own."""
    expected = summary["ranks_expected"]
    ranks = f"{summary['ranks_seen']} of {expected if expected is not None else 'an unknown number of'} ranks"
    versions = ", ".join(summary["nccl_versions"]) or "version not seen"
    return f"{ranks} on {summary['hosts']} hosts, NCCL {versions}, {format_count(summary['ledger']['lines'])} lines"


def absence(summary: Summary) -> str:
    """Say why a summary holds no operation; the empty string when it holds some."""
    if any(operation.get("count") for operation in summary["operations"]):
        return ""
    ledger = summary["ledger"]
    if summary["kind"] not in ("", "nccl-log"):
        if summary["bandwidth"]:
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


def no_timeline(summary: Summary) -> str:
    """Say why a summary holds no course over time."""
    if not summary["operations"]:
        return "No operation was read, so nothing can be placed in time."
    return (
        "The input carries no time stamps. NCCL 2.26 and later writes them with "
        "NCCL_DEBUG_TIMESTAMP_LEVELS=INFO,WARN; a profiler trace carries them always."
    )


def short_place(file: Any, line: Any) -> str:
    """Return where something stands, without the folders, which are long and always the same."""
    name = str(file or "").rstrip("/").rpartition("/")[2]
    return f"{name}:{line}" if name and line else name


def size_rows(summary: Summary) -> list[dict[str, Any]]:
    """Return every (op, size) with ``count``, ``bytes`` and ``share`` of all bytes, most bytes first."""
    rows = [
        {
            "op": operation["op"],
            "size_bytes": entry["size_bytes"],
            "count": entry["count"],
            "bytes": entry.get("bytes", entry["size_bytes"] * entry["count"]),
        }
        for operation in summary["operations"]
        for entry in operation.get("size_histogram") or []
        if entry["size_bytes"] is not None
    ]
    total = sum(row["bytes"] for row in rows)
    for row in rows:
        row["share"] = row["bytes"] / total if total else 0.0
    return sorted(rows, key=lambda row: (-row["bytes"], -row["count"], row["op"], row["size_bytes"]))


def operation_rows(summary: Summary) -> list[dict[str, Any]]:
    """Return one row per op with its smallest, median and largest size (null without a histogram) and share."""
    total = sum(operation.get("bytes") or 0 for operation in summary["operations"])
    rows = []
    for operation in summary["operations"]:
        histogram = operation.get("size_histogram") or []
        sizes = sorted((entry["size_bytes"], entry["count"]) for entry in histogram if entry["size_bytes"] is not None)
        rows.append(
            {
                "op": operation["op"],
                "count": operation.get("count") or 0,
                "records": operation.get("records"),
                "bytes": operation.get("bytes"),
                "share": (operation.get("bytes") or 0) / total if total else 0.0,
                "min_bytes": sizes[0][0] if sizes else None,
                "median_bytes": _median(sizes),
                "max_bytes": sizes[-1][0] if sizes else None,
            }
        )
    return sorted(rows, key=lambda row: (-(row["bytes"] or 0), -row["count"], row["op"]))


def _median(sizes: list[tuple[int, int]]) -> int | None:
    """Return the lower weighted median of sorted (size, count)."""
    half = sum(count for _, count in sizes) / 2
    passed = 0
    for size, count in sizes:
        passed += count
        if passed >= half:
            return size
    return None


def beside_the_verdict(view: Summary) -> list[JobFinding]:
    """Return the findings less the one that is the verdict, which the answer tells already."""
    verdict = view["verdict"]
    if not verdict or not view["answer"]:
        return view["findings"]
    return [each for each in view["findings"] if each["evidence"] != verdict["evidence"]]
