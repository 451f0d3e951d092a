"""No answer of the analysis changes unseen: over samples, made jobs with faults, and published recordings of every kind."""

from __future__ import annotations

import json
from functools import cache

import pytest

from recorded_answers import RECORD, all_answers, digests
from shared_data import needs_shared_data

pytestmark = pytest.mark.once  # nothing here is compiled that other tests do not hold to its Python twin
RECORDED: dict[str, dict[str, str]] = json.loads(RECORD.read_text())


@cache
def now() -> dict[str, dict[str, str]]:
    return {case: digests(told) for case, told in all_answers()}


def changed(*, published: bool) -> list[str]:
    return [
        f"{case}: {key}"
        for case in sorted({*RECORDED, *now()})
        if case.startswith("published") is published
        for key in sorted({*RECORDED.get(case, {}), *now().get(case, {})})
        if RECORDED.get(case, {}).get(key) != now().get(case, {}).get(key)
    ]


def test_answers_about_what_is_made_here_are_those_recorded() -> None:
    """Where a change is meant: ``python tests/recorded_answers.py``, and the change is told in changes/."""
    assert changed(published=False) == []


@needs_shared_data
def test_answers_about_published_recordings_are_those_recorded() -> None:
    assert changed(published=True) == []
