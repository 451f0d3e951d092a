"""Groups at the same time as a question: how they are spelled, both plans, and errors that say what to type."""

from __future__ import annotations

import json

import pytest

from ringwright.cli import main
from ringwright.fabrics import fabric
from ringwright.ground.errors import UsageError
from ringwright.search.concurrent_groups import call, grouped, share

pytestmark = pytest.mark.once

ASKED = ["synthesise", "all-gather", "--fabric", "torus:4x4", "--groups", "tp=2,dp=8", "--over", "dp", "--size", "4M"]


def test_groups_lie_along_axes() -> None:
    axes = grouped("tp=2,dp=3", range(10, 16))
    assert axes == {"tp": ((10, 11), (12, 13), (14, 15)), "dp": ((10, 12, 14), (11, 13, 15))}
    asked = call("all-reduce 1G on dp", axes)
    assert (asked.op, asked.size_bytes, asked.axis, len(asked.groups)) == ("all-reduce", 1 << 30, "dp", 2)


@pytest.mark.parametrize("axes", ["tp=2", "tp=2,dp", "tp=2,tp=3", "tp=0,dp=6", "", "tp=2,dp=x"])
def test_what_is_no_cut_of_the_ranks_is_refused(axes: str) -> None:
    with pytest.raises(UsageError):
        grouped(axes, range(6))


@pytest.mark.parametrize("text", ["all-reduce 1G", "all-reduce 1G on pp", "all-reduce on dp 1G"])
def test_what_is_no_call_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        call(text, grouped("tp=2,dp=3", range(6)))


def test_planned_as_one_they_are_done_sooner(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "ringwright.together/1"
    (row,) = told["rows"]
    assert (row["groups"], row["ranks"], row["verified"]) == (2, 8, True)
    assert row["alone_us"] < row["beside_us"] == told["apart_us"]
    assert told["bound_us"] <= told["least_us"] <= told["together_us"] < 0.75 * told["apart_us"]
    assert told["gap"] == pytest.approx(told["together_us"] / told["bound_us"] - 1)
    assert told["verdict"].startswith("plan together: ")


def test_groups_that_share_nothing_gain_nothing() -> None:
    axes = grouped("x=4,y=2", range(8))
    result = share([call("all-gather 1M on x", axes), call("all-reduce 1M on y", axes)], fabric("torus:4x2"))
    assert all(row.beside_us == pytest.approx(row.alone_us) for row in result.rows)
    assert result.best_us == result.apart_us
    assert result.verdict.startswith("plan each group alone: ")
    assert len(result.programs) == 2 + 4


def test_the_table_has_a_line_for_each_call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    words = ["synthesise", "all-gather", "--fabric", "ring:4", "--groups", "tp=2,dp=2", "--size", "1M"]
    assert main([*words, "--beside", "broadcast 2M on dp"]) == 0
    text = capsys.readouterr().out
    assert "all-gather on tp" in text
    assert "broadcast on dp" in text
    assert "bound" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--over", "pp"], "no axis is named 'pp'"),
        (["--to", "msccl-xml", "-o", "x.xml"], "not written"),
        (["--method", "taccl"], "planned together as forests"),
        (["-b", "1M", "-e", "4M"], "3 sizes"),
    ],
)
def test_what_groups_cannot_do_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["synthesise", "all-gather", "--fabric", "ring:4", "--groups", "tp=2,dp=2"]
    assert main([*base, *words]) == UsageError.exit_code
    assert said in capsys.readouterr().err


def test_without_groups_nothing_is_beside(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["synthesise", "all-gather", "--fabric", "ring:4", "--beside", "broadcast 2M on dp"]
    assert main(words) == UsageError.exit_code
    assert "--groups" in capsys.readouterr().err
