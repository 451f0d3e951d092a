"""Trace files of NCCL's example profiler plug-in: what a call is, and how long it took only where that was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringwright.formats.sources import read
from ringwright.formats.sources.kinds import KEYS, kinds
from ringwright.ground.errors import InputError

HASH = 6479621443100067001
FIELD = Path(__file__).parent.parent / "field" / "13_NVIDIA-nccl-1765.log"


def event(cat: str, ph: str, name: str, ts: float, pid: int = 7, **args: Any) -> dict[str, Any]:
    return {"name": name, "cat": cat, "ph": ph, "id": 0, "pid": pid, "tid": 1, "ts": ts} | (
        {"args": args} if args else {}
    )


def call(name: str, rank: int, inside: list[dict[str, Any]], *, seq: int = 0, **more: Any) -> list[dict[str, Any]]:
    told = {"SeqNum": seq, "CommHash": HASH, "Rank": rank, "Count": 1024, "Datatype": "ncclBfloat16"}
    told |= {"Algorithm": "RING", "Protocol": "LL128", "nChannels": 2} | more
    begins = event("COLL", "b", name, 100.0, 70 + rank, **told)
    return [begins, *inside, event("COLL", "e", name, 100.5, 70 + rank)]


def channel(number: int, start: float, stop: float, *timer: int) -> list[dict[str, Any]]:
    clocks = {"StartGpuClk": timer[0], "StopGpuClk": timer[1]} if timer else {}
    return [
        event("GPU", "b", "KernelCh", start, Channel=number, **clocks),
        event("GPU", "e", "KernelCh", stop),
    ]


def written(events: list[dict[str, Any]], *, end: str = "{}]\n") -> str:
    """Return what the plug-in writes, whose last element is empty; others take that off, and the comma before it."""
    lines = ",\n".join(json.dumps(each) for each in events)
    return f"[\n{lines}" + (end if end.startswith("]") else f",\n{end}")


PRINTED = {"nccl-profiler-example": written(call("AllReduce", 0, channel(0, 1.0, 2.0, 5, 9)) + call("Reduce", 1, []))}


def calls(folder: Path, *texts: str) -> list[dict[str, Any]]:
    for rank, text in enumerate(texts):
        (folder / f"prof_{HASH}_{rank}.json").write_text(text)
    return read(folder).df.sort("rank", "sequence").to_dicts()


def test_a_call_is_read_as_it_was_enqueued_and_its_end_is_not_that_of_the_transfer() -> None:
    trace = read(FIELD)
    row = trace.df.to_dicts()[0]
    assert (trace.meta["source"], row["op"], row["rank"], row["sequence"]) == (
        "nccl-profiler-example",
        "all-reduce",
        0,
        0,
    )
    assert (row["size_bytes"], row["datatype"], row["channels"]) == (2097152 * 4, "float32", 24)
    assert (row["algorithm"], row["protocol"], row["duration_s"], row["start_s"]) == ("ring", "ll128", None, None)
    assert trace.table("communicators")["comm_id"].to_list() == [f"0x{HASH:x}"]
    assert any("cut after" in loss for loss in trace.meta["losses"])


@pytest.mark.parametrize("end", ["{}]\n", "]", ""])
def test_channels_of_the_kernel_tell_the_duration_by_the_timer_of_the_gpu(end: str, tmp_path: Path) -> None:
    inside = channel(0, 110.0, 150.0, 1000, 31000) + channel(1, 112.0, 160.0, 2000, 42000)
    row = calls(tmp_path, written(call("AllReduce", 0, inside), end=end))[0]
    assert row["duration_s"] == pytest.approx(41e-6)
    assert (row["ground"], row["kernel_class"], row["size_bytes"]) == ("read", "nccl", 2048)


def test_without_timers_the_host_saw_the_channels(tmp_path: Path) -> None:
    row = calls(tmp_path, written(call("AllReduce", 0, channel(0, 110.0, 150.0) + channel(1, 112.0, 160.0))))[0]
    assert row["duration_s"] == pytest.approx(50e-6)


def test_work_for_the_network_tells_less_surely_and_one_without_end_tells_none(tmp_path: Path) -> None:
    begins = event("PROXY", "b", "Send", 110.0, Channel=0, Peer=1)
    step = [event("NET", "b", "SendWait", 500.0), event("NET", "e", "SendWait", 900.0)]
    done = [begins, *step, event("PROXY", "e", "Send", 140.0)]
    rows = calls(tmp_path, written(call("AllReduce", 0, done) + call("AllReduce", 0, [begins, *step], seq=1)))
    assert [row["ground"] for row in rows] == ["inferred", "inferred"]
    assert [row["duration_s"] for row in rows] == [pytest.approx(30e-6), None]


def test_a_call_that_the_file_cuts_has_no_duration(tmp_path: Path) -> None:
    text = written(call("AllReduce", 0, channel(0, 110.0, 150.0) + channel(1, 112.0, 160.0)), end="")
    row = calls(tmp_path, text[: text.index('{"name": "KernelCh"', text.index('"e"'))])[0]
    assert (row["op"], row["duration_s"]) == ("all-reduce", None)


def test_counts_of_an_all_gather_are_one_ranks_part_and_the_ranks_seen_make_the_whole(tmp_path: Path) -> None:
    alone = calls(tmp_path, written(call("AllGather", 0, [])))
    assert [row["size_bytes"] for row in alone] == [None]
    both = calls(tmp_path, *(written(call("AllGather", rank, [])) for rank in (0, 1)))
    assert [(row["rank"], row["nranks"], row["size_bytes"], row["sequence"]) for row in both] == [
        (0, 2, 4096, 0),
        (1, 2, 4096, 0),
    ]


def test_sends_have_a_peer_and_events_before_the_first_may_be_missing(tmp_path: Path) -> None:
    told = {"CommHash": HASH, "Rank": 1, "Peer": 0, "Count": 8, "Datatype": "ncclInt8"}
    text = written([event("P2P", "b", "Send", 5.0, **told), event("P2P", "e", "Send", 6.0)])
    row = calls(tmp_path, text.removeprefix("[\n"))[0]
    assert (row["kind"], row["op"], row["peer"], row["size_bytes"]) == ("p2p", "send", 0, 8)


def test_the_traces_of_pytorch_are_not_taken_and_a_file_without_calls_says_what_to_do(tmp_path: Path) -> None:
    look = kinds()["nccl-profiler-example"].looks_like
    assert look(b'{"traceEvents": [{"ph": "X", "cat": "gpu_user_annotation", "name": "GPU", "ts": 1}]}', "") < KEYS
    (tmp_path / "x.json").write_text(written([event("GROUP", "b", "Group", 1.0), event("GROUP", "e", "Group", 2.0)]))
    with pytest.raises(InputError, match="NCCL_PROFILE_EVENT_MASK"):
        read(tmp_path / "x.json")
