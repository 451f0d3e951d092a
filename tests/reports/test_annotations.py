"""Failed gates as annotations of GitHub: a line each, nothing in it that would begin another command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import ringwright
from ringwright.cli import main
from ringwright.reports import annotations

pytestmark = pytest.mark.once
SAMPLE = str(ringwright.sample())


def test_the_form_is_that_of_workflow_commands() -> None:
    told = annotations.annotation("error", "check: a, b", "50% of lines\n::error::owned\r\x1b[2J")
    assert told.startswith("::error title=check%3A a%2C b::50%25 of lines%0A::error::owned")
    assert "\n" not in told
    assert "\x1b" not in told


def test_each_check_that_fails_is_one_annotation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(annotations.ON_GITHUB, raising=False)
    words = ["check", SAMPLE, "--ranks", "17", "--max-refused", "0.1%"]
    assert main(words) == 1
    assert "::" not in capsys.readouterr().out
    assert main([*words, "--annotate"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    assert lines == [
        "::error title=ringwright check%2C refused::0.53%25 of lines refused, at most 0.10%25",
        "::error title=ringwright check%2C ranks::16 ranks seen, 17 expected",
    ]
    monkeypatch.setenv(annotations.ON_GITHUB, "true")
    assert main(["check", SAMPLE, "--ranks", "16"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("::notice title=ringwright check::")


def test_json_stays_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(annotations.ON_GITHUB, "true")
    assert main(["check", SAMPLE, "--ranks", "17", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False


def test_a_difference_that_fails_is_annotated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(annotations.ON_GITHUB, raising=False)
    half = tmp_path / "half.log"
    lines = gzip.decompress(Path(SAMPLE).read_bytes()).splitlines(keepends=True)
    half.write_bytes(b"".join(lines[: len(lines) * 2 // 3]))
    assert main(["diff", SAMPLE, str(half), "--fail-over", "5%", "--annotate"]) == 1
    shown = capsys.readouterr()
    failed = [line for line in shown.out.splitlines() if line.startswith("::error title=ringwright diff::")]
    assert len(failed) == shown.err.count("FAIL ") > 0
    assert main(["diff", SAMPLE, str(half), "--fail-over", "5%", "--json"]) == 1
    json.loads(capsys.readouterr().out)
