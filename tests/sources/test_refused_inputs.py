"""Files that are no recording: exit 3 with what they look like, as an object too; a run that was aborted names its error."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from ringwright.cli import main
from ringwright.formats.sources.bench.aborted import MOST_TEXT, own_error
from ringwright.formats.sources.other_files import looks_like
from shared_data import needs_shared_data, real

PASSWD = b"root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
ROCPROF = b'{"rocprofiler-sdk-tool":[{"metadata":{"pid":7},"buffer_records":{"kernel_dispatch":[{"size":48}]}}]}'
ABORTED = b"""# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
#  Rank  0 Group  0 Pid  12345 on   node01 device  0 [0x07] NVIDIA A100-SXM4-40GB
node01: Test NCCL failure common.cu:1012 'unhandled system error / '
 .. node01 pid 12345: Test failure common.cu:891
"""
STRANGE = {
    "passwd": (PASSWD, "a table of 7 columns between colons that begins 'root:x:0:0"),
    "random": (random.Random(16).randbytes(100_000), "binary data"),
    "rocprof.json": (ROCPROF, "JSON of rocprof"),
    "other.json": (b'{"alpha": 1, "beta": [{"gamma": 2}]}', 'JSON with the keys "alpha", "beta", "gamma"'),
    "list.json": (b"[1.5, null]", "JSON without keys"),
    "chat": (b"[6:31 PM] -> % tail x\n", "text that begins '[6:31 PM] ->"),
    "objects": (b"[<FunctionEvent id=2 name=Add>,\n", "text that begins '[<FunctionEvent id=2"),
    "page": (b"<!DOCTYPE html><html></html>", "XML or HTML that begins '<!DOCTYPE html>"),
    "notes": (b"Dear diary,\ntoday nothing was reduced.\n", "text that begins 'Dear diary,'"),
    "overlap.csv": (b"rank,comp_comm_overlap_pctg\n0,52.3\n1,48.1\n", "Holistic Trace Analysis, which holds sums"),
    "breakdown.csv": (b'"rank","idle_time(ns)","compute_time(ns)"\r\n0,1,2\r\n', "give the traces that it was made of"),
    "kernels.csv": (
        b",name,sum (ns),max (ns),min (ns),mean (ns),stddev,kernel_type,rank\n0,gemm,1,1,1,1,0,COMPUTATION,0\n",
        "Holistic Trace Analysis, which holds sums",
    ),
    "report.xlsx": (
        b"PK\x03\x04\x14\x00\x06\x00\x08\x00" + bytes(16) + b"[Content_Types].xml",
        "--output_csvs_dir DIR",
    ),
    "tool": (b"\x7fELF\x02\x01\x01\x00rest", "an ELF program"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_no_recording_is_exit_3_with_what_it_looks_like(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, told = STRANGE[name]
    (tmp_path / name).write_bytes(data)
    assert main(["summary", str(tmp_path / name), "--json"]) == 3
    caught = capsys.readouterr()
    answer = json.loads(caught.out)
    assert (answer["schema"], answer["exit_code"]) == ("ringwright.error/1", 3)
    assert told in answer["error"]["what"]
    assert answer["error"]["where"].endswith(name)
    assert answer["error"]["try"]
    assert told in caught.err


def test_an_aborted_benchmark_names_its_own_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.txt").write_bytes(ABORTED)
    assert main(["summary", str(tmp_path / "out.txt")]) == 3
    caught = capsys.readouterr()
    assert "Test NCCL failure common.cu:1012 'unhandled system error / '" in caught.err
    assert caught.out == ""


@needs_shared_data
def test_a_published_run_that_was_aborted_names_its_own_error(capsys: pytest.CaptureFixture[str]) -> None:
    path = real("real/nccl-tests/alcf_sophia__n2.g8__2024-10-15-11-28-16__all_reduce_output.dat.1.txt")
    assert main(["summary", str(path), "--json"]) == 3
    assert "unhandled system error" in json.loads(capsys.readouterr().out)["error"]["what"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["summary", "nowhere"],
        ["report", "nowhere"],
        ["diff", "nowhere", "nowhere"],
        ["check", "nowhere"],
        ["query", "select 1", "nowhere"],
        ["verify", "nowhere.xml"],
        ["doctor", "nowhere"],
    ],
)
def test_exit_3_prints_an_object_in_every_verb(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main([*arguments, "--json"])
    printed = capsys.readouterr().out
    if code == 3:
        assert json.loads(printed)["exit_code"] == 3
    else:
        assert code in (0, 1, 2)
    assert main(arguments) == code
    if code == 3:
        assert "ringwright.error/1" not in capsys.readouterr().out


def test_what_is_no_recording_beside_one_that_is_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = '{"header":{"id":"a","rank":0,"n_ranks":2,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0"},'
    line += '"coll_perf":{"coll":"AllReduce","coll_sn":1,"coll_msg_size_bytes":64,"coll_exec_time_us":9}}'
    (tmp_path / "a.json").write_text(line + "\n")
    (tmp_path / "notes").write_bytes(STRANGE["notes"][0])
    assert main(["summary", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["op"] for row in answer["operations"]] == ["all-reduce"]
    assert any("notes" in text for text in answer["limits"])


def test_heads_and_errors_of_every_kind() -> None:
    assert looks_like(b"") == "an empty file"
    assert looks_like(b"a,b,c\n1,2,3\n") == "a table of 3 columns between commas that begins 'a,b,c'"
    assert "\x1b" not in looks_like(b"\x1b]0;owned\x07 hello\n")
    assert own_error("nothing was wrong") == ""
    assert own_error("x\nall_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open\n").endswith(
        "open"
    )
    assert "\x1b" not in own_error("Test CUDA failure common.cu:1 '\x1b[2J'")


@pytest.mark.sampled(3, "*")
@pytest.mark.parametrize("word", ["a", "a.b-", "a/", "x:"])
def test_words_of_a_megabyte_are_looked_at_once(word: str) -> None:
    """Tried at each of its letters, one such word took three minutes."""
    long = word * (2 * MOST_TEXT // len(word))
    assert own_error(long) == ""
    assert own_error(f"{long} n01-x.y:12 NCCL WARN no memory\n") == "n01-x.y:12 NCCL WARN no memory"
    assert own_error(f"{long}\n./a.out: error while loading shared libraries: b").startswith("./a.out: error")
