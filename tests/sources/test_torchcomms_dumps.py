"""Flight Recorder dumps of torchcomms' hook: one counter for all communicators, members as ranks of the communicator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read


def entry(number: int, group: str, name: str, elements: int = 4, pg_id: int = 0) -> dict[str, Any]:
    return {
        "record_id": number,
        "pg_id": pg_id,
        "process_group": [group, "ncclx"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"ncclx:{name}",
        "time_created_ns": 10**18 + number,
        "input_sizes": [[elements]],
        "input_dtypes": ["Float"],
        "output_sizes": [[elements]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": 0,
        "time_discovered_completed_ns": 0,
        "retired": True,
        "timeout_ms": 600000,
        "is_p2p": False,
    }


def dump(folder: Path, rank: int, tp: str, entries: list[dict[str, Any]]) -> None:
    config = {
        "world": {"name": "world", "desc": "ncclx", "ranks": "0,1,2,3"},
        "tp": {"name": "tp", "desc": "ncclx", "ranks": tp},
    }
    document = {"version": "2.10", "comm_lib_version": "2.27", "pg_config": config, "pg_status": {}, "entries": entries}
    (folder / f"comm_lib_trace_rank_{rank}").write_text(json.dumps(document))


def test_one_counter_for_all_groups_is_no_gap(tmp_path: Path) -> None:
    """Ranks 0 and 2 do one tensor parallel call more before the same all-reduce of all."""
    for rank in range(4):
        more = [entry(0, "tp", "all_gather_single", pg_id=1)] if rank % 2 == 0 else []
        last = len(more)
        calls = [
            *more,
            entry(last, "world", "all_reduce"),
            entry(last + 1, "world", "send"),
            entry(last + 2, "world", "all_reduce"),
        ]
        dump(tmp_path, rank, "0,1" if rank < 2 else "2,3", calls)
    trace = read(str(tmp_path))
    world = trace.df.filter(op="all-reduce")
    assert world.group_by("sequence").len().sort("sequence").rows() == [(0, 4), (1, 4)]
    assert trace.df.filter(op="send")["sequence"].to_list() == [None] * 4
    seen = summarise(trace)
    assert {row["op"]: row["count"] for row in seen["operations"]}["all-reduce"] == 2
    assert seen["ledger"]["missing"] == 0
    assert seen["ranks_expected"] == 4
    assert trace.df["start_s"].null_count() == len(trace.df)  # 0 stands for not discovered


def test_members_that_are_not_global_ranks_are_unknown(tmp_path: Path) -> None:
    for rank in range(4):
        dump(tmp_path, rank, "0,1", [entry(0, "tp", "all_reduce", pg_id=1)])
    comms = read(str(tmp_path)).table("communicators")
    assert sorted(row["members"] for row in comms.filter(pl.col("name").str.starts_with("tp")).to_dicts()) == [
        [],
        [0, 1],
    ]


def test_a_ring_that_lost_its_beginning_gives_no_sequences(tmp_path: Path) -> None:
    dump(tmp_path, 0, "0,1", [entry(7, "tp", "all_reduce", pg_id=1), entry(8, "world", "all_reduce")])
    assert read(str(tmp_path)).df["sequence"].to_list() == [None, None]
