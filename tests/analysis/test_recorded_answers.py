"""No answer of the analysis changes unseen: over samples, made jobs with faults, and published recordings of every kind."""

from __future__ import annotations

import json
from functools import cache

import pytest

from recorded_answers import RECORD, all_answers, digests, made, pairs
from shared_data import needs_shared_data

pytestmark = pytest.mark.once  # nothing here is compiled that other tests do not hold to its Python twin
RECORDED: dict[str, dict[str, str]] = json.loads(RECORD.read_text())


@cache
def now(*, whole: bool) -> dict[str, dict[str, str]]:
    return {case: digests(told) for case, told in all_answers(whole=whole)}


def changed(config: pytest.Config, *, published: bool) -> list[str]:
    """Return what differs of a fifth of the cases, in a campaign of all."""
    whole = bool(config.getoption("--campaigns"))
    told = now(whole=whole)
    assert len(told) > len(RECORDED) // 10
    return [
        f"{case}: {key}"
        for case in sorted({*(RECORDED if whole else ()), *told})
        if case.startswith("published") is published
        for key in sorted({*RECORDED.get(case, {}), *told.get(case, {})})
        if RECORDED.get(case, {}).get(key) != told.get(case, {}).get(key)
    ]


@needs_shared_data
def test_the_cases_are_those_recorded() -> None:
    assert {*RECORDED} == {*made(), *(f"{before} > {after}" for before, after in pairs())}


def test_answers_about_what_is_made_here_are_those_recorded(pytestconfig: pytest.Config) -> None:
    """Where a change is meant: ``python tests/recorded_answers.py``, and the change is told in changes/."""
    assert changed(pytestconfig, published=False) == []


@needs_shared_data
def test_answers_about_published_recordings_are_those_recorded(pytestconfig: pytest.Config) -> None:
    assert changed(pytestconfig, published=True) == []
