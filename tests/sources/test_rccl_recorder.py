"""Logs of RCCL's Recorder: the example of its documentation, and a job of four processes printed by its own formats."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright.ground.errors import InputError

FILES = Path(__file__).parent / "rccl"
JOB = [str(path) for path in sorted(FILES.glob("job.*.json"))]


def test_four_processes_of_a_job() -> None:
    trace = read(JOB)
    seen = summarise(trace)
    assert (seen["ranks_seen"], seen["ranks_expected"], seen["hosts"], seen["library"]) == (4, 4, 2, "rccl")
    assert {row["op"]: (row["count"], row["bytes"]) for row in seen["operations"]} == {
        "all-reduce": (2, 2 << 20),
        "reduce-scatter": (2, 2 * 524288),
        "all-gather": (4, 4 * 262144),
        "all-to-all": (4, 2 * 8192 + 2 * 40),
        "broadcast": (2, 2 * 128),
        "send": (8, 8 * 8192),
        "recv": (8, 8 * 8192),
    }
    members = {tuple(row["members"]): row["ground"] for row in trace.table("communicators").to_dicts()}
    assert members == {(0, 1, 2, 3): "read", (0, 1): "inferred", (2, 3): "inferred"}
    # what an all-to-all is made of, and what was captured and ran later, count once
    others = dict(
        trace.table("ledger").filter(outcome="other").select("reason", "lines").group_by("reason").sum().rows()
    )
    assert sorted(others.values()) == [4, 4 * 16]


def test_a_calls_fields() -> None:
    row = read(JOB[1]).df.filter(op="all-to-all").row(1, named=True)
    assert row["text"] == "AllToAllv"
    assert (row["sent_bytes"], row["received_bytes"], row["rank"], row["device"]) == (40, 32, 1, 1)
    assert (row["host"], row["pid"], row["clock"]) == ("node00", 1276, "host:node00")


def test_the_documented_example() -> None:
    """Four devices of one process; what the document left out are ranks 2 to 5, and no operation is in it."""
    trace = read(str(FILES / "split.json"))
    assert trace.table("communicators")["members"].to_list() == [[0, 1, -1, -1]]
    assert summarise(trace)["ranks_seen"] == 2
    assert trace.table("ledger").filter(outcome="refused").height == 0


def test_cut_lines_and_nothing_in_it(tmp_path: Path) -> None:
    text = Path(JOB[0]).read_text()
    path = tmp_path / "log.1.h.json"
    path.write_text(text[: text.index("AllGather") + 100])
    trace = read(str(path))
    assert trace.df["op"].to_list() == ["all-reduce", "reduce-scatter"]
    assert trace.table("ledger").filter(outcome="refused")["reason"].to_list() == ["a line that is no whole call"]
    path.write_text("{\n  version : 1,\n}\n")
    with pytest.raises(InputError, match="no call"):
        read(str(path))


def test_counts_that_are_none(tmp_path: Path) -> None:
    """Found by damaging recordings: two numbers without a comma, and one longer than any count."""
    text = Path(JOB[1]).read_text()
    spoilt = re.sub(r"(sendcounts : \[) ?\d+", r"\1 4 4", text)
    assert spoilt != text
    path = tmp_path / "log.1276.h.json"
    for said in (spoilt, spoilt.replace("4 4", "4" * 5000)):
        path.write_text(said)
        trace = read(str(path))
        assert "AllToAllv" not in trace.df["text"].to_list()
        assert trace.table("ledger").filter(outcome="refused").height == 1
