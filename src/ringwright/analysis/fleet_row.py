"""A job among many: the row of a recording in the table of jobs, and what changed since the recording of its name before it.

What is lost has one definition: ranks x the share of their time in communication that no compute hides, as the summary has it.
Where no compute was recorded it is the share in which ranks waited for others, a lower bound. In ranks it does not grow with
the recording, so that jobs of any size and length stand in one order.
"""

from __future__ import annotations

import json
import math
import zlib
from statistics import median
from typing import TYPE_CHECKING, cast

from ringwright.analysis.bandwidth import ceiling_share
from ringwright.analysis.compared.diff import diff
from ringwright.analysis.fleet_document import FleetChange, FleetRecord, FleetRow

if TYPE_CHECKING:
    from ringwright.analysis.document import Row, Summary
    from ringwright.model.trace import Trace

LATE = ("straggler", "slow-rank")  # beginnings of the kinds that make ranks come late; a slow network makes nobody late
# What a comparison asks of a summary, without what grows with the square of the ranks.
_COMPARED = ("inputs", "coverage", "nccl_versions", "hosts", "ranks_seen", "operations", "bandwidth", "iterations")
_COMPARED_TOO = ("waits", "laws", "losses")


def fleet_record(trace: Trace, summary: Summary) -> FleetRecord:
    """Return the row of a recording, by its summary, and what the next one of its name is compared with."""
    lasted = [each["time_s"] for each in summary["iterations"] if (each["time_s"] or 0) > 0]
    lost, by = _lost(summary, math.fsum(lasted))
    late, late_us = _late(summary)
    rated = [row for row in summary["bandwidth"] if row["busbw_gbs"] is not None]
    most = max(rated, key=lambda row: row["time_us"] * row["samples"], default=None)
    answer = summary["answer"]
    row = FleetRow(
        ranks=summary["ranks_seen"] or None,
        ranks_expected=summary["ranks_expected"],
        step_us=round(median(lasted) * 1e6, 3) if lasted else None,
        steps=len(lasted),
        op=None if most is None else most["op"],
        busbw_gbs=None if most is None else most["busbw_gbs"],
        share=None if most is None else ceiling_share(trace, most),
        lost_ranks=lost,
        lost_by=by,
        late_ranks=late,
        late_us=late_us,
        kind=answer["kind"] if answer else "",
        sentence=answer["sentence"] if answer else "",
    )
    return FleetRecord(row, _packed(summary))


def _lost(summary: Summary, lasted_s: float) -> tuple[float | None, str]:
    """Return the ranks lost, and by which of the two measures."""
    ranks, overlap, waits = summary["ranks_expected"] or summary["ranks_seen"], summary["overlap"], summary["waits"]
    if summary["exposed_us"] is not None and overlap.get("span_us") and overlap.get("comm_us"):
        return round(ranks * summary["exposed_us"] / overlap["span_us"], 4), "exposed"
    if not waits or not lasted_s:
        return None, ""
    waited_s = math.fsum(row["wait_us"] for row in waits) * 1e-6
    return round(ranks * min(waited_s / (lasted_s * len(waits)), 1.0), 4), "waiting"


def _late(summary: Summary) -> tuple[list[int] | None, float | None]:
    """Return the ranks that come late, and the waiting that they cause in us."""
    verdict, told = summary["verdict"], summary["arrivals"]
    if verdict is not None and verdict["ranks"] and verdict["kind"].startswith(LATE):
        caused = math.fsum(row["caused_us"] for row in summary["waits"] if row["rank"] in verdict["ranks"])
        return verdict["ranks"], round(caused, 3) if caused else None
    return ([] if told is not None and told.get("verdict") == "none" else None), None


def _packed(summary: Summary) -> bytes:
    overlap = summary["overlap"]
    kept: Row = {name: summary[name] for name in (*_COMPARED, *_COMPARED_TOO)}  # type: ignore[literal-required]
    ranks = [{"comm_us": row["comm_us"]} for row in overlap.get("ranks") or []]
    kept["overlap"] = {"comm_us": overlap.get("comm_us"), "exposed_us": overlap.get("exposed_us"), "ranks": ranks}
    return zlib.compress(json.dumps(kept, default=str).encode())


def fleet_change(before: FleetRecord, after: FleetRecord) -> FleetChange:
    """Return what changed from one recording of a name to the next."""
    if not before.compared or not after.compared:
        which = "this recording" if before.compared else "the recording before"
        return FleetChange("cannot-tell", f"Nothing to compare: {which} could not be read.")
    told = diff(*(cast("Summary", json.loads(zlib.decompress(each.compared))) for each in (before, after)))
    step = next((row["ratio"] for row in told["times"] if row["what"] == "step" and row["changed"]), None)
    answer = told["answer"]
    return FleetChange(answer["kind"], answer["sentence"], step if answer["kind"] in ("slower", "faster") else None)
