"""The bound beside a time is one that no program beats: where switches can add, they may."""

from __future__ import annotations

import json
import re

import pytest

import ringwright
from ringwright.cli import main

NVLS, PLAIN = "dgx-h100:2", "switch:8"


@pytest.mark.parametrize("algorithm", ["nvls", "nvls-tree", "ring,nvls-tree"])
def test_no_time_is_below_the_bound_that_is_printed(algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    fabric = "dgx-h100:1" if algorithm == "nvls" else NVLS
    asked = [
        "simulate",
        "all-reduce",
        "--fabric",
        fabric,
        "--algorithm",
        algorithm,
        "-b",
        "64K",
        "-e",
        "64M",
        "-f",
        "1024",
        "--engine",
        "events",
    ]
    assert main([*asked, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert all(row["time_us"] >= row["lowest_bound_us"] > 0 for row in result["rows"])
    assert any(row["time_us"] < row["bound_at_ranks_us"] for row in result["rows"]) == (algorithm == "nvls")
    assert main(asked) == 0
    shown = capsys.readouterr().out
    shares = [int(share) for share in re.findall(r"(\d+) %$", shown.partition("What limits it")[0], re.MULTILINE)]
    assert all(share <= 100 for share in shares)
    assert bool(shares) == ("," not in algorithm)
    assert "switches may add" in shown


def test_the_bound_is_that_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    for fabric in (NVLS, PLAIN):
        assert main(["bound", "all-reduce", "--fabric", fabric, "-b", "256M", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        best = ringwright.bound("all-reduce", fabric, size="256M")
        assert told["lowest"]["time_us"] == pytest.approx(best.time_s * 1e6, rel=1e-9)
        assert told["lowest"]["ground"] == best.ground
        assert told["lowest"]["time_us"] == min(each["time_us"] for each in told["bounds"])
        assert main(["bound", "all-reduce", "--fabric", fabric, "-b", "256M"]) == 0
        assert f"no program can beat {best.time_s * 1e6:,.2f} us" in " ".join(capsys.readouterr().out.split())


def test_where_no_switch_adds_nothing_is_said_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "all-reduce", "--fabric", PLAIN, "-b", "1M"]) == 0
    assert "switches may add" not in capsys.readouterr().out
