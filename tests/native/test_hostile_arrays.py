"""A few of the random and hostile arrays of scripts/fuzz-arrays, and those that were followed once."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import fuzz_arrays

from cli.test_hostile_numbers import loop
from ringwright.native import engine

pytestmark = [pytest.mark.once, pytest.mark.skipif(engine is None, reason="no compiled engine")]


@pytest.mark.parametrize("entry", fuzz_arrays.ENTRIES)
def test_some_random_and_hostile_arrays(entry: str) -> None:
    came = [fuzz_arrays.tried(entry, "ci", number) for number in range(200)]
    assert min(came.count("answered"), came.count("refused")) > 20


def test_a_campaign_tells_a_death_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz-arrays", "--inputs", "3", "--entry", "order"])
    assert fuzz_arrays.main() == 0
    assert "3 inputs" in capfd.readouterr().out


def forked(
    parent: list[int], child: list[int], waits: list[int], nexts: tuple[list[int], list[int]]
) -> dict[str, np.ndarray]:
    """Return the arrays of messages of which some are branches of others."""
    n, (starts, followers) = len(waits), nexts
    return loop() | {
        "hop_starts": np.arange(n + 1),
        "hops": np.zeros(n, np.int32),
        "next_starts": np.array(starts),
        "nexts": np.array(followers, np.int32),
        "waits": np.array(waits, np.int32),
        "size_bytes": np.ones(n, np.int64),
        "delay": np.zeros(n, np.int64),
        "parent": np.array(parent, np.int32),
        "hop": np.zeros(len(parent), np.int32),
        "child": np.array(child, np.int32),
    }


@pytest.mark.parametrize(
    "arrays",
    [
        forked([0], [0], [0], ([0, 0], [])),  # a branch of itself: it went on for ever
        forked([0], [1], [0, 0], ([0, 0, 0], [])),  # begins by itself too
        forked([0, 0], [1, 1], [0, 1], ([0, 0, 0], [])),  # leaves twice
        forked([0], [1], [0, 1], ([0, 1, 1], [1])),  # is released by another message too
    ],
    ids=["itself", "by itself", "twice", "by another"],
)
def test_a_branch_that_more_than_its_fork_releases_is_refused(arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="forks"):
        engine.events(**arrays)


def test_forks_in_a_circle_never_begin() -> None:
    _, end = engine.events(**forked([0, 1], [1, 0], [1, 1], ([0, 0, 0], [])))
    assert end.tolist() == [1 << 62, 1 << 62]


def test_a_capacity_below_nothing_or_beyond_all_sums_is_refused() -> None:
    for capacity in (-1, -(2**63), 2**63 - 1):
        with pytest.raises(ValueError, match="capacity"):
            engine.fair_rates(np.array([0, 1]), np.zeros(1, np.int32), np.array([capacity]))


def test_a_count_below_nothing_of_what_is_waited_for_is_refused() -> None:
    with pytest.raises(ValueError, match="waits"):
        engine.events(**loop() | {"waits": np.array([-1], np.int32)})
