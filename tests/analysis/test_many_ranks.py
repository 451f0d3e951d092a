"""A job of many ranks in calls files of their own, some cut, some missing: the late rank is named, and nobody is said to hang."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ringwright.analysis import logical_operations
from ringwright.analysis.slow.arrivals import of_any
from ringwright.analysis.summary import summarise
from ringwright.formats.sources import read
from ringwright_lab.testing.many_ranks import ManyRanks


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("many") / "job"
    ManyRanks(40, 30, late_rank=13, damaged=2, missing=1).write(folder)
    return dict(summarise(read(folder)))


def test_the_late_rank_is_named_and_no_cut_recording_is_a_hang(said: dict[str, Any]) -> None:
    assert [(each["kind"], each["ranks"]) for each in said["culprits"]] == [("straggler", [13])]
    assert len([text for text in said["losses"] if "stops without an end" in text]) == 2


def test_what_is_missing_is_told(said: dict[str, Any]) -> None:
    assert (said["ranks_seen"], said["ranks_expected"]) == (39, 40)
    assert said["ledger"]["refused"] == 2
    assert {row["size"]: row["operations"] for row in said["communicator_list"] if row["size"] == 40} == {40: 30}


@pytest.mark.parametrize("most", [700, 5000])
def test_operations_are_counted_some_at_a_time(
    most: int, said: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some communicators together, or of a large one some of its operations."""
    ManyRanks(40, 30, late_rank=13, damaged=2, missing=1).write(tmp_path / "job")
    monkeypatch.setattr(logical_operations, "MOST_ROWS", most)
    lots = dict(summarise(read(tmp_path / "job")))
    for name in ("operations", "communicator_list", "size_classes", "by_role", "pair_bytes"):
        assert lots[name] == said[name]


def test_a_chance_of_more_sets_than_a_float_holds() -> None:
    assert of_any(10, 0.05) == 0.5
    assert of_any(math.comb(10_240, 5_000), 1e-300) == 1.0
    assert of_any(math.comb(10_240, 400), 0.0) == 0.0
    exact = of_any(2**1000, 1e-305)
    assert of_any(2**1100, 1e-305 / 2**50) == pytest.approx(1.0)
    assert exact == pytest.approx(2**1000 * 1e-305)
