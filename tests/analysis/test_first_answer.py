"""The first sentence says what the summary found, with its figures and a command; what it cannot know it says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest
from markupsafe import escape

from ringwright.analysis.answer_document import Kind
from ringwright.analysis.summary import summarise
from ringwright.model.trace import Trace
from ringwright.reports import html, terminal
from ringwright_lab.testing import faulty_fabric

pytestmark = pytest.mark.once


def steps(communication: float, overlapped: float = 0.0, ranks: int = 2) -> Trace:
    """Return ranks whose steps of 10 ms hold so much communication, a part of it under compute."""
    rows = []
    for rank in range(ranks):
        for number in range(20):
            begin = number * 10e-3
            call = communication * 10e-3
            rows += [
                {"kind": "step", "rank": rank, "start_s": begin, "duration_s": 10e-3, "iteration": number},
                {"kind": "compute", "kernel": "gemm", "kernel_class": "compute", "rank": rank, "start_s": begin,
                 "duration_s": 10e-3 - call + overlapped * call},
                {"kind": "collective", "op": "all-to-all", "kernel": "ncclKernel", "kernel_class": "nccl", "rank": rank,
                 "start_s": begin + 10e-3 - call, "duration_s": call, "size_bytes": 1 << 20, "communicator": 0, "sequence": number},
            ]  # fmt: skip
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.lit("one").alias("clock"), pl.lit(1).alias("multiplicity")
    )
    members = pl.DataFrame({"communicator": [0], "size": [ranks], "members": [list(range(ranks))]})
    return Trace.of(
        {"events": frame, "communicators": members}, {"source": "kineto", "world": ranks, "inputs": ["job"]}
    )


def answer(trace: Trace) -> dict[str, Any]:
    return dict(summarise(trace)["answer"] or {})


def test_who_is_late_is_the_answer() -> None:
    found = summarise(faulty_fabric.job("late", 3)[0])
    told = found["answer"]
    assert told["kind"] == "slow"
    assert told["sentence"].startswith("Slow because ")
    assert found["verdict"]["evidence"][0] in told["sentence"]
    assert told["figures"][0] == {"name": "ranks to blame", "value": str(found["verdict"]["ranks"][0])}
    assert told["command"] == found["verdict"]["command"]


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_communication_that_nothing_hides(share: float) -> None:
    told = answer(steps(share))
    assert told["kind"] == "slow"
    assert f"{share:.1%} of the 2 ranks' time" in told["sentence"]
    assert "all-to-all" in told["sentence"]
    assert told["figures"][0]["value"] == f"{share:.1%}"
    assert told["command"] == "ringwright advise job"


def test_communication_under_compute_is_healthy() -> None:
    told = answer(steps(0.4, overlapped=0.9))
    assert told["kind"] == "normal"
    assert told["sentence"].startswith("Healthy: 4.0% of the 2 ranks' time")
    assert told["figures"][1]["value"] == "40.0%"


def test_one_rank_cannot_say_that_none_is_late() -> None:
    told = answer(steps(0.05, ranks=1))
    assert told["kind"] == "normal"
    assert "the one rank's time" in told["sentence"]
    assert "cannot be told" in told["sentence"]


def test_calls_without_times_cannot_tell() -> None:
    row = {
        "kind": "collective",
        "op": "all-reduce",
        "size_bytes": 1 << 20,
        "communicator": 0,
        "sequence": 0,
        "multiplicity": 1,
    }
    frames = {
        "events": pl.DataFrame([row | {"rank": rank} for rank in range(2)]),
        "communicators": pl.DataFrame({"communicator": [0], "size": [2], "members": [[0, 1]]}),
    }
    told = answer(Trace.of(frames, {"source": "nccl-log", "inputs": ["nccl.log"]}))
    assert told["kind"] == "cannot-tell"
    assert "not how long they took" in told["sentence"]
    assert told["command"] == "ringwright doctor nccl.log"


def test_nothing_read_cannot_tell_and_is_no_zero() -> None:
    told = answer(Trace.of({}, {"source": "nccl-log", "inputs": ["nccl.log"]}))
    assert told["kind"] == "cannot-tell"
    assert {each["value"] for each in told["figures"]} >= {"none read"}


def test_it_stands_first_and_evidence_once() -> None:
    found = summarise(faulty_fabric.job("late", 3)[0])
    sentence = found["answer"]["sentence"]
    shown = terminal.text(found, width=200).splitlines()
    assert shown[1] == sentence
    page = html.page(found)
    header = page.partition("</header>")[0]
    assert escape(sentence) in header
    assert page.count(str(escape(found["verdict"]["evidence"][0]))) == 1
    assert escape(found["verdict"]["evidence"][1]) in page


def test_a_summary_that_was_kept_without_one_is_shown_as_before() -> None:
    found = {key: value for key, value in summarise(steps(0.3)).items() if key != "answer"}
    assert 'id="answer"' not in html.page(found)  # type: ignore[arg-type]
    assert terminal.text(found).startswith("coverage:")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inputs", "title"),
    [
        (["/a/job/nccl.log"], "nccl.log"),
        (["/a/job/rank0.json", "/a/job/rank1.json"], "job"),
        (["/a/job.tar.gz!x/rank0.json", "/a/job.tar.gz!x/rank1.json"], "job.tar.gz"),
        (["/a/job/x/rank0.json", "/a/job/y/rank1.json"], "job"),
        ([], "job"),
    ],
)
def test_a_page_is_called_like_its_job(inputs: list[str], title: str) -> None:
    found = summarise(steps(0.3)) | {"inputs": inputs}
    assert f"<h1>{title}</h1>" in html.page(found)  # type: ignore[arg-type]


def timed(kind: str, op: str, rows: list[dict[str, Any]]) -> Trace:
    """Return calls of ranks in a group whose size nobody names."""
    frame = pl.DataFrame([{"kind": kind, "op": op, "communicator": 0, "multiplicity": 1} | row for row in rows])
    members = pl.DataFrame({"communicator": [0], "comm_id": ["g"]})
    return Trace.of({"events": frame, "communicators": members}, {"source": "osu", "inputs": ["osu.txt"]})


@pytest.mark.parametrize(("kind", "op"), [("collective", "reduce-scatter"), ("p2p", "recv")])
def test_calls_with_times_are_not_without_times(kind: str, op: str) -> None:
    """Without a bandwidth there is nothing to compare with, but that is not "not how long they took"."""
    rows = [{"rank": rank, "size_bytes": 1 << 20, "duration_s": 510e-6} for rank in (0, 1)]
    told = answer(timed(kind, op, rows))
    assert told["kind"] == "cannot-tell"
    assert "how long they took" not in told["sentence"]
    assert f"most goes into {op}, 510 us a rank" in told["sentence"]
    assert told["figures"] == [{"name": op, "value": "2 calls, 510 us in the middle"}]


def test_a_table_of_times_is_no_lack_of_calls() -> None:
    told = answer(timed("measurement", "all-gather", [{"size_bytes": 1 << 20, "duration_s": 510e-6}]))
    assert "all-gather of 1 MiB takes 510 us, and how many ranks took part is not told" in told["sentence"]


def test_a_row_of_the_fastest_rank_is_none_of_its_own() -> None:
    """A source that prints moving and waiting apart: the wait is told as printed, and one rank was seen."""
    whole = {"rank": 0, "size_bytes": 4096, "sequence": 0, "duration_s": 1.2e-3, "multiplicity": 10}
    fastest = whole | {"rank": None, "duration_s": 0.4e-3}
    found = summarise(timed("collective", "all-reduce", [whole, fastest]))
    (row,) = found["bandwidth"]
    assert (row["time_us"], row["wait_us"], row["ranks_seen"]) == (400.0, 800.0, 1)
    told = dict(found["answer"] or {})
    assert "most goes into all-reduce, 12 ms a rank, 8,000 us of it waiting for other ranks" in told["sentence"]


def test_sizes_are_said_only_where_they_were_read() -> None:
    told = answer(timed("collective", "all-reduce", [{"rank": 0, "sequence": 0}]))
    assert "holds calls, but not how long they took" in told["sentence"]


def test_a_crash_is_no_slowness_and_names_its_cause() -> None:
    warning = {
        "kind": "error",
        "op": "warning",
        "host": "n1",
        "file": "a.log",
        "line": 3,
        "text": "ibv_create_cq failed",
    }
    chain = {
        "kind": "error",
        "op": "chain",
        "host": "n1",
        "file": "a.log",
        "line": 4,
        "text": "init.cc:1 -> 2",
        "code": 2,
    }
    events = pl.DataFrame([warning, chain], schema_overrides={"code": pl.Int32})
    told = answer(Trace.of({"events": events}, {"source": "nccl-log", "inputs": ["a.log"]}))
    assert told["kind"] == "failed"
    assert told["sentence"].startswith("Failed: ibv_create_cq failed (n1")
    assert told["evidence"][0] == "a.log:3: ibv_create_cq failed"


def test_each_kind_that_is_bad_news_has_its_colour_on_the_page() -> None:
    css = (Path(html.__file__).parent / "page.css").read_text()
    for kind in set(get_args(Kind)[:5]) - {"normal"}:
        assert f".answer.{kind}" in css, kind
    assert not set(re.findall(r"\.answer\.([\w-]+)", css)) - set(get_args(Kind))
