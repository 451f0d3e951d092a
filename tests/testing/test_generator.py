"""The generator keeps its promises: same seed same bytes, truth that adds up, every release, readable marks."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ringwright.ground.errors import UsageError
from ringwright_lab.testing import (
    RELEASES,
    Launch,
    NcclCall,
    deepseek_v3_inference,
    make_job,
    nccl_dirt,
    training_job,
    write_coll_log,
    write_log,
)
from ringwright_lab.testing.nccl_dirt import PREFIXES
from ringwright_lab.testing.nccl_fields import ELEMENT_BYTES

_COLL = re.compile(
    rb"NCCL INFO (\w+): opCount ([0-9a-f]+) .*? count (\d+) datatype (\d+) .* \[nranks=(\d+)\] stream 0x"
)


def _row(truth: dict[str, Any], op: str, table: str = "operations") -> dict[str, Any]:
    return next(row for row in truth[table] if row["op"] == op)


def _job(release: str) -> Any:
    modern = int(release.split(".")[1]) >= 7
    return training_job(
        2, 4, tp=2, pp=2 if modern else 1, ep=2 if modern else None, iterations=2, layers=1, tokens=64, seed=5
    )


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_writes_as_many_records_as_its_truth_says(release: str) -> None:
    log = write_log(_job(release), release)
    printed = len(_COLL.findall(log.text))
    assert printed == sum(row["records"] for row in log.truth["raw_operations"])
    assert log.text.decode().count("Init COMPLETE") == sum(c["size"] for c in log.truth["communicator_list"])
    assert log.truth["nccl_versions"] == [".".join(map(str, RELEASES[release]))]


@pytest.mark.parametrize("release", ["2.4", "2.17", "2.27"])
def test_same_seed_same_bytes(release: str) -> None:
    first, second = (write_log(_job(release), release, dirty=0.05) for _ in range(2))
    assert first == second
    other = _job(release)
    other.seed = 6
    assert write_log(other, release, dirty=0.05).text != first.text


def test_truth_adds_up() -> None:
    truth = write_log(_job("2.22"), "2.22").truth
    for row in (*truth["operations"], *truth["raw_operations"]):
        assert sum(cell["count"] for cell in row["size_histogram"]) == row["count"]
        assert sum(cell["count"] * cell["size_bytes"] for cell in row["size_histogram"]) == row["bytes"]
    comms = truth["communicator_list"]
    assert sum(c["count"] for c in truth["communicators"]) == len(comms)
    calls = sum(row["count"] for row in truth["operations"]) - _row(truth, "recv")["count"]
    assert sum(c["operations"] for c in comms) == calls
    assert truth["roles"] == {"tp": 2, "pp": 2, "dp": 2, "ep": 2}


def test_grouped_sends_are_all_to_all_until_2_28() -> None:
    before, after = (write_log(_job(release), release).truth for release in ("2.27", "2.28"))
    assert _row(before, "all-to-all")["bytes"] == _row(after, "all-to-all")["bytes"]
    assert _row(before, "all-to-all")["records"] == 4 * _row(after, "all-to-all")["records"]
    assert _row(before, "send", "raw_operations")["count"] > _row(after, "send", "raw_operations")["count"]


def test_a_group_shares_one_launch_and_older_releases_count_operations() -> None:
    job = make_job(2, 2)
    job.items.append(Launch((NcclCall("all-reduce", 0, 8), NcclCall("all-reduce", 0, 16))))
    for release, expected in (("2.7", {b"0", b"1"}), ("2.8", {b"0"})):
        assert {match[1] for match in _COLL.findall(write_log(job, release).text)} == expected


def test_all_gather_count_is_bytes_until_2_21() -> None:
    job = make_job(2, 2)
    job.items.append(Launch((NcclCall("all-gather", 0, 100),)))
    seen = {release: _COLL.findall(write_log(job, release).text)[0][2:4] for release in ("2.3", "2.4", "2.21", "2.22")}
    assert seen == {"2.3": (b"100", b"9"), "2.4": (b"200", b"0"), "2.21": (b"200", b"0"), "2.22": (b"100", b"9")}
    assert _row(write_log(job, "2.21").truth, "all-gather")["bytes"] == 800


def test_launch_count_stays_zero_on_one_node_since_2_27() -> None:
    job = make_job(1, 4)
    job.items += [Launch((NcclCall("all-reduce", 0, 8),)) for _ in range(20)]
    assert {match[1] for match in _COLL.findall(write_log(job, "2.27").text)} == {b"0"}
    assert b"13" in {match[1] for match in _COLL.findall(write_log(job, "2.26").text)}


def test_ring_lists_are_cut_where_the_release_cuts_them() -> None:
    job = make_job(8, 8)
    old, new = (write_log(job, release).text.decode() for release in ("2.22", "2.23"))
    ring = re.compile(r"(Channel 00/02 : .*)")
    assert len(ring.search(old)[1].split(":")[1].split()) == 20  # type: ignore[index]
    cut = ring.search(new)[1]  # type: ignore[index]
    assert cut.endswith("...")
    assert len(cut) <= 128


def test_deepseek_inference_is_181_to_1() -> None:
    truth = write_log(deepseek_v3_inference(decode_passes=3), "2.27").truth
    reduce, gather = _row(truth, "all-reduce"), _row(truth, "all-gather")
    assert (reduce["count"], gather["count"]) == (181 * 4, 4)
    assert reduce["size_histogram"] == [
        {"size_bytes": 14_336, "count": 543},
        {"size_bytes": 14_680_064, "count": 181},
    ]
    assert gather["size_histogram"] == [{"size_bytes": 16_160 * 16, "count": 4}]


def test_dirt_loses_only_what_the_truth_says() -> None:
    log = write_log(_job("2.27"), "2.27", dirty=0.2)
    lines = log.truth["lines"]
    assert lines["cut"] > 10
    assert lines["physical"] == lines["logical"] + lines["blank"]
    whole = sum(row["records"] for row in write_log(_job("2.27"), "2.27").truth["raw_operations"])
    lost = sum(log.truth["records_lost"].values())
    assert lost > 0
    assert sum(row["records"] for row in log.truth["raw_operations"]) == whole - lost
    assert len(_COLL.findall(log.text)) < whole


@pytest.mark.parametrize("prefix", PREFIXES)
def test_launcher_prefixes_stand_on_every_line(prefix: str) -> None:
    log = write_log(_job("2.26"), "2.26", prefix=prefix, dirty=0.01)
    marks = {"mpirun": "<stdout>:", "mpirun-time": "Z: [1,", "srun": ": ", "ray": "ip=", "kubernetes": " stdout F "}
    mark = marks.get(prefix, "[rank")
    assert all(mark in line for line in log.text.decode().splitlines() if "NCCL" in line)


def test_one_file_per_process_and_missing_ranks() -> None:
    log = write_log(_job("2.21"), "2.21", per_process=True, omit_ranks=(3,))
    assert len(log.files) == 7 + 1
    assert log.text == b""
    assert (log.truth["ranks_seen"], log.truth["ranks_expected"]) == (7, 8)
    records = sum(len(_COLL.findall(text)) for text in log.files.values())
    assert records == sum(row["records"] for row in log.truth["raw_operations"])


def test_splits_stamps_calls_and_rccl() -> None:
    job = training_job(2, 2, tp=2, iterations=1, layers=1, split=True)
    text = write_log(job, "2.27", timestamps=True, calls=True).text.decode()
    assert re.search(r"ncclCommSplit comm 0x\w+ .* parent 0x\w+ splitCount \d+ color \d+ key \d- Init START", text)
    assert re.search(r"^\[2025-11-03 14:22:\d\d\] node001:\d+:\d+ \[0\] NCCL INFO ", text, re.MULTILINE)
    assert "NCCL CALL ncclAllReduce(7f" in text
    assert re.search(r"stream 0x\w+ task \d+ globalrank \d", write_log(job, "2.21", rccl=True).text.decode())


def test_registered_buffers_change_the_tuning_lines() -> None:
    job = make_job(2, 2, tp=2)
    job.items += [Launch((NcclCall(op, index, 2**20),)) for op in ("all-reduce", "all-gather") for index in (0, 1)]
    seen = {}
    for release in ("2.22", "2.23", "2.26", "2.27", "2.28", "2.29", "2.30"):
        text = write_log(job, release, symmetric=True).text.decode()
        seen[release] = [line.split("NCCL INFO ")[1] for line in text.splitlines() if " Bytes -> " in line]
        assert len(seen[release]) == 4
    assert re.fullmatch(r"\d+ Bytes -> Algo 0 proto 1 time [\d.]+", seen["2.22"][0])
    assert re.fullmatch(r"AllReduce: \d+ Bytes -> Algo 0 proto 1 time [\d.]+", seen["2.23"][0])
    assert seen["2.26"][0] == "AllReduce: 2097152 Bytes -> Algo TREE proto LL128 channel{Lo..Hi}={0..0}"
    assert seen["2.27"][1].endswith("nthreads 512")
    assert seen["2.28"][1].endswith("nWorks 1")
    assert seen["2.29"][3] == "AllGather [Copy Engine]: 2097152 Bytes -> cudaMemcpy"
    assert seen["2.30"][2] == "AllGather [Hierarchical CE]: 2097152 Bytes -> RMA proxy + CE"


def test_what_a_release_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"2\.6"):
        write_log(training_job(2, 2, pp=2, iterations=1), "2.6")
    with pytest.raises(UsageError, match="time stamps"):
        write_log(make_job(1, 2), "2.25", timestamps=True)
    with pytest.raises(UsageError, match="does not make"):
        make_job(2, 4, tp=3)


@pytest.mark.parametrize("late", [False, True])
def test_cut_lines_can_be_put_together_again(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _job("2.22")
    whole = write_log(job, "2.22").text
    monkeypatch.setattr(nccl_dirt, "_damage", lambda *_: "cut")
    log = write_log(job, "2.22", dirty=1.0, late_tails=late)
    assert log.truth["lines"]["cut"] > len(whole.splitlines()) // 5
    assert Counter(log.text) == Counter(whole)  # every byte is there, in another order
    assert len(set(log.text.splitlines()) & set(whole.splitlines())) < len(whole.splitlines()) * 0.8


def test_neighbouring_bulk_lines_differ_in_a_third_of_their_bytes(tmp_path: Path) -> None:
    write_coll_log(tmp_path / "x.log", 3_000_000, dirty=0.0)
    lines = [line.split() for line in (tmp_path / "x.log").read_bytes().splitlines() if b"opCount" in line][:5000]
    same, new = 0, 0
    for above, line in pairwise(lines):
        new += sum(len(word) for word, old in zip(line, above, strict=True) if word != old)
        same += sum(len(word) for word, old in zip(line, above, strict=True) if word == old)
    assert new / (new + same) > 0.3


def test_bulk_is_deterministic_and_counts_its_records(tmp_path: Path) -> None:
    one, two, clean = tmp_path / "one.log", tmp_path / "two.log", tmp_path / "clean.log"
    truth = write_coll_log(one, 12_000_000, seed=3)
    assert write_coll_log(two, 12_000_000, seed=3) == truth
    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_size == truth["file_bytes"] >= 12_000_000
    assert one.read_bytes().count(b"\n") == truth["lines"]["physical"]
    damaged = truth["lines"]["cut"] + truth["lines"]["prefixed"] + truth["lines"]["truncated"]
    assert 0.008 < damaged / truth["lines"]["logical"] <= 0.01
    straight = write_coll_log(clean, 12_000_000, seed=3, dirty=0.0)
    found = _COLL.findall(clean.read_bytes())
    assert len(found) == straight["coll_records"]
    for name, op in (("AllReduce", "all-reduce"), ("AllGather", "all-gather"), ("ReduceScatter", "reduce-scatter")):
        mine = [match for match in found if match[0].decode() == name]
        assert len(mine) == _row(straight, op)["records"]
        # Every rank of a communicator leaves one record; a per-rank count holds 1/p of the size, others all of it.
        shares = {"all-reduce": lambda nranks: nranks}.get(op, lambda _nranks: 1)
        total = sum(int(m[2]) * ELEMENT_BYTES[int(m[3])] / shares(int(m[4])) for m in mine)
        assert total == _row(straight, op)["bytes"]
