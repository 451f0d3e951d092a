"""The gate's limits on time, bandwidth, waiting and exposure, per operation and size class; what is not measured fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.test_diff_times import inspector, table
from analysis.test_disturbance import job
from ringwright.analysis.compared import gate
from ringwright.cli import main
from ringwright.ground.errors import UsageError

SUMMARY: dict[str, Any] = {
    "operations": [{"op": "all-reduce", "count": 4, "size_histogram": [{"size_bytes": 1 << 20, "count": 4}]}],
    "bandwidth": [
        {"op": "all-reduce", "size_bytes": 1 << 10, "time_us": 20.0, "busbw_gbs": 0.1, "samples": 2, "wait_us": 20.0},
        {"op": "all-reduce", "size_bytes": 1 << 20, "time_us": 100.0, "busbw_gbs": 18.0, "samples": 2, "wait_us": 0.0},
        {"op": "all-gather", "size_bytes": 1 << 20, "time_us": 400.0, "busbw_gbs": None, "samples": 1, "wait_us": None},
    ],
    "iterations": [{"iteration": n, "time_s": 0.1} for n in range(3)],
    "waits": [{"rank": 0, "wait_us": 30.0, "transfer_us": 70.0}],
    "overlap": {
        "comm_us": 100.0,
        "exposed_us": 60.0,
        "operations": [{"op": "all-reduce", "size_bytes": 1 << 20, "comm_us": 80.0, "exposed_us": 60.0, "count": 2}],
    },
}
LARGE = {"op": "all-reduce", "min_size": "64K"}


@pytest.mark.parametrize(
    ("limits", "passes"),
    [
        ({"max_step_us": 100_001.0}, True),
        ({"max_step_us": 99_999}, False),
        ({"max_wait_share": "31%"}, True),
        ({"max_wait_share": "29%"}, False),
        ({"max_exposed_share": 0.6}, True),
        ({"max_exposed_share": 0.59}, False),
        ({"limit": [LARGE | {"max_time_us": 100}]}, True),
        ({"limit": [LARGE | {"max_time_us": 99.9}]}, False),
        ({"limit": [LARGE | {"min_busbw_gbs": 18}]}, True),
        ({"limit": [LARGE | {"min_busbw_gbs": 18.1}]}, False),
        ({"limit": [{"op": "all-reduce", "min_busbw_gbs": 1}]}, False),  # the small class has less
        ({"limit": [LARGE | {"max_wait_share": "1%"}]}, True),
        ({"limit": [{"op": "all-reduce", "max_size": "64K", "max_wait_share": "49%"}]}, False),
        ({"limit": [LARGE | {"max_exposed_share": "75%"}]}, True),
        ({"limit": [LARGE | {"max_exposed_share": "74%"}]}, False),
        ({"limit": [{"max_time_us": 399}]}, False),
        ({"limit": [{"max_time_us": 400}]}, True),
    ],
)
def test_each_limit_passes_at_its_value_and_fails_beyond(limits: dict[str, Any], passes: bool) -> None:
    assert gate.check(SUMMARY, gate.read_thresholds(None, **limits))["passed"] is passes


@pytest.mark.parametrize(
    "limits",
    [
        {"max_step_us": 1e9},
        {"max_wait_share": "100%"},
        {"max_exposed_share": "100%"},
        {"limit": [{"op": "broadcast", "max_time_us": 1e9}]},
        {"limit": [{"op": "all-gather", "min_busbw_gbs": 1e-9}]},
        {"limit": [{"op": "all-gather", "max_wait_share": "100%"}]},
        {"limit": [{"min_size": "1G", "max_exposed_share": "100%"}]},
    ],
)
def test_what_was_not_measured_cannot_pass(limits: dict[str, Any]) -> None:
    bare = {"operations": SUMMARY["operations"], "bandwidth": SUMMARY["bandwidth"]}
    result = gate.check(bare, gate.read_thresholds(None, **limits))
    assert not result["passed"]
    assert "cannot be judged" in result["line"]


@pytest.mark.parametrize(
    "limits",
    [
        {"max_step_us": "soon"},
        {"max_step_us": -1},
        {"limit": [{"max_time_us": True}]},
        {"limit": [{"min_busbw_gbs": 0}]},
    ],
)
def test_a_limit_without_sense_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="positive number"):
        gate.read_thresholds(None, **limits)


def test_the_gate_judges_tables_and_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text('[[limit]]\nop = "all-reduce"\nmin_size = "64M"\nmax_time_us = 30000\nmin_busbw_gbs = 35\n')
    assert main(["check", table(tmp_path / "usual_all_reduce.txt"), "--config", str(limits)]) == 0
    assert main(["check", table(tmp_path / "slow_all_reduce.txt", 3), "--config", str(limits), "--json"]) == 1
    out = capsys.readouterr().out
    result = json.loads(out[out.index("{") :])
    assert [(row["passed"], row["limit"]) for row in result["checks"][-2:]] == [(False, 30000), (False, 35)]
    limits.write_text('max_step_us = 70000\n[[limit]]\nop = "all-reduce"\nmax_wait_share = "20%"\n')
    job(tmp_path / "usual")
    job(tmp_path / "late", own_ms=lambda rank, step: 80 if rank == 2 else 10)
    assert main(["check", str(tmp_path / "usual"), "--config", str(limits), "--allow-verdict"]) == 0
    assert main(["check", str(tmp_path / "late"), "--config", str(limits), "--allow-verdict"]) == 1
    assert "FAIL 2 of" in capsys.readouterr().out
    limits.write_text("[[limit]]\nmin_size = '1M'\nmax_time_us = 600\n")
    assert main(["check", inspector(tmp_path / "i"), "--config", str(limits)]) == 0
    assert main(["check", inspector(tmp_path / "j", 3.0), "--config", str(limits)]) == 1
