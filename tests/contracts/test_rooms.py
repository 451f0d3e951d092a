"""Every room has a contract that all its systems keep; the campaign goes on where it stopped, and says what was left."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import conformance_pieces as pieces

from outsiders import install
from ringwright import fabrics
from ringwright.algorithms.published.blueconnect import blueconnect
from ringwright.cli import main
from ringwright.executors import fan_out as seam
from ringwright.ground.errors import UsageError
from ringwright.model import validity
from ringwright.model.collective import Collective
from ringwright.model.rewrites import KINDS
from ringwright.model.topology import Topology
from ringwright_lab.contracts import campaign, rooms
from ringwright_lab.contracts.outcome import Outcome
from ringwright_lab.survey.catalogue import FAMILIES, catalogue
from ringwright_lab.testing import check_fabric, check_rewrite, failures

pytestmark = pytest.mark.once


def test_every_system_of_every_room_has_shown_its_contract() -> None:
    rows = catalogue()["systems"]
    assert {row["family"] for row in rows} > set(FAMILIES.values())
    assert [row["slug"] for row in rows if row["family"] == "export"] == [
        each.slug for each in rooms.members("exports")
    ]
    for row in rows:
        if row["origin"] == "house":
            conformance = row["conformance"]
            assert conformance["passed"] > 0, row
            assert (conformance["failed"], conformance["recorded"]) == (0, True), row
            assert row["lines"] > 5, row


@pytest.mark.parametrize("family", ["source", "export", "model-family", "rewrite", "fabric", "priority"])
def test_one_family_is_listed_alone(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["systems", "--family", family, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["systems"]
    assert len(rows) > 4
    assert {row["class"] for row in rows} == {family}


def test_what_others_add_to_a_room_is_listed_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = 'def step_list(program):\n    """A line each step."""\n    return b"1\\n" * program.n_steps\n'
    install(tmp_path, monkeypatch, {"exports": {"step-list": "outside_steps:step_list"}}, outside_steps=export)
    listed = {row["slug"]: row for row in catalogue(family="export")["systems"]}
    row = listed["step-list"]
    assert (row["origin"], row["conformance"]["recorded"], row["conformance"]["passed"]) == ("outside", False, 0)
    checked = {row["slug"]: row["conformance"] for row in catalogue(family="export", check=True)["systems"]}
    assert (checked["step-list"]["passed"], checked["step-list"]["failed"]) == (6, 0)


# ------------------------------------------------------------------------------------------------------------- fabrics
def pair(**changed: Any) -> Topology:
    return dataclasses.replace(fabrics.fabric("ring:3"), **changed)


COUNT = iter(range(1000))
BROKEN = {
    "numbers": (lambda: pair(rate=np.full(6, -1.0)), "a rate that is no number of bytes/s"),
    "routed": (lambda: pair(rate=np.zeros(6)), "takes a link whose rate is 0"),
    "named": (lambda: pair(names=("a", "a", "b")), "two nodes are called 'a'"),
    "same-again": (lambda: pair(name=f"pair-{next(COUNT)}"), "differs from one time to the next"),
    "built": (lambda: "a machine", "it returned str, not a Topology"),
}


@pytest.mark.parametrize("check", sorted(BROKEN))
def test_a_broken_fabric_is_told_what_is_wrong(check: str) -> None:
    build, why = BROKEN[check]

    def broken() -> Any:
        return build()

    (told,) = check_fabric(broken, sizes=("",))
    assert why in told.failed[check]
    assert failures(check_fabric("ring", sizes=("3",))) == []


def test_a_backplane_of_one_rank_is_shared_by_no_link() -> None:
    assert fabrics.fabric("switch:1,backplane=1e9").groups == ()
    assert failures(check_fabric("switch")) == []


# ------------------------------------------------------------------------------------------------------------ rewrites
@pytest.mark.parametrize(
    ("name", "value", "check", "why"),
    [
        ("WHOLE", False, "whole", "WHOLE is False, what it sends is True"),
        ("CARRIED_BY", ("cloud",), "placed", "CARRIED_BY names 'cloud'"),
        ("rewritten", lambda operations, settings: operations, "changes", "it changes nothing"),
        ("rewritten", lambda operations, settings: operations[1:], "carried", "of g0, g1 and g2 it sends g1, g2"),
        ("NEEDS", ((),), "typed", "it takes the settings {}"),
    ],
)
def test_a_broken_rewrite_is_told_what_is_wrong(
    name: str, value: Any, check: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KINDS["partition"], name, value)
    (told,) = check_rewrite("partition")
    assert why in told.failed[check]


def test_a_rewrite_without_settings_to_try_has_not_passed() -> None:
    assert "nothing to try it with" in check_rewrite("melt")[0].failed["settings"]


# ------------------------------------------------------------------------------------------------------------ campaign
def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGWRIGHT_TASKS", str(tmp_path / "tasks"))
    monkeypatch.setattr(seam, "KEPT_S", 0.0)
    asked = pieces.Asked(("algorithms", "rewrites"), only="ring", seed=3, some=True)
    tried: list[str] = []
    monkeypatch.setattr(campaign, "check", lambda case: tried.append(str(case)) or Outcome(case, passed=["tried"]))
    monkeypatch.setattr(pieces.cut, "__defaults__", (20,))
    some = pieces.run(asked, "local:1", 0.0)
    assert 0 < some.cases["algorithms"] < some.of["algorithms"]
    assert some.of["rewrites"] == 0
    monkeypatch.setattr(pieces, "RECORD", tmp_path / "record.json")
    pieces.record(some, 3)
    kept = json.loads((tmp_path / "record.json").read_text())
    assert kept["cases"] < kept["of"]
    assert kept["rooms"]["algorithms"]["ring"]["passed"] > 10
    whole = pieces.run(asked, "local:1")
    assert whole.cases["algorithms"] == whole.of["algorithms"] == whole.tallies["algorithms"]["ring"]["passed"]
    assert len(tried) == len(set(tried)) == whole.of["algorithms"], "only what was left"
    assert not (tmp_path / "tasks").exists(), "what is done is kept no longer"


def test_cases_of_rooms_replay_from_their_text() -> None:
    assert campaign.parsed("exports goal") == rooms.RoomCase("exports", "goal")
    assert campaign.room_of(campaign.parsed("fabrics dgx-h100")) == "fabrics"
    with pytest.raises(UsageError, match="is not a case"):
        campaign.parsed("exports gaol")


def test_pieces_of_a_pipeline_pay_their_start_ups() -> None:
    """In several pieces a program starts as many messages in its slowest network: its declared time is what it takes."""
    for text in ("blueconnect all-reduce p=4 size=even", "accl all-reduce p=3 size=zero"):
        outcome = campaign.check(campaign.parsed(f"{text} fabric=full root=0 knobs=pieces=3"))
        assert "closed-form" in outcome.passed


@pytest.mark.parametrize("count", [1, 4])
def test_bytes_of_pieces_are_held_to_the_last_one(count: int) -> None:
    """Levels that hide each other have no closed form on one network; an element too many is told all the same."""
    made = blueconnect(Collective("all-reduce", range(4), 4096), factors=(2, 2), pieces=count)
    assert (made.cost.hides, made.cost.is_even) == (count > 1, True)
    wrong = dataclasses.replace(made, cost=dataclasses.replace(made.cost, sent_bytes=made.cost.sent_bytes + 4))
    assert validity.check(made) == []
    assert [each.rule for each in validity.check(wrong)] == ["cost"]
