"""Exports and redaction on a hand-made Trace."""

from __future__ import annotations

import csv as standard_csv
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringwright.formats.exports.csv import csv
from ringwright.formats.exports.jsonl import jsonl
from ringwright.formats.exports.log import log
from ringwright.formats.exports.parquet import parquet
from ringwright.formats.exports.redact import Redactor, redact
from ringwright.ground.errors import UsageError
from ringwright.ground.trace_tables import TABLES, rows
from ringwright.model.trace import Trace
from shared_data import real

HOME = "/" + "home"
LOG = f"""\
alice-ws:100:101 [0] NCCL INFO Bootstrap : Using eth0:10.1.2.3<0>
gpu-a.corp.example:200:201 [1] NCCL INFO Bootstrap : Using ib0:fe80::1%ib0<0>
gpu-b:7:8 [1] transport/net_ib.cc:94 NCCL WARN NET/IB : peer 10.1.2.3<5000> of gpu-a.corp.example, localGid ::ffff:10.1.2.3
alice-ws:100:101 [0] NCCL INFO NCCL_DEBUG_FILE set to {HOME}/alice/runs/secret.log by alice at 12:34:56
alice-ws:100:101 [0] NCCL INFO Channel 00/02 :    0   1 via P2P/IPC, NCCL version 2.27.3+cuda12.4
"""


def small_trace() -> Trace:
    events = rows(
        "events",
        [
            {
                "kind": "collective",
                "op": "all-reduce",
                "host": "gpu-a",
                "file": "job/secret.log",
                "line": 3,
                "size_bytes": 8,
            },
            {
                "kind": "error",
                "host": "gpu-b",
                "text": f"gpu-a at 10.1.2.3 wrote {HOME}/alice/x",
                "file": "job/secret.log",
            },
        ],
    )
    communicators = rows("communicators", [{"communicator": 0, "size": 2, "members": [0, 1], "comm_id": "0x1f"}])
    claims = rows("claims", [{"field": "env", "value": "USER=alice", "source": "job/secret.log:4"}])
    meta = {"inputs": ["job/secret.log"], "summary": "from gpu-b"}
    return Trace.of({"events": events, "communicators": communicators, "claims": claims}, meta)


def redacted_text(text: str, salt: str = "") -> str:
    redactor = Redactor(salt)
    redactor.learn(text)
    return redactor.text(text)


def test_a_log_loses_its_names_and_keeps_its_shape() -> None:
    text = redacted_text(LOG)
    for secret in ("alice", "gpu-", "corp", "10.1.2.3", "fe80", "secret", HOME, "ffff"):
        assert secret not in text
    lines = text.splitlines()
    assert lines[0] == "host-1:100:101 [0] NCCL INFO Bootstrap : Using eth0:ip-1<0>"
    assert "peer ip-1<5000> of host-2" in lines[2]
    assert lines[2].startswith("host-3:7:8 [1] transport/net_ib.cc:94 NCCL WARN NET/IB")
    assert lines[3].endswith("path-1 by user-1 at 12:34:56")
    assert lines[4] == "host-1:100:101 [0] NCCL INFO Channel 00/02 :    0   1 via P2P/IPC, NCCL version 2.27.3+cuda12.4"


def test_text_glued_to_a_host_is_no_host() -> None:
    text = "\n".join(
        ["node77:1:2 [0] NCCL INFO x"] * 20 + ["3.2node77:1:2 [0] NCCL INFO y", "nodenode77:1:2 [0] NCCL INFO z"]
    )
    last = redacted_text(text).splitlines()[-2:]
    assert last == ["3.2host-1:1:2 [0] NCCL INFO y", "cuthost-1:1:2 [0] NCCL INFO z"]


def test_words_of_the_grammar_survive_a_host_of_that_name() -> None:
    text = redacted_text("rank:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2")
    assert text.endswith("comm 0x1 rank 0 nranks 2")


def test_a_salt_makes_replacements_equal_over_runs() -> None:
    other = "gpu-b:7:8 [1] NCCL INFO first here"
    with_salt = [redacted_text(text, "s").partition(":")[0] for text in (other, other + "\n" + LOG)]
    assert with_salt[0] == with_salt[1]
    assert redacted_text(other, "t").partition(":")[0] != with_salt[0]


@given(st.text(max_size=200))
def test_any_text_can_be_redacted(text: str) -> None:
    once = redacted_text(text)
    assert once.count("\n") == text.count("\n")


@given(st.lists(st.from_regex(r"[a-z][a-z0-9]{3,12}", fullmatch=True), min_size=1, max_size=8, unique=True))
def test_hosts_are_replaced_one_to_one(hosts: list[str]) -> None:
    text = "\n".join(f"{host}:1:2 [0] NCCL INFO Init" for host in hosts)
    found = [line.partition(":")[0] for line in redacted_text(text).splitlines()]
    assert len(set(found)) == len(hosts)
    assert len(redacted_text(text).splitlines()) == len(hosts)


def test_every_string_of_a_trace_is_redacted() -> None:
    trace = redact(small_trace())
    everything = " ".join(str(trace.table(name).rows()) for name in TABLES) + json.dumps(dict(trace.meta))
    for secret in ("alice", "gpu-", "10.1.2.3", "secret", HOME):
        assert secret not in everything
    assert trace.df["host"].to_list() == ["host-1", "host-2"]
    assert trace.df["text"][1] == "host-1 at ip-1 wrote path-2"
    assert trace.df["size_bytes"].to_list() == [8, None]
    assert trace.table("communicators")["comm_id"].to_list() == ["0x1f"]


def test_parquet_reads_again(tmp_path: Path) -> None:
    parquet(small_trace(), tmp_path / "job")
    assert Trace.open(tmp_path / "job").df.equals(small_trace().df)


def test_csv_holds_every_table_and_its_schema(tmp_path: Path) -> None:
    written = csv(small_trace(), tmp_path / "out")
    assert {path.name for path in written} == {f"{name}.csv" for name in TABLES} | {"meta.json"}
    with (tmp_path / "out" / "events.csv").open(newline="") as file:
        first = next(standard_csv.DictReader(file))
    assert (first["op"], first["size_bytes"]) == ("all-reduce", "8")
    assert pl.read_csv(tmp_path / "out" / "communicators.csv")["members"].to_list() == ["0 1"]
    assert json.loads((tmp_path / "out" / "meta.json").read_text())["schema_version"] == 1


def test_jsonl_starts_with_its_schema(tmp_path: Path) -> None:
    (path,) = jsonl(small_trace(), tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["schema"] == "ringwright.trace/1"
    assert [line["table"] for line in lines[1:]] == ["communicators", "claims", "events", "events"]
    assert lines[1]["members"] == [0, 1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.jsonl"]


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("precious")
    for export in (csv, jsonl, parquet):
        with pytest.raises(UsageError):
            export(small_trace(), tmp_path / "out")
        with pytest.raises(UsageError):
            export(small_trace(), tmp_path / "nowhere" / "out", force=True)
    with pytest.raises(UsageError):
        log(lambda: [b"x"], tmp_path / "out")
    assert (tmp_path / "out").read_text() == "precious"


def test_bytes_that_are_no_text_pass_through(tmp_path: Path) -> None:
    (path,) = log(lambda: [b"h1x:1:2 [0] NCCL INFO \xff\xfe\n"], tmp_path / "out.log")
    assert path.read_bytes() == b"host-1:1:2 [0] NCCL INFO \xff\xfe\n"


def test_a_compressed_log_is_reproducible(tmp_path: Path) -> None:
    one, two = (log(lambda: [LOG.encode()], tmp_path / f"{name}.log.gz")[0].read_bytes() for name in "ab")
    assert one == two


LOGS = [
    "alcf_VAE_2024-11-08-21-23-14_with_aws.log",
    "alcf_resnet50_2025-01-15-15-59-06_without_aws.log",
    "bigscience_meg_gpt2_perf_n16-1999618.out.gz",
    "bigscience_n16_32gb_all_reduce_bench.txt.gz",
    "issue_NVIDIA-nccl-1193.log",
    "issue_NVIDIA-nccl-1405.log",
]


@pytest.mark.shared_data
@pytest.mark.parametrize("name", LOGS)
def test_a_real_log_redacted_says_the_same(name: str, tmp_path: Path) -> None:
    from ringwright.analysis.summary import summarise
    from ringwright.cli import reading
    from ringwright.formats.sources import read

    original = real(f"real/nccl-logs/{name}")
    (shared,) = log(reading.raw([str(original)]), tmp_path / name)
    before, after = summarise(read(str(original))), summarise(read(str(shared)))
    for key in ("operations", "communicators", "hosts", "ranks_seen", "roles", "pair_bytes", "algorithms", "ledger"):
        assert before[key] == after[key], key
    assert (before["verdict"] or {}).get("kind") == (after["verdict"] or {}).get("kind")
    assert len(before["errors"]) == len(after["errors"])


def test_numbers_and_pointers_stay() -> None:
    text = "gpu-b:7:8 [1] NCCL INFO AllReduce: opCount 1a sendbuff 0x7f00 count 12 lr 1.2e-05 comm 0xab [nranks=2]"
    assert redacted_text(text) == text.replace("gpu-b", "host-1")


def test_a_host_inside_a_compound_is_found() -> None:
    text = "gpu-b:7:8 [1] NCCL INFO x\nlog gpu-b_rank0.txt of gpu-b.corp"
    assert redacted_text(text).splitlines()[1] == "log host-1_rank0.txt of host-2"
