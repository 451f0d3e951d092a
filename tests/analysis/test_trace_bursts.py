"""Bursts of a Trace: whose bytes they are, on what ground, and when nothing can be told."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from ringwright.analysis.summary import summarise
from ringwright.analysis.traffic import of_trace as trace_bursts
from ringwright.cli import main
from ringwright.cli.reading import inputs
from ringwright.formats.sources import read
from ringwright.ground.trace_tables import rows
from ringwright.model.trace import Trace
from ringwright.reports import html, terminal

MIB = 1 << 20


def call(rank: int, start_s: float | None, duration_s: float | None, **more: Any) -> dict[str, Any]:
    return {
        "kind": "collective",
        "op": "all-reduce",
        "rank": rank,
        "comm_rank": rank,
        "communicator": 0,
        "sequence": 0,
        "size_bytes": 4 * MIB,
        "nranks": 4,
        "start_s": start_s,
        "duration_s": duration_s,
        "multiplicity": 1,
        "records": 1,
        "clock": "one",
        **more,
    }


def message(op: str, rank: int, peer: int, start_s: float, duration_s: float, size_bytes: int = MIB) -> dict[str, Any]:
    return call(rank, start_s, duration_s, kind="p2p", op=op, peer=peer, size_bytes=size_bytes, sequence=None)


def trace(
    events: list[dict[str, Any]], *, ranks: int = 4, hosts: list[str] | None = None, source: str = "kineto"
) -> Trace:
    comm = {"communicator": 0, "comm_id": "w", "size": ranks, "members": list(range(ranks)), "ranks_seen": ranks}
    devices = [{"kind": "device", "rank": at, "host": host} for at, host in enumerate(hosts or [])]
    tables = {"events": rows("events", events), "communicators": rows("communicators", [comm])}
    return Trace.of({**tables, "topology": rows("topology", devices)}, {"source": source, "world": ranks})


def told(events: list[dict[str, Any]], **more: Any) -> Any:
    gap_s = more.pop("gap_s", None)
    summary = summarise(trace(events, **more), gap_s=gap_s)
    assert summary["bursts"] is not None, summary["bursts_unknown"]
    return summary["bursts"]


def test_a_ring_sends_what_the_traffic_matrix_says() -> None:
    """Two all-reduces of 4 MiB, 1 ms each, 3 ms apart: a rank sends 2 * 3/4 of the size in each."""
    events = [call(rank, at, 1e-3, sequence=number) for rank in range(4) for number, at in enumerate((0.0, 4e-3))]
    bursts = told(events)
    assert (bursts["count"], bursts["transfers"], bursts["size_bytes_p50"]) == (8, 8, 6 * MIB)
    assert (bursts["gap_us_p50"], bursts["duration_us_p99"], bursts["duty"]) == (3000.0, 1000.0, pytest.approx(0.4))
    assert (bursts["incast_p50"], bursts["incast_max"]) == (1, 1)
    assert [row["nic"] for row in bursts["nics"]] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert bursts["limits"] == ["who sends to whom is assumed: a ring, for the algorithm that ran was not read"]


def test_an_all_to_all_is_the_incast_of_all_others() -> None:
    bursts = told([call(rank, 0.0, 1e-3, op="all-to-all") for rank in range(4)])
    assert (bursts["incast_p50"], bursts["incast_max"], bursts["count"], bursts["transfers"]) == (3, 3, 4, 12)
    assert bursts["bytes"] == 4 * 3 * MIB
    assert bursts["limits"] == []  # nothing is assumed: every pair exchanges its share


@pytest.mark.parametrize("seed", range(6))
def test_bytes_are_those_of_the_traffic_matrix(seed: int) -> None:
    rng = random.Random(seed)
    events, at = [], 0.0
    for number in range(12):
        at += rng.choice([1e-5, 1e-3])
        op = rng.choice(["all-reduce", "all-gather", "broadcast", "reduce", "all-to-all", "gather", "send", "recv"])
        size = rng.randrange(1, 1 << 22)
        if op in ("send", "recv"):
            src, dst = rng.sample(range(4), 2)
            ends = ("send", src, dst), ("recv", dst, src)
            events += [message(*end, at, 1e-4, size) for end in (ends if rng.random() < 0.5 else ends[:1])]
            continue
        root = rng.randrange(4) if op in ("broadcast", "reduce", "gather") else None
        events += [
            call(rank, at, rng.random() * 1e-3, op=op, sequence=number, size_bytes=size, root=root) for rank in range(4)
        ]
    summary = summarise(trace(events))
    assert summary["bursts"] is not None
    matrix = sum(row["bytes"] for row in summary["pair_bytes"])
    assert summary["bursts"]["bytes"] == pytest.approx(matrix, abs=len(summary["pair_bytes"]))
    assert sum(row["bytes"] or 0 for row in summary["bursts"]["nics"]) == pytest.approx(summary["bursts"]["bytes"])


def test_a_receive_counts_where_no_send_was_recorded() -> None:
    bursts = told([message("recv", 1, 0, 0.0, 1e-3), message("recv", 2, 0, 0.0, 1e-3)])
    assert [(row["nic"], row["bytes"]) for row in bursts["nics"]] == [("rank 0", 2 * MIB), ("rank 1", 0), ("rank 2", 0)]


def test_phases_and_steps_are_those_of_the_source() -> None:
    events = [
        call(0, 0.0, 1e-3, phase="forward", iteration=7),
        call(0, 0.5, 1e-3, phase="backward", iteration=8, sequence=1),
    ]
    bursts = told(events)
    assert [(row["phase"], row["count"]) for row in bursts["phases"]] == [("backward", 1), ("forward", 1)]
    assert [(row["step"], row["count"]) for row in bursts["steps"]] == [(7, 1), (8, 1)]


def test_duty_is_a_share_of_all_that_was_recorded() -> None:
    step = {"kind": "step", "rank": 0, "start_s": 0.0, "duration_s": 10e-3, "clock": "one", "multiplicity": 1}
    assert told([call(0, 2e-3, 1e-3), step])["duty"] == pytest.approx(0.1)
    assert told([call(0, 2e-3, 1e-3), step])["window_us"] == pytest.approx(10_000)


def test_calls_without_a_duration_have_no_duty() -> None:
    events = [
        call(rank, None, None, enqueue_s=at, sequence=n) for rank in range(4) for n, at in enumerate((1e9, 1e9 + 1))
    ]
    bursts = told(events, source="nccl-log")
    assert (bursts["count"], bursts["gap_us_p50"], bursts["size_bytes_p50"]) == (8, 1e6, 6 * MIB)
    assert bursts["duty"] is bursts["duration_us_p50"] is bursts["incast_max"] is bursts["window_us"] is None
    assert "how long each sent is not in the input" in bursts["ground"]
    text = terminal.text(summarise(trace(events, source="nccl-log")), width=200)
    assert (
        "duration"
        not in text.partition("bursts  a pause")[2].partition("provisioning")[0].split("ground")[0].split("all that")[0]
    )


def test_calls_without_a_time_name_the_setting_and_no_figure() -> None:
    summary = summarise(trace([call(0, None, None)], source="nccl-log"))
    assert summary["bursts"] is None
    assert "NCCL_DEBUG_TIMESTAMP_LEVELS=INFO,WARN" in summary["bursts_unknown"]
    assert "unknown: calls carry no time: NCCL 2.26" in terminal.text(summary, width=200)
    assert "NCCL_DEBUG_TIMESTAMP_LEVELS" in html.page(summary).partition('id="no-bursts"')[2][:200]
    assert summarise(trace([call(0, None, None)]))["bursts_unknown"] == "calls carry no time"
    assert "not when they began" in summarise(trace([call(0, None, 1e-3)]))["bursts_unknown"]
    assert summarise(trace([]))["bursts_unknown"] == "no call was read"


def test_some_calls_without_a_time_are_said() -> None:
    bursts = told([call(0, 0.0, 1e-3), call(0, None, None, sequence=1)])
    assert "1 of 2 calls have no duration: left out" in bursts["limits"]
    logged = told([call(0, None, None, enqueue_s=1.0), call(0, None, None, sequence=1)])
    assert "1 of 2 calls have no time: left out" in logged["limits"]


def test_ranks_of_own_clocks_have_pauses_and_no_incast() -> None:
    """A clock that is a year ahead moves nothing: each rank's times are counted from its own first call."""
    events = [call(rank, rank * 3e7 + at, 1e-3, op="broadcast", root=0, sequence=n, clock=f"host:{rank}")
              for rank in range(4) for n, at in enumerate((0.0, 2e-3))]  # fmt: skip
    bursts = told(events)
    assert bursts["incast_max"] is None
    assert any("clocks of their own" in limit for limit in bursts["limits"])
    assert (bursts["count"], bursts["gap_us_p50"]) == (6, pytest.approx(1000, abs=0.1))
    assert bursts["duty"] == pytest.approx(2 / 3, rel=1e-3)


def test_ranks_of_own_clocks_that_collectives_align_have_an_incast() -> None:
    events = [call(rank, rank * 100.0 + n * 2e-3, 1e-3, op="all-to-all", sequence=n, clock=f"host:{rank}")
              for rank in range(4) for n in range(5)]  # fmt: skip
    bursts = told(events)
    assert bursts["incast_p50"] == 3
    assert any("aligned to +-" in limit for limit in bursts["limits"])


def test_groups_within_one_host_use_no_nic() -> None:
    events = [call(rank, 0.0, 1e-3) for rank in range(4)]
    within = told([*events], hosts=["a", "a", "b", "b"])
    assert within["count"] == 4
    pair = {"communicator": 1, "comm_id": "tp", "size": 2, "members": [0, 1], "ranks_seen": 2}
    made = trace([*events, *(call(rank, 0.1, 1e-3, communicator=1, nranks=2, sequence=5) for rank in (0, 1))],
                 hosts=["a", "a", "b", "b"])  # fmt: skip
    both = rows("communicators", [*made.table("communicators").to_dicts(), pair])
    bursts = summarise(Trace.of({**{n: made.table(n) for n in ("events", "topology")}, "communicators": both}))[
        "bursts"
    ]
    assert bursts is not None
    assert bursts["count"] == 4
    assert "2 transfers of groups within one host are left out: they use no NIC" in bursts["limits"]
    assert bursts["ground"].startswith("all that a rank sends in groups of several hosts")


def test_ranks_that_wrote_nothing_are_no_zeros() -> None:
    bursts = told([call(rank, 0.0, 1e-3, op="all-to-all") for rank in (0, 1)])
    assert [row["nic"] for row in bursts["nics"]] == ["rank 0", "rank 1"]
    assert bursts["incast_max"] == 1
    assert any("ranks that wrote no call: 2" in limit and "lower bound" in limit for limit in bursts["limits"])
    alone = told([call(0, 0.0, 1e-3)])
    assert alone["incast_max"] is None
    assert any("incast is not known" in limit for limit in alone["limits"])


def test_unknown_sizes_are_counted_and_no_zero() -> None:
    events = [call(0, 0.0, 1e-3, size_bytes=None), call(0, 0.5, 1e-3, sequence=1)]
    bursts = told(events)
    assert (bursts["count"], bursts["unsized"], bursts["size_bytes_p99"]) == (2, 1, 6 * MIB)
    assert any("1 of 2 transfers of unknown size" in limit for limit in bursts["limits"])
    nothing = told(events[:1])
    assert nothing["bytes"] is nothing["size_bytes_p50"] is None
    assert "the size of no transfer is known" in nothing["limits"]


@pytest.mark.parametrize(
    "damage",
    [
        {"start_s": math.nan},
        {"start_s": math.inf},
        {"start_s": 1e300},
        {"duration_s": math.nan},
        {"duration_s": -1.0},
        {"duration_s": 1e300},
        {"size_bytes": -5},
        {"comm_rank": 99, "rank": None},
        {"communicator": None},
        {"root": 17, "op": "broadcast"},
        {"iteration": 1 << 60},
    ],
)
def test_damaged_calls_leave_the_others_as_they_are(damage: dict[str, Any]) -> None:
    sound = [call(rank, at * 1e-3, 1e-4, sequence=at) for rank in range(4) for at in range(3)]
    whole, _ = trace_bursts.bursts(trace(sound), {})
    hurt, _ = trace_bursts.bursts(trace([*sound, {**call(1, 0.5, 1e-3, sequence=9), **damage}]), {})
    assert whole is not None
    assert hurt is not None
    assert 12 <= hurt["count"] <= 13
    assert hurt["nics"][0]["count"] == whole["nics"][0]["count"] == 3
    proxies = [call(0, at, 1e-3, kind="proxy", op="send", peer=1, sent_bytes=100) for at in (0.1, 0.2)]
    messages, _ = trace_bursts.bursts(trace([*proxies, {**proxies[0], **damage, "op": "send"}]), {})
    assert messages is not None
    assert (messages["size_bytes_p50"], messages["gap_us_p99"]) in {(100.0, 99_000.0), (200.0, 99_000.0)}


def test_a_group_of_one_and_a_message_to_oneself_are_no_transfer() -> None:
    summary = summarise(trace([call(0, 0.0, 1e-3, nranks=1), message("send", 1, 1, 0.0, 1e-3)]))
    assert summary["bursts"] is None


def test_a_log_that_names_nics_has_bursts_of_nics() -> None:
    summary = summarise(read(inputs((), sample=True)))
    bursts = summary["bursts"]
    assert bursts is not None
    assert bursts["of"] == "NIC"
    sent = {f"{row['host']}/{row['nic']}": row["sent_bytes"] for row in summary["nic_bytes"]}
    assert {row["nic"]: row["bytes"] for row in bursts["nics"]} == sent
    assert "the clock ticks every 1 s: calls of one tick are one burst, whatever their pauses" in bursts["limits"]
    assert any("no connection names the NIC of 160 B" in limit for limit in bursts["limits"])


def test_a_larger_gap_is_asked_for_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    events = [call(rank, at, 1e-3, sequence=number) for rank in range(4) for number, at in enumerate((0.0, 4e-3))]
    trace(events).save(folder)
    counts = []
    for gap in ((), ("--gap", "3ms"), ("--gap", "2.9ms")):
        assert main(["summary", str(folder), "--json", *gap]) == 0
        bursts = json.loads(capsys.readouterr().out)["bursts"]
        counts.append((bursts["gap_us"], bursts["count"]))
    assert counts == [(50.0, 8), (3000.0, 4), (2900.0, 8)]
    assert main(["summary", str(folder), "--gap", "soon"]) == 2
    assert "'soon' is not a time" in capsys.readouterr().err
    page = tmp_path / "page.html"
    assert main(["report", str(folder), "--gap", "3ms", "-o", str(page)]) == 0
    assert "a pause of more than 3,000 us ends a burst of a NIC" in page.read_text()


@pytest.mark.parametrize("ground", ["assumed", "read"])
def test_a_group_of_which_one_rank_was_seen_is_not_taken_for_a_group_of_one(ground: str) -> None:
    """A group that is known to have one rank moves nothing; of one that is assumed to, nobody knows what moves."""
    comm = {"communicator": 0, "comm_id": "w", "size": 1, "members": [0], "ranks_seen": 1, "ground": ground}
    events = [call(0, at * 1e-3, 1e-4, sequence=at, nranks=None) for at in range(3)]
    tables = {"events": rows("events", events), "communicators": rows("communicators", [comm])}
    bursts = summarise(Trace.of(tables, {"source": "kineto", "world": None}))["bursts"]
    assert bursts is not None
    if ground == "read":
        assert bursts["count"] == 0
    else:
        assert (bursts["count"], bursts["unsized"], bursts["bytes"]) == (3, 3, None)
        assert any("how many ranks take part in 3 calls is not known" in each for each in bursts["limits"])
