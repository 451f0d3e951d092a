"""The costs against the measured rows: the page says what comes out, for the H100 that they were fitted to and the H200 they were not."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from ringwright.costs.contention.multiprocessors import BOOST_HZ, multiprocessors

ROOT = Path(__file__).resolve().parents[2]
GPU = ROOT / "benchmarks" / "gpu"
# Median and 90th percentile of the relative error that the fit to the H100 may have; they may only fall.
FIT = {
    "waves": (0.032, 0.105),
    "cuts m, n": (0.02, 0.10),
    "cuts k": (0.04, 0.20),
    "bandwidth": (0.015, 0.04),
    "shared": (0.04, 0.11),
    "beside hold": (0.02, 0.065),
    "beside copy": (0.03, 0.135),
    "beside add": (0.025, 0.125),
    "rate copy": (0.01, 0.125),
    "driver": (0.055, 0.07),
    "launches": (0.025, 0.06),
    "tiles flags": (0.015, 0.065),
    "tiles events": (0.035, 0.12),
    "fused one": (0.02, 0.05),
    "fused several": (0.03, 0.09),
}
FAILED_ON_H200 = {"launches", "fused several"}


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(GPU / "judge_overlap.py"))


@pytest.fixture(scope="module")
def judged(script: dict[str, Any]) -> dict[str, list[Any]]:
    rows = {name: script["rows_of"](GPU / f"overlap-{name}.json.gz") for name in ("h100", "h200")}
    return {name: script["tallies"](script["verdicts"](name, each)) for name, each in rows.items()}


def test_the_fit_is_as_good_as_the_page_says(judged: dict[str, list[Any]]) -> None:
    tallies = {each.section: each for each in judged["h100"]}
    assert all(each.holds for each in tallies.values())
    for section, (median, p90) in FIT.items():
        assert tallies[section].median <= median, section
        assert tallies[section].p90 <= p90, section


@pytest.mark.parametrize("name", ["h100", "h200"])
def test_the_page_shows_what_comes_out(script: dict[str, Any], judged: dict[str, list[Any]], name: str) -> None:
    table = "\n".join([script["HEAD"], *map(str, judged[name])])
    heading = {"h100": "## FIT: the H100", "h200": "## PREDICTION: the H200"}[name]
    page = (ROOT / "docs" / "explanation" / "contention.md").read_text()
    assert f"{heading}\n\n{table}\n" in page


def test_the_page_begins_with_what_its_example_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "explanation" / "contention.md").read_text()
    example, printed = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)[:2]
    exec(compile(example, "contention.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_predictions_that_failed_are_left_as_they_failed(judged: dict[str, list[Any]]) -> None:
    assert {each.section for each in judged["h200"] if not each.holds} == FAILED_ON_H200


def test_held_multiprocessors_are_better_told_than_by_whole_waves_or_shares(judged: dict[str, list[Any]]) -> None:
    for name, job in (
        ("h100", "hold"),
        ("h100", "copy"),
        ("h100", "add"),
        ("h200", "hold"),
        ("h200", "copy"),
        ("h200", "add"),
    ):
        tallies = {each.section: each for each in judged[name]}
        for rule in ("waves", "share"):
            assert tallies[f"beside {job}"].median < 0.5 * tallies[f"plain {rule} {job}"].median
            assert tallies[f"beside {job}"].p90 < 0.5 * tallies[f"plain {rule} {job}"].p90


def test_every_tolerance_has_rows_and_rows_that_lie_off_are_counted(
    script: dict[str, Any], judged: dict[str, list[Any]]
) -> None:
    for tallies in judged.values():
        assert [each.section for each in tallies if each.tolerance] == list(script["TOLERANCES"])
    row = {"section": "driver"}
    right = [script["Verdict"]("driver", row, 1.0, 1.1)] * 8
    wrong = [script["Verdict"]("driver", row, 1.0, 1.2)] * 2
    (tally,) = script["tallies"](right + wrong)
    assert (tally.rows, tally.within, tally.holds) == (10, 0.8, False)
    assert script["tallies"](right + wrong[:1])[0].within == pytest.approx(8 / 9)
    assert tally.p90 == pytest.approx(0.2)


def test_a_neighbour_that_left_early_is_not_judged(script: dict[str, Any]) -> None:
    rows = script["rows_of"](GPU / "overlap-h100.json.gz")
    short = [dict(row, covered=0.9) for row in rows if row["section"] == "beside" and row["neighbour"] == "copy"]
    kernels = [row for row in rows if row["section"] == "kernels"]
    assert short
    assert not script["verdicts"]("h100", kernels + short)


def test_the_measured_device_is_the_one_that_is_reckoned_with(script: dict[str, Any]) -> None:
    for name in ("h100", "h200"):
        (device,) = (row for row in script["rows_of"](GPU / f"overlap-{name}.json.gz") if row["section"] == "device")
        on = multiprocessors(name)
        assert (device["sms"], device["clock_khz"] * 1e3, device["l2_bytes"]) == (on.sms, BOOST_HZ, on.cache_bytes)
