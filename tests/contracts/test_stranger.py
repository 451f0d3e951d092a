"""Whatever somebody from outside forgets, a contract says it, by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import stranger

pytestmark = pytest.mark.once


def test_twelve_things_that_are_broken_are_told_and_three_that_are_whole_pass(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert stranger.main() == 0
    said = capsys.readouterr().out
    assert said.count("0 cases failed") == 3
    assert len(stranger.BROKEN) == 12
    assert "NOBODY" not in said
