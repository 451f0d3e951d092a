"""Re-plan or live with it? The three times, the verdict, and what is said where no plan helps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringwright import Collective
from ringwright.algorithms.blocks.ring import ring
from ringwright.algorithms.synthesis.forest import forest
from ringwright.cli import main
from ringwright.engines.choose import simulate
from ringwright.fabrics import fabric
from ringwright.fabrics.faults import apply
from ringwright.ground.errors import InfeasibleError
from ringwright.search import study
from ringwright.search.question import SynthesisSpec
from ringwright.search.replan import WORTH, Replanned, TimedFind, replanned, spelled, together

pytestmark = pytest.mark.once

MIB = 1 << 20


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGWRIGHT_PROGRAMS", str(tmp_path / "programs"))


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert (
        main(["synthesise", "all-gather", "--fabric", "torus:2x4", "--size", "16M", "--alone", *words, "--json"]) == 0
    )
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def planned(line: str) -> Replanned:
    healthy = fabric("torus:2x4")
    question = SynthesisSpec("all-gather", apply(healthy, [line]), healthy=healthy)
    (one,) = study.synthesise(question, [16 * MIB], "forest", rivals=False).faults
    return one


def test_a_fault_is_answered_by_three_times(capsys: pytest.CaptureFixture[str]) -> None:
    told = asked(capsys, "--fault", "link rank0>rank1 rate 50%", "--method", "forest")
    (fault,), (row,) = told["fault"], told["rows"]
    (before,) = asked(capsys, "--method", "forest")["rows"]
    assert fault["healthy_us"] == before["time_us"]
    assert fault["replanned_us"] == row["time_us"]
    assert fault["bound_us"] == row["bound_us"]
    collective, healthy = Collective("all-gather", range(8), 16 * MIB), fabric("torus:2x4")
    kept = simulate(forest(collective, healthy), apply(healthy, ["link rank0>rank1 rate 50%"]))
    assert fault["kept_us"] == pytest.approx(kept.time_s * 1e6)
    assert fault["kept_gap"] == pytest.approx(fault["kept_us"] / fault["bound_us"] - 1)
    assert fault["saves"] == pytest.approx(1 - fault["replanned_us"] / fault["kept_us"])
    assert fault["pays"] is True
    assert fault["verdict"].startswith("re-plan: ")


def test_without_a_fault_there_is_no_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys)["fault"] == []


def test_a_little_is_lived_with() -> None:
    one = planned("link rank0>rank1 rate 99.5%")
    assert one.kept_us is not None
    assert one.kept_us >= one.healthy_us
    assert not one.pays
    assert one.verdict.startswith("live with it: ")


def test_a_dead_link_stops_the_old_plan() -> None:
    one = planned("link rank0--rank1 dead")
    assert one.kept_us is one.kept_gap is one.saves is None
    assert one.pays
    assert "never end" in one.verdict
    assert "rank" in one.refused
    assert one.replanned_us > one.healthy_us


def test_a_worse_plan_is_not_taken() -> None:
    topology = fabric("ring:4")
    collective = Collective("all-gather", range(4), MIB)
    finds = [
        TimedFind(program.name, program, simulate(program, topology).time_s * 1e6, 1.0)
        for program in (ring(collective, topology), forest(collective, topology))
    ]
    finds.sort(key=lambda find: find.time_us)
    one = replanned(finds[0], finds[1], topology, "pipelined")
    assert one.kept_us == finds[0].time_us
    assert not one.pays
    assert "no new plan was found that is faster" in one.verdict
    close = replace(one, saves=WORTH / 2, replanned_us=finds[0].time_us * (1 - WORTH / 2))
    assert "less than 2%" in close.verdict


def test_ranks_that_are_cut_off_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["synthesise", "all-gather", "--fabric", "torus:4x4", "--fault", "rank 3 dead", "--size", "1M"]
    assert main(words) == InfeasibleError.exit_code
    said = capsys.readouterr().err
    assert "cuts rank3 off from the other 15 ranks" in said
    assert "--ranks 0-2,4-15" in said
    assert main([*words, "--ranks", "0-2,4-15", "--alone", "--method", "expand"]) == 0


def test_those_that_reach_each_other() -> None:
    topology = apply(fabric("ring:6"), ["link rank0--rank1 dead", "link rank3--rank4 dead"])
    assert together(topology, range(6)) in ([1, 2, 3], [0, 4, 5])
    assert together(topology, [0, 4, 1]) == [0, 4]
    assert spelled([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


def test_the_text_asks_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["synthesise", "all-gather", "--fabric", "ring:8", "--fault", "link rank0>rank1 rate 50%", "--size", "1M"]
    assert main([*words, "--alone", "--method", "forest"]) == 0
    text = capsys.readouterr().out
    assert "Re-plan or live with it?" in text
    assert "re-planned us" in text
