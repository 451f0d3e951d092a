"""Grids, grid points and tables of sweeps; and grid points on real ranks, recorded, beside their formulas."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from patience import HANG_S
from recorded_points import closed, counts_of
from ringwright.formats.sources import read
from ringwright.ground.errors import InputError, MissingExtraError, UsageError
from ringwright.workloads.replay import replayed
from ringwright_lab.papers.poster import figures, plan, study
from ringwright_lab.papers.poster.effects import interval
from ringwright_lab.reports import experiment, plots, swept
from ringwright_lab.sweep import read_grid, run
from ringwright_lab.sweep.grid import grid_of, legal
from ringwright_lab.sweep.point import GridPoint, point
from ringwright_lab.sweep.resumed import resumed, sentence, told
from ringwright_lab.sweep.run import check_folder, facts_of, sweep
from ringwright_lab.sweep.table import gather

HAS_MODELS = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
needs_models = pytest.mark.skipif(not HAS_MODELS, reason="models need PyTorch and transformers")


def test_a_grid_is_every_combination_that_is_legal(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        '[axes]\nmodel=["llama","vgg"]\nparallel=["ddp:dp=2","tp:tp=2"]\n[all]\nsteps=3\n[[cell]]\nmodel="gpt2"\n'
    )
    grid = read_grid(path)
    assert {(each.model, each.parallel) for each in grid.points} == {
        ("llama", "ddp:dp=2"),
        ("llama", "tp:tp=2"),
        ("vgg", "ddp:dp=2"),
        ("gpt2", "none"),
    }
    assert [(each.model, each.parallel) for each, _ in grid.left_out] == [("vgg", "tp:tp=2")]
    assert "does not go with" in grid.left_out[0][1]
    assert {each.steps for each in grid.points} == {3}


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("[axes\n", InputError, "no grid"),
        ("[other]\nx=1\n", UsageError, "no part"),
        ('[axes]\nmodel=["vgg"]\nparallel=["tp:tp=2"]\n', UsageError, "nothing to run"),
        ('[[cell]]\nmodel="llama"\ncolour=1\n', UsageError, "no setting 'colour'"),
        ('[[cell]]\nmodel="llama"\nsteps="three"\n', UsageError, "is not int"),
        ('[[cell]]\nparallel="ddp:dp=2"\n', UsageError, "needs a model"),
        ('[[cell]]\nmodel="llama"\nparallel="ddp:zz=2"\n', UsageError, "no parallel form"),
        ("", UsageError, "nothing to run"),
    ],
)
def test_a_grid_that_cannot_be_run_says_why(tmp_path: Path, text: str, error: type[Exception], words: str) -> None:
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(error, match=words):
        read_grid(tmp_path / "grid.toml")


def test_illegal_grid_points_are_told_apart() -> None:
    bad = legal(
        [
            GridPoint("llama", parallel="ddp:dp=2", fault="link rank1 loss 1%"),
            GridPoint("llama", parallel="ddp:dp=2", world=3),
            GridPoint("llama", parallel="ddp:dp=32"),
            GridPoint("llama", parallel="ddp:dp=2", world=2, fabric="switch:2"),
            GridPoint("no-such-model"),
        ]
    )
    assert not bad.points
    words = " ".join(why for _, why in bad.left_out)
    assert all(
        each in words for each in ("needs a network", "has 2 ranks", "32 real ranks", "no network", "not a model")
    )
    with pytest.raises(UsageError, match="combinations"):
        grid_of({"seed": range(2000), "steps": range(2000)})


def test_keys_name_a_configuration() -> None:
    one, same, other = (
        point({"model": "llama"}),
        point({"model": "llama", "size": "tiny"}),
        point({"model": "llama", "seed": 1}),
    )
    assert one.key == same.key != other.key
    assert one.row()["form"] == "none"
    assert GridPoint("llama", parallel="tp+fsdp:tp=2,dp=4").ranks == 8
    assert GridPoint("mixtral", parallel="ep:ep=2,capacity=64").ranks == 2


def test_a_folder_that_is_no_sweep_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("x")
    with pytest.raises(UsageError, match="no sweep"):
        check_folder(tmp_path)
    check_folder(tmp_path / "new")
    with pytest.raises(InputError, match="no cell"):
        gather(tmp_path)
    assert facts_of(tmp_path) is None


@pytest.mark.skipif(HAS_MODELS, reason="the libraries are here")
def test_without_the_libraries_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match="models need"):
        sweep(legal([GridPoint("llama")]), tmp_path)


def test_intervals_of_ratios() -> None:
    assert interval([2.0]) == (pytest.approx(2.0), None, None)
    mean, low, high = interval([1.0, 2.0, 4.0])
    assert mean == pytest.approx(2.0)
    assert low == pytest.approx(2.0 / 2.0 ** (4.303 / 3**0.5), rel=1e-3)
    assert low is not None
    assert high is not None
    assert low * high == pytest.approx(4.0)
    assert interval([]) == (None, None, None)


def test_the_experiments_grid_points_are_legal_and_whole() -> None:
    for short in (True, False):
        for part in study.RECORDED:
            assert study.grid(part, short=short).points, part
    assert len({point.seed for point in plan.disturbed(short=True).points}) >= 3, "an interval over seeds"
    whole = plan.disturbed(short=False)
    assert not whole.left_out
    faults = [each for each in whole.points if each.fault]
    assert len(faults) == len(plan.ANOMALIES) * len(plan.SEEDS) * len(plan.MODELS)
    judged = {(each.model, each.size, each.dims) for each in plan.shapes(short=False).points}
    assert not judged & {(model, size, "") for model, size in plan.MADE_ON}


def test_rows_fail_where_nothing_was_got() -> None:
    """Every row that can be made of nothing fails; the list of models could not fail and is gone."""
    assert not hasattr(figures, "families")
    assert not any(row["pass"] for row in figures.served(None, None))
    assert not figures.agreed([], 0)[0]["pass"]
    assert not figures.separated([])[0]["pass"]
    wrong = {"model": "vgg", "size": "tiny", "dims": "", "like": "ResNet-like", "cell": "c"}
    assert not figures.separated([wrong])[0]["pass"]
    right = wrong | {"like": "VGG-like"}
    for calls, passes in ((3, True), (4, False)):  # fewer than four requests may leave it open, more may not
        sizes = [
            {"op": "all-reduce", "size_bytes": 8, "calls": calls},
            {"op": "all-gather", "size_bytes": 8, "calls": 9},
        ]
        unknown = wrong | {"like": "cannot tell", "sizes": sizes}
        assert figures.separated([right, unknown])[0]["pass"] == passes
        assert not figures.separated([unknown])[0]["pass"]
    effect = {
        "model": "vgg",
        "anomaly": "loss",
        "seeds": 5,
        "right": 4,
        "wrong": 1,
        "cannot_tell": 0,
        "step_ratio": 1.5,
        "step_ratio_low": 1.2,
        "step_ratio_high": 1.9,
    }
    told, seen = figures.disturbed([effect])
    assert (told["pass"], seen["pass"]) == (False, True)
    assert not figures.disturbed([effect | {"step_ratio_low": 0.9}])[1]["pass"]
    one_seed = figures.disturbed([effect | {"step_ratio_low": None, "step_ratio_high": None}])[1]
    assert (one_seed["pass"], one_seed["got"]) == (False, None)
    assert "one seed" in one_seed["note"]
    assert set(told) >= {"figure", "kind", "claimed", "got", "tolerance", "pass", "source"}


def test_plots_of_nothing_are_none() -> None:
    assert plots.request_sizes([]) is None
    assert plots.step_lines([], [1.0]) is None
    assert plots.intervals([]) is None
    assert plots.course([(0.0, 4, "send")]) is None


GRID = legal(
    [
        GridPoint("llama", parallel="ddp:dp=2"),
        GridPoint("llama", parallel="ddp:dp=2", world=2),
        GridPoint("deepseek-v3", parallel="tp:tp=2", mode="inference", steps=2),
    ]
)


@pytest.fixture(scope="module")
def swept_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Run a small grid on real ranks and on the fake group."""
    out = tmp_path_factory.mktemp("sweep")
    counts = sweep(GRID, out, timeout_s=HANG_S).counts
    return out, counts


@needs_models
@pytest.mark.torch
@pytest.mark.slow
def test_recorded_is_what_the_formulas_say(swept_folder: tuple[Path, dict[str, Any]]) -> None:
    out, counts = swept_folder
    assert counts == {"run": 3, "kept": 0, "failed": 0}
    assert sweep(GRID, out, timeout_s=HANG_S).counts == {"run": 0, "kept": 3, "failed": 0}
    result = gather(out)
    assert result["checked"] >= 10
    assert result["agreeing"] == result["checked"], [each for each in result["agreement"] if not each["agrees"]]
    import polars as pl

    table = pl.read_parquet(result["table"])
    assert table.filter(pl.col("what") == "step")["time_us_p50"].drop_nulls().min() > 0
    timed = table.filter((pl.col("what") == "collective") & (pl.col("world") == 0))
    assert timed["time_us_p50"].null_count() < timed.height
    by_turn = {(row["model"], row["mode"], row["turn"]) for row in result["patterns"]}
    assert {("deepseek-v3", "inference", "prompt"), ("deepseek-v3", "inference", "token")} <= by_turn
    page = swept.page(result | {"counts": counts, "left_out": []}, "ringwright sweep")
    assert "plot-sizes" in page
    assert "http" not in page.split("<main")[1]


@needs_models
@pytest.mark.torch
@pytest.mark.slow
def test_what_real_ranks_recorded_replays_as_the_formulas_say(swept_folder: tuple[Path, dict[str, Any]]) -> None:
    out, _ = swept_folder
    ddp = GRID.points[0]
    found = replayed(read(sorted((out / "cells" / ddp.key).glob("calls.*.jsonl"))), step=ddp.steps - 2)
    assert found.ground == "times"
    assert counts_of(found.workload) == closed(ddp)


@needs_models
@pytest.mark.torch
@pytest.mark.slow
def test_a_grid_point_that_fails_keeps_its_reason_and_the_others_go_on(tmp_path: Path) -> None:
    grid = legal(
        [
            GridPoint("llama", parallel="ddp:dp=2", world=2, steps=2000, batch=64),
            GridPoint("llama", parallel="ddp:dp=2", world=2, steps=2),
        ]
    )
    assert sweep(grid, tmp_path, timeout_s=0.5).counts["failed"] >= 1
    late = facts_of(tmp_path / "cells" / grid.points[0].key)
    assert late is not None
    assert "out of time" in late["why"]
    assert facts_of(tmp_path / "cells" / grid.points[1].key) is not None, "the next cell was run, whatever came of it"


@pytest.mark.sampled(
    0, "*"
)  # workloads/test_models: full width and few layers, and the closed forms that give 181 and 1
@needs_models
@pytest.mark.torch
@pytest.mark.slow
def test_full_size_deepseek_gives_181_and_1(tmp_path: Path) -> None:
    """The contract's form, from the command a user types, of the part that needs no network."""
    document = study.experiment(tmp_path, short=True, parts=("served",))
    got = {row["figure"]: (row["claimed"], row["got"], row["pass"]) for row in document["rows"]}
    assert got["DeepSeek-V3 671B on 16 ranks: all-reduces per forward pass"] == (181, 181, True)
    assert got["all-gathers per forward pass"] == (1, 1, True)
    assert got["bytes of each all-reduce, per token"] == (14_336, 14_336, True)
    assert all(row["pass"] for row in document["rows"])
    page = experiment.page(document, "ringwright reproduce collective-profiling-poster --short")
    assert "deepseek-v3 tp:tp=16 prompt" in page
    assert json.loads((tmp_path / study.RESULT).read_text())["slug"] == "collective-profiling-poster"


def earlier(out: Path, key: str, **facts: Any) -> None:
    """Leave what an earlier run of one grid point leaves."""
    folder = out / "cells" / key
    folder.mkdir(parents=True)
    (folder / "cell.json").write_text(json.dumps({"cell": {}, "outcome": "done", **facts}))


def test_what_is_taken_over_from_an_earlier_run_is_said(tmp_path: Path) -> None:
    grid = legal([GridPoint("llama", parallel="ddp:dp=2", world=2), GridPoint("llama", parallel="tp:tp=2", world=2)])
    assert told(resumed(tmp_path, grid.points), 2) is None
    earlier(tmp_path, grid.points[0].key, started_s=1.7e9, versions={"ringwright": "0.0.9"})
    found = told(resumed(tmp_path, grid.points), 2)
    assert found == {
        "cells": 1,
        "of": 2,
        "first": "2023-11-14T22:13Z",
        "last": "2023-11-14T22:13Z",
        "ringwright": ["0.0.9"],
    }
    assert "1 of 2 cells are of an earlier run, 2023-11-14T22:13Z, ringwright 0.0.9" in sentence(found)
    earlier(tmp_path, grid.points[1].key)
    assert told(resumed(tmp_path, grid.points), 2) == found | {"cells": 2, "ringwright": ["0.0.9", "unknown"]}


def test_a_fresh_run_takes_nothing_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = legal([GridPoint("llama", parallel="ddp:dp=2", world=2)])
    earlier(tmp_path, grid.points[0].key)
    asked = []
    monkeypatch.setattr(run, "_check_libraries", lambda: None)
    monkeypatch.setattr(run, "run_point", lambda point, *_, **__: asked.append(point) or {"outcome": "done"})
    assert sweep(grid, tmp_path).counts == {"run": 0, "kept": 1, "failed": 0}
    assert sweep(grid, tmp_path, fresh=True).counts == {"run": 1, "kept": 0, "failed": 0}
    assert asked == list(grid.points)


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = legal([GridPoint("llama", parallel="ddp:dp=2", world=2), GridPoint("llama", parallel="ddp:dp=2")])
    earlier(tmp_path, grid.points[1].key)
    asked = []
    monkeypatch.setattr(run, "_check_libraries", lambda: None)
    monkeypatch.setattr(run, "run_point", lambda point, *_, **__: asked.append(point) or {"outcome": "done"})
    assert sweep(grid, tmp_path).counts == {"run": 1, "kept": 1, "failed": 0}
    assert asked == [grid.points[0]]


def test_a_reproduction_says_first_that_it_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the study to the terminal: a grid point of an earlier run is said, and with ``fresh`` none is."""
    points = study.grid("served", short=True).points
    monkeypatch.setattr(study, "_part", lambda *_, **__: {"checks": [], "cells": [], "failed": 0, "patterns": []})
    earlier(tmp_path / "served", points[0].key, started_s=1.7e9, versions={"ringwright": "0.0.9"})
    again, fresh = (study.experiment(tmp_path, short=True, fresh=each, parts=("served",)) for each in (False, True))
    assert again["resumed"]["cells"] == 1
    assert fresh["resumed"] is None
    said = [io.StringIO(), io.StringIO()]
    for document, file in zip((again, fresh), said, strict=True):
        experiment.write(document, file)
    assert "of an earlier run, 2023-11-14T22:13Z, ringwright 0.0.9" in " ".join(said[0].getvalue().split())
    assert "earlier run" not in said[1].getvalue()
    assert "of an earlier run" in experiment.page(again, "ringwright reproduce")


def test_an_experiment_is_run_by_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ringwright", "reproduce", "collective-profiling-poster", "blueconnect"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 2
    assert "run by itself" in done.stderr


def test_a_paper_by_itself_has_rows() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ringwright", "reproduce", "blueconnect", "--json"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    document = json.loads(done.stdout)
    assert document["slug"] == "blueconnect"
    assert set(document["rows"][0]) >= {"figure", "kind", "claimed", "got", "tolerance", "pass", "source"}
    assert document["papers"]
