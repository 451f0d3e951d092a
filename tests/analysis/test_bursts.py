"""The largest burst says whose it is, is at least the largest call, and a group of one moves nothing."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from ringwright.analysis.summary import summarise
from ringwright.analysis.traffic.traffic_over_time import timeline
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace
from ringwright.reports import terminal

CALL_BYTES = 8_323_072  # 7.94 MiB


def trace(seen: int, nranks: int, at_s: list[float], size_bytes: int = CALL_BYTES) -> Trace:
    """Calls of a group of ``nranks`` of which ``seen`` ranks have written."""
    events: list[dict[str, Any]] = [
        {
            "kind": "collective",
            "op": "all-reduce",
            "rank": rank,
            "comm_rank": rank,
            "communicator": 0,
            "sequence": number,
            "size_bytes": size_bytes,
            "nranks": nranks,
            "enqueue_s": moment_s,
            "records": 1,
            "multiplicity": 1,
        }
        for number, moment_s in enumerate(at_s)
        for rank in range(seen)
    ]
    comm = {"communicator": 0, "comm_id": "w", "size": nranks, "members": list(range(nranks)), "ranks_seen": seen}
    return Trace.of({"events": rows("events", events), "communicators": rows("communicators", [comm])})


@pytest.mark.parametrize(("seen", "nranks"), [(1, 256), (8, 256), (4, 4)])
def test_the_largest_burst_is_at_least_the_largest_call_and_says_whose_it_is(seen: int, nranks: int) -> None:
    summary = summarise(trace(seen, nranks, [1.0, 2.0, 3.0, 3.001, 4.0]))
    need = summary["provision"]
    assert need["largest_burst_bytes"] >= CALL_BYTES
    assert need["largest_burst_of"] == "rank 0"
    assert "in calls of rank 0" in terminal.text(summary, width=120)


def test_calls_that_come_together_add_up_once() -> None:
    found = timeline(trace(4, 4, [1.0, 1.0001, 1.0002, 1.0003, 9.0]))
    assert found is not None
    assert [burst["bytes"] for burst in found["bursts"]] == [4 * CALL_BYTES, CALL_BYTES]
    assert found["largest_burst"]["bytes"] == 4 * CALL_BYTES
    assert sum(sum(row["bytes"]) for row in found["series"]) == 5 * CALL_BYTES


def test_calls_that_cannot_be_matched_count_once_by_the_size_of_their_group() -> None:
    """Without a sequence each of four ranks' records is a quarter of the call; a send is itself alone."""
    given = trace(4, 4, [1.0, 1.0001])
    given.tables["events"] = given.table("events").lazy().with_columns(sequence=None)
    found = timeline(given)
    assert found is not None
    assert [burst["bytes"] for burst in found["bursts"]] == [2 * CALL_BYTES]
    sends = trace(2, 4, [1.0])
    sends.tables["events"] = (
        sends.table("events").lazy().with_columns(kind=pl.lit("p2p"), op=pl.lit("send"), sequence=None, peer=3)
    )
    found = timeline(sends)
    assert found is not None
    assert [burst["bytes"] for burst in found["bursts"]] == [2 * CALL_BYTES]


@pytest.mark.parametrize(
    ("span_s", "bin_s"), [(0.2, 0.001), (0.3, 0.01), (20.0, 0.1), (200.0, 1.0), (86_400.0, 600.0), (3.6e6, 18_000.0)]
)
def test_a_log_of_any_length_is_shown_in_at_most_240_bins(span_s: float, bin_s: float) -> None:
    found = timeline(trace(2, 2, [1.0, 1.0 + span_s]))
    assert found is not None
    assert found["bin_s"] == bin_s
    assert max(len(row["bytes"]) for row in found["series"]) <= 241


def test_two_hundred_bursts_are_listed() -> None:
    found = timeline(trace(2, 2, [10.0 * at for at in range(210)]))
    assert found is not None
    assert len(found["bursts"]) == 200


def test_one_call_is_a_burst_and_a_group_of_one_is_none() -> None:
    alone = summarise(trace(2, 2, [5.0]))
    assert alone["provision"]["largest_burst_bytes"] == CALL_BYTES
    nobody = summarise(trace(1, 1, [1.0, 2.0, 3.0]))
    assert nobody["provision"]["largest_burst_bytes"] is None
    assert nobody["timeline"] is None


def test_a_long_log_without_rows_says_all_ranks() -> None:
    from ringwright.formats.sources.nccl_log.collectives import time_bins
    from ringwright.formats.sources.nccl_log.fold import RecordSink
    from ringwright.formats.sources.nccl_log.state import LogState

    fold = RecordSink(0, None)
    fold.time_bins = {(7, 0, CALL_BYTES // 4, 7, 256): 1, (8, 0, 1000, 7, 1): 5}
    (row,) = time_bins(LogState(), fold, ["AllReduce"])
    assert row["bytes"] == CALL_BYTES
    found = timeline(Trace.of({"links": rows("links", [row])}))
    assert found is not None
    assert (found["largest_burst"]["bytes"], found["largest_burst"]["of"]) == (CALL_BYTES, "all ranks")
