"""Whatever somebody from outside forgets, a contract says it, by name: by file and by entry point."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import stranger

pytestmark = pytest.mark.once


@pytest.mark.sampled(1, "way")
@pytest.mark.parametrize("way", stranger.WAYS)
def test_what_is_whole_passes_and_what_is_broken_is_told(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert stranger.main(["--by", way]) == 0
    said = capsys.readouterr().out
    assert said.count("every check passes") == len(stranger.PARTS) == 7
    assert "NOBODY" not in said


def test_each_part_is_broken_in_ten_ways() -> None:
    assert Counter(broken.part for broken in stranger.BROKEN) == dict.fromkeys(stranger.PARTS, 10)
