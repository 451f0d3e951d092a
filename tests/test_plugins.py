"""What other distributions add by entry point: loaded as it is written, told like our own, and blamed by name when it fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from outsiders import install
from ringwright import plugins, registry
from ringwright.cli import main
from ringwright.errors import PluginError

pytestmark = pytest.mark.once

RING = '''"""Rings of others."""
from typing import Annotated

from ringwright.algorithms.blocks.ring import ring
from ringwright.knobs import Range

OPS = ("all-reduce",)


def other_name(collective, topology=None, *, lanes: Annotated[int, Range(1, 4)] = 1):
    """A ring from outside.

    Idea: the ring once more.
    Knobs: ``lanes``: rings side by side.
    """
    return ring(collective, topology, channels=lanes)


def nothing(collective, topology=None):
    """Return nothing at all."""


def late(collective, topology=None):
    return {}["gone"]


class Made:
    """Something that is no function."""


A_VALUE = 3
'''
ORDER = '''"""Orders of others."""
OPS = ("all-reduce",)


def untouched(workload, costs, *, backwards: bool = False):
    """Leave all as it is."""
    return workload.with_policy("untouched")
'''
BROKEN = {"gone": "rings_gone:ring", "no-such": "rings:no_such", "raises": "rings_raise:x", "leaves": "rings_leave:x",
          "value": "rings:A_VALUE", "a-module": "rings", "text": "not a reference"}  # fmt: skip
SIMULATE = ["simulate", "all-reduce", "--fabric", "ring:8", "-b", "1M", "-e", "1M"]


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"my-ring": "rings:other_name", "late": "rings:late", "nothing": "rings:nothing", **BROKEN}
    modules = {"rings": RING, "rings_raise": "raise ValueError('at import')", "rings_leave": "raise SystemExit(4)"}
    install(
        tmp_path, monkeypatch, {"algorithms": points, "schedulers": {"my-order": "orders:untouched"}},
        orders=ORDER, **modules,
    )  # fmt: skip


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert main([*words]) == code, capsys.readouterr()
    return capsys.readouterr()


@pytest.mark.usefixtures("outside")
def test_an_algorithm_runs_under_the_name_of_its_entry_point(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = json.loads(said(capsys, *SIMULATE, "--algorithm", "my-ring:lanes=2", "--json")[0])
    ours = json.loads(said(capsys, *SIMULATE, "--algorithm", "ring:channels=2", "--json")[0])
    assert json.dumps(theirs).replace("my-ring:lanes", "ring:channels") == json.dumps(ours)
    error = said(capsys, *SIMULATE, "--algorithm", "my-ring:lanes=9", code=2)[1]
    assert "lanes is a whole number from 1 to 4" in error


@pytest.mark.usefixtures("outside")
def test_a_plug_in_is_listed_and_told_like_our_own(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(said(capsys, "systems", "--json")[0])
    origins = {row["slug"]: row["origin"] for row in listed["systems"]}
    assert origins["my-ring"] == origins["my-order"] == "outside"
    assert origins["ring"] == origins["p3"] == "house"
    assert next(row["lines"] for row in listed["systems"] if row["slug"] == "my-ring") == len(RING.splitlines())
    told = json.loads(said(capsys, "systems", "my-ring", "--json")[0])
    assert told["headings"] == {"Idea": "the ring once more.", "Knobs": "``lanes``: rings side by side."}
    assert told["collectives"] == ["all-reduce"]
    assert [(knob["name"], knob["low"], knob["high"]) for knob in told["knobs"]] == [("lanes", 1, 4)]
    assert "lanes=1" in said(capsys, "systems", "my-ring")[0]
    order = json.loads(said(capsys, "systems", "my-order", "--json")[0])
    assert (order["headings"], order["collectives"]) == ({"Idea": "Leave all as it is."}, [])
    help_text = said(capsys, "systems", "--help")[0]
    assert "my-ring: lanes=1..4" in help_text
    assert "my-order: backwards=true|false" in help_text


@pytest.mark.usefixtures("outside")
def test_a_scheduler_of_others_orders_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["simulate", "--model", "gpt2-small", "--gpus", "4", "--parallel", "dp4", "--fabric", "dgx-h100:1", "--json"]
    found = json.loads(said(capsys, *job, "--policy", "my-order")[0])
    assert "my-order" in json.dumps(found)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.usefixtures("outside")
def test_a_broken_plug_in_is_named_with_its_distribution(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([*SIMULATE, "--algorithm", name], ["systems", name]):
        error = said(capsys, *words, code=2)[1]
        assert f"the plug-in '{name}' of outside 1.2 cannot be used: " in error
        assert f'entry point {name} = "{BROKEN[name]}" in the group ringwright.algorithms' in error
        assert "  try: " in error


@pytest.mark.parametrize("name", ["late", "nothing"])
@pytest.mark.usefixtures("outside")
def test_a_plug_in_that_fails_while_it_runs_is_no_bug_of_ours(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = said(capsys, *SIMULATE, "--algorithm", name, code=2)[1]
    assert f"the plug-in '{name}' of outside 1.2" in error
    assert ("KeyError: 'gone' (rings.py:24)" if name == "late" else "it returned NoneType, not a Program") in error


@pytest.mark.usefixtures("outside")
def test_what_is_broken_is_listed_and_spoils_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, *SIMULATE, "--algorithm", "ring")
    assert not {"rings", "orders", "rings_raise"} & set(sys.modules), "nothing of others is imported unasked"
    listed = json.loads(said(capsys, "systems", "--json")[0])
    assert not set(BROKEN) & {row["slug"] for row in listed["systems"]}
    assert len(listed["refused"]) == len(BROKEN)
    text = " ".join(said(capsys, "systems")[0].split())
    assert all(f"the plug-in '{name}' of outside 1.2 cannot be used" in text for name in BROKEN)


def test_names_stay_with_who_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = {"ring": "rings:other_name", "two:parts": "rings:other_name", "twice": "rings:other_name"}
    install(tmp_path, monkeypatch, {"algorithms": theirs}, rings=RING)
    install(tmp_path, monkeypatch, {"algorithms": {"twice": "rings:other_name"}}, name="elsewhere")
    assert registry.find("ring").origin == plugins.HOUSE
    assert {each.name for each in registry.refused()} == set(theirs)
    with pytest.raises(PluginError, match="one of the same name"):
        registry.find("twice")
    text = " ".join(said(capsys, "systems")[0].split())
    assert "'ring' of outside 1.2 cannot be used: Ringwright has a 'ring' of its own" in text
    assert "'two:parts' of outside 1.2 cannot be used: its name cannot be typed" in text
