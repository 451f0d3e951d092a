"""The page of a workflow's step on GitHub: what failed stands in it, nothing in a name is markup, and no gate fails for it."""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

import pytest

import ringwright
from ringwright.cli import main
from ringwright.reports import annotations
from ringwright.reports.pages import step_page

pytestmark = pytest.mark.once
SAMPLE = str(ringwright.sample())
FAILS = ["check", SAMPLE, "--ranks", "17"]
HOSTILE = "`x` | **b** <img src=x onerror=1> [a](http://evil.example) www.evil.example\n\n# head\r\x1b[2J &lt; ~~s~~"


@pytest.fixture(autouse=True)
def _no_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(step_page.PAGE_OF_STEP, raising=False)
    monkeypatch.delenv(annotations.ON_GITHUB, raising=False)


def test_what_failed_is_a_table_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "step.md"
    monkeypatch.setattr(sys, "argv", ["ringwright", *FAILS])
    assert main([*FAILS, "--step-summary", str(page)]) == 1
    told = page.read_text()
    assert told.startswith("### ❌ ringwright check: failed\n")
    assert "| failed | measured | limit | what |\n| --- | --- | --- | --- |\n" in told
    assert "| ranks | 16 | 17 | 16 ranks seen, 17 expected |" in told
    assert "<details><summary>" in told
    assert f"```sh\nringwright check {SAMPLE} --ranks 17\n```\n" in told
    assert not capsys.readouterr().err


def test_each_step_adds_its_part_to_the_page_that_the_workflow_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "step.md"
    page.write_text("# before\n")
    monkeypatch.setenv(step_page.PAGE_OF_STEP, str(page))
    assert main(FAILS) == 1
    assert main(["check", SAMPLE, "--ranks", "16"]) == 0
    assert main(["diff", SAMPLE, SAMPLE]) == 0  # nothing is judged
    told = page.read_text()
    assert told.startswith("# before\n\n### ❌ ringwright check: failed\n")
    assert re.findall(r"^### (.*)$", told, re.MULTILINE) == [
        "❌ ringwright check: failed",
        "✅ ringwright check: passed",
    ]
    assert main(["diff", SAMPLE, SAMPLE, "--fail-over", "5%"]) == 0
    assert "### ✅ ringwright diff: passed" in page.read_text()


def test_a_difference_shows_before_and_after(tmp_path: Path) -> None:
    half, page = tmp_path / "half.log", tmp_path / "step.md"
    lines = gzip.decompress(Path(SAMPLE).read_bytes()).splitlines(keepends=True)
    half.write_bytes(b"".join(lines[: len(lines) * 2 // 3]))
    assert main(["diff", SAMPLE, str(half), "--fail-over", "5%", "--step-summary", str(page)]) == 1
    told = page.read_text()
    assert "### ❌ ringwright diff: failed\n\n- **FAIL** " in told
    assert "|  | before | after | after / before |" in told
    assert re.search(r"^\| calls \| 820 \| \d+ \|  \|$", told, re.MULTILINE)
    assert main(["diff", SAMPLE, str(half), "--step-summary", str(tmp_path / "only.md")]) == 0
    assert (tmp_path / "only.md").read_text().startswith("### ringwright diff\n")


@pytest.mark.parametrize("where", ["missing/step.md", ".", "step.md/under"])
def test_a_page_that_cannot_be_written_changes_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    (tmp_path / "step.md").write_text("")
    for words, code in ((FAILS, 1), (["check", SAMPLE], 0)):
        assert main([*words, "--step-summary", str(tmp_path / where)]) == code
        said = capsys.readouterr()
        assert "the step summary was not written to" in said.err
        assert "0.53% of lines refused" in said.out


def test_a_full_page_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "step.md"
    page.write_text("x" * step_page.MOST_BYTES)
    assert main(["check", SAMPLE, "--step-summary", str(page)]) == 0
    assert "more than 1 MiB" in capsys.readouterr().err
    assert page.stat().st_size == step_page.MOST_BYTES


def test_nothing_in_a_name_is_markup() -> None:
    told = step_page.plain(HOSTILE)
    assert "\n" not in told
    assert "\x1b" not in told
    assert "<" not in told
    assert "://" not in told
    assert "www." not in told
    assert not re.search(r"(?<!\\)[`*_\[\]|~#]", re.sub(r"&#\d+;", "", told))
    assert len(step_page.plain("a" * 10_000)) < 1_000
    failed = {"check": HOSTILE, "passed": False, "measured": HOSTILE, "limit": None, "detail": HOSTILE}
    answer = {"schema": "ringwright.check/1", "passed": False, "checks": [failed], "line": HOSTILE}
    part = step_page.of_check(answer, "ringwright check 'a```b\nc'")  # type: ignore[arg-type]
    assert part.count("\n| ") == 3
    assert "````sh\nringwright check 'a```b c'\n````" in part
