"""PARAM communication traces: elements become bytes, groups, markers, replayed times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringwright.formats.sources.detect import kind_of
from ringwright.formats.sources.param_comms import read_param_comms
from ringwright.ground.errors import InputError
from ringwright.model.trace import Trace
from written import sources

BASIC: list[dict[str, Any]] = [
    {"comms": "init", "pg_id": 1, "global_ranks": [0, 2], "world_size": 2, "req": -1},
    {
        "comms": "all_reduce",
        "in_msg_size": 1024,
        "out_msg_size": 1024,
        "dtype": "BFloat16",
        "req": 7,
        "pg_id": 1,
        "world_size": 2,
        "startTime_ns": 1_700_000_000_000_001_000,
        "markers": ["## forward ##", "fc1"],
    },
    {
        "comms": "all_to_allv",
        "in_msg_size": 10,
        "out_msg_size": 6,
        "in_split": [4, 6],
        "out_split": [3, 3],
        "dtype": "Int",
        "pg_id": 1,
        "world_size": 2,
        "req": 8,
        "startTime_ns": 1_700_000_000_000_003_000,
    },
    {"comms": "wait", "req": 7},
    {"comms": "barrier", "req": 9},
    {"comms": "send", "src_rank": 0, "dst_rank": 2, "in_msg_size": 3, "out_msg_size": 3, "dtype": "Float", "pg_id": 1},
    {"compute": "gemm", "mm_dim": 512, "dtype": "Float", "count": 20},
]


def read(folder: Path, *lists: Any, name: str = "rank{}.json") -> Trace:
    return read_param_comms(
        sources(folder, {name.format(k): json.dumps(entries).encode() for k, entries in enumerate(lists)})
    )


def test_a_basic_trace(tmp_path: Path) -> None:
    trace = read(tmp_path, BASIC)
    rows = trace.df.select("kind", "op", "size_bytes", "sent_bytes", "received_bytes", "sequence", "peer").rows()
    assert rows == [
        ("collective", "all-reduce", 2048, 2048, 2048, 0, None),
        ("collective", "all-to-all", 40, 40, 24, 1, None),
        ("collective", "barrier", 0, 0, 0, 0, None),
        ("p2p", "send", 12, 12, None, None, 1),
        ("compute", None, None, None, None, None, None),
    ]
    assert trace.df["multiplicity"].to_list()[-1] == 20
    assert trace.df["layer"].to_list()[0] == "## forward ##/fc1"
    assert trace.df["enqueue_s"].to_list()[:2] == [0.0, pytest.approx(2e-6)]
    assert trace.meta["origin_ns"] == 1_700_000_000_000_001_000
    members = {row["comm_id"]: row["members"] for row in trace.table("communicators").to_dicts()}
    assert members["1"] == [0, 2]
    assert kind_of(json.dumps(BASIC).encode()) == "param-comms"


def test_a_replay_has_times_and_ranks_join(tmp_path: Path) -> None:
    entry = {"comms": "all_gather", "in_msg_size": 4, "out_msg_size": 4, "dtype": "float", "world_size": 2, "pg_id": 0}
    trace = read(tmp_path, [entry | {"latency_us": 5.5}], {"trace": [entry | {"latency_us": 7.0}]})
    assert trace.df.select("rank", "sequence", "size_bytes", "duration_s").rows() == [
        (0, 0, 32, pytest.approx(5.5e-6)),
        (1, 0, 32, pytest.approx(7e-6)),
    ]


def test_a_cut_list_keeps_its_entries(tmp_path: Path) -> None:
    data = json.dumps(BASIC).encode()
    trace = read_param_comms(sources(tmp_path, {"rank0.json": data[: len(data) - 30]}))
    assert trace.df.height == 4
    assert "damaged" in trace.meta["losses"][0]


def test_strange_values_do_not_break(tmp_path: Path) -> None:
    strange = [
        {
            "comms": "all_reduce",
            "in_msg_size": -5,
            "dtype": [],
            "pg_id": {},
            "global_ranks": ["a", 1],
            "req": 1e400,
            "markers": 3,
        },
        {"comms": None},
        {"comms": "all_reduce", "in_msg_size": 1 << 70, "in_split": "x"},
        3,
        None,
        {"compute": None, "count": -1},
    ]
    text = json.dumps(strange).replace("Infinity", "1e300").encode()
    trace = read_param_comms(sources(tmp_path, {"rank0.json": text}))
    assert trace.df.height >= 3


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no entry"):
        read(tmp_path, [{"a": 1}])
