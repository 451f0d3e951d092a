"""Bursts of a Trace, whatever wrote it, or the reason why it tells none and what would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringwright.analysis.traffic.burst_document import ToldBursts
from ringwright.analysis.traffic.call_transfers import call_transfers
from ringwright.analysis.traffic.message_transfers import message_transfers
from ringwright.analysis.traffic.transfers import told
from ringwright.ground.errors import DeclinedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringwright.model.trace import Trace

NO_CALLS = "no call was read"
NO_TIMES = "calls carry no time"
NO_BEGINNING = "calls tell how long they took, not when they began"
IN_A_LOG = f"{NO_TIMES}: NCCL 2.26 and later writes it with NCCL_DEBUG_TIMESTAMP_LEVELS=INFO,WARN"


def bursts(trace: Trace, host_of: Mapping[int, str], gap_s: float | None = None) -> tuple[ToldBursts | None, str]:
    """Return the bursts of a Trace, or None with the reason, which names the setting that would tell them.

    ``host_of``: the host of each rank that is known; ``gap_s``: the longest pause within a burst, s.
    """
    import polars as pl

    try:
        transfers = message_transfers(trace, host_of) or call_transfers(trace, host_of)
    except DeclinedError as error:
        return None, f"{error.what}; try {error.remedy}"
    if transfers is not None:
        return told(transfers, gap_s), ""
    calls = trace.scan("events").filter(pl.col("kind").is_in(["collective", "p2p"]))
    count, lasting = calls.select(pl.len(), pl.col("duration_s").is_not_null().sum().alias("lasting")).collect().row(0)
    if not count:
        return None, NO_CALLS
    if lasting:
        return None, NO_BEGINNING
    return None, IN_A_LOG if "nccl-log" in str(trace.meta.get("source", "")).split("+") else NO_TIMES
