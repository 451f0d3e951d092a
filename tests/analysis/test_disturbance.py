"""What disturbed a job: each cause from its signs, on made-up recordings; and what gives no verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ringwright.analysis.request_shapes import shape
from ringwright.analysis.slow.disturbance import (
    BANDWIDTH,
    FLAP,
    LOSS,
    NONE,
    STRAGGLER,
    TRAFFIC,
    UNKNOWN,
    can_be_told,
    disturbance,
)
from ringwright.analysis.slow.own_time import busy_times, own_times, slowed
from ringwright.cli import main
from ringwright.formats.sources import read
from ringwright.model.trace import Trace

MS = 1_000_000
RANKS = 4
STEPS = 12
USUAL: dict[str, int] = {"tcp.OutSegs": 30_000, "eth0.tx_bytes": 40_000_000, "eth0.rx_bytes": 40_000_000}


def job(
    folder: Path,
    transfer_ms: Any = 50,
    own_ms: Any = 10,
    counters: dict[int, dict[str, int]] | None = None,
    size: int = 1 << 20,
) -> Trace:
    """Write the calls files of a job: each step computes ``own_ms(rank, step)``, then reduces for ``transfer_ms(step)``."""
    transfer = transfer_ms if callable(transfer_ms) else lambda step: transfer_ms
    own = own_ms if callable(own_ms) else lambda rank, step: own_ms
    folder.mkdir(parents=True)
    at = [0] * RANKS
    lines: list[list[Any]] = [
        [
            {
                "ringwright": "calls/1",
                "source": "torch-hook",
                "host": f"n{rank}",
                "pid": rank + 1,
                "rank": rank,
                "world": RANKS,
                "wall_ns": 10**18,
                "clock_ns": 0,
                "library": "torch 2",
            },
            ["g", 0, "0", "default_pg", "gloo", RANKS, rank, list(range(RANKS))],
            ["c", 0, None, "backward", "", None],
        ]
        for rank in range(RANKS)
    ]
    for step in range(STEPS):
        begins = [at[rank] + int(own(rank, step) * MS) for rank in range(RANKS)]
        end = max(begins) + int(transfer(step) * MS)
        for rank in range(RANKS):
            lines[rank] += [
                ["b", step, begins[rank], 0, "all-reduce", "float32", size // 4, size, size, None, None, "", 0, 1, 1],
                ["e", step, end],
                ["s", step, at[rank], end],
            ]
            at[rank] = end
    for rank in range(RANKS):
        lines[rank].append(["x", "exit", at[rank], None])
        (folder / f"calls.n{rank}.{rank + 1}.jsonl").write_text("\n".join(map(json.dumps, lines[rank])) + "\n")
        grown = {**USUAL, **(counters or {}).get(rank, {})}
        head = {
            "ringwright": "network/1",
            "host": f"n{rank}",
            "pid": rank + 1,
            "rank": rank,
            "wall_ns": 10**18,
            "clock_ns": 0,
        }
        samples = [[0, dict.fromkeys(grown, 7)], [10**9, {name: 7 + more for name, more in grown.items()}]]
        (folder / f"network.n{rank}.{rank + 1}.jsonl").write_text("\n".join(map(json.dumps, [head, *samples])) + "\n")
    return read(str(folder))


@pytest.fixture
def usual(tmp_path: Path) -> Trace:
    return job(tmp_path / "usual")


@pytest.mark.parametrize(
    ("told", "changed"),
    [
        (NONE, {}),
        (NONE, {"transfer_ms": lambda step: 50 + step % 3}),
        (BANDWIDTH, {"transfer_ms": 200}),
        (BANDWIDTH, {"transfer_ms": 200, "counters": {0: {"tcp.RetransSegs": 120}}}),
        (
            LOSS,
            {
                "transfer_ms": lambda step: 60 + 30 * (step % 3),
                "counters": {0: {"tcp.RetransSegs": 140}, 3: {"tcp.RetransSegs": 150}},
            },
        ),
        (
            FLAP,
            {"transfer_ms": lambda step: 700 if step in (5, 9) else 50, "counters": {3: {"eth0.carrier_changes": 4}}},
        ),
        (
            TRAFFIC,
            {"transfer_ms": 58, "counters": {1: {"eth0.tx_bytes": 50_000_000}, 2: {"eth0.rx_bytes": 50_000_000}}},
        ),
        (STRAGGLER, {"own_ms": lambda rank, step: 80 if rank == 3 else 10}),
        (UNKNOWN, {"transfer_ms": lambda step: 700 if step in (5, 9) else 50}),
        (UNKNOWN, {"transfer_ms": lambda step: 60 + 12 * (step % 3)}),
        (UNKNOWN, {"transfer_ms": 200, "counters": {0: {"tcp.RetransSegs": 140}, 3: {"tcp.RetransSegs": 150}}}),
    ],
)
def test_each_cause_is_told_by_its_signs(told: str, changed: dict[str, Any], usual: Trace, tmp_path: Path) -> None:
    found = disturbance(job(tmp_path / "changed", **changed), usual)
    assert found["kind"] == told, found["evidence"]
    assert found["evidence"]


def test_who_is_named(usual: Trace, tmp_path: Path) -> None:
    slow = disturbance(job(tmp_path / "slow", own_ms=lambda rank, step: 80 if rank == 2 else 10), usual)
    assert slow["ranks"] == [2]
    assert slow["effect"]["step_ratio"] == pytest.approx(130 / 60, rel=0.01)
    flap = disturbance(job(tmp_path / "flap", counters={1: {"eth0.carrier_changes": 2}}), usual)
    assert flap["hosts"] == ["n1"]


def test_the_command_line_tells_what_disturbed_the_later_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(tmp_path / "before")
    job(tmp_path / "after", own_ms=lambda rank, step: 80 if rank == 2 else 10)
    assert main(["diff", str(tmp_path / "before"), str(tmp_path / "after")]) == 0
    shown = capsys.readouterr().out
    assert "what disturbed the later run" in shown
    assert "straggler · rank 2" in shown
    assert main(["diff", str(tmp_path / "after"), str(tmp_path / "before"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["disturbance"]["kind"] == NONE


def test_runs_without_times_or_sizes_in_common_are_not_judged(usual: Trace, tmp_path: Path) -> None:
    assert can_be_told(usual, usual)
    assert not can_be_told(usual, job(tmp_path / "other", size=1 << 10))
    assert not can_be_told(Trace.of({}), usual)


def test_without_counters_an_outage_is_not_explained(usual: Trace, tmp_path: Path) -> None:
    job(tmp_path / "bare", transfer_ms=lambda step: 700 if step == 5 else 50)
    for path in (tmp_path / "bare").glob("network.*"):
        path.unlink()
    found = disturbance(read(str(tmp_path / "bare")), usual)
    assert found["kind"] == UNKNOWN
    assert "without network counters" in found["evidence"][-1]


def test_own_time_is_what_no_call_covers(tmp_path: Path) -> None:
    trace = job(tmp_path / "own", own_ms=lambda rank, step: 20 if rank == 1 else 10)
    assert own_times(trace) == pytest.approx({0: 0.010, 1: 0.020, 2: 0.010, 3: 0.010})
    assert busy_times(trace) == pytest.approx([0.060] * (STEPS - 1))  # rank 0 waits ten for rank 1
    assert slowed({0: 0.1, 1: 0.01}, {0: 0.01, 1: 0.01}, 0.06) == [0]
    assert slowed({0: 0.1, 1: 0.1}, {0: 0.01, 1: 0.01}, 0.06) == []  # all of them: not a rank


def test_counters_that_go_back_say_nothing(tmp_path: Path) -> None:
    head = {"ringwright": "network/1", "host": "n", "pid": 1, "rank": 0, "wall_ns": 10**18, "clock_ns": 0}
    lines = [
        head,
        [1, {"eth0.tx_bytes": 100}],
        [2, {"eth0.tx_bytes": 150}],
        [3, {"eth0.tx_bytes": 20}],
        ["x"],
        [4, {"eth0.tx_bytes": 25}],
    ]
    (tmp_path / "network.n.1.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n{cut")
    trace = read(str(tmp_path / "network.n.1.jsonl"))
    assert trace.df.filter(trace.df["op"] == "tx_bytes")["value"].to_list() == [50.0, 5.0]
    ledger = {row["outcome"]: row["lines"] for row in trace.table("ledger").to_dicts()}
    assert ledger["understood"] == 5
    assert sum(row["lines"] for row in trace.table("ledger").to_dicts() if row["outcome"] == "refused") == 2


@pytest.mark.parametrize(
    ("like", "sizes"),
    [
        ("VGG-like", [400, 60, 30, 10]),
        ("transformer-like", [28] * 12 + [150]),
        ("ResNet-like", [9, 8, 7, 5, 3, 2]),
        ("cannot tell", [9, 8, 7]),
        ("cannot tell", [60, 30]),
        ("cannot tell", []),
    ],
)
def test_shapes_of_requests(like: str, sizes: list[int]) -> None:
    assert shape(("all-reduce", size << 20) for size in sizes).like == like
    gathers = [("all-gather", 1 << 30)] * 9 if sizes else []  # what is gathered again and again does not count
    assert shape([*(("all-reduce", size << 20) for size in sizes), *gathers]).like == like
