"""Recordings that grow say at the end what they say when read at once, wherever their pieces were cut."""

from __future__ import annotations

import gzip
import json
import sys
from importlib.resources import files as shipped
from pathlib import Path

import pytest

from growing import agrees, cut, followed, look, said
from reading import small_job
from ringwright.formats.sources import read
from ringwright.formats.sources.growing import GrowingJob
from ringwright.formats.sources.nccl_log import growing as growing_log
from ringwright.formats.sources.nccl_profiler import records
from ringwright.model.trace import Trace
from ringwright_lab.testing import training_job, write_log

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import profiler_recording

SAMPLE = gzip.decompress((shipped("ringwright") / "samples" / "job.log.gz").read_bytes())
LINE = "node0:{pid}:2 [{gpu}] NCCL INFO AllReduce: opCount {n:x} sendbuff 0x1 recvbuff 0x2 count 256 datatype 7 op 0 root 0 comm 0xa [nranks=2] stream 0x3\n"


def rank_lines(rank: int, begin: int, end: int) -> bytes:
    return "".join(LINE.format(pid=10 + rank, gpu=rank, n=n) for n in range(begin, end)).encode()


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_log_cut_at_any_byte(tmp_path: Path, seed: int) -> None:
    job = training_job(2, 4, tp=2, pp=2, iterations=2, layers=1, tokens=64, seed=seed)
    log = write_log(job, "2.27", dirty=0.05, late_tails=seed % 2 == 1, timestamps=seed == 2)
    agrees({"job.log": log.text}, tmp_path / "job", seed, times=9)


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("seed", range(3))
def test_a_log_per_process_grows_in_turns(tmp_path: Path, seed: int) -> None:
    log = write_log(small_job("2.27"), ("2.7", "2.18", "2.30")[seed], per_process=True, dirty=0.03)
    agrees(log.files, tmp_path / "job", seed)


def test_the_sample_in_many_pieces(tmp_path: Path) -> None:
    agrees({"job.log": SAMPLE}, tmp_path / "job", 1, times=4)
    agrees({"job.log": SAMPLE}, tmp_path / "little", 2, times=2, most_bytes=100_000)


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("seed", range(3))
def test_what_is_complete_is_forgotten_and_counted(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_log, "SETTLE_RECORDS", 1)
    job = training_job(2, 4, tp=2, pp=2, iterations=3, layers=1, tokens=64, seed=seed)
    log = write_log(job, ("2.27", "2.7", "2.18")[seed], dirty=0.03)
    agrees({"job.log": log.text}, tmp_path / "job", seed, times=9)


def test_memory_holds_open_operations_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(growing_log, "SETTLE_RECORDS", 1000)
    log = growing_log.GrowingLog()
    for turn in range(8):
        both = [rank_lines(rank, 1000 * turn, 1000 * (turn + 1) - 3 * rank) for rank in (0, 1)]
        log.take("a.log", both)
        log.take("a.log", [rank_lines(1, 1000 * (turn + 1) - 3, 1000 * (turn + 1))] if turn < 7 else [])
        trace = log.trace(["a.log"])
    (row,) = said(trace)["operations"]
    assert (row["count"], row["records"]) == (8000, 15_997)
    assert [(each.rank, each.calls) for each in log.reached] == [(0, 8000), (1, 7997)]
    entries = log._joiner.export()["entries"]["signature"]
    assert len(entries) == 3


def test_a_line_that_has_not_ended_waits(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    whole = rank_lines(0, 0, 3)
    log.write_bytes(whole[:-20])
    job = GrowingJob([str(log)])
    trace = look(job)
    assert trace is not None
    assert said(trace)["operations"][0]["count"] == 2
    assert job.look().parts is None
    with log.open("ab") as out:
        out.write(whole[-20:])
    trace = look(job)
    assert trace is not None
    assert said(trace)["operations"][0]["count"] == 3


def test_only_new_bytes_are_read(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(rank_lines(0, 0, 50))
    job = GrowingJob([str(tmp_path)])
    assert job.look().read_bytes == log.stat().st_size
    more = rank_lines(0, 50, 51)
    with log.open("ab") as out:
        out.write(more)
    assert job.look().read_bytes == len(more)


def test_a_file_that_is_cut_short_replaced_or_written_anew(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(rank_lines(0, 0, 5))
    job = GrowingJob([str(tmp_path)])
    look(job)
    log.write_bytes(rank_lines(0, 0, 2))
    looked = job.look()
    assert looked.parts is not None
    assert "cut short" in looked.events[0]
    assert said(looked.parts[0])["operations"][0]["count"] == 2
    other = tmp_path / "b.draft"
    other.write_bytes(rank_lines(0, 0, 9))
    other.rename(log)
    looked = job.look()
    assert looked.parts is not None
    assert "replaced" in looked.events[0]
    assert said(looked.parts[0])["operations"][0]["count"] == 9
    with log.open("r+b") as out:  # the same file, its content another and longer
        out.write(rank_lines(1, 100, 120))
    looked = job.look()
    assert looked.parts is not None
    assert "written anew" in looked.events[0]
    assert said(looked.parts[0]) == said(read([str(tmp_path)], events="folded"))


def test_a_rotated_log_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(rank_lines(0, 0, 5))
    job = GrowingJob([str(tmp_path)])
    look(job)
    log.rename(tmp_path / "a.log.1")
    with (tmp_path / "a.log.1").open("ab") as out:
        out.write(rank_lines(0, 5, 6))
    log.write_bytes(rank_lines(0, 6, 8))
    looked = job.look()
    assert "is now" in looked.events[0]
    assert looked.read_bytes == len(rank_lines(0, 5, 8))
    assert looked.parts is not None
    assert said(looked.parts[0])["operations"][0]["count"] == 8
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress((tmp_path / "a.log.1").read_bytes()))
    (tmp_path / "a.log.1").unlink()
    looked = job.look()
    assert any("stays counted" in event for event in looked.events)
    with log.open("ab") as out:
        out.write(rank_lines(0, 8, 9))
    trace = look(job)
    assert trace is not None
    assert said(trace)["operations"][0]["count"] == 9


def test_a_file_under_a_second_name_and_one_that_comes_back(tmp_path: Path) -> None:
    log, aside = tmp_path / "b.log", tmp_path.parent / f"{tmp_path.name}.aside"
    log.write_bytes(rank_lines(0, 0, 5))
    job = GrowingJob([str(log), str(tmp_path / "a.log")])
    look(job)
    (tmp_path / "a.log").hardlink_to(log)
    assert not any("is now" in event for event in job.look().events)
    (tmp_path / "a.log").unlink()
    log.rename(aside)
    assert any("gone" in event for event in job.look().events)
    aside.rename(log)
    with log.open("ab") as out:
        out.write(rank_lines(0, 5, 7))
    looked = job.look()
    assert looked.read_bytes == len(rank_lines(0, 5, 7))


def test_a_file_of_a_kind_that_is_read_anew_goes(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(rank_lines(0, 0, 5))
    (tmp_path / "job.prom").write_text('nccl_bus_bandwidth_gbs{collective="AllReduce"} 1.0\n')
    (tmp_path / "two.prom").write_text('nccl_bus_bandwidth_gbs{collective="AllGather"} 2.0\n')
    job = GrowingJob([str(tmp_path)])
    assert len(job.look().parts or []) == 2
    (tmp_path / "job.prom").unlink()
    (tmp_path / "two.prom").write_text('nccl_bus_bandwidth_gbs{collective="AllGather"} 3.0\n')
    looked = job.look()
    assert len(looked.parts or []) == 2
    assert any("read anew" in event for event in looked.events)
    (tmp_path / "two.prom").write_text('nccl_bus_bandwidth_gbs{collective="AllGather"} 44.0\n')
    looked = job.look()
    assert looked.parts is not None
    assert looked.events == []


def test_what_cannot_be_continued_is_read_anew_and_said(tmp_path: Path) -> None:
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress(rank_lines(0, 0, 5)))
    job = GrowingJob([str(tmp_path)])
    look(job)
    assert job.look().parts is None
    packed.write_bytes(gzip.compress(rank_lines(0, 0, 9)))
    looked = job.look()
    assert "read anew" in looked.events[0]
    assert looked.parts is not None
    assert said(looked.parts[0])["operations"][0]["count"] == 9


def test_files_that_appear_later_are_taken_up(tmp_path: Path) -> None:
    job = GrowingJob([str(tmp_path / "job")])
    assert look(job) is None
    (tmp_path / "job").mkdir()
    assert look(job) is None
    (tmp_path / "job" / "a.log").write_bytes(rank_lines(0, 0, 5))
    (tmp_path / "job" / "b.bin").write_bytes(b"\x00\x01")
    assert look(job) is not None
    (tmp_path / "job" / "b.log").write_bytes(rank_lines(1, 0, 5))
    trace = look(job)
    assert trace is not None
    assert said(trace) == said(read([str(tmp_path / "job")], events="folded"))


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("seed", range(3))
def test_calls_cut_at_any_byte(tmp_path: Path, seed: int) -> None:
    files = {f"calls.node0.{10 + rank}.jsonl": _calls(rank) for rank in (0, 1)}
    agrees(files, tmp_path / "job", seed)


def _calls(rank: int) -> bytes:
    rows: list[object] = [
        {
            "ringwright": "calls/1",
            "host": "node0",
            "pid": 10 + rank,
            "rank": rank,
            "world": 2,
            "wall_ns": 10**18,
            "clock_ns": 0,
        },
        ["g", 0, "0", "default_pg", "gloo", 2, rank, [0, 1]],
        ["c", 1, 0, "forward", "layer1"],
    ]
    for number in range(40):
        call = ["b", number, 1000 * number, 0, "all-reduce", "float32", 256, 1024, 1024, None, None, "sum", 1, 0, 1]
        rows += [call, ["e", number, 1000 * number + 500 + rank]]
        if number % 10 == 9:
            rows.append(["s", number // 10, 1000 * (number - 9), 1000 * number + 600])
    rows.append(["x", "exit"])
    lines = [json.dumps(row).encode() for row in rows]
    lines.insert(20, b'["b", 7')
    return b"\n".join(lines) + b"\n"


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("seed", range(3))
def test_inspector_records_cut_at_any_byte(tmp_path: Path, seed: int) -> None:
    agrees({f"node0-{rank}.log": _records(rank) for rank in (0, 1)}, tmp_path / "job", seed)


def _records(rank: int) -> bytes:
    header = {"id": "0x1", "rank": rank, "n_ranks": 2, "nnodes": 1}
    metadata = {"inspector_output_format_version": "v4.0", "hostname": "node0", "pid": 10 + rank}
    records = []
    for number in range(30):
        perf = {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": 100 + rank}
        perf |= {"coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 10.0, "coll_busbw_gbs": 10.0}
        record = {"header": header, "metadata": metadata, "coll_perf": perf}
        records.append(json.dumps(record, indent=1 if number % 7 == 0 else None))
    records.insert(11, '{"header": {"id": "0x1", ')
    return ("\n".join(records) + "\n").encode()


@pytest.mark.sampled(2, "*")
@pytest.mark.parametrize("seed", range(3))
def test_files_of_the_profiler_plug_in_cut_at_any_byte(tmp_path: Path, seed: int) -> None:
    whole = profiler_recording.recording()
    head, blocks = whole[: records.HEADER_BYTES], whole[records.HEADER_BYTES :]
    torn = bytearray(blocks)
    torn[len(torn) // 2] ^= 0xFF
    agrees({"a.rwprof": head + 3 * blocks, "b.rwprof": head + torn + blocks}, tmp_path / "job", seed, times=7)


def test_the_header_of_the_plug_in_is_read_at_each_look(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.rwprof", profiler_recording.recording()
    running = bytearray(whole)
    running[records.STATUS_AT : records.STATUS_AT + 4] = bytes(4)
    path.write_bytes(running)
    job = GrowingJob([str(tmp_path)])
    assert "not in order" in str(look_at(job).table("claims").to_dicts())
    with path.open("r+b") as out:
        out.write(whole + whole[records.HEADER_BYTES :])
    assert said(look_at(job)) == said(read([str(tmp_path)], events="folded"))
    assert "not in order" not in str(look_at(job, is_end=True).table("claims").to_dicts())


def look_at(job: GrowingJob, **more: bool) -> Trace:
    job._waits_for_first = True
    trace = look(job, **more)
    assert trace is not None
    return trace


def test_two_kinds_in_one_folder(tmp_path: Path) -> None:
    calls = {f"calls.node0.{10 + rank}.jsonl": _calls(rank) for rank in (0, 1)}
    logs = {f"nccl.{rank}.log": rank_lines(rank, 0, 40) for rank in (0, 1)}
    agrees({**calls, **logs}, tmp_path / "job", 5)
    # Of calls that both tell, the log's folded rows count nothing: as where every row is there and they are aligned.
    folded, single = (read([str(tmp_path / "job")], events=events) for events in ("folded", "all"))
    assert said(folded)["operations"] == said(single)["operations"]
    assert "calls told twice" in folded.table("claims")["field"].to_list()
    assert "calls told twice" not in single.table("claims")["field"].to_list()


def test_cuts_are_those_of_the_seed(tmp_path: Path) -> None:
    data = bytes(range(256))
    for _ in cut({"a": data}, tmp_path, 3, 4):
        assert data.startswith((tmp_path / "a").read_bytes())
    assert (tmp_path / "a").read_bytes() == data
    assert followed({"b.log": SAMPLE}, _made(tmp_path / "one"), 3, 1).meta["records"] > 0


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
