"""Hang gauges of a profiler: which ranks say that they hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.analysis.document import Culprit
from ringwright.analysis.hangs.hang_mismatch import say_ranks

if TYPE_CHECKING:
    from ringwright.model.trace import Trace

GAUGE = "(?i)(^|_)hang$"


def hang_gauge(trace: Trace) -> list[Culprit]:
    """Return one culprit with the ranks whose hang gauge is 1; none where the gauge is 0 or absent.

    The gauge says who hangs, not who began: the confidence is at most 0.5, and lower the more ranks hang.
    """
    import polars as pl

    metrics = trace.scan("events").filter((pl.col("kind") == "metric") & pl.col("op").str.contains(GAUGE))
    rows = metrics.select("op", "rank", "value", "file", "line").filter(pl.col("rank").is_not_null()).collect()
    hung = rows.filter(pl.col("value") >= 1).sort("rank")
    if not hung.height:
        return []
    ranks, all_ranks = sorted(set(hung["rank"].to_list())), rows["rank"].n_unique()
    evidence = [f"the gauge is 1 on {len(ranks)} of {all_ranks} ranks: {say_ranks(ranks)}"]
    if len(ranks) == all_ranks:
        evidence.append("cannot tell who began: all ranks hang")
    else:
        evidence.append("the gauge says who hangs, not who began")
    evidence += [
        f"{row['file']}:{row['line']}: rank {row['rank']} {row['op']} {row['value']:g}" for row in hung.to_dicts()
    ]
    confidence = 0.5 if len(ranks) * 2 < all_ranks else 0.2
    evidence.append(
        "Flight Recorder dumps of all ranks tell who began: run with these settings and pass the dumps to ringwright"
    )
    command = "TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_FR_BUFFER_SIZE=2000"
    return [
        {
            "ranks": ranks,
            "hosts": [],
            "kind": "hang-gauge",
            "confidence": confidence,
            "evidence": evidence[:12],
            "command": command,
        }
    ]
