"""What leaves a Trace for other tools: Perfetto, Prometheus, dictionaries per interval."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ringwright.analysis.metrics import metrics
from ringwright.analysis.summary import summarise
from ringwright.formats.exports.perfetto import perfetto
from ringwright.formats.exports.prometheus import bucket, lines, prometheus
from ringwright.ground.errors import InputError, UsageError
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace
from ringwright.reports import html, terminal
from ringwright_lab.testing import blind, faulty_fabric


def job(steps: bool = True) -> Trace:
    """Two ranks, three all-reduces of 1 MiB (rank 1 arrives 2 ms late), one message from 0 to 1, two steps."""
    events: list[dict[str, Any]] = []
    for number in range(3):
        for rank in range(2):
            start = 0.01 * (number + 1) + 0.002 * rank
            events.append(
                {
                    "kind": "collective",
                    "op": "all-reduce",
                    "rank": rank,
                    "communicator": 0,
                    "sequence": number,
                    "size_bytes": 1 << 20,
                    "start_s": start,
                    "duration_s": 0.003 - 0.002 * rank,
                    "nranks": 2,
                    "nnodes": 1,
                    "multiplicity": 1,
                    "stream": "7",
                    "algorithm": "ring",
                    "protocol": "simple",
                    "comm_rank": rank,
                }
            )
    for rank, op in enumerate(("send", "recv")):
        events.append(
            {
                "kind": "p2p",
                "op": op,
                "rank": rank,
                "comm_rank": rank,
                "peer": 1 - rank,
                "communicator": 0,
                "start_s": 0.05,
                "duration_s": 0.001,
                "size_bytes": 64,
                "multiplicity": 1,
            }
        )
    if steps:
        events += [
            {"kind": "step", "rank": 0, "iteration": n, "start_s": 0.02 * n, "duration_s": 0.02, "text": f"step {n}"}
            for n in range(2)
        ]
    comm = {"communicator": 0, "comm_id": "world", "name": 'say "hi"', "size": 2, "members": [0, 1]}
    return Trace.of(
        {"events": rows("events", events), "communicators": rows("communicators", [comm])}, {"source": "test"}
    )


def test_a_timeline_for_perfetto(tmp_path: Path) -> None:
    (written,) = perfetto(job(), tmp_path / "job.json")
    document = json.loads(written.read_text())
    found = document["traceEvents"]
    slices = [row for row in found if row["ph"] == "X"]
    assert len(slices) == 6 + 2 + 2
    first = next(row for row in slices if row["name"] == "all-reduce" and row["pid"] == 0)
    assert first["args"]["wait_us"] == 2000
    assert first["args"]["transfer_us"] == 1000
    assert first["args"]["algorithm"] == "ring"
    assert first["dur"] == 3000
    late = next(row for row in slices if row["name"] == "all-reduce" and row["pid"] == 1)
    assert late["args"]["wait_us"] == 0
    names = {row["args"]["name"] for row in found if row["ph"] == "M" and "name" in row["args"]}
    assert {"rank 0", "rank 1", "stream 7", "steps"} <= names


def test_flows_join_messages_and_last_arrivals(tmp_path: Path) -> None:
    (written,) = perfetto(job(), tmp_path / "job.json")
    found = json.loads(written.read_text())["traceEvents"]
    starts = {row["id"]: row for row in found if row["ph"] == "s"}
    ends = {row["id"]: row for row in found if row["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == 3 + 1
    message = next(key for key, row in starts.items() if row["name"] == "message")
    assert (starts[message]["pid"], ends[message]["pid"]) == (0, 1)
    waits = [key for key in starts if key != message]
    assert {(starts[key]["pid"], ends[key]["pid"]) for key in waits} == {(1, 0)}
    assert all(ends[key]["ts"] >= starts[key]["ts"] for key in starts)


def test_no_times_no_timeline(tmp_path: Path) -> None:
    bare = Trace.of({"events": rows("events", [{"kind": "collective", "op": "all-reduce", "rank": 0}])})
    with pytest.raises(InputError, match="has a time"):
        perfetto(bare, tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


def test_a_textfile_with_inspectors_names(tmp_path: Path) -> None:
    text = "\n".join(lines(job()))
    labels = 'collective="AllReduce",message_size="1-2MB",algo_proto="ring_simple",nranks="2",n_nodes="1",comm_name="say \\"hi\\""'
    time = next(line for line in text.splitlines() if line.startswith("nccl_collective_exec_time_microseconds{"))
    assert labels in time
    assert float(time.rsplit(" ", 1)[1]) == pytest.approx(2000)
    bus = next(line for line in text.splitlines() if line.startswith("nccl_bus_bandwidth_gbs{"))
    assert float(bus.rsplit(" ", 1)[1]) == pytest.approx((1 << 20) / 1e9 * (1 / 0.003 + 1 / 0.001) / 2)
    (written,) = prometheus(job(), tmp_path / "job.prom")
    assert written.read_text().endswith("\n")
    assert not [path for path in tmp_path.iterdir() if path != written]


@pytest.mark.parametrize(
    ("size", "name"),
    [(0, "0B"), (1, "1-2B"), (1535, "1-2KB"), (1 << 20, "1-2MB"), (3 << 30, "2-4GB"), (None, "unknown")],
)
def test_size_classes(size: int | None, name: str) -> None:
    assert bucket(size) == name


def test_a_dictionary_per_step_and_per_interval() -> None:
    by_step = metrics(job())
    assert [row["interval"] for row in by_step] == [0, 1]
    assert [row["comm/all-reduce/calls"] for row in by_step] == [2, 4]
    assert by_step[1]["comm/send/size_bytes"] == 64
    assert by_step[0]["comm/all-reduce/wait_us"] == pytest.approx(1000)
    assert len(metrics(job(), 0.01)) == 4
    assert len(metrics(job(steps=False))) == 1
    with pytest.raises(UsageError):
        metrics(job(), 0)


def late_job() -> dict[str, Any]:
    return summarise(faulty_fabric.job("late", 3)[0])


def test_reports_show_who_was_late() -> None:
    found = late_job()
    guilty = found["verdict"]["ranks"]
    assert len(guilty) == 1
    shown = terminal.text(found, width=100)
    assert "verdict: straggler" in shown
    assert f"Slow because rank {guilty[0]} holds the others up" in shown
    assert shown.count("holds the others up from") + shown.count("holds the others up all") == 1, (
        "evidence is told once"
    )
    assert "waiting" in shown
    page = html.page(found)
    assert 'id="rank-timeline"' in page
    drawn = json.loads(page.partition('id="data">')[2].partition("</script>")[0])["timeline"]
    assert {row["rank"] for row in drawn["rows"]} == {bar["rank"] for bar in found["bars"]["bars"]}
    assert len(drawn["events"]) == found["bars"]["shown"]
    assert any(waited > 50 for *_, waited in drawn["events"])
    worst = max(found["waits"], key=lambda row: row["caused_us"])
    assert worst["rank"] == guilty[0]


def test_no_picture_where_clocks_cannot_be_compared() -> None:
    trace = job(steps=False)
    events = trace.df.with_columns(pl.format("host:{}", "rank").alias("clock"), pl.col("rank").alias("communicator"))
    found = summarise(Trace.of({"events": events}))
    assert found["bars"]["refused"]
    assert found["bars"]["bars"] == []
    page = html.page(found)
    assert 'id="no-clock"' in page
    assert 'id="rank-timeline"' not in page


def test_the_blind_study_counts_what_it_should() -> None:
    cases = [
        blind.BlindCase("late", False, 1),
        blind.BlindCase("slow-card", False, 2),
        blind.BlindCase("none", False, 3),
    ]
    answers = blind.judge(cases)
    found = blind.document(answers)
    assert found["scores"]["all"]["cases"] == 2
    assert found["healthy"] == {"cases": 1, "false_alarms": 0}
    assert [answer.outcome for answer in answers] == ["right"] * 3
    wrong = [blind.Verdict(cases[0], (1,), (2,), "x", "wrong"), blind.Verdict(cases[1], (1,), (), "", "silent")]
    score = blind.document(wrong)["scores"]["all"]
    assert (score["precision"], score["recall"], score["cannot_tell"]) == (0.0, 0.0, 0.5)
    out = io.StringIO()
    blind.write(found, out)
    assert "held_out" in out.getvalue()


@pytest.mark.sampled(4, "mechanism")
@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [*faulty_fabric.LINK_FAULTS, "late", "later-and-later", "pauses"])
def test_a_seeded_part_of_the_campaign(mechanism: str) -> None:
    answers = blind.judge([blind.BlindCase(mechanism, False, seed) for seed in (101, 102)])
    assert [answer.outcome for answer in answers] == ["right", "right"]
