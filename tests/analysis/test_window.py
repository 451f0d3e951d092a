"""Recordings larger than what is looked at call by call: all is counted, some iterations are compared, and it is said which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ringwright.analysis import window as module
from ringwright.analysis.culprits import culprits
from ringwright.analysis.summary import summarise
from ringwright.analysis.window import of_late_ranks, window
from ringwright.formats.sources import read
from ringwright.model.trace import Trace
from ringwright_lab.testing import noise, slow_ranks
from ringwright_lab.testing.many_ranks import ManyRanks


@pytest.fixture(scope="module")
def slow() -> Trace:
    return slow_ranks.job("straggler", 5, noise.ours())[0]


def rows(trace: Trace) -> int:
    return len(trace.df.filter(pl.col("kind") == "collective"))


def test_what_fits_is_looked_at_whole(slow: Trace) -> None:
    assert window(slow) is slow


def test_every_kth_iteration_of_all_ranks_stands_for_the_others(slow: Trace) -> None:
    near = window(slow, len(slow.df) // 3)
    kept = sorted(set(near.df["iteration"].drop_nulls()))
    everything = sorted(set(slow.df["iteration"].drop_nulls()))
    assert kept == everything[:: everything.index(kept[1])]
    of_ranks = near.df.filter(pl.col("kind") == "collective").group_by("rank").len()["len"]
    assert of_ranks.n_unique() == 1
    assert near.meta["limits"][-1].startswith(f"times were compared in {len(kept)} of {len(everything)} iterations")


def test_what_is_looked_at_is_every_cell_of_the_rows_and_columns_with_one_value_are_not_held(slow: Trace) -> None:
    near = window(slow, len(slow.df) // 3)
    kept = near.df["iteration"].drop_nulls().unique().implode()
    busy = pl.col("kind").is_in(["collective", "p2p", "compute", "memory", "sync", "phase", "step"])
    assert near.df.equals(slow.df.filter(~busy | pl.col("iteration").is_in(kept)))
    several = sum(column.n_unique() > 1 for column in near.df)
    assert f"PROJECT */{several} COLUMNS" in near.scan("events").explain(optimized=False)


def test_calls_without_iterations_are_taken_by_their_numbers(slow: Trace) -> None:
    bare = Trace.of(
        {**{n: slow.table(n) for n in slow.tables}, "events": slow.df.with_columns(iteration=None)}, slow.meta
    )
    near = window(bare, len(bare.df) // 2)
    assert 0 < rows(near) < rows(bare)
    assert set(near.df["sequence"].drop_nulls() // module.BLOCK) < set(bare.df["sequence"].drop_nulls() // module.BLOCK)
    assert "blocks of 64 calls" in near.meta["limits"][-1]


def test_a_summary_counts_all_and_still_names_the_late_rank(slow: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Any = summarise(slow)
    monkeypatch.setattr(module, "MOST_ROWS", len(slow.df) // 2)
    monkeypatch.setattr(window, "__defaults__", (module.MOST_ROWS,))
    part: Any = summarise(slow)
    for name in ("operations", "communicator_list", "size_classes", "ranks", "pair_bytes", "ledger"):
        assert part[name] == whole[name]
    assert part["culprits"][0]["ranks"] == whole["culprits"][0]["ranks"]
    assert [text for text in part["limits"] if "times were compared in" in text]
    assert not [text for text in whole["limits"] if "times were compared in" in text]


@pytest.mark.parametrize("late_rank", [13, None])
def test_of_few_iterations_who_is_late_is_looked_for_among_those_who_wait_least(
    late_rank: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ManyRanks(40, 40, late_rank=late_rank, missing=1).write(tmp_path / "job")
    monkeypatch.setattr(window, "__defaults__", (10_000,))
    monkeypatch.setattr(of_late_ranks, "__defaults__", (10_000,))
    trace = read(tmp_path / "job")
    part: Any = summarise(trace)
    assert [one["ranks"] for one in part["culprits"]] == ([] if late_rank is None else [[late_rank]])
    assert [text for text in part["limits"] if "who is late was looked for in" in text]
    assert len(part["waits"]) == 39
    few = window(trace)
    alone, _, _ = culprits(few, None, states=False, timed=True, metrics=False)
    assert alone == []


def test_where_enough_iterations_are_looked_at_they_tell(tmp_path: Path) -> None:
    ManyRanks(16, 60).write(tmp_path / "job")
    trace = read(tmp_path / "job")
    near = window(trace, 14_000)
    assert near is not trace
    assert of_late_ranks(trace, near, 14_000) is near
    assert of_late_ranks(trace, trace, 14_000) is trace


def test_who_is_named_among_all_ranks_is_not_looked_for_again(slow: Trace) -> None:
    def never() -> Trace:
        raise AssertionError

    accused, late, _ = culprits(slow, None, states=False, timed=True, metrics=False, closer=never)
    assert accused
    assert "limits" not in late


def test_where_no_two_ranks_fit_all_ranks_tell(tmp_path: Path) -> None:
    ManyRanks(8, 60).write(tmp_path / "job")
    trace = read(tmp_path / "job")
    near = window(trace, 400)
    assert of_late_ranks(trace, near, 400) is near
