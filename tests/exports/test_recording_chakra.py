"""A recording as Chakra execution traces and back: the same calls, sizes, groups, ends, times and dependencies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import ringwright
from every_recording import MADE, put
from exports.test_simulator_exports import decode, fields
from ringwright.cli import main
from ringwright.formats.exports.chakra_trace import PAUSE, chakra_trace
from ringwright.ground.errors import UsageError
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace

SAID = ("kind", "op", "rank", "size_bytes", "root", "peer", "nranks", "comm_rank")


def calls(trace: Trace) -> list[tuple[Any, ...]]:
    """Return what is said of each call, with the members of its group and how long it took, in ns."""
    members = dict(trace.table("communicators").select("communicator", "members").rows())
    frame = trace.df.filter(pl.col("kind").is_in(["collective", "p2p"]))
    told = []
    for row in frame.to_dicts():
        lasted = None if row["duration_s"] is None else round(row["duration_s"] * 1e9)
        told.append((*(row[name] for name in SAID), tuple(members.get(row["communicator"]) or ()), lasted))
    return sorted(told, key=str)


def made(events: list[dict[str, Any]], edges: list[dict[str, Any]] | None = None, ranks: int = 4) -> Trace:
    comms = [
        {"communicator": 0, "comm_id": "w", "name": "all 'ranks'", "size": ranks, "members": list(range(ranks))},
        {"communicator": 1, "comm_id": "p", "name": "pair", "size": 2, "members": [3, 1]},
    ]
    plain = {"kind": "collective", "multiplicity": 1, "communicator": 0, "nranks": ranks, "ground": "read"}
    frames = {
        "events": rows("events", [plain | {"line": number} | event for number, event in enumerate(events)]),
        "communicators": rows("communicators", comms),
        "edges": rows("edges", edges or []),
    }
    return Trace.of(frames, {"source": "made", "world": ranks})


def nodes(file: Path) -> list[dict[int, list[Any]]]:
    return decode(file.read_bytes())[1:]


def name(node: dict[int, list[Any]]) -> str:
    return str(node[2][0].decode())


def test_calls_come_back_as_they_were(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for rank in range(4):
        timed = {"rank": rank, "comm_rank": rank}
        for number, (op, size) in enumerate(
            [("all-reduce", 4096), ("all-gather", 64), ("reduce-scatter", 64), ("barrier", 0), ("broadcast", None)]
        ):
            more = {"root": 2} if op == "broadcast" else {}
            events.append({**timed, "op": op, "size_bytes": size, "start_s": number + 0.5, "duration_s": 0.25, **more})
    pair = {"kind": "p2p", "communicator": 1, "nranks": 2, "size_bytes": 7}
    for rank, mine, op in ((3, 0, "send"), (1, 1, "recv")):
        events += [
            {**pair, "rank": rank, "comm_rank": mine, "op": op, "peer": 1 - mine, "start_s": 9.0 + n} for n in (0, 1)
        ]
    trace = made(events)
    *files, groups = chakra_trace(trace, tmp_path / "et")
    assert [file.name for file in (*files, groups)] == [*(f"job.{rank}.et" for rank in range(4)), "comm_group.json"]
    assert json.loads(groups.read_text()) == {"1": [0, 1, 2, 3], "2": [3, 1]}
    assert calls(ringwright.read(tmp_path / "et")) == calls(trace)


def test_what_a_node_waits_for(tmp_path: Path) -> None:
    """What had ended last; what overlaps waits for neither; and what lay between is as long as it was."""
    events = [
        {"rank": 0, "op": "all-reduce", "size_bytes": 8, "start_s": 1.0, "duration_s": 1.0},
        {"rank": 0, "op": "all-gather", "size_bytes": 8, "start_s": 1.5, "duration_s": 2.0},
        {"rank": 0, "op": "all-reduce", "size_bytes": 8, "start_s": 4.0, "duration_s": 1.0},
    ]
    chakra_trace(made(events), tmp_path / "timed")
    group, first, second, pause, last = nodes(tmp_path / "timed" / "job.0.et")
    assert [name(node) for node in (group, pause)] == ["process_group", PAUSE]
    assert [node.get(5) for node in (first, second)] == [None, None]
    assert (pause[5], pause[7], last[5]) == ([bytes([second[1][0]])], [500_000], [bytes(pause[1])])

    chakra_trace(made(events, [{"src_event": 0, "dst_event": 2, "kind": "data"}]), tmp_path / "told")
    _, first, second, last = nodes(tmp_path / "told" / "job.0.et")
    assert (second.get(5), last[5]) == (None, [bytes(first[1])])
    again = ringwright.read(tmp_path / "told").table("edges")
    assert again.select("src_event", "dst_event").rows() == [(0, 2)]


def test_what_is_unknown_is_not_written_as_nothing(tmp_path: Path) -> None:
    events = [
        {"rank": 0, "op": "all-reduce"},
        {"rank": 0, "op": "scan", "size_bytes": 8, "duration_s": 1e-3},
        {"rank": 0, "kind": "p2p", "op": "send", "size_bytes": 8},
    ]
    chakra_trace(made(events), tmp_path / "et")
    again = ringwright.read(tmp_path / "et").df
    told = again.select("kind", "op", "size_bytes", "peer", "duration_s").rows()
    assert sorted(told, key=str) == [
        ("collective", "all-reduce", None, None, None),
        ("compute", None, None, None, 1e-3),  # Chakra has no such operation
        ("p2p", "send", 8, None, None),
    ]
    with pytest.raises(UsageError, match="no call of a known rank"):
        chakra_trace(made([{"op": "all-reduce"}]), tmp_path / "none")


@pytest.mark.parametrize("kind", ["calls", "kineto", "flight-recorder", "nsys", "inspector", "torchcomms-log"])
def test_recordings_of_others(kind: str, tmp_path: Path) -> None:
    source = put(tmp_path, MADE[kind](tmp_path))[0].parent
    assert main(["convert", str(source), "--format", "chakra", "-o", str(tmp_path / "et")]) == 0
    trace, again = ringwright.read(source), ringwright.read(tmp_path / "et")
    known = {"all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all", "barrier", "send", "recv"}
    mine = [(row[1], row[2], row[3], row[-2]) for row in calls(trace) if row[1] in known and row[2] is not None]
    assert mine
    assert [(row[1], row[2], row[3], row[-2]) for row in calls(again)] == mine


def test_a_model_is_a_file_for_each_npu(tmp_path: Path) -> None:
    """ASTRA-sim opens one file an NPU, and turns the names of groups into numbers."""
    asked = [
        "workload",
        "gpt2-small",
        "--gpus",
        "4",
        "--parallel",
        "tp2,dp2",
        "--to",
        "chakra",
        "-o",
        str(tmp_path / "et"),
    ]
    assert main(asked) == 0
    files = sorted(path.name for path in (tmp_path / "et").iterdir())
    assert files == ["comm_group.json", *(f"gpt2-small-training.{rank}.et" for rank in range(4))]
    groups = json.loads((tmp_path / "et" / "comm_group.json").read_text())
    assert {tuple(ranks) for ranks in groups.values()} == {(0, 1), (2, 3), (0, 2), (1, 3)}
    for rank in range(4):
        named = set()
        for node in nodes(tmp_path / "et" / f"gpt2-small-training.{rank}.et"):
            told = {bytes(each[1][0]): each for each in map(fields, node.get(10, []))}
            if b"pg_name" in told:
                named.add(told[b"pg_name"][29][0].decode())
        assert named
        assert all(int(each) > 0 and rank in groups[each] for each in named)
