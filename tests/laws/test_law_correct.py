"""The law of right results: a benchmark that computed wrong values is no measurement, and nothing hides it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ringwright
from ringwright.cli import main

TABLE = """\
# nThread 1 nGpus 8 minBytes 199680 maxBytes 200704 step: 1024(bytes) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
      199680         49920     float     sum      -1    125.8    1.59    2.78     {out}    125.1    1.60    2.79      {inside}
      200704         50176     float     sum      -1    125.3    1.60    2.80      0    124.6    1.61    2.82    N/A
# Out of bounds values : {bounds}
# Avg bus bandwidth    : 2.79
"""
OLD = """\
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
      199680         49920   float     sum    125.8    1.59    2.78  1e+00    125.1    1.60    2.79  1e+00
# Out of bounds values : 2 FAILED
# Avg bus bandwidth    : 2.79
"""


def of(folder: Path, text: str, name: str = "all_reduce.txt") -> ringwright.analysis.document.Summary:
    (folder / name).write_text(text)
    return ringwright.summary(ringwright.read(folder / name))


@pytest.mark.parametrize(("out", "inside", "wrong"), [("12", "0", "12"), ("0", "3", "3"), ("7", "1", "8")])
def test_a_row_with_wrong_elements_is_refused_and_said_first(tmp_path: Path, out: str, inside: str, wrong: str) -> None:
    found = of(tmp_path, TABLE.format(out=out, inside=inside, bounds="12 FAILED"))
    assert {row["size_bytes"] for row in found["bandwidth"]} == {200704}
    assert found["answer"]["kind"] == "wrong"
    assert f"195 KiB: {wrong} elements are wrong (line 4)" in found["answer"]["sentence"]
    assert [(row["law"], row["refused"]) for row in found["laws"]] == [("correct", 1)]
    assert found["findings"][0]["severity"] == "error"


def test_a_table_without_wrong_elements_passes(tmp_path: Path) -> None:
    found = of(tmp_path, TABLE.format(out="0", inside="N/A", bounds="0 OK"))
    assert found["laws"] == []
    assert found["answer"]["kind"] != "wrong"


def test_old_releases_say_it_at_the_end_only(tmp_path: Path) -> None:
    found = of(tmp_path, OLD)
    assert "2 values are out of bounds; of which size is not printed" in found["answer"]["sentence"]
    assert of(tmp_path, OLD.replace("2 FAILED", "0 OK"))["answer"]["kind"] != "wrong"


def test_json_of_nccl_tests_says_it_too(tmp_path: Path) -> None:
    side = {"time": 100.0, "alg_bw": 10.0, "bus_bw": 17.5}
    row = {"size": 1000000, "count": 250000, "type": "float"}
    results = [{**row, "out_of_place": {**side, "nwrong": 5}, "in_place": {**side, "nwrong": 0}}]
    document = {"config": {"ngpus": 8}, "args": ["all_reduce_perf"], "results": results}
    assert "5 elements are wrong" in of(tmp_path, json.dumps(document), "x.json")["answer"]["sentence"]


def test_no_limit_of_the_gate_allows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.txt").write_text(TABLE.format(out="12", inside="0", bounds="12 FAILED"))
    assert main(["check", str(tmp_path / "x.txt"), "--max-refused", "100%", "--json"]) == 1
    failed = [row for row in json.loads(capsys.readouterr().out)["checks"] if not row["passed"]]
    assert [row["check"] for row in failed] == ["results"]


def test_a_comparison_with_wrong_results_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "right.txt").write_text(TABLE.format(out="0", inside="0", bounds="0 OK"))
    (tmp_path / "wrong.txt").write_text(TABLE.format(out="12", inside="0", bounds="12 FAILED"))
    right, wrong = str(tmp_path / "right.txt"), str(tmp_path / "wrong.txt")
    assert main(["diff", right, wrong, "--fail-over", "100%"]) == 1
    out = capsys.readouterr().out
    assert "The results of the later run are wrong: wrong.txt: 195 KiB: 12 elements" in " ".join(out.split())
    assert "\n  \n" not in out  # an answer without figures leaves no line for them
    assert main(["diff", wrong, right, "--fail-over", "100%"]) == 0
    assert "the first input holds wrong results" in " ".join(capsys.readouterr().out.split())
