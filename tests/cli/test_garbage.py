"""A command that is a process of its own searches for garbage less often; a caller's own settings are left alone."""

from __future__ import annotations

import gc
import sys

import pytest

from ringwright.cli import NEW_OBJECTS, main

pytestmark = pytest.mark.once


def test_only_a_process_of_ours_searches_less_often(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(701, *before[1:])
        assert main(["--version"]) == 0
        assert gc.get_threshold()[0] == 701
        monkeypatch.setattr(sys, "argv", ["ringwright", "--version"])
        assert main() == 0
        assert gc.get_threshold()[0] == NEW_OBJECTS > 700
    finally:
        gc.set_threshold(*before)
    assert capsys.readouterr().out
