"""Lines of operations in layouts that only some releases print, or that none does."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringwright.analysis.summary import summarise
from ringwright.sources import read
from ringwright.sources.nccl_log import grammar
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
