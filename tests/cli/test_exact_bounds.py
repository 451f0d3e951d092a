"""Whether a bound is that of all cuts is said, with the command that gives it; what cannot be searched is never passed off."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from ringwright.bounds import lower_bounds
from ringwright.cli import main

BROKEN = ["bound", "all-gather", "--fabric", "torus:4x4", "--fault", "link rank0 rate 20%", "-b", "16M"]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_small_machine_has_the_exact_bound_without_being_asked(capsys: pytest.CaptureFixture[str]) -> None:
    plain, exact = told(capsys, *BROKEN), told(capsys, *BROKEN, "--exact")
    assert plain == exact
    assert (plain["exact"], plain["looser"], plain["kind"]) == (True, "", "cut")
    assert plain["certificate"] == plain["lowest"]["certificate"] == plain["tightest_cut"]["certificate"] == ["rank0"]
    assert "exact: all cuts were searched" in shown(capsys, *BROKEN)


def test_a_looser_bound_says_so_and_names_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = told(capsys, *BROKEN)
    monkeypatch.setattr(lower_bounds, "MOST_WORK", 0)
    loose = told(capsys, *BROKEN)
    assert (loose["exact"], loose["lowest"]["exact"], loose["bounds"][0]["exact"]) == (False, False, False)
    assert loose["tightest_cut"] is None
    assert loose["time_us"] <= exact["time_us"]
    text = shown(capsys, *BROKEN)
    assert "not exact: not all cuts were searched" in text
    assert main(BROKEN) == 0
    (command,) = [line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("$ ")]
    name, *words = shlex.split(command.strip().removeprefix("$ "))
    assert name == "ringwright"
    assert told(capsys, *words) == exact


def test_what_is_too_large_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower_bounds, "MOST_EXACT", 100)
    assert main([*BROKEN, "--exact"]) == 5
    assert "flows times links are 1,024, more than 100" in " ".join(capsys.readouterr().err.split())


def test_what_has_no_search_falls_back_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bound", "all-to-all", "--fabric", "switch:8", "--exact"]
    assert told(capsys, *words)["looser"] == "there is no search over all cuts for all-to-all"
    text = shown(capsys, *words)
    assert "not exact: there is no search over all cuts for all-to-all" in text
    assert "$" not in text
