"""Logs of torchcomms' ClogHook: the example that its own description gives, and jobs of several ranks made by that description."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.ground.errors import InputError
from ringwright.model.trace import Trace

DOCUMENTED = Path(__file__).parent / "torchcomms" / "documented.log"


def test_the_documented_example() -> None:
    trace = read(str(DOCUMENTED))
    rows = trace.df.select("sequence", "count", "datatype", "graph_captured", "graph_replay", "state").rows()
    assert rows[:3] == [
        (0, 1024, "float32", None, None, "completed"),
        (1, 2048, "bfloat16", None, None, "completed"),
        (2, 1024, "float32", None, None, "completed"),
    ]
    assert [row[3:5] for row in rows[3:]] == [(True, None)] * 2 + [(None, 1)] * 2 + [(None, 2)] * 2
    assert trace.df["duration_s"].round(3).to_list() == [0.003, 0.004, *[0.003] * 7]
    assert trace.meta["origin_ns"] == pytest.approx(1714234567.891e9)
    seen = summarise(trace)
    assert (seen["ranks_seen"], seen["ranks_expected"], seen["ledger"]["refused"]) == (1, 8, 0)
    assert {row["op"]: (row["count"], row["bytes"]) for row in seen["operations"]} == {"all-reduce": (9, 9 * 4096)}


def job(folder: Path, extra: str = "") -> Trace:
    """Write logs of four ranks with pairs, whose replays tell their calls in any order."""
    for rank in range(4):
        pair = rank // 2 * 2
        lines = [
            "V|1|base_timestamp=1700000000.000",
            f"new_comm|comm=world|rank={rank}|world_size=4",
            f"split|parent=world|child=pair|ranks={pair},{pair + 1}",
            f"new_comm|comm=pair|rank={rank - pair}|world_size=2",
            "C1|sig|all_gather_single|in_count=10|out_count=20|dtype=bf16|async_op=f|comm=pair",
            "C1|Q|work_id=1|+0.100",
            "C2|sig|reduce_scatter_v|in_counts=1,2,3,4|out_count=2|dtype=f32|red_op=avg|async_op=f|comm=world",
            "C2|Q|work_id=2|+0.200",
            f"C3|sig|send|in_count=7|out_count=0|dtype=fp8e4m3|peer={1 - (rank - pair)}|async_op=f|comm=pair",
            "C3|Q|work_id=3|+0.300",
            "C4|sig|barrier|async_op=f|comm=world",
            "C5|sig|batch_op_issue|num_ops=2|async_op=f|comm=world",
            "G9|C4|Q|work_id=4|+0.400",
            "G9|C2|Q|work_id=5|+0.410",
            *[f"G9|R1|C{each}|S|+0.{500 + each}" for each in ((4, 2) if rank % 2 else (2, 4))],
            "C5|Q|work_id=6|+0.600",
            "WARN|a post-hook without a pre-hook",
        ]
        (folder / f"clog_{rank}.txt").write_text("\n".join(lines) + "\n" + extra)
    return read(str(folder))


def test_ranks_are_joined_and_groups_of_one_name_kept_apart(tmp_path: Path) -> None:
    trace = job(tmp_path)
    comms = {tuple(row["members"]): row["name"] for row in trace.table("communicators").to_dicts()}
    assert comms == {(0, 1, 2, 3): "world", (0, 1): "pair", (2, 3): "pair"}
    counted = {row["op"]: row["count"] for row in summarise(trace)["operations"]}
    # of all four ranks: a reduce-scatter by itself, captured and replayed; a barrier captured and replayed
    assert counted == {"all-gather": 2, "reduce-scatter": 3, "barrier": 2, "send": 4}
    assert trace.df.filter(op="all-gather")["size_bytes"].unique().to_list() == [40]
    assert trace.df.filter(op="reduce-scatter")["reduce_op"].unique().to_list() == ["avg"]
    assert trace.df.filter(op="send").select("size_bytes", "peer").unique().sort("peer").rows() == [(7, 0), (7, 1)]
    replayed = trace.df.filter(pl.col("graph_replay") == 1)
    assert replayed.group_by("op").agg(pl.col("sequence").n_unique()).sort("op").rows() == [
        ("barrier", 1),
        ("reduce-scatter", 1),
    ]


def test_what_is_cut_or_strange_is_told(tmp_path: Path) -> None:
    trace = job(
        tmp_path,
        "C1|Q|work\nC77|Q|work_id=9|+1.000\nC1|E|+1.000\nC1|E|+1.000\nnew_comm|comm=x|rank=9|world_size=2\nhello\n",
    )
    reasons = set(trace.table("ledger").filter(outcome="refused")["reason"])
    assert reasons == {
        "an event that is cut",
        "an event of a call without a signature",
        "an event of a call that was not made",
        "a communicator without rank and size",
        "a line of no known kind",
    }
    assert summarise(trace)["ledger"]["refused"] == 4 * 5


def test_nothing_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("V|1|base_timestamp=1.0\n")
    with pytest.raises(InputError, match="no call"):
        read(str(tmp_path / "a.log"))
