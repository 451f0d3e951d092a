"""What the network must carry: bytes per step and per NIC, the largest burst, the share of each operation."""

from __future__ import annotations

from collections.abc import Sequence

from ringwright.analysis.document import Burst, Provision, Row, Timeline


def provision(
    operations: list[Row],
    nics: list[Row],
    hosts: list[Row],
    timeline: Timeline | None,
    steps: int | None,
    *,
    is_log: bool = True,
) -> Provision:
    """Return the figures, None where the source cannot tell, and a note that says what they rest on."""
    total = sum(row["bytes"] or 0 for row in operations)
    busiest = max((max(row["sent_bytes"], row["received_bytes"]) for row in nics), default=None)
    bursts = timeline["bursts"] if timeline else []
    largest = timeline["largest_burst"] if timeline else None
    return {
        "bytes_per_step_per_nic": round(busiest / steps) if busiest and steps else None,
        "busiest_nic_bytes": busiest,
        "between_hosts_bytes": sum(row["bytes"] for row in hosts),
        "largest_burst_bytes": (round(largest["bytes"]) or None) if largest else None,
        "largest_burst_of": largest["of"] if largest else None,
        "share_per_op": [{"op": row["op"], "share": (row["bytes"] or 0) / total} for row in operations if total],
        "steps": steps,
        "note": _note(operations, busiest, bursts, steps)
        if is_log
        else _short_note(operations, busiest, bursts, steps),
    }


def _short_note(operations: list[Row], busiest: int | None, bursts: Sequence[Burst], steps: int | None) -> str:
    """Say what a recording that is no log does not hold."""
    there = {"no call": operations, "no NIC is named": busiest, "no step": steps, "no burst stands out": bursts}
    missing = [name for name, value in there.items() if not value]
    return "; ".join(missing) or "per step: totals divided by the steps recorded"


def _note(operations: list[Row], busiest: int | None, bursts: Sequence[Burst], steps: int | None) -> str:
    missing = []
    if not operations:
        return "no collective lines: sizes and counts are unknown; set NCCL_DEBUG_SUBSYS=INIT,COLL,GRAPH,NET"
    if busiest is None:
        missing.append("no connection line names a NIC (NCCL_DEBUG_SUBSYS=GRAPH,NET)")
    if steps is None:
        missing.append("no iteration lines, so nothing is per step")
    if not bursts:
        missing.append("no times, so no bursts (NCCL_DEBUG_TIMESTAMP_LEVELS=INFO, NCCL 2.26 and later)")
    return "; ".join(missing) or "per step: totals divided by the iterations that the log shows"
