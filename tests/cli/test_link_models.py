"""One name for the model of a link on every verb that has one; the older spellings are read as before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringwright.cli import main
from ringwright.costs.link_models import ALPHA_OF, named
from ringwright.engines.machine import ALPHAS

VERBS = {
    "simulate": "simulate all-gather --fabric switch:8 --algorithm direct -b 4K --engine events".split(),
    "bound": ["bound", "all-gather", "--fabric", "switch:8", "-b", "1K"],
    "synthesise": ["synthesise", "all-gather", "--fabric", "switch:8", "--size", "4K", "--alone", "--method", "forest"],
}


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_reads_both_spellings_and_names_the_model(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    spelled = [("--link-model", "blocking"), ("--alpha", "busy"), ("--link-model", "busy"), ("--alpha", "blocking")]
    answers = [told(capsys, *VERBS[verb], *words) for words in spelled]
    assert {each["link_model"] for each in answers} == {"blocking"}
    times = [json.dumps([row["time_us"] for row in each.get("rows", [each])]) for each in answers]
    assert len(set(times)) == 1
    plain = told(capsys, *VERBS[verb])
    assert plain["link_model"] == "pipelined"
    assert json.dumps([row["time_us"] for row in plain.get("rows", [plain])]) != times[0]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("model", ALPHA_OF)
def test_the_title_names_the_model(verb: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*VERBS[verb], "--link-model", model]) == 0
    assert f"{model} links" in " ".join(capsys.readouterr().out.split("\n\n")[0].split())


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_no_model_is_said(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*VERBS[verb], "--link-model", "soft"]) == 2
    assert "'soft' is no link model" in capsys.readouterr().err


def test_names_are_those_of_engines() -> None:
    assert set(ALPHA_OF.values()) == set(ALPHAS)
    assert [named(alpha) for alpha in ALPHAS] == list(ALPHA_OF)
