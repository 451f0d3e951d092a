"""Lines of operations in layouts that only some releases print, or that none does."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import ringwright
from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.formats.sources.nccl_log import grammar
from shared_data import needs_shared_data, real

PREFIX = "node1:100:120 [0] NCCL INFO "
WHOLE = (
    "AllReduce: opCount 5 sendbuff 0x7f01 recvbuff 0x7f02 acc (nil) count 1024 datatype 7 op 0 root 0 "
    "comm 0x55aa [nranks=8] stream 0x66 task 0 globalrank 3"
)


@needs_shared_data
def test_the_third_buffer_of_rccl_is_a_field() -> None:
    trace = read([str(real("regressions/rccl-acc.log"))])
    found = trace.df.filter(trace.df["kind"] == "collective")
    assert sorted(found["op"]) == ["all-gather", "reduce-scatter"]
    assert found["rank"].to_list() == [4, 0]
    ledger = summarise(trace)["ledger"]
    assert (ledger["lines"], ledger["understood"]) == (2, 2)


def summary_of(tmp_path: Path, *texts: str) -> dict[str, object]:
    (tmp_path / "job.log").write_text("".join(f"{PREFIX}{text}\n" for text in texts))
    return summarise(read([str(tmp_path / "job.log")]))


@pytest.mark.parametrize(
    "text",
    [
        WHOLE.replace("acc (nil)", "scratch (nil)"),
        WHOLE.replace(" count 1024", " elements 1024"),
        WHOLE.replace(" root 0", ""),
        WHOLE.replace(" datatype 7", " datatype bf16"),
        WHOLE.replace(" [nranks=8]", " (nranks 8)"),
        WHOLE + " epoch 3",
        WHOLE.partition(" count")[0],
        WHOLE.partition(" [nranks")[0],
    ],
)
def test_a_layout_that_no_release_has_is_told_with_an_example(tmp_path: Path, text: str) -> None:
    summary = summary_of(tmp_path, WHOLE, *[text] * 3)
    (finding,) = [one for one in summary["findings"] if "layout" in one["title"]]  # type: ignore[attr-defined]
    assert finding["title"] == "lines of unknown layout"
    assert text[:60] in finding["evidence"][0]
    assert "job.log:2" in finding["evidence"][0]
    assert not [one for one in summary["findings"] if "interleaving" in one["title"]]  # type: ignore[attr-defined]


def test_every_cut_of_a_known_layout_is_a_cut_and_not_another_layout() -> None:
    for text in (WHOLE, WHOLE.replace(" acc (nil)", ""), WHOLE.partition(" task")[0]):
        for end in range(len("AllReduce: opCount 5"), len(text)):
            assert grammar.COLLECTIVE.match(text[:end]) or not grammar.is_of_unknown_layout(text[:end]), text[:end]


TAGGED = "srv01:7:7 [0] NCCL INFO {tag}AllReduce: opCount e sendbuff 0x1 recvbuff 0x1 count 25 datatype 7 op 0 root 0 comm 0x5 [nranks=4] stream 0x6"


@pytest.mark.parametrize("tag", ["[2] ", "[rank 3] ", "(tp) ", "1558545003174220 "])
def test_an_operation_behind_a_tag_of_a_patched_build_is_read(tmp_path: Path, tag: str) -> None:
    path = tmp_path / "x.log"
    path.write_text(TAGGED.format(tag=tag) + "\n")
    (row,) = ringwright.read(path).table("events").filter(pl.col("kind") == "collective").to_dicts()
    assert (row["op"], row["size_bytes"], row["nranks"]) == ("all-reduce", 100, 4)


def test_an_operation_behind_anything_else_is_of_unknown_layout_and_never_understood(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(TAGGED.format(tag="hook before ") + "\n")
    found = ringwright.summary(ringwright.read(path))
    assert (found["ledger"]["understood"], found["ledger"]["refused"]) == (0, 1)
    assert [each["title"] for each in found["findings"]] == ["lines of unknown layout"]


def test_microseconds_of_old_releases_of_rccl_are_times(tmp_path: Path) -> None:
    line = TAGGED.format(tag="").replace("[0] NCCL", "[0] 1558545003174220 NCCL")
    later = line.replace("1558545003174220", "1558545003174720")
    path = tmp_path / "x.log"
    path.write_text(f"{line}\n{later}\n")
    rows = ringwright.read(path).table("events").filter(pl.col("kind") == "collective").sort("line")
    assert rows["enqueue_s"].diff().to_list()[1] == pytest.approx(500e-6, abs=1e-6)


def test_lines_that_lost_their_process_are_not_said_to_be_lost_to_interleaving(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("Node 0: NCCL INFO AllReduce: opCount 847, sendbuff 0x7f... OK\n" * 3)
    found = ringwright.summary(ringwright.read(path))
    assert [each["title"] for each in found["findings"]] == ["lines without their process"]
