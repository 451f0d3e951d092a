"""Knobs whose effect random spellings rarely meet: each has a question whose answer it changes, and stands in its system."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringwright.cli import main
from ringwright.fabrics import fabric, knobs
from ringwright.ground.errors import UsageError
from ringwright.model import registry
from ringwright_lab.testing.knob_witnesses import WITNESS, WITNESSES, Witness

pytestmark = pytest.mark.once
ANSWERS: dict[tuple[str, ...], Any] = {}  # several knobs stand beside one question


@pytest.mark.parametrize("witness", WITNESSES, ids=lambda each: each.knob)
def test_some_question_has_another_answer_with_it(witness: Witness, capsys: pytest.CaptureFixture[str]) -> None:
    def ask(words: list[str]) -> Any:
        question = tuple(words)
        if question not in ANSWERS:
            assert main([*words, "--json"]) == 0, words
            ANSWERS[question] = json.loads(capsys.readouterr().out)
        return ANSWERS[question]

    assert witness.changes(ask)
    name = witness.knob.replace(",", ":").partition(":")[2]
    before, _, after = witness.with_it.rpartition(f"{name}=")
    assert before.startswith(witness.without), "the answers differ by the knob alone"
    assert after


def test_they_are_told_once_and_exist() -> None:
    assert len(WITNESS) == len(WITNESSES)
    every = {f"{each.slug}:{name}" for each in (*registry.systems(), *registry.schedulers()) for name in each.knobs()}
    for name in WITNESS:
        family, _, knob = name.partition(",")
        assert knob in knobs(family) if knob else name in every


@pytest.mark.parametrize("spec", ["leaf-spine:64,pxn=false", "ndv2:2,pxn=false"])
def test_where_no_rail_can_change_there_is_no_pxn(spec: str) -> None:
    """Ranks below a leaf have no box, and a box with one network card one rail."""
    with pytest.raises(UsageError, match=r"has no knob 'pxn': it has .*oversubscription"):
        fabric(spec)


def test_a_leaf_and_spine_of_ranks_has_no_rails() -> None:
    with pytest.raises(UsageError, match="layout is leaf-spine, switch"):
        fabric("leaf-spine:64,layout=rails")
    assert len(fabric("leaf-spine:64,layout=switch").kinds) == 65
